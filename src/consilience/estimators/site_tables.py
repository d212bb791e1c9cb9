"""Comparison of the tables of several sites: the same columns, of the same kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators.coding import kinds_of
from consilience.estimators.frames import column_names


def check_alike(tables: Mapping[str, Any]) -> None:
    """Raise an error unless the tables of all sites have the columns of the first, with text where it has text.

    Parameters
    ----------
    tables : mapping of str to (n, d) array or frame
        Covariates of each site.

    Examples
    --------
    >>> check_alike({"north": np.zeros((3, 2)), "south": np.zeros((5, 1))})
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: X of site south has 1 columns, that of site north 2: pass the same columns
    """
    for name, X in tables.items():
        if len(np.shape(X)) != 2:
            raise InvalidInputError(f"X of site {name} has shape {np.shape(X)}: expected rows and columns")
    (first, model), *others = tables.items()
    kinds = kinds_of(model)
    for name, X in others:
        _check_names(first, model, name, X)
        if len(X) and len(model):  # a table without rows has columns without a kind
            _check_kinds(first, kinds, name, kinds_of(X), column_names(model))


def _check_names(first: str, model: Any, name: str, X: Any) -> None:
    mine, theirs = column_names(X), column_names(model)
    if np.shape(X)[1] != np.shape(model)[1] and (mine is None or theirs is None):
        raise InvalidInputError(
            f"X of site {name} has {np.shape(X)[1]} columns, that of site {first} {np.shape(model)[1]}: pass the same "
            "columns"
        )
    if mine is not None and theirs is not None and list(mine) != list(theirs):
        raise InvalidInputError(
            f"X of site {name} has columns {list(mine)}, that of site {first} has {list(theirs)}: pass the same "
            "columns, in the same order"
        )


def _check_kinds(first: str, kinds: list[str], name: str, own: list[str], names: np.ndarray | None) -> None:
    for j, (mine, theirs) in enumerate(zip(own, kinds, strict=True)):
        if (mine == "text") != (theirs == "text"):
            column = f"x{j}" if names is None else names[j]
            raise InvalidInputError(
                f"column {column!r} is of kind {mine} at site {name} and of kind {theirs} at site {first}: write it in "
                "one way at all sites"
            )

"""Sentences for parameters that an estimator does not have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from consilience.errors import UnknownParameterError

P = ParamSpec("P")
S = TypeVar("S")
ORDERS = {"n_experts", "n_components", "n_clusters", "n_regressions", "n_groups", "K", "k"}
"""Names that other estimators and libraries give to the number of experts."""


def explained(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Decorate a constructor: a keyword that it does not have is an error that names the right one.

    The signature, from which scikit-learn reads the parameters, stays that of ``init``.

    Examples
    --------
    >>> from consilience import GaussianMixture
    >>> GaussianMixture(n_experts=3)
    Traceback (most recent call last):
    ...
    consilience.errors.UnknownParameterError: GaussianMixture has no parameter 'n_experts': its number of components is
    n_components
    """
    known = tuple(inspect.signature(init).parameters)[1:]

    @wraps(init)
    def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        check_keywords(self, kwargs, known)
        init(self, *args, **kwargs)

    return checked


def check_keywords(estimator: Any, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for the first of the ``given`` names that is not ``known``."""
    known = tuple(known)
    for name in given:
        if name not in known:
            raise UnknownParameterError(f"{type(estimator).__name__} has no parameter {name!r}: {_advice(name, known)}")


def _advice(name: str, known: tuple[str, ...]) -> str:
    order = next((each for each in ("n_experts", "n_components") if each in known), None)
    if name in ORDERS and order is not None:
        return f"its number of {order.removeprefix('n_')} is {order}"
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"

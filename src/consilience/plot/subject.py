"""What a picture shows: the estimator of a model, its covariates and its responses by name or number."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from textwrap import fill
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from consilience.errors import InvalidInputError
from consilience.estimators import frames
from consilience.estimators.base import MixtureEstimator
from consilience.estimators.conditional import ConditionalMixture
from consilience.estimators.table import responses, terms, unit
from consilience.federation.federated_fit import FederatedFit
from consilience.numerics.arrays import Array

GRID = 101
"""Number of points of a curve."""
NAMES_SHOWN = 20
"""Maximum number of names in an error message."""


def estimator_of(model: Any) -> Any:
    """Return the fitted estimator: ``model`` itself, or that of a federated result."""
    found = model.model if isinstance(model, FederatedFit) else model
    if not isinstance(found, MixtureEstimator):
        raise InvalidInputError(
            f"model is a {type(model).__name__}: expected a fitted estimator of this library, or the result of "
            "Federation.fit; of a pipeline pass the last step, with X as that step gets it"
        )
    check_is_fitted(found)
    return found


def regression_of(model: Any) -> Any:
    """Return the fitted estimator of ``y`` given ``X``."""
    found = estimator_of(model)
    if not isinstance(found, ConditionalMixture):
        raise InvalidInputError(
            f"model is a {type(found).__name__}, which has no covariates: expected a mixture of experts or of "
            "regressions"
        )
    return found


def expert_label(estimator: Any, k: int) -> str:
    """Return the label of a component, such as ``expert 0``."""
    return f"{unit(estimator)} {k}"


# ---------------------------------------------------------------------- covariates


def features(estimator: Any) -> list[str]:
    """Return the names of the covariates: the terms without the intercept."""
    return terms(estimator)[int(estimator.mixture_.design.intercept) :]


def feature_place(estimator: Any, feature: str | int | None, read: Sequence[int]) -> int:
    """Return the column of a covariate; None is allowed if the gate or the experts ``read`` only one term beside 1."""
    columns = _columns(estimator, read)
    return columns[0] if feature is None and len(columns) == 1 else place(feature, features(estimator), "feature")


def _columns(estimator: Any, read: Sequence[int]) -> list[int]:
    """Return the columns of covariates among the terms that are read."""
    first = int(estimator.mixture_.design.intercept)
    return [term - first for term in read if term >= first]


def place(wanted: str | int | None, names: Sequence[str], what: str) -> int:
    """Return the place of ``wanted``, a name or a number, in ``names``, or raise an error that names what is known.

    Examples
    --------
    >>> place("age", ["dose", "age"], "feature"), place(0, ["dose", "age"], "feature")
    (1, 0)
    >>> place("sex", ["dose", "age"], "feature")
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: feature='sex': expected one of 'dose', 'age', or a number from 0 to 1
    """
    if isinstance(wanted, str) and wanted in names:
        return list(names).index(wanted)
    if isinstance(wanted, Integral) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
        return int(wanted)
    raise InvalidInputError(
        f"{what}={wanted!r}: expected one of {listed(names)}, or a number from 0 to {len(names) - 1}"
    )


def listed(names: Sequence[str]) -> str:
    """Return the names in quotes, the first ones of many."""
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    return shown if len(names) <= NAMES_SHOWN else f"{shown}, … ({len(names)} in all)"


def along(X: Array, j: int) -> tuple[Array, Array]:
    """Return values ``(n,)`` over the range of covariate ``j``, and rows ``(n, d)`` with the others at their means."""
    values = np.linspace(X[:, j].min(), X[:, j].max(), GRID)
    rows = np.tile(X.mean(axis=0), (GRID, 1))
    rows[:, j] = values
    return values, rows


def around_mean(estimator: Any) -> Array:
    """Return two rows of covariates ``(2, d)``: two standard deviations below and above their means in the fit."""
    design = estimator.coordinates[0]
    rows = np.zeros((2, design.d))
    columns = list(range(design.d)) if design.columns is None else list(design.columns)
    rows[:, columns] = design.centre + np.array([[-2.0], [2.0]]) * design.scale
    return rows


def feature_label(estimator: Any, j: int, read: Sequence[int]) -> str:
    """Return the name of a covariate, with a remark on the others that are ``read``."""
    name = features(estimator)[j]
    return f"{name}\n(other covariates at their means)" if set(_columns(estimator, read)) - {j} else name


# ---------------------------------------------------------------------- responses


def response_place(estimator: Any, response: Any) -> int:
    """Return the place of a response among several, or of a class; None for the only one, or the second of two classes.

    A class is chosen by its label.
    """
    classes = estimator.mixture_.experts.classes
    names = [str(c) for c in estimator.classes_] if classes else responses(estimator)
    what = "classes" if classes else "responses"
    if response is None:
        if len(names) > 1 + classes:
            raise InvalidInputError(f"the model has {len(names)} {what}: choose one with response=, of {listed(names)}")
        return len(names) - 1
    if not classes:
        return place(response, names, "response")
    for at, label in enumerate(estimator.classes_):
        if str(label) == str(response) or label == response:
            return at
    raise InvalidInputError(f"response={response!r}: expected one of the classes {listed(names)}")


def response_label(estimator: Any, y: Any, at: int) -> str:
    """Return the name of a response, from the columns of ``y`` if they have names; of a class, its probability."""
    named = frames.column_names(y)
    name = named[0 if estimator.mixture_.experts.classes else at] if named is not None else getattr(y, "name", None)
    known = isinstance(name, str) and name != ""
    if estimator.mixture_.experts.classes:
        return f"P({name if known else 'y'} = {estimator.classes_[at]})"
    return str(name) if known else responses(estimator)[at]


# ---------------------------------------------------------------------- intervals


def withheld_note(estimator: Any, *parts: str) -> str:
    """Return why the intervals of these parts are withheld, for a second line of an axis label; else empty."""
    reasons = [estimator.inference_.withheld[part] for part in parts if part in estimator.inference_.withheld]
    return "" if not reasons else "\n" + fill(f"Intervals withheld: {reasons[0]}.", 64)

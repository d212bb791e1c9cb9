"""Averages over rows of the mixture's mean: predictions, contrasts and marginal effects, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from consilience.columns import frames
from consilience.columns.dictionary import Column, chosen_names
from consilience.columns.frames import as_table, column_values, with_column
from consilience.errors import InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import frame_like
from consilience.estimators.pipelines import final_step, transform_before
from consilience.fit.inference import quantile, two_sided
from consilience.fit.mean_inference import Averages, delta_errors, mean_over_rows
from consilience.fitted.protocols import FederatedResult, check_level, is_federated_result, response_names
from consilience.numerics.arrays import Array

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

STEP = 1e-4
"""Half the step of a derivative, in standard deviations of the column."""


class _Change(NamedTuple):
    """A change of one column: its words, the rows before and after it, and the number by which to divide."""

    column: str
    contrast: str
    before: Any
    after: Any
    size: float = 1.0


def average_predictions(
    model: MixtureEstimator | Pipeline | FederatedResult,
    X: Any,
    *,
    by: Any = None,
    level: float = 0.95,
    sample_weight: Any = None,
) -> Any:
    """Average the mean response ``E[y | x] = Σ_k π_k(x) E[y | x, k]`` over rows, with intervals.

    Parameters
    ----------
    model : fitted mixture of experts or of regressions, Pipeline that ends with one, or FederatedFit
    X : (n, d) array or frame
        Rows to average over, usually those of the fit. The result is about these rows: intervals do not count that
        other rows of the population might have been seen. Counts and numbers of trials are at size 1: rates, shares.
    by : str or (n,) array, optional
        Name of a column of ``X``, or a label of each row: one average for each group.
    level : float
        Confidence level of the intervals.
    sample_weight : (n,) array, optional
        Weight of each row in the averages.

    Returns
    -------
    frame
        Of the library that ``X`` of the fit came from. ``std_error`` is by the delta method from ``inference_``, and
        intervals have Satterthwaite's degrees of freedom. They are withheld where those of a part of the mixture are
        on which the average depends; ``withheld`` is the reason.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfExpertsRegressor, average_predictions
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> first = rng.random(500) < 1 / (1 + np.exp(-X[:, 0]))
    >>> y = np.where(first, 4 + X[:, 0], -X[:, 0]) + rng.normal(size=500)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
    >>> label = np.where(X[:, 0] > 0, "above", "below")
    >>> table = average_predictions(model, X, by=label)
    >>> table[["group", "estimate", "std_error"]].round(2)
       group  estimate  std_error
    0  above      3.35       0.16
    1  below      1.71       0.09
    """
    wanted = _wanted(model, X, by, sample_weight)
    return _frame(wanted, wanted.words(), wanted.average(X), level, tested=False)


def average_contrasts(
    model: MixtureEstimator | Pipeline | FederatedResult,
    X: Any,
    column: str | int,
    values: Sequence[Any] | None = None,
    *,
    by: Any = None,
    level: float = 0.95,
    sample_weight: Any = None,
) -> Any:
    """Average over rows how the mean response differs between two values of a column, with intervals.

    All rows get one value, then the other, and everything else stays as it is.

    Parameters
    ----------
    model, X, by, level, sample_weight
        As in :func:`average_predictions`.
    column : str or int
        Name or place of the column.
    values : pair, optional
        The two values: the mean at the second, less that at the first. By default each level of a category less its
        reference level, 1 less 0 for a column of both, and one more than its value for other numbers.

    Returns
    -------
    frame
        As of :func:`average_predictions`, with ``statistic`` and ``p_value`` of no difference.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from consilience import MixtureOfRegressions, average_contrasts
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"dose": rng.normal(size=400)})
    >>> X["arm"] = rng.choice(["control", "drug"], 400)
    >>> slope = np.where(rng.random(400) < 0.6, 3, -3)
    >>> y = slope * X["dose"] + (X["arm"] == "drug") + 0.3 * rng.normal(size=400)
    >>> model = MixtureOfRegressions(2, random_state=0).fit(X, y)
    >>> table = average_contrasts(model, X, "arm")
    >>> table[["contrast", "estimate", "p_value"]].round(2)
             contrast  estimate  p_value
    0  drug - control      1.04      0.0
    """
    X = as_table(X)
    wanted, place = _wanted(model, X, by, sample_weight), _place(X, column)
    if values is not None and (isinstance(values, str) or len(values) != 2):
        raise InvalidInputError(f"values={values!r}: expected two values of the column, from and to")
    return _changes_frame(wanted, _pairs(X, place, wanted.final, values), level)


def average_marginal_effects(
    model: MixtureEstimator | Pipeline | FederatedResult,
    X: Any,
    columns: Sequence[str | int] | None = None,
    *,
    by: Any = None,
    level: float = 0.95,
    sample_weight: Any = None,
) -> Any:
    """Average over rows what goes with each column: the derivative of the mean response, with intervals.

    Columns of numbers have the average of ``∂ E[y | x] / ∂ x_j``, through gate and experts. Categories, columns of
    truth values and columns of 0 and 1 have contrasts, as in :func:`average_contrasts`.

    Parameters
    ----------
    model, X, by, level, sample_weight
        As in :func:`average_predictions`.
    columns : sequence of str or int, optional
        Names or places of columns; by default all, or those that the formula of the model names.

    Returns
    -------
    frame
        As of :func:`average_contrasts`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfExpertsRegressor, average_marginal_effects
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> first = rng.random(500) < 1 / (1 + np.exp(-X[:, 0]))
    >>> y = np.where(first, 4 + X[:, 1], -X[:, 1]) + rng.normal(size=500)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
    >>> shown = ["column", "contrast", "estimate", "std_error"]
    >>> average_marginal_effects(model, X)[shown].round(2)
      column contrast  estimate  std_error
    0     x0    dy/dx      0.82       0.09
    1     x1    dy/dx     -0.05       0.11
    """
    X = as_table(X)
    wanted = _wanted(model, X, by, sample_weight)
    names = frames.column_names(X)
    derivation = wanted.final.derivation_ if wanted.final is wanted.model else None  # of a formula
    read = names if derivation is None else derivation.sources
    chosen = set(read) if columns is None else chosen_names(columns, names, "columns")
    places = [place for place, name in enumerate(names) if name in chosen]
    changes = (change for place in places for change in _effects(X, place, wanted.final))
    return _changes_frame(wanted, changes, level)


# ---------------------------------------------------------------------- changes of a column


def _effects(X: Any, place: int, final: MixtureEstimator) -> Iterator[_Change]:
    """Yield the small change of a column of numbers, or the contrasts of any other."""
    if _is_continuous(X, place, final):
        yield _derivative(X, place, final)
    else:
        yield from _pairs(X, place, final, None)


def _is_continuous(X: Any, place: int, final: MixtureEstimator) -> bool:
    """Whether a column has numbers other than 0 and 1."""
    column = _column_of(X, place, final)
    values = column_values(X, place)
    if column.is_category or values.dtype.kind not in "iuf":
        return False
    return not np.isin(values, (0, 1)).all()


def _column_of(X: Any, place: int, final: MixtureEstimator) -> Column:
    """Return what the mixture knows of a column of ``X``; a column of its name if another step reads it."""
    name = frames.column_names(X)[place]
    return next((column for column in final.columns_.columns if column.name == name), Column(name))


def _derivative(X: Any, place: int, final: MixtureEstimator) -> _Change:
    column, values = _column_of(X, place, final), _numbers(X, place)
    step = STEP * (float(values.std()) or 1.0)
    low, high = column.rule.low, column.rule.high  # a value at the end of its range stays within it
    centre = np.clip(values, None if low is None else low + step, None if high is None else high - step)
    before, after = (with_column(X, place, centre + change) for change in (-step, step))
    return _Change(column.name, "dy/dx", before, after, 2 * step)


def _pairs(X: Any, place: int, final: MixtureEstimator, values: Sequence[Any] | None) -> Iterator[_Change]:
    """Yield the changes between two values, or by default between each level and the reference."""
    column, n = _column_of(X, place, final), len(X)

    def change(before: Any, after: Any) -> _Change:
        ends = (with_column(X, place, np.full(n, value)) for value in (before, after))
        shown = (f"{value:g}" if isinstance(value, float) else str(value) for value in (after, before))
        return _Change(column.name, " - ".join(shown), *ends)

    if values is not None:
        yield change(*values)
    elif _is_continuous(X, place, final):
        yield _Change(column.name, "+1", X, with_column(X, place, _numbers(X, place) + 1.0))
    else:
        levels = column.levels or tuple(np.unique(column_values(X, place)).tolist())
        reference = levels[0] if column.reference is None else column.reference
        yield from (change(reference, value) for value in levels if value != reference)


def _numbers(X: Any, place: int) -> Array:
    return np.asarray(column_values(X, place), dtype=float)


# ---------------------------------------------------------------------- averages


class _Wanted(NamedTuple):
    """What is averaged: a fitted mixture with the steps before it, groups of rows, and the weights of rows in each."""

    model: MixtureEstimator | Pipeline
    final: MixtureEstimator
    grouping: str
    groups: list[Any]
    weights: Array  # (G, n)

    def average(self, X: Any) -> Averages:
        """Average the mean response over these rows."""
        terms = self.final.covariates(transform_before(self.model, X))
        return mean_over_rows(self.final.mixture_, terms, self.weights)

    def words(self, **first: str) -> list[dict[str, Any]]:
        """Return the names of each average, those given first."""
        names = _outcomes(self.final)
        return [{**first, self.grouping: label, "response": name} for label in self.groups for name in names]


def _wanted(model: Any, X: Any, by: Any, sample_weight: Any) -> _Wanted:
    inner = model.model if is_federated_result(model) else model
    final = final_step(inner)
    if not hasattr(final, "mixture_"):
        raise InvalidInputError(f"this {type(final).__name__} is not fitted: call fit first")
    if not final.mixture_.design.d:
        raise InvalidInputError(f"a {type(final).__name__} has no covariates, so that nothing is averaged over rows")
    grouping = by if isinstance(by, str) else "group"
    return _Wanted(inner, final, grouping, *_row_weights(X, by, sample_weight))


def _row_weights(X: Any, by: Any, sample_weight: Any) -> tuple[list[Any], Array]:
    """Return the groups and the weight of each row in the average of each, ``(G, n)``."""
    n = len(X)
    weight = np.ones(n) if sample_weight is None else np.asarray(frames.as_array(sample_weight), dtype=float).ravel()
    if len(weight) != n or not np.all(np.isfinite(weight) & (weight >= 0)):
        raise InvalidInputError(f"sample_weight: expected a finite number of at least 0 for each of the {n} rows")
    if isinstance(by, str):
        table = as_table(X)
        labels = column_values(table, _place(table, by))
    else:
        labels = np.zeros(n, dtype=int) if by is None else np.asarray(frames.as_array(by)).ravel()
    if len(labels) != n:
        raise InvalidInputError(f"by: expected the name of a column of X or a label for each of the {n} rows")
    groups, codes = np.unique(labels, return_inverse=True)
    own = (codes == np.arange(len(groups))[:, None]) * weight
    if not np.all(own.sum(axis=1) > 0):
        raise InvalidInputError("sample_weight: a group has no row with a weight above 0")
    return ["all"] if by is None else groups.tolist(), own / own.sum(axis=1, keepdims=True)


def _changes_frame(wanted: _Wanted, changes: Iterable[_Change], level: float) -> Any:
    """Return a frame with a row for each change, group and response."""
    words, found = [], []
    for change in changes:
        found.append(wanted.average(change.after).less(wanted.average(change.before), change.size))
        words += wanted.words(column=change.column, contrast=change.contrast)
    if not found:
        raise InvalidInputError("the column has one value: there is nothing to compare it with")
    both = Averages(*(np.concatenate(part) for part in zip(*found, strict=True)))
    return _frame(wanted, words, both, level, tested=True)


def _frame(wanted: _Wanted, words: Sequence[dict[str, Any]], found: Averages, level: float, *, tested: bool) -> Any:
    check_level(level)
    estimate, gradient = found.values.ravel(), found.gradient.reshape(found.values.size, -1)
    errors = delta_errors(wanted.final.inference_, gradient)
    reach, statistic = quantile(level, errors.degrees) * errors.se, estimate / errors.se
    numbers = {
        "estimate": estimate,
        "std_error": errors.se,
        **({"statistic": statistic, "p_value": two_sided(statistic, errors.degrees)} if tested else {}),
        "lower": estimate - reach,
        "upper": estimate + reach,
    }
    columns: dict[str, list[Any]] = {name: [row[name] for row in words] for name in words[0]}
    columns |= {name: values.tolist() for name, values in numbers.items()}
    return frame_like(wanted.final, columns | {"withheld": errors.withheld})


def _outcomes(final: MixtureEstimator) -> list[str]:
    """Return the names of what has a mean: responses, or all classes."""
    return [str(name) for name in final.classes_] if final.mixture_.experts.classes else response_names(final)


def _place(X: Any, column: str | int) -> int:
    """Return the place of a column by name or place."""
    names = frames.column_names(X)
    return names.index(next(iter(chosen_names([column], names, "column"))))

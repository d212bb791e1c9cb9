"""Selection of the number of experts K by information criteria and by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from consilience.columns import frames
from consilience.errors import (
    DegenerateFitWarning,
    InvalidInputError,
    OneExpertWarning,
    StartsDisagreeWarning,
    TooFewRowsError,
    warn,
)
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.pipelines import Data, final_step, held_out_after, steps_before
from consilience.fit import selection
from consilience.fit.specification import validate_orders
from consilience.fitted.protocols import generator, join_words
from consilience.model import FAMILIES, Rows
from consilience.numerics.arrays import IntArray

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

CRITERIA = ("aic", "bic", "icl")
FOLDS = 5


@dataclass(frozen=True, eq=False, repr=False)
class OrderSelection:
    """Fits with several numbers of experts, and the criteria that compare them.

    Parameters
    ----------
    orders : tuple of int
    estimators : tuple
        Fitted estimators, one per order.
    scores : dict of str to tuple of float
        ``aic``, ``bic``, ``icl`` and ``log_likelihood`` of each order. After cross-validation also ``cv``, the mean
        held-out log density (larger is better), and ``cv_std_error``, its standard error over rows or groups.
    criterion : str
        The criterion used for the choice.
    set_aside : dict of int to str
        Orders whose fit is degenerate, with the reason: an expert without rows, a variance at its floor, or more
        parameters than rows. Their likelihood means nothing, and no criterion prefers them; if all are degenerate, all
        are compared.

    Examples
    --------
    >>> from consilience.estimators import OrderSelection
    >>> OrderSelection((1, 2, 3), (), {"bic": (30.0, 20.0, 25.0)}, "bic").preferred("bic")
    2
    """

    orders: tuple[int, ...]
    estimators: tuple[MixtureEstimator | Pipeline, ...]
    scores: dict[str, tuple[float, ...]]
    criterion: str
    set_aside: dict[int, str] = field(default_factory=dict)

    def preferred(self, criterion: str) -> int:
        """Return the number of experts that a criterion prefers.

        Information criteria prefer the order with the smallest value. Cross-validation prefers the smallest order
        whose mean held-out log density is at most one standard error below the highest.
        """
        if criterion not in self.scores:
            raise InvalidInputError(f"criterion={criterion!r} was not computed: pass folds to select_order")
        values = self.scores[criterion]
        if criterion != "cv":
            return selection.least_order(self.orders, values, self.set_aside)
        compared = selection.positions_to_compare(self.orders, self.set_aside)
        top = max(compared, key=lambda i: values[i])
        enough = values[top] - self.scores["cv_std_error"][top]
        return min(self.orders[i] for i in compared if values[i] >= enough)

    @property
    def best_index(self) -> int:
        """Index of the selected order."""
        return self.orders.index(self.best_order)

    @property
    def best_order(self) -> int:
        """The selected number of experts."""
        return self.preferred(self.criterion)

    @property
    def best_estimator(self) -> MixtureEstimator | Pipeline:
        """The fitted estimator with the selected number of experts."""
        return self.estimators[self.best_index]

    @property
    def verdict(self) -> str:
        """One or two sentences: what each criterion prefers, and what it means if they disagree."""
        names = {"bic": "BIC", "icl": "ICL", "cv": "cross-validated density (within one standard error)"}
        found = {name: self.preferred(name) for name in names if name in self.scores}
        if len(set(found.values())) == 1:
            K = found["bic"]
            return f"{join_words([names[name] for name in found])} prefer {K} expert{'s' * (K > 1)}."
        parts = [f"{names[name]} prefers {K}" for name, K in found.items()]
        return f"{join_words(parts)} experts: {self._reading(found)}."

    def _reading(self, found: Mapping[str, int]) -> str:
        """Say what a disagreement of the criteria may mean."""
        if found["bic"] <= min(found.values()):
            return "the criteria disagree, and the data do not settle the number; raise n_init and compare the fits"
        first = final_step(self.estimators[0])
        wider = {name: kind.relaxes[first.family] for name, kind in FAMILIES.items() if first.family in kind.relaxes}
        departure = " or ".join(wider.values()) or "a shape that the family lacks"
        if wider and "family" in first.get_params():
            departure += f"; consider {' or '.join(f'family={name!r}' for name in wider)}"
        if "cv" not in found:
            return f"either experts overlap, or extra experts model {departure}. folds=5 adds a cross-validated density"
        if found["cv"] < found["bic"]:
            return f"extra experts probably model {departure}"
        return f"extra experts improve the held-out density: either they overlap with others, or they model {departure}"

    def to_frame(self) -> Any:
        """Return a table with one row per order: criteria, convergence, agreement of the starts, why set aside."""
        fits = [final_step(each) for each in self.estimators]
        columns: dict[str, list[Any]] = {
            "order": list(self.orders),
            **{name: list(values) for name, values in self.scores.items()},
            "converged": [fit.converged_ for fit in fits],
            "starts_agree": [fit.starts_agree_ for fit in fits],
            "set_aside": [self.set_aside.get(K, "") for K in self.orders],
        }
        return frames.to_frame(columns)

    def summary(self) -> str:
        """Return the criteria of each order, the orders that are set aside and the verdict as text."""
        return "\n".join([*selection.score_lines(self.orders, self.scores), *self._conclusion])

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()

    def _repr_html_(self) -> str:
        return selection.html_table(self.orders, self.scores, self._conclusion)

    @property
    def _conclusion(self) -> list[str]:
        chosen = f"Selected by {self.criterion}: {self.best_order}. {self.verdict}"
        return [*selection.set_aside_sentences(self.set_aside), chosen]


def select_order(
    estimator: MixtureEstimator | Pipeline,
    X: Any,
    y: Any = None,
    orders: Iterable[int] = range(1, 7),
    *,
    criterion: str = "bic",
    folds: Any = None,
    **fit_params: Any,
) -> OrderSelection:
    """Fit a mixture for each number of experts and compare them by information criteria and cross-validation.

    BIC finds the number of experts if their family is right. With heavier tails or unequal variances it adds experts
    that only mend the density; ICL, and less often the cross-validated density, stay at fewer. The result says in one
    sentence if the criteria disagree (:attr:`OrderSelection.verdict`, also shown by ``print``). By default these are
    BIC and ICL, which cost nothing; ``folds`` adds the cross-validated density, also of use to compare families.

    Parameters
    ----------
    estimator : estimator of this library, or Pipeline that ends with one
        Cloned for each order. The steps of a pipeline before the mixture are fitted once, and within each fold again.
    X, y
        Data; omit ``y`` for :class:`GaussianMixture`.
    orders : iterable of int
        Numbers of experts to try.
    criterion : {"bic", "aic", "icl", "cv"}
        ``-2 ll + P log n``, ``-2 ll + 2 P``, BIC plus twice the entropy of the responsibilities; or the mean held-out
        log density, of which the smallest order within one standard error of the highest is selected.
    folds : int or (n,) array, optional
        Number of random folds, drawn from ``random_state``; or a label per row, such as its site, to leave out one
        label at a time. Groups stay whole; standard errors are over rows or groups in either case. None computes no
        cross-validation, except 5 folds for ``criterion="cv"``. Each order is fitted once more per fold, started from
        its fit to all rows: 5 folds take about a third more time, and do not explore other optima. After the steps of
        a pipeline, whose result differs between folds, each of these fits has ``n_init`` starts of its own.
    **fit_params
        Passed to ``fit`` of the mixture (``sample_weight``, ``groups``, ``exposure``, ``trials``), and to the criteria.

    Returns
    -------
    OrderSelection

    Warns
    -----
    StartsDisagreeWarning
        If the starts of an order do not agree.
    DegenerateFitWarning
        If the fits of all orders are degenerate.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, select_order
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (200, 1))])
    >>> selection = select_order(GaussianMixture(random_state=0), X, orders=[1, 2, 3], folds=5)
    >>> selection.best_order
    2
    >>> selection.verdict
    'BIC, ICL and cross-validated density (within one standard error) prefer 2 experts.'
    """
    if criterion not in (*CRITERIA, "cv"):
        raise InvalidInputError(f"criterion={criterion!r}: expected one of {', '.join(CRITERIA)}, cv")
    orders = validate_orders(orders)
    before, Z = _fit_steps(estimator, X, y)
    with warnings.catch_warnings():
        for kind in (DegenerateFitWarning, OneExpertWarning, StartsDisagreeWarning):  # said of the comparison below
            warnings.simplefilter("ignore", kind)
        orders, fits, refused = _fit_orders(estimator, Z, y, orders, fit_params)
    set_aside = {K: fitted.degeneracy_ for K, fitted in zip(orders, fits, strict=True) if fitted.degeneracy_} | refused
    _warn(orders, fits, set_aside)
    scores = {name: tuple(getattr(fitted, name)(Z, y, **fit_params) for fitted in fits) for name in CRITERIA}
    scores["log_likelihood"] = tuple(fitted.log_likelihood_ for fitted in fits)
    if folds is None and criterion == "cv":
        folds = FOLDS
    if folds is not None:
        rows = fits[0].rows(Z, y, **fit_params)
        of_labels = _folds(rows, folds, fits[0])
        if before is None:
            held_out = [_held_out(fitted, rows, of_labels) for fitted in fits]
        else:
            held_out = held_out_after(before, fits, Data(X, y, fit_params), rows, of_labels)
        scores["cv"] = tuple(each.mean for each in held_out)
        scores["cv_std_error"] = tuple(each.standard_error for each in held_out)
    joined = fits if before is None else tuple(_join_pipeline(estimator, before, fitted) for fitted in fits)
    return OrderSelection(orders, joined, scores, criterion, set_aside)


def _fit_steps(estimator: MixtureEstimator | Pipeline, X: Any, y: Any) -> tuple[Pipeline | None, Any]:
    """Return the fitted steps before the mixture, if any, and ``X`` as the mixture reads it."""
    final_step(estimator)
    steps = steps_before(estimator)
    if steps is None:
        return None, X
    before = clone(steps)
    return before, before.fit_transform(X, y)


def _fit_orders(
    estimator: MixtureEstimator | Pipeline, Z: Any, y: Any, orders: tuple[int, ...], fit_params: Mapping[str, Any]
) -> tuple[tuple[int, ...], tuple[MixtureEstimator, ...], dict[int, str]]:
    """Return the orders that can be fitted, their fits, and the others, which have too many parameters, with why."""
    fits, refused = {}, {}
    for K in orders:
        try:
            fits[K] = _with_order(estimator, K).fit(Z, y, **fit_params)
        except TooFewRowsError as problem:
            refused[K] = str(problem)
    if not fits:
        raise TooFewRowsError(refused[min(refused)])
    return tuple(fits), tuple(fits.values()), refused


def _with_order(estimator: MixtureEstimator | Pipeline, K: int) -> MixtureEstimator:
    """Return an unfitted copy of the mixture for another number of experts."""
    final = final_step(estimator)
    copy: MixtureEstimator = clone(final)
    return copy.set_params(**{final.order_name: K})


def _join_pipeline(estimator: Pipeline, before: Pipeline, fitted: MixtureEstimator) -> Pipeline:
    """Return the fitted pipeline of the fitted steps and a fitted mixture."""
    return type(before)([*before.steps, (estimator.steps[-1][0], fitted)])


def _warn(orders: tuple[int, ...], fits: tuple[MixtureEstimator, ...], set_aside: Mapping[int, str]) -> None:
    doubtful = [orders[i] for i in selection.positions_to_compare(orders, set_aside) if not fits[i].starts_agree_]
    if doubtful:
        warn(
            f"the starts do not agree for order {doubtful}: raise n_init before trusting the choice",
            StartsDisagreeWarning,
        )
    if all(K in set_aside for K in orders):
        why = "; ".join(set_aside[K] for K in orders)
        warn(f"the fits of all orders are degenerate ({why}): try fewer experts", DegenerateFitWarning)


def _folds(rows: Rows, folds: Any, estimator: MixtureEstimator) -> IntArray:
    """Return the fold of each row, or of each group."""
    if np.ndim(frames.as_array(folds)) == 0:
        return selection.random_folds(rows, int(folds), generator(estimator.random_state))
    return selection.folds_from_rows(rows, np.asarray(frames.as_array(folds)).ravel())


def _held_out(fitted: MixtureEstimator, rows: Rows, folds: IntArray) -> selection.HeldOut:
    """Compute the held-out log densities, from fits that start at the fit to all rows."""
    budget: dict[str, Any] = {"tol": fitted.tol, "max_iter": fitted.max_iter}
    return selection.cross_validate(fitted.mixture_, rows, fitted.specification_, folds, **budget)

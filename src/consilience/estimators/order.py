"""Selection of the number of experts K by information criteria and by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from consilience.errors import InvalidInputError, StartsDisagreeWarning, warn
from consilience.estimators import frames
from consilience.estimators.validation import generator
from consilience.fit.cross_validation import HeldOut, cross_validated, given_folds, random_folds
from consilience.model import FAMILIES

CRITERIA = ("aic", "bic", "icl")
FOLDS = 5
DEPARTURES = {
    "gaussian": ("heavy tails or unequal variances", "student"),
    "poisson": ("overdispersion", "negative_binomial"),
}
"""What extra experts of a family may model instead of further groups, and the family that has it."""


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
    """

    orders: tuple[int, ...]
    estimators: tuple[Any, ...]
    scores: dict[str, tuple[float, ...]]
    criterion: str

    def preferred(self, criterion: str) -> int:
        """Return the number of experts that a criterion prefers.

        Information criteria prefer the order with the smallest value. Cross-validation prefers the smallest order
        whose mean held-out log density is at most one standard error below the highest.
        """
        if criterion not in self.scores:
            raise InvalidInputError(f"criterion={criterion!r} was not computed: pass folds to select_order")
        values = self.scores[criterion]
        if criterion != "cv":
            return self.orders[values.index(min(values))]
        top = values.index(max(values))
        least = values[top] - self.scores["cv_std_error"][top]
        return min(K for K, value in zip(self.orders, values, strict=True) if value >= least)

    @property
    def best_index(self) -> int:
        """Index of the selected order."""
        return self.orders.index(self.best_order)

    @property
    def best_order(self) -> int:
        """The selected number of experts."""
        return self.preferred(self.criterion)

    @property
    def best_estimator(self) -> Any:
        """The fitted estimator with the selected number of experts."""
        return self.estimators[self.best_index]

    @property
    def verdict(self) -> str:
        """One or two sentences: what each criterion prefers, and what it means if they disagree."""
        names = {"bic": "BIC", "icl": "ICL", "cv": "cross-validated density (within one standard error)"}
        found = {name: self.preferred(name) for name in names if name in self.scores}
        if len(set(found.values())) == 1:
            return f"{_listed([names[name] for name in found])} prefer {found['bic']} experts."
        parts = [f"{names[name]} prefers {K}" for name, K in found.items()]
        return f"{_listed(parts)} experts: {self._reading(found)}."

    def _reading(self, found: Mapping[str, int]) -> str:
        """Say what a disagreement of the criteria may mean."""
        if found["bic"] <= min(found.values()):
            return "the criteria disagree, and the data do not settle the number; raise n_init and compare the fits"
        departure, family = DEPARTURES.get(self.estimators[0].family, ("a shape that the family lacks", ""))
        if family in FAMILIES and "family" in self.estimators[0].get_params():
            departure += f"; consider family={family!r}"
        if "cv" not in found:
            return f"either experts overlap, or extra experts model {departure}. folds=5 adds a cross-validated density"
        if found["cv"] < found["bic"]:
            return f"extra experts probably model {departure}"
        return f"extra experts improve the held-out density: either they overlap with others, or they model {departure}"

    def to_frame(self) -> Any:
        """Return a table with one row per order: criteria, log-likelihood, convergence, agreement of the starts."""
        columns: dict[str, list[Any]] = {
            "order": list(self.orders),
            **{name: list(values) for name, values in self.scores.items()},
            "converged": [e.converged_ for e in self.estimators],
            "starts_agree": [e.starts_agree_ for e in self.estimators],
        }
        return frames.to_frame(columns)

    def summary(self) -> str:
        """Return the criteria of each order and the verdict as text."""
        header = "".join(f"{name:>16}" for name in ("order", *self.scores))
        lines = [
            f"{K:>16}" + "".join(f"{values[i]:>16.6g}" for values in self.scores.values())
            for i, K in enumerate(self.orders)
        ]
        return "\n".join([header, *lines, f"Selected by {self.criterion}: {self.best_order}. {self.verdict}"])

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()


def _listed(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else ", ".join(parts[:-1]) + " and " + parts[-1]


def select_order(
    estimator: Any,
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
    estimator : estimator of this library
        Cloned for each order.
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
        its fit to all rows: 5 folds take about a third more time, and do not explore other optima.
    **fit_params
        Passed to ``fit`` (``sample_weight``, ``groups``, ``exposure``), and to the criteria.

    Returns
    -------
    OrderSelection

    Warns
    -----
    StartsDisagreeWarning
        If the starts of an order do not agree.

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
    orders = tuple(orders)
    if not orders:
        raise InvalidInputError("orders is empty: pass at least one number of experts")
    fits = tuple(clone(estimator).set_params(**{estimator.order_name: K}).fit(X, y, **fit_params) for K in orders)
    doubtful = [K for K, fitted in zip(orders, fits, strict=True) if not fitted.starts_agree_]
    if doubtful:
        warn(
            f"the starts do not agree for order {doubtful}: raise n_init before trusting the choice",
            StartsDisagreeWarning,
        )
    scores = {name: tuple(getattr(fitted, name)(X, y, **fit_params) for fitted in fits) for name in CRITERIA}
    scores["log_likelihood"] = tuple(fitted.log_likelihood_ for fitted in fits)
    if folds is None and criterion == "cv":
        folds = FOLDS
    if folds is not None:
        held_out = _held_out(fits, X, y, folds, fit_params)
        scores["cv"] = tuple(each.mean for each in held_out)
        scores["cv_std_error"] = tuple(each.standard_error for each in held_out)
    return OrderSelection(orders, fits, scores, criterion)


def _held_out(fits: tuple[Any, ...], X: Any, y: Any, folds: Any, fit_params: Mapping[str, Any]) -> list[HeldOut]:
    """Compute the held-out log densities of each fit, on the same folds."""
    rows = fits[0].rows(X, y, **fit_params)
    if np.ndim(frames.as_array(folds)) == 0:
        of_labels = random_folds(rows, int(folds), generator(fits[0].random_state))
    else:
        of_labels = given_folds(rows, np.asarray(frames.as_array(folds)).ravel())
    return [
        cross_validated(e.mixture_, rows, e.specification(), of_labels, tol=e.tol, max_iter=e.max_iter) for e in fits
    ]

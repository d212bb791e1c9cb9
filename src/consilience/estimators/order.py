"""Selection of the number of experts K by information criteria."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from consilience.errors import InvalidInputError, StartsDisagreeWarning, warn
from consilience.estimators import frames

CRITERIA = ("aic", "bic", "icl")


@dataclass(frozen=True, eq=False)
class OrderSelection:
    """Fits with several numbers of experts, and their information criteria.

    Parameters
    ----------
    orders : tuple of int
    estimators : tuple
        Fitted estimators, one per order.
    scores : dict of str to tuple of float
        ``aic``, ``bic``, ``icl`` and ``log_likelihood`` of each order.
    criterion : str
        The criterion used for the choice.
    """

    orders: tuple[int, ...]
    estimators: tuple[Any, ...]
    scores: dict[str, tuple[float, ...]]
    criterion: str

    @property
    def best_index(self) -> int:
        """Index of the order with the smallest criterion."""
        values = self.scores[self.criterion]
        return values.index(min(values))

    @property
    def best_order(self) -> int:
        """The selected number of experts."""
        return self.orders[self.best_index]

    @property
    def best_estimator(self) -> Any:
        """The fitted estimator with the selected number of experts."""
        return self.estimators[self.best_index]

    def to_frame(self) -> Any:
        """Return a table with one row per order: criteria, log-likelihood, convergence, agreement of the starts."""
        columns: dict[str, list[Any]] = {
            "order": list(self.orders),
            **{name: list(values) for name, values in self.scores.items()},
            "converged": [e.converged_ for e in self.estimators],
            "starts_agree": [e.starts_agree_ for e in self.estimators],
        }
        return frames.to_frame(columns)


def select_order(
    estimator: Any,
    X: Any,
    y: Any = None,
    orders: Iterable[int] = range(1, 7),
    *,
    criterion: str = "bic",
    **fit_params: Any,
) -> OrderSelection:
    """Fit a mixture for each number of experts and compare information criteria.

    Parameters
    ----------
    estimator : estimator of this library
        Cloned for each order.
    X, y
        Data; omit ``y`` for :class:`GaussianMixture`.
    orders : iterable of int
        Numbers of experts to try.
    criterion : {"bic", "aic", "icl"}
        ``-2 ll + P log n``, ``-2 ll + 2 P``, BIC plus twice the entropy of the responsibilities.
    **fit_params
        Passed to ``fit`` (``sample_weight``, ``groups``, ``exposure``), and to the criteria.

    Returns
    -------
    OrderSelection

    Warns
    -----
    StartsDisagreeWarning
        If the two best starts of an order differ by more than 0.005 per row in log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, select_order
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (200, 1))])
    >>> select_order(GaussianMixture(random_state=0), X, orders=[1, 2, 3]).best_order
    2
    """
    if criterion not in CRITERIA:
        raise InvalidInputError(f"criterion={criterion!r}: expected one of {', '.join(CRITERIA)}")
    orders = tuple(orders)
    if not orders:
        raise InvalidInputError("orders is empty: pass at least one number of experts")
    fits = tuple(clone(estimator).set_params(**{estimator.order_name: K}).fit(X, y, **fit_params) for K in orders)
    doubtful = [K for K, fitted in zip(orders, fits, strict=True) if not fitted.starts_agree_]
    if doubtful:
        warn(
            f"the two best starts disagree for order {doubtful}: raise n_init before trusting the choice",
            StartsDisagreeWarning,
        )
    scores = {name: tuple(getattr(fitted, name)(X, y, **fit_params) for fitted in fits) for name in CRITERIA}
    scores["log_likelihood"] = tuple(fitted.log_likelihood_ for fitted in fits)
    return OrderSelection(orders, fits, scores, criterion)

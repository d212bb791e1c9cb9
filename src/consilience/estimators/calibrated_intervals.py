"""Prediction intervals that hold what they state: calibrated on rows that the fit has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from consilience.errors import InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import fitted_rows, frame_like
from consilience.model.tails import TailCounts, count_tails
from consilience.numerics.arrays import Array

LEVEL = 0.9


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedIntervals:
    """Prediction intervals of a model, calibrated by split conformal prediction.

    An interval at level ``1 - α`` is between the quantiles ``a / 2`` and ``1 - a / 2`` of the mixture, where ``a`` is
    such that a share ``1 - α`` of the calibration rows is within theirs. A new row is within its interval with
    probability of at least ``1 - α`` if it is exchangeable with the calibration rows, whatever the model. This is an
    average over rows: it does not hold at every covariate, and at a site only with ``site=``.

    Parameters
    ----------
    model : estimator
        The fitted model.
    counts : mapping of str to TailCounts
        Calibration rows of each site by the tail probability of their response; of one table, under ``"all"``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfRegressions, calibrate_intervals
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 1))
    >>> y = X[:, 0] + rng.laplace(size=3000) ** 3  # much longer tails than the model's
    >>> model = MixtureOfRegressions(1).fit(X[:1000], y[:1000])
    >>> intervals = calibrate_intervals(model, X[1000:2000], y[1000:2000])
    >>> lower, upper = intervals.predict(X[2000:]).T
    >>> print(np.mean((lower <= y[2000:]) & (y[2000:] <= upper)).round(2))
    0.9
    """

    model: MixtureEstimator
    counts: Mapping[str, TailCounts]

    def tail(self, level: float = LEVEL, site: str | None = None) -> float:
        """Return the probability that the mixture leaves outside an interval at this level.

        Parameters
        ----------
        level : float
        site : str, optional
            Site whose rows alone calibrate; by default the rows of all sites do.
        """
        if not 0 < level < 1:
            raise InvalidInputError(f"level={level!r}: expected a number between 0 and 1")
        if site is not None and site not in self.counts:
            raise InvalidInputError(f"site={site!r}: expected one of {', '.join(self.counts)}")
        chosen = reduce(add, self.counts.values()) if site is None else self.counts[site]
        return chosen.tail(level)

    def predict(
        self, X: Any, level: float = LEVEL, *, site: str | None = None, exposure: Any = None, trials: Any = None
    ) -> Array:
        """Compute the lower and the upper end of the interval of each row.

        Parameters
        ----------
        X : (n, d) array or frame
        level : float
        site : str, optional
            Site of the rows, whose calibration rows alone are then used.
        exposure, trials : (n,) array, optional
            Size of each row, as in ``fit``.

        Returns
        -------
        (n, 2) array
        """
        a = self.tail(level, site)
        sizes = {"exposure": exposure, "trials": trials}
        found: Array = self.model.predict_quantiles(X, [a / 2, 1 - a / 2], **sizes)
        return found

    def coverage(self, level: float = LEVEL, held_out: CalibratedIntervals | None = None) -> Any:
        """Return the share of rows within their intervals by site, last over all sites.

        Parameters
        ----------
        level : float
        held_out : CalibratedIntervals, optional
            The same of rows that have not calibrated, over which the shares are then computed; by default they are
            those of the calibration rows.

        Returns
        -------
        frame
            Columns ``site``, ``rows``, ``model`` (within the model's own interval) and ``calibrated``.
        """
        counts = (self if held_out is None else held_out).counts
        a = self.tail(level)
        parts = {**counts, "all": reduce(add, counts.values())}
        columns: dict[str, list[Any]] = {
            "site": list(parts),
            "rows": [each.rows for each in parts.values()],
            "model": [each.coverage(1 - level) for each in parts.values()],
            "calibrated": [each.coverage(a) for each in parts.values()],
        }
        return frame_like(self.model, columns)

    def __repr__(self) -> str:
        total = reduce(add, self.counts.values())
        return (
            f"Intervals of a {type(self.model).__name__} calibrated on {total.rows:,.10g} rows of {len(self.counts)} "
            f"site(s): at {LEVEL:.0%} the model's own hold {total.coverage(1 - LEVEL):.1%} of them"
        ).replace("%", " %")


def check_calibrable(model: MixtureEstimator) -> None:
    """Raise an error if a fitted model has no quantiles."""
    experts = model.mixture_.experts
    if experts.classes or experts.q != 1:
        raise InvalidInputError(
            f"model: {experts.family} experts with {experts.q} response(s) have no quantiles; intervals are of one "
            "response that is a number"
        )


def calibrate_intervals(model: MixtureEstimator, X: Any, y: Any, **metadata: Any) -> CalibratedIntervals:
    """Calibrate the prediction intervals of a fitted model on rows that the fit has not seen.

    Parameters
    ----------
    model : estimator
        A fitted mixture with one response that is a number.
    X : (n, d) array or frame
    y : (n,) array
    **metadata
        ``sample_weight``, ``exposure``, ``trials``, as in ``fit``.

    Returns
    -------
    CalibratedIntervals

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfRegressions, calibrate_intervals
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> y = x[:, 0] + np.sin(1000 * x[:, 0])
    >>> model = MixtureOfRegressions(1).fit(x[::2], y[::2])
    >>> calibrate_intervals(model, x[1::2], y[1::2]).predict([[0.5]]).shape
    (1, 2)
    """
    check_calibrable(model)
    if metadata.get("groups") is not None:
        raise InvalidInputError("groups: intervals are calibrated on single rows; leave groups out")
    (rows,) = fitted_rows(model, {"all": {"X": X, "y": y, **metadata}})
    return CalibratedIntervals(model, {"all": count_tails(model.mixture_, rows)})

"""Fit a mixture to rows: search for starting points on a sample, then climb from the best on all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from consilience.fit.climb import (
    ROUNDING,
    Ascent,
    Climb,
    Expect,
    Quadratic,
    StopReason,
    climb,
    drive,
    is_over_same_data,
)
from consilience.fit.criteria import label_count, log_likelihood
from consilience.fit.left_out import LeftOut
from consilience.fit.neighbours import MOST_LABELS_CLIMBED, climb_neighbours, has_neighbours
from consilience.fit.specification import (
    Specification,
    check_fittable,
    check_labels,
    check_start,
    degeneracy,
    is_degenerate,
    shown_order,
    warn_of_degeneracy,
)
from consilience.fit.starts import Each, Found, Progress, StartEnds, responder, search
from consilience.fit.survey import SiteReport, Survey
from consilience.model import ColumnSummary, Mixture, Penalty, Rows
from consilience.model.expectation import Meat
from consilience.model.information import free_count
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array
from consilience.numerics.threads import one_blas_thread

STEPS = 3
"""Maximum number of steps."""
SMALLEST_DECREMENT = 1e-16
"""Newton decrement per unit of weight below which a further step changes nothing that counts.

It is half the squared change in standard errors: of a million rows, at most 2e-5 of a standard error.
"""


def polish(end: Ascent, penalty: Penalty) -> Climb:
    """Take Newton steps, usually one, from the end of a climb that converged by them, up to rounding.

    A climb ends where nothing of statistical interest is left to gain; two climbs to the same maximum then differ by up
    to a thousandth of a standard error. Newton's method squares the error, and they differ by rounding.

    Parameters
    ----------
    end : Ascent
    penalty : Penalty
    """
    for _ in range(STEPS if end.stop is StopReason.CONVERGED_NEWTON else 0):
        model = Quadratic.at(end.mixture, end.statistics, penalty)
        found = None if model is None else model.proposal(0.0, penalty)
        if found is None or found[1].shift > 0 or found[1].decrement < SMALLEST_DECREMENT * end.statistics.weight:
            break
        statistics = yield Expect(found[0], information=True)
        value, least = found[0].penalised(statistics, penalty), end.penalised - ROUNDING * statistics.scale
        if not (is_over_same_data(statistics, end.statistics) and value >= least):
            break
        end = replace(end, mixture=found[0], statistics=statistics, trace=(*end.trace, value))
        end = replace(end, passes=end.passes + 1, informed_passes=end.informed_passes + 1)
    return end


# ---------------------------------------------------------------- fitting


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted mixture with the record of its optimisation.

    Parameters
    ----------
    mixture : Mixture
        The mixture in raw coordinates, experts sorted by decreasing weight.
    ascent : Ascent
        The final climb, in standardised coordinates and its own order of experts.
    permutation : (K,) array of int
        Index in the ascent of each expert of ``mixture``.
    penalty : Penalty
    starts : StartEnds
        Where climbs from independent starts ended; empty for a given start.
    survey : Survey
        What is known of the sites of a federated fit besides; empty for a fit to rows on one machine.
    meat : Meat or None
        Products of scores at the ascent's mixture, summed over sites, for the sandwich; None if it was not asked for.
    site_scores : mapping of str to (P,) array or None
        Score of each site at the ascent's mixture, if every site stated its own.
    left_out : LeftOut or None
        How the reported parameters would change without each institution; None if the method does not know.
    two_outcomes : bool
        Whether each response is one of two values.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit import Specification, fit_mixture
    >>> from consilience.model import Rows
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((300, 0)), np.r_[rng.normal(0, 1, (200, 1)), rng.normal(9, 1, (100, 1))])
    >>> fit = fit_mixture(rows, Specification(K=2, gate="constant"), rng=rng)
    >>> fit.mixture.gate.probabilities.round(2), fit.starts_agree
    (array([0.67, 0.33]), True)
    """

    mixture: Mixture
    ascent: Ascent
    permutation: np.ndarray
    penalty: Penalty
    starts: StartEnds
    survey: Survey = field(default=Survey(), kw_only=True)
    meat: Meat | None = field(default=None, kw_only=True)
    site_scores: Mapping[str, Array] | None = field(default=None, kw_only=True)
    left_out: LeftOut | None = field(default=None, kw_only=True)
    two_outcomes: bool = field(default=False, kw_only=True)

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood without penalty."""
        return self.ascent.statistics.log_likelihood

    @property
    def parameter_count(self) -> int:
        """Number of free parameters that are identified."""
        return free_count(self.ascent.mixture, self.penalty)

    @property
    def degeneracy(self) -> str:
        """Which expert is none, with too few rows or a shape at its bound, and by how much; empty if all are."""
        return degeneracy(self.ascent, self.penalty)

    @property
    def effective_parameters(self) -> float:
        """Number of parameters that its rows determine: all of them, unless some come from other sites."""
        return float(self.parameter_count)

    def evidence(self) -> Sequence[SiteReport]:
        """Return what is known of each site; empty for a fit to rows on one machine."""
        return self.survey.sites

    def site_fits(self) -> Mapping[str, Fit]:
        """Return each site's own fit, for methods that fit one model per site; this fit is then the centre's."""
        return {}

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to trust the result as a whole."""
        return self.survey.doubts

    def with_dropped(self, dropped: Mapping[str, str]) -> Self:
        """Return the fit with the sites that left the run, and why, among its evidence."""
        return replace(self, survey=self.survey.with_dropped(dropped))

    @property
    def starts_agree(self) -> bool:
        """Whether starts of different kinds ended within one unit of log-likelihood of the result."""
        return self.starts.agree


def fit_mixture(
    rows: Rows,
    specification: Specification,
    *,
    rng: np.random.Generator,
    n_init: int = 6,
    tol: float = 1e-9,
    max_iter: int = 500,
    start: Mixture | None = None,
    newton: bool = True,
    progress: Progress | None = None,
    summary: ColumnSummary | None = None,
    each: Each = map,
) -> Fit:
    """Fit a mixture to rows by maximum penalised likelihood.

    Parameters
    ----------
    rows : Rows
    specification : Specification
    rng : numpy.random.Generator
        For the starts.
    n_init : int
        Number of starting points, of several kinds, that are climbed to the end on a sample of at most 6,000 rows: as
        many again if they do not agree. Without covariates, three or four are enough if they agree.
    tol, max_iter, newton
        As in :func:`~consilience.fit.climb.climb`.
    start : Mixture or None
        Starting point; replaces the ``n_init`` starting points.
    progress : callable or None
    summary : ColumnSummary or None
        Summary of the rows, if it is known.
    each : callable
        ``map``, or a function like it that climbs several starts at once. The result does not depend on it.

    Returns
    -------
    Fit

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit import Specification, fit_mixture
    >>> from consilience.model import Rows
    >>> from consilience.datasets import soft
    >>> data = soft(2000, random_state=0)
    >>> fit = fit_mixture(Rows(data.X, data.y[:, None]), Specification(K=4), rng=np.random.default_rng(0))
    >>> fit.ascent.stop.converged
    True
    """
    summary = column_summary(rows) if summary is None else summary
    check_labels([rows], specification.K)
    check_fittable(specification, summary)
    penalty = specification.penalty(summary)
    respond = responder(rows, "all rows", progress)
    with one_blas_thread():
        if start is None:
            found = search(rows, specification, summary, rng, n_init=n_init, progress=progress, each=each)
        else:
            blank = specification.blank(summary)
            check_start(start, blank)
            found = Found((start.in_coordinates_of(blank),), (), StartEnds())

        def reach(mixture: Mixture, bar: float) -> Ascent:
            return drive(climb(mixture, penalty, tol=tol, max_iter=max_iter, newton=newton, bar=bar), respond)

        ascents: dict[int, Ascent] = {}
        for i in choose_contenders(found, rows, penalty):
            bar = max((each.penalised for each in ascents.values()), default=-np.inf)
            ascents[i] = reach(found.contenders[i], bar)
            if found.decided and not is_degenerate(ascents[i], penalty):
                break  # otherwise the end of the search was on its way to a bound, and the next one is better
        first = rank_ascents(list(ascents.values()), penalty)[0]
        moved: list[Ascent] = []
        if start is None and n_init > 1 and has_neighbours(first, rows):
            moved = climb_neighbours(first, rows, specification, summary, rng, reach=reach, progress=progress)
        end = rank_ascents([first, *moved], penalty)[0]
        last = drive(polish(end, penalty), respond)
    reached = {i: ascent.penalised for i, ascent in ascents.items()}
    best = next(i for i, ascent in ascents.items() if ascent is first)
    starts = found.on_all_rows(reached, best).with_moves([each.penalised for each in moved], end.penalised)
    fit = finish_fit(last, penalty, starts)
    return replace(fit, two_outcomes=fit.mixture.experts.has_two_outcomes(summary))


def choose_contenders(found: Found, rows: Rows, penalty: Penalty) -> Sequence[int]:
    """Return the places of the mixtures to climb from on all rows; of many rows, the likelier of the first two."""
    if label_count(rows) <= MOST_LABELS_CLIMBED or len(found.contenders) < 2:
        return range(len(found.contenders))
    values = [log_likelihood(mixture, rows) - mixture.ridge(penalty) for mixture in found.contenders[:2]]
    return [int(np.argmax(values))]


def rank_ascents(ascents: Sequence[Ascent], penalty: Penalty) -> list[Ascent]:
    """Sort ascents, best first; degenerate ones, likely spurious, come last."""
    return sorted(ascents, key=lambda ascent: (is_degenerate(ascent, penalty), -ascent.penalised))


def finish_fit(ascent: Ascent, penalty: Penalty, starts: StartEnds) -> Fit:
    """Return the fit of a climb in raw coordinates, experts by decreasing weight; warn if it is degenerate."""
    permutation = shown_order(ascent)
    warn_of_degeneracy(ascent, penalty)
    return Fit(ascent.mixture.permuted(permutation).raw(), ascent, permutation, penalty, starts)

"""Fit a mixture to rows: multiple starts on a sample, split-and-merge moves, and the best start run on all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Self

import numpy as np

from consilience.fit.checks import check_fittable, check_labels, check_start, on_floor, warn_of_degeneracy
from consilience.fit.climb import Ascent, Expect, climb, drive
from consilience.fit.moves import moves
from consilience.fit.specification import Specification
from consilience.fit.starts import KINDS, SUBSAMPLE, StartSample, mixture_from, softened, start_sample, subsample
from consilience.fit.survey import SiteReport, Survey
from consilience.model.expectation import expect
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.rows import Rows
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary, column_summary
from consilience.numerics.arrays import Array
from consilience.numerics.threads import threads_for

START_TOL = 1e-6
START_ITERATIONS = 300
DISAGREE = 5e-3
"""Difference in log-likelihood per unit of weight above which two starts disagree."""
MOVES = 8


Progress = Callable[[str, float], None]
"""Callback after each pass, with the phase and the log-likelihood per unit of weight."""


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
    start_values : tuple of float
        Penalised log-likelihood per unit of weight of each start on the sample, best first; empty for a given start.
    survey : Survey
        What is known of the sites of a federated fit besides; empty for a fit to rows on one machine.

    Examples
    --------
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
    start_values: tuple[float, ...]
    survey: Survey = field(default=Survey(), kw_only=True)

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood without penalty."""
        return self.ascent.statistics.log_likelihood

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
        """Whether the two best starts reached the same likelihood."""
        return len(self.start_values) < 2 or abs(self.start_values[0] - self.start_values[1]) <= DISAGREE


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
) -> Fit:
    """Fit a mixture to rows by maximum penalised likelihood.

    Parameters
    ----------
    rows : Rows
    specification : Specification
    rng : numpy.random.Generator
        For the starts.
    n_init : int
        Number of starting points, drawn in several ways, on a sample of at most 3,000 rows.
    tol, max_iter, newton
        As in :func:`~consilience.fit.climb.climb`.
    start : Mixture or None
        Starting point; replaces the ``n_init`` starting points.
    progress : callable or None

    Returns
    -------
    Fit

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(2000, random_state=0)
    >>> fit = fit_mixture(Rows(data.X, data.y[:, None]), Specification(K=4), rng=np.random.default_rng(0))
    >>> fit.ascent.stop.converged
    True
    """
    summary = column_summary(rows)
    check_labels([rows], specification.K)
    check_fittable(specification, summary)
    penalty = specification.penalty(summary)
    values: tuple[float, ...] = ()
    with threads_for(max(rows.X.shape[1] + specification.intercept, rows.Y.shape[1])):
        if start is None:
            start, values = best_start(rows, specification, summary, rng, n_init=n_init, progress=progress)
        else:
            check_start(start, specification.blank(summary))
            start = start.in_coordinates(summary.design(specification.intercept))
        respond = responder(rows, "all rows", progress)
        ascent = drive(climb(start, penalty, tol=tol, max_iter=max_iter, newton=newton), respond)
    return finished(ascent, penalty, values)


def finished(ascent: Ascent, penalty: Penalty, start_values: tuple[float, ...]) -> Fit:
    """Return the fit of a climb in raw coordinates, experts by decreasing weight; warn if it is degenerate."""
    permutation = np.argsort(-ascent.statistics.gate.plain[: ascent.mixture.K], kind="stable")  # by share of labels
    warn_of_degeneracy(ascent, penalty)
    return Fit(ascent.mixture.permuted(permutation).raw(), ascent, permutation, penalty, start_values)


def responder(rows: Rows, phase: str, progress: Progress | None) -> Callable[[Expect], Statistics]:
    """Return a function that answers the requests of a climb from rows on this machine."""

    def respond(question: Expect) -> Statistics:
        statistics = expect(question.mixture, rows, information=question.information)
        if progress is not None:
            progress(phase, statistics.log_likelihood / max(statistics.weight, 1.0))
        return statistics

    return respond


def best_start(
    rows: Rows,
    specification: Specification,
    summary: ColumnSummary,
    rng: np.random.Generator,
    *,
    n_init: int,
    progress: Progress | None,
) -> tuple[Mixture, tuple[float, ...]]:
    """Return the best of ``n_init`` starts on a sample, improved by moves if the two best disagree."""
    sample = subsample(rows, SUBSAMPLE, rng)
    ground = start_sample(sample, specification, summary)
    penalty = specification.penalty(summary)

    def run(resp: Array) -> Ascent:
        start = mixture_from(resp, ground)
        respond = responder(sample, "starts", progress)
        return drive(climb(start, penalty, tol=START_TOL, max_iter=START_ITERATIONS, newton=True), respond)

    if specification.K == 1:
        return run(np.ones((1, ground.m))).mixture, ()
    kinds = (KINDS[i % len(KINDS)] for i in range(n_init))
    found = ranked([run(softened(kind(ground, rng), specification.K)) for kind in kinds], penalty)
    if len(found) > 1 and _gap(found) > DISAGREE:
        found = improved(found, ground, run, penalty, rng)
    weight = max(found[0].statistics.weight, 1.0)
    return found[0].mixture, tuple(ascent.penalised / weight for ascent in found)


def ranked(found: list[Ascent], penalty: Penalty) -> list[Ascent]:
    """Sort ascents, best first; those with an expert at the variance floor, likely spurious, come last."""
    return sorted(found, key=lambda ascent: (on_floor(ascent.mixture, penalty), -ascent.penalised))


def _gap(found: list[Ascent]) -> float:
    return abs(found[0].penalised - found[1].penalised) / max(found[0].statistics.weight, 1.0)


def improved(
    found: list[Ascent], ground: StartSample, run: Callable[[Array], Ascent], penalty: Penalty, rng: np.random.Generator
) -> list[Ascent]:
    """Try split-and-merge moves from the best ascent, until ``MOVES`` in a row fail or two ascents agree."""
    tried = 0
    while tried < MOVES:
        for resp in islice(moves(found[0].mixture, ground, rng), MOVES - tried):
            tried += 1
            before = found[0]
            found = ranked([*found, run(resp)], penalty)
            if _gap(found) <= DISAGREE:
                return found
            if found[0] is not before:
                break
        else:
            break
    return found

"""Safeguarded EM and Newton iterations as a generator: one request for statistics per pass over the data.

``climb`` requests statistics at a proposed mixture and receives them: from rows on this machine, or as a sum over
sites. The likelihood that comes with the statistics decides whether the proposal is accepted, so each iteration is one
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import cho_solve

from consilience.fit.stop import StopReason
from consilience.model.information import free_parameters, is_informable, moved, ridge, score
from consilience.model.mixture import Mixture, layout_of
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import cholesky_or_none

ROUNDING = 1e-12
"""Relative decrease of the likelihood below which a step is still accepted, as rounding error."""
HALVINGS = 8
SAME_WEIGHT = 1e-11
"""Relative difference of total weights above which two passes are over different data."""
NEWTON_FROM = 1e-4
"""Relative gain of an EM step below which Newton steps are tried."""
LONGEST_WAIT = 16
"""Maximum number of EM steps between two attempts at a Newton step."""
NEWTON_DECREMENT = 1e-8
NEWTON_DECREMENT_AT_MOST = 5e-3
"""Upper limit of the Newton decrement at convergence, for any number of rows; it is negligible for intervals."""


@dataclass(frozen=True, eq=False)
class Expect:
    """Request for the statistics at ``mixture``, with the observed information if ``information``.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> question = Expect(soft(10, random_state=0).truth, information=True)
    >>> question.mixture.K, question.information
    (4, True)
    """

    mixture: Mixture
    information: bool = False

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        K = self.mixture.K
        sums = f"sums over rows, weighted by responsibilities, of 1, x, xxᵀ and residuals for {K} experts"
        return f"{sums}, and the log-likelihood" + (", and the observed information" if self.information else "")


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """Direction ``(J + R)⁻¹ (g - R θ)`` and decrement ``gᵀ (J + R)⁻¹ g / 2``."""

    direction: Array  # (P,)
    decrement: float


@dataclass(frozen=True, eq=False)
class Ascent:
    """Result of a climb: the final mixture and the history of the iterations.

    Parameters
    ----------
    mixture : Mixture
        The last accepted mixture.
    statistics : Statistics
        Statistics at that mixture, with the information if the climb ended in its Newton phase.
    trace : tuple of float
        Penalised log-likelihood of every accepted mixture, non-decreasing within a segment.
    passes, informed_passes, halvings : int
        Number of passes, number of passes with the information, and number of shortened steps.
    stop : StopReason
    segments : tuple of int
        Index in ``trace`` at which each segment begins. A new segment begins when the data change (a site left):
        likelihoods are compared, and do not decrease, within a segment only.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification, fit_mixture
    >>> from consilience.model import Rows
    >>> data = soft(1000, random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> ascent = fit_mixture(Rows(data.X, data.y[:, None]), Specification(K=4), rng=rng, start=data.truth).ascent
    >>> ascent.n_iter < ascent.passes, bool(np.all(np.diff(ascent.trace) > -1e-6))
    (True, True)
    """

    mixture: Mixture
    statistics: Statistics
    trace: tuple[float, ...]
    passes: int
    informed_passes: int
    halvings: int
    stop: StopReason
    segments: tuple[int, ...] = (0,)

    @classmethod
    def without_steps(
        cls,
        mixture: Mixture,
        labels: Array,
        *,
        log_likelihood: float,
        weight: float,
        penalty: Penalty,
        passes: int,
        stop: StopReason,
    ) -> Ascent:
        """Build the result of a fit without iterations: label counts ``(K,)``, likelihood and weight only."""
        blank = layout_of(mixture).zeros(information=False)
        plain = blank.gate.plain.copy()
        plain[: mixture.K] = labels
        statistics = replace(
            blank,
            gate=replace(blank.gate, plain=plain),
            log_likelihood=log_likelihood,
            absolute=abs(log_likelihood),
            weight=weight,
        )
        return cls(mixture, statistics, (mixture.penalised(statistics, penalty),), passes, 0, 0, stop)

    @property
    def penalised(self) -> float:
        """Penalised log-likelihood of the final mixture."""
        return self.trace[-1]

    @property
    def n_iter(self) -> int:
        """Accepted steps."""
        return len(self.trace) - len(self.segments)


Climb = Generator[Expect, Statistics, Ascent]


def newton_step(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> NewtonStep | None:
    """Compute the Newton step on the penalised likelihood, or None if ``J + R`` is not positive definite."""
    if statistics.information is None:
        return None
    R = ridge(mixture, penalty)
    L = cholesky_or_none(statistics.information + R)
    if L is None:
        return None
    gradient = score(mixture, statistics) - R @ free_parameters(mixture)
    direction: Array = cho_solve((L, True), gradient, check_finite=False)
    return NewtonStep(direction, 0.5 * float(gradient @ direction))


@dataclass
class _Log:
    """Counters of one climb."""

    trace: list[float] = field(default_factory=list)
    passes: int = 0
    informed: int = 0
    halvings: int = 0
    segments: list[int] = field(default_factory=list)

    def open_segment(self, value: float) -> None:
        self.segments.append(len(self.trace))
        self.trace.append(value)

    def asked(self, question: Expect) -> Expect:
        self.passes += 1
        self.informed += question.information
        return question

    def ascent(self, mixture: Mixture, statistics: Statistics, stop: StopReason) -> Ascent:
        counts = (self.passes, self.informed, self.halvings)
        return Ascent(mixture, statistics, tuple(self.trace), *counts, stop, tuple(self.segments))


def climb(
    start: Mixture,
    penalty: Penalty,
    *,
    tol: float = 1e-9,
    max_iter: int = 500,
    newton: bool = True,
    near: bool = False,
) -> Climb:
    """Maximise the penalised likelihood from ``start``: safeguarded EM, then Newton on the observed information.

    Yields :class:`Expect` questions, receives :class:`~consilience.model.Statistics`, returns an :class:`Ascent`.

    Parameters
    ----------
    start : Mixture
    penalty : Penalty
    tol : float
        Convergence tolerance: gain per unit of weight in a full EM step.
    max_iter : int
        Maximum number of steps, accepted or not.
    newton : bool
        Whether to switch to Newton steps once a full EM step gains less than ``1e-4`` of the likelihood.
    near : bool
        Whether the start is close to the maximum, so that the first pass already requests the information.

    Examples
    --------
    Two sites answer; the climb sees only the sum of their statistics:

    >>> from functools import reduce
    >>> from operator import add
    >>> from consilience.datasets import soft
    >>> from consilience.model import Penalty, Rows, expect
    >>> data = soft(1000, random_state=0)
    >>> north, south = Rows(data.X[:300], data.y[:300, None]), Rows(data.X[300:], data.y[300:, None])
    >>> def respond(question):
    ...     sites = (expect(question.mixture, site, information=question.information) for site in (north, south))
    ...     return reduce(add, sites)
    >>> drive(climb(data.truth, Penalty()), respond).stop.converged
    True
    """
    log = _Log()
    mixture, statistics = start, (yield log.asked(Expect(start)))
    value = mixture.penalised(statistics, penalty)
    log.open_segment(value)
    switch = _Switch(newton and is_informable(start))
    proposal, by_newton, informed = mixture.maximise(statistics, penalty), False, near and switch.newton
    fraction, stuck = 1.0, 0
    for _ in range(max_iter):
        answer = yield log.asked(Expect(proposal, information=informed))
        if not is_over_same_data(answer, statistics):  # a site left: from the last accepted mixture in a new segment
            statistics = yield log.asked(Expect(mixture))
            value = mixture.penalised(statistics, penalty)
            log.open_segment(value)
            proposal, by_newton, informed = mixture.maximise(statistics, penalty), False, False
            fraction, stuck = 1.0, 0
            continue
        new = proposal.penalised(answer, penalty)
        if not new >= value - ROUNDING * answer.scale:
            if by_newton:  # back to an EM step from here; Newton is tried again a little later
                switch.refused()
                fraction = 1.0
            elif fraction == 0.0:
                return log.ascent(mixture, statistics, StopReason.STALLED)
            else:
                log.halvings += 1
                fraction = shortened(fraction) if mixture.newton_type else 0.0
            proposal, by_newton, informed = mixture.maximise(statistics, penalty, fraction), False, False
            continue
        gain, full = new - value, fraction == 1.0 and not by_newton
        mixture, statistics, value = proposal, answer, new
        log.trace.append(value)
        stuck = stuck + 1 if fraction == 0.0 else 0
        if stuck == 2:
            return log.ascent(mixture, statistics, StopReason.STALLED)
        step = newton_step(mixture, statistics, penalty)
        if step is None and statistics.information is not None:
            switch.refused()
        small = full and gain <= tol * statistics.weight and switch.has_failed
        if reason := _converged(step, statistics, small):
            return log.ascent(mixture, statistics, reason)
        proposal, by_newton = _propose(mixture, statistics, penalty, step)
        if step is not None and not by_newton:  # the step leads below the variance floor
            switch.refused()
        fraction = 1.0
        informed = by_newton or switch.is_near(gain, statistics, tol)
    return log.ascent(mixture, statistics, StopReason.MAX_ITER)


def is_over_same_data(a: Statistics, b: Statistics) -> bool:
    """Whether two passes saw data of the same total weight; otherwise their likelihoods are not comparable.

    The weight of a site that left is missing. Rounding differs between passes only if weights are fractions.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.model import Rows, expect
    >>> data = soft(10, random_state=0)
    >>> all_rows, fewer = (expect(data.truth, Rows(data.X[:n], data.y[:n, None])) for n in (10, 9))
    >>> is_over_same_data(all_rows, all_rows), is_over_same_data(all_rows, fewer)
    (True, False)
    """
    return abs(a.weight - b.weight) <= SAME_WEIGHT * b.weight


def _converged(step: NewtonStep | None, statistics: Statistics, small: bool) -> StopReason | None:
    """Return the reason of convergence: a small Newton decrement, or a small gain if only EM is used; else None."""
    if step is not None and step.decrement < decrement_bound(statistics.weight):
        return StopReason.CONVERGED_NEWTON
    return StopReason.CONVERGED_EM if small else None


def shortened(fraction: float) -> float:
    """Return the next fraction of a Newton-type step to try: half of it, and 0 after ``HALVINGS`` halvings.

    Examples
    --------
    >>> shortened(1.0), shortened(2.0**-8)
    (0.5, 0.0)
    """
    return fraction / 2 if fraction > 0.5**HALVINGS else 0.0


def decrement_bound(weight: float) -> float:
    """Return the Newton decrement below which a climb over data of this weight has converged.

    Examples
    --------
    >>> decrement_bound(1e4), decrement_bound(1e9)
    (0.0001, 0.005)
    """
    return min(NEWTON_DECREMENT * weight, NEWTON_DECREMENT_AT_MOST)


@dataclass
class _Switch:
    """Decides when to request the information: close to the maximum, and later after each rejected Newton step."""

    newton: bool
    failures: int = 0
    wait: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether only EM steps are used: Newton is disabled, or a Newton step was rejected."""
        return not self.newton or self.failures > 0

    def refused(self) -> None:
        """Back off: double the number of EM steps before the next Newton attempt, up to ``LONGEST_WAIT``."""
        self.failures += 1
        self.wait = min(2**self.failures, LONGEST_WAIT)

    def is_near(self, gain: float, statistics: Statistics, tol: float) -> bool:
        """Whether the next pass should request the information."""
        near = max(NEWTON_FROM * statistics.scale, tol * statistics.weight)
        self.wait = max(self.wait - 1, 0)
        return self.newton and self.wait == 0 and gain <= near


def _propose(
    mixture: Mixture, statistics: Statistics, penalty: Penalty, step: NewtonStep | None
) -> tuple[Mixture, bool]:
    """Return the Newton proposal if it is admissible, otherwise the EM proposal, and which of the two it is."""
    if step is not None and np.all(np.isfinite(step.direction)):
        proposal = moved(mixture, step.direction)
        if proposal.experts.admissible(penalty):
            return proposal, True
    return mixture.maximise(statistics, penalty), False


def drive(dialogue: Climb, respond: Callable[[Expect], Statistics]) -> Ascent:
    """Run a climb; ``respond`` answers its requests.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.model import Penalty, Rows, expect
    >>> data = soft(500, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> drive(climb(data.truth, Penalty(), newton=False, max_iter=3), lambda ask: expect(ask.mixture, rows)).passes
    4
    """
    try:
        question = next(dialogue)
        while True:
            question = dialogue.send(respond(question))
    except StopIteration as finished:
        ascent: Ascent = finished.value
        return ascent

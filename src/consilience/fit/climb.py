"""Safeguarded EM and shifted Newton iterations as a generator: one request for statistics per pass over the data.

``climb`` requests statistics at a proposed mixture and receives them: from rows on this machine, or as a sum over
sites. The likelihood that comes with the statistics decides whether the proposal is accepted, so each iteration is one
pass.

Shifted Newton steps on the penalised likelihood lead from steps like those of EM, far from the maximum, to Newton's
near it. With the observed information ``J``, the complete-data information ``C``, the ridge ``R`` and the gradient
``g`` of the penalised likelihood, the step is

    (J + R + λ (C + R))⁻¹ g.

At ``λ = 0`` it is the Newton step. As ``J = C - missing``, a shift of about 1 gives a step like EM's, and a large
shift a shorter one. The shift grows after a rejected step and shrinks after a successful one. A step exists for some
shift also where ``J + R`` is indefinite.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np

from consilience.model import Mixture, Penalty, Statistics, layout_of
from consilience.model.expectation import has_short_scores, row_counts
from consilience.model.information import (
    complete_information,
    free_map,
    is_informable,
    move_parameters,
    penalised_score,
    ridge,
    share_curvature,
)
from consilience.model.received import is_in_range
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import cholesky_or_none, cholesky_solve


class StopReason(Enum):
    """Reason why an ascent ended; *converged* and *stopped* are distinct.

    Examples
    --------
    >>> from consilience.fit import StopReason
    >>> StopReason.MAX_ITER.converged
    False
    >>> print(StopReason.MAX_ITER)
    stopped: max_iter was reached before convergence
    """

    CONVERGED_EM = "converged: a full EM step gained less than tol per unit of weight"
    CONVERGED_NEWTON = "converged: another step would hardly raise the likelihood"
    MAX_ITER = "stopped: max_iter was reached before convergence"
    STALLED = "stopped: no fraction of the Newton step raised the likelihood, twice in a row"
    OUTDONE = "stopped: a higher end is known that this climb would not reach"
    REFINED = "stopped: the requested refinement rounds are complete"
    COMBINED = "stopped: combined from one answer of each site, without a round of refinement"
    SETTLED = "converged: in a round coefficients changed by no more than a small fraction of their standard errors"
    ROUNDS = "stopped: the maximum number of rounds was reached before convergence"
    METHOD = "stopped: the method ended by a rule of its own"

    @property
    def converged(self) -> bool:
        """Whether the fit is at a stationary point, to tolerance."""
        return self in (StopReason.CONVERGED_EM, StopReason.CONVERGED_NEWTON, StopReason.SETTLED)

    @property
    def by_choice(self) -> bool:
        """Whether the fit ended as requested."""
        return self in (StopReason.REFINED, StopReason.COMBINED, StopReason.ROUNDS, StopReason.METHOD)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class MethodStop:
    """A method's own reason to end, for methods that the reasons of the library do not fit.

    A saved model states :attr:`StopReason.METHOD` in its place.

    Parameters
    ----------
    sentence : str
        What ended the fit, in words that follow "stopped:" or "converged:".
    converged : bool
        Whether the fit is at a stationary point of what the method maximises, to tolerance.

    Examples
    --------
    >>> from consilience.fit import MethodStop
    >>> print(MethodStop("medians of the fits of the sites, without iterations"))
    stopped: medians of the fits of the sites, without iterations
    """

    sentence: str
    converged: bool = False

    @property
    def name(self) -> str:
        """Name in a saved model."""
        return StopReason.METHOD.name

    @property
    def by_choice(self) -> bool:
        """Whether the fit ended as requested: always."""
        return True

    def __str__(self) -> str:
        return f"{'converged' if self.converged else 'stopped'}: {self.sentence}"


Stop = StopReason | MethodStop
"""Reason why a fit ended, of the library or of a method's own."""


# ---------------------------------------------------------------- newton

NEWTON_DECREMENT = 1e-8
"""Newton decrement per unit of weight at convergence."""
NEWTON_DECREMENT_AT_MOST = 5e-3
"""Upper limit of the Newton decrement at convergence, for any number of rows; it is negligible for intervals."""
SMALLEST_SHIFT = 1e-3
"""Shift after the first rejected Newton step, and the first one tried where the information is indefinite."""
GROWTH = 6.0
CURVATURE_GROWTH = 1.5
"""Factor of the shift where the information is indefinite: just enough of it, as more makes steps short."""
LARGEST_SHIFT = 1.0
"""Shift above which a rejected step is followed by an EM step, which is about as long and cannot fail."""
LARGEST_FOR_CURVATURE = 1e3
"""Largest shift that is tried to make an indefinite information positive definite."""


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """A step ``(J + R + λ (C + R))⁻¹ g``, its shift ``λ``, and the gain that the quadratic model predicts for it.

    For ``λ = 0`` the predicted gain is the Newton decrement ``gᵀ (J + R)⁻¹ g / 2``.
    """

    direction: Array  # (P,)
    decrement: float
    shift: float = 0.0


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Quadratic model of the penalised likelihood at a mixture: gradient and curvatures in the free parameters.

    Parameters
    ----------
    mixture : Mixture
    gradient : (F,) array
    observed : (F, F) array
        ``J + R``.
    complete : (F, F) array
        ``C + R``.
    """

    mixture: Mixture
    gradient: Array
    observed: Array
    complete: Array

    @classmethod
    def at(cls, mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Quadratic | None:
        """Return the model at ``mixture``, or None if its statistics lack the information."""
        if statistics.information is None:
            return None
        R = ridge(mixture, penalty)
        curvatures = statistics.information + R, complete_information(mixture, statistics) + R
        observed, complete = (share_curvature(each, mixture, penalty) for each in curvatures)
        return cls(mixture, _free_gradient(mixture, statistics, penalty), observed, complete)

    def scaled(self, factor: float) -> Quadratic:
        """Return the model over as many times the rows."""
        return Quadratic(self.mixture, factor * self.gradient, factor * self.observed, factor * self.complete)

    @cached_property
    def newton(self) -> NewtonStep | None:
        """The Newton step, or None if ``J + R`` is not positive definite."""
        return self._solved(0.0)

    def step(self, shift: float = 0.0) -> NewtonStep | None:
        """Return the step with this shift, or None if the shifted information is not positive definite."""
        return self._solved(shift) if shift else self.newton

    def _solved(self, shift: float) -> NewtonStep | None:
        L = cholesky_or_none(self.observed + shift * self.complete)
        if L is None:
            return None
        direction = cholesky_solve(L, self.gradient)
        gain = self.gradient @ direction - 0.5 * direction @ self.observed @ direction
        return NewtonStep(direction, float(gain), shift)

    def proposal(self, shift: float, penalty: Penalty) -> tuple[Mixture, NewtonStep] | None:
        """Return the mixture after the step with the smallest usable shift of at least ``shift``, or None.

        A shift is usable if the shifted information is positive definite, and the mixture after the step is admissible
        and can be sent to sites.
        """
        while shift <= LARGEST_FOR_CURVATURE:
            step = self.step(shift)
            if step is None:
                shift = grow_shift(shift, CURVATURE_GROWTH)
                continue
            ahead = _moved(self.mixture, step.direction, penalty) if np.all(np.isfinite(step.direction)) else None
            if ahead is not None and ahead.experts.admissible(penalty) and is_in_range(ahead):
                return ahead, step
            if shift > LARGEST_SHIFT:
                return None
            shift = grow_shift(shift)
        return None


def _free_gradient(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Array:
    """Compute the penalised score in the free parameters, ``(F,)``."""
    gradient = penalised_score(mixture, statistics, ridge(mixture, penalty))
    return free_map(mixture, penalty).T @ gradient if penalty.shared else gradient


def _moved(mixture: Mixture, direction: Array, penalty: Penalty) -> Mixture:
    """Add ``direction (F,)`` to the free parameters."""
    delta = free_map(mixture, penalty) @ direction if penalty.shared else direction
    return move_parameters(mixture, delta)


def newton_step(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> NewtonStep | None:
    """Compute the Newton step on the penalised likelihood, or None if ``J + R`` is not positive definite."""
    model = Quadratic.at(mixture, statistics, penalty)
    return None if model is None else model.newton


def grow_shift(shift: float, factor: float = GROWTH) -> float:
    """Return the shift to try after one that did not serve."""
    return max(factor * shift, SMALLEST_SHIFT)


def adapt_shift(step: NewtonStep, gain: float, *, again: bool = False) -> float:
    """Return the shift of the next step, after a step that was accepted with this gain of the likelihood.

    A step that gains what the quadratic model predicts lets the shift shrink, eightfold if the prediction was good and
    no smaller shift has just failed (``again``), to zero below ``SMALLEST_SHIFT``; a step that gains less than a
    quarter of it lets the shift grow.
    """
    if gain < 0.25 * step.decrement:
        return grow_shift(step.shift)
    if step.shift <= SMALLEST_SHIFT:
        return 0.0
    good = abs(gain - step.decrement) < 0.1 * step.decrement
    return step.shift / 8 if good and not again else step.shift / 2


def decrement_bound(weight: float, per_weight: float = NEWTON_DECREMENT) -> float:
    """Return the Newton decrement below which a climb over data of this weight has converged."""
    return min(per_weight * weight, NEWTON_DECREMENT_AT_MOST)


# ---------------------------------------------------------------- climb

ROUNDING = 1e-12
"""Relative decrease of the likelihood below which a step is still accepted, as rounding error."""
HALVINGS = 8
OUTDONE = 3.0
"""Multiple of the Newton decrement, at least 1, that a climb may still gain before it is given up for a better end."""
FAR_OUTDONE = 10.0
"""The same multiple, and its least value, of what the last gains of EM steps say is left; EM has slow stretches."""
SAME_WEIGHT = 1e-11
"""Relative difference of total weights above which two passes are over different data."""
NEWTON_FROM = 1e-3
"""Relative gain of an EM step below which Newton steps are tried."""
LONGEST_WAIT = 16
"""Maximum number of EM steps between two attempts at a Newton step."""
CAUTIOUS_SHIFT = 0.05
"""Shift of the first Newton step of a climb that takes one before any EM step, ..."""
TRUSTED_DECREMENT = 1.0
"""... unless the Newton decrement is below this number of log-likelihood units."""
LAST_CHORD = 0.1
"""Newton decrement by the curvature of a sample below which the step that it gives is the last one by it."""
PARAMETERS_PER_EM_STEP = 40
"""Number of parameters for which one more EM step is taken before the information is requested, where it is costly."""
SCORES_PER_EM_STEP = 25
"""Number of complete scores of a row whose products take about as long as an EM step."""
MANY_PARAMETERS = 250
"""Number of parameters above which a costly information takes tens of EM steps: four times as many are taken before it,
and they may converge meanwhile."""


@dataclass(frozen=True, eq=False)
class Expect:
    """Request for the statistics at ``mixture``, with the observed information if ``information``.

    Examples
    --------
    >>> from consilience.fit import Expect
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
    stop : StopReason or MethodStop
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
    stop: Stop
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
        stop: Stop,
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

    def ascent(self, at: _Point, stop: StopReason) -> Ascent:
        counts = (self.passes, self.informed, self.halvings)
        return Ascent(at.mixture, at.statistics, tuple(self.trace), *counts, stop, tuple(self.segments))


def climb(
    start: Mixture,
    penalty: Penalty,
    *,
    tol: float = 1e-9,
    max_iter: int = 500,
    newton: bool = True,
    near: bool = False,
    decrement: float = NEWTON_DECREMENT,
    bar: float = -np.inf,
    rough: bool = False,
    sampled: Quadratic | None = None,
) -> Climb:
    """Maximise the penalised likelihood from ``start``: safeguarded EM, then shifted Newton steps.

    Yields :class:`Expect` questions, receives :class:`~consilience.model.Statistics`, returns an :class:`Ascent`. Its
    mixture is always one whose statistics were received.

    Parameters
    ----------
    start : Mixture
    penalty : Penalty
    tol : float
        Convergence tolerance: gain per unit of weight in a full EM step.
    max_iter : int
        Maximum number of steps, accepted or not.
    newton : bool
        Whether to switch to Newton steps once a full EM step gains less than ``1e-3`` of the likelihood.
    near : bool
        Whether the start is close to the maximum, so that every pass after the first requests the information. An
        answer to the first that brings it all the same is followed by a Newton step, another one by an EM step.
    decrement : float
        Convergence tolerance: Newton decrement per unit of weight.
    bar : float
        Penalised log-likelihood of an end that is known. The climb is given up where its value and ``OUTDONE`` times
        what the Newton decrement says is left to gain are below it, or ``FAR_OUTDONE`` times what its gains say.
    rough : bool
        Whether EM steps that gain ever less may end the climb, where that takes fewer passes than the information.
    sampled : Quadratic or None
        Quadratic model over a sample of the rows, at its maximum and scaled to all rows. Steps use its curvature while
        they gain what it predicts and more than ``LAST_CHORD`` is left.

    Examples
    --------
    Two sites answer; the climb sees only the sum of their statistics:

    >>> from consilience.fit import climb, drive
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
    start = start.bounded(replace(penalty, floor=0.0 * penalty.floor))  # steps raise shapes to the floor
    log, switch = _Log(), _Switch.of(start, newton=newton, near=near, rough=rough)
    at = _Point.of(start, (yield log.asked(Expect(start))), penalty)
    log.open_segment(at.value)
    log.informed += at.model is not None
    if reason := at.converged(decrement, small=False):
        return log.ascent(at, reason)
    at = at.with_curvature(sampled)
    ahead, stuck = at.ahead(0.0 if at.is_chord else at.first_shift, switch, informed=switch.always), 0
    for _ in range(max_iter):
        answer = yield log.asked(Expect(ahead.mixture, information=ahead.informed))
        if not is_over_same_data(answer, at.statistics):  # a site left: on from the last accepted mixture
            at = _Point.of(at.mixture, (yield log.asked(Expect(at.mixture, information=switch.always))), penalty)
            log.open_segment(at.value)
            ahead, stuck = at.ahead(at.first_shift, switch, informed=switch.always), 0
            continue
        new = _Point.of(ahead.mixture, answer, penalty).after(ahead, at)
        if not new.value >= at.value - ROUNDING * answer.scale:
            if ahead.fraction == 0.0:
                return log.ascent(at, StopReason.STALLED)
            log.halvings += ahead.step is None
            ahead = at.shorter(ahead, switch)
            continue
        gain, at = new.value - at.value, new
        log.trace.append(at.value)
        stuck = stuck + 1 if ahead.fraction == 0.0 else 0
        if stuck == 2:
            return log.ascent(at, StopReason.STALLED)
        small = gain <= tol * answer.weight
        decided = switch.has_failed or switch.has_settled(gain, answer, tol)
        if reason := at.converged(decrement, small=small and ahead.fraction == 1.0 and decided):
            return log.ascent(at, reason)
        if at.value + OUTDONE * max(at.decrement, 1.0) < bar or is_far_outdone(log.trace, bar):
            return log.ascent(at, StopReason.OUTDONE)
        if small and at.is_flat:  # a shifted step along a flat likelihood: an EM step decides on convergence
            switch.refused()
        shift = 0.0 if ahead.step is None else adapt_shift(ahead.step, gain, again=ahead.again)
        ahead = at.ahead(shift, switch, informed=switch.is_near(gain, answer, tol))
    return log.ascent(at, StopReason.MAX_ITER)


@dataclass(frozen=True, eq=False)
class _Proposal:
    """A mixture to evaluate next: after an EM step, or a fraction of it, or after a shifted Newton step."""

    mixture: Mixture
    informed: bool
    step: NewtonStep | None = None
    fraction: float = 1.0  # of the EM step; NaN for a Newton step
    again: bool = False  # whether it follows a rejected Newton step


@dataclass(frozen=True, eq=False)
class _Point:
    """An evaluated mixture: its statistics, its penalised likelihood, and the quadratic model if available."""

    mixture: Mixture
    statistics: Statistics
    penalty: Penalty
    value: float
    model: Quadratic | None
    is_chord: bool = False  # whether the curvature of the model is that of the point before

    @classmethod
    def of(cls, mixture: Mixture, statistics: Statistics, penalty: Penalty) -> _Point:
        value, model = mixture.penalised(statistics, penalty), Quadratic.at(mixture, statistics, penalty)
        return cls(mixture, statistics, penalty, value, model)

    def after(self, ahead: _Proposal, before: _Point) -> _Point:
        """Return the point with the curvature of ``before``, if it has none and a step by that curvature was good."""
        step = ahead.step
        if step is None or not before.is_chord or not self.value - before.value > 0.5 * step.decrement:
            return self
        return self.with_curvature(before.model)

    def with_curvature(self, other: Quadratic | None) -> _Point:
        """Return the point with the curvature of another model, if it has none of its own."""
        if other is None or self.model is not None:
            return self
        gradient = _free_gradient(self.mixture, self.statistics, self.penalty)
        return replace(self, model=Quadratic(self.mixture, gradient, other.observed, other.complete), is_chord=True)

    @property
    def decrement(self) -> float:
        """Newton decrement; infinite if it is not available."""
        step = None if self.model is None else self.model.newton
        return np.inf if step is None else step.decrement

    @property
    def first_shift(self) -> float:
        """Shift of a step before which nothing is known of the steps' success."""
        return 0.0 if self.decrement < TRUSTED_DECREMENT else CAUTIOUS_SHIFT

    @property
    def is_flat(self) -> bool:
        """Whether the information is known and not positive definite."""
        return self.model is not None and self.model.newton is None

    def converged(self, decrement: float, *, small: bool) -> StopReason | None:
        """Return the reason of convergence: a small Newton decrement, or a small gain if only EM is used; else None."""
        if self.is_chord:
            return None
        if self.decrement < decrement_bound(self.statistics.weight, decrement):
            return StopReason.CONVERGED_NEWTON
        return StopReason.CONVERGED_EM if small else None

    def by_em(self, fraction: float = 1.0, *, informed: bool) -> _Proposal:
        """Return the mixture after the EM step, or a fraction of it."""
        return _Proposal(self.mixture.maximise(self.statistics, self.penalty, fraction), informed, None, fraction)

    def ahead(self, shift: float, switch: _Switch, *, informed: bool) -> _Proposal:
        """Return the next mixture: after a Newton step with at least this shift if there is one, else by EM."""
        if self.model is not None and switch.ready:
            found = self.model.proposal(shift, self.penalty)
            if found is not None:
                again = self.is_chord and found[1].decrement > LAST_CHORD
                return _Proposal(found[0], not again, found[1], np.nan)
            switch.refused()  # no shift leads to an admissible mixture: the maximum is at the variance floor
        return self.by_em(informed=informed)

    def shorter(self, rejected: _Proposal, switch: _Switch) -> _Proposal:
        """Return the next mixture after a rejected one: a larger shift, then an EM step, then fractions of it."""
        step = rejected.step
        if step is None:
            fraction = shorten_step(rejected.fraction) if self.mixture.newton_type else 0.0
            return self.by_em(fraction, informed=switch.always)
        if self.model is not None and grow_shift(step.shift) <= LARGEST_SHIFT:
            found = self.model.proposal(grow_shift(step.shift), self.penalty)
            if found is not None:
                return _Proposal(found[0], True, found[1], np.nan, again=True)
        switch.refused()
        return self.by_em(informed=switch.always)


def takes_few_steps(gain: float, before: float, least: float, most: int) -> bool:
    """Whether at most ``most`` EM steps, after two with these gains, leave less than ``least``.

    With ``c = gain / before``, after ``n`` more steps about ``gain c^(n + 1) / (1 - c)`` is left.

    Examples
    --------
    >>> takes_few_steps(0.1, 1.0, least=1e-3, most=4), takes_few_steps(0.9, 1.0, least=1e-3, most=4)
    (True, False)
    """
    if not (most > 0 and 0 < gain < before):
        return False
    left = gain * gain / (before - gain)
    return left <= least or bool(np.log(least / left) / np.log(gain / before) <= most)


def is_far_outdone(trace: Sequence[float], bar: float) -> bool:
    """Whether a climb is far below ``bar`` by its last three steps, whose gains shrink (Aitken's extrapolation).

    After a gain ``g`` that is ``c < 1`` times the one before, about ``g c / (1 - c)`` is left.

    Examples
    --------
    >>> is_far_outdone([-900.0, -500.0, -300.0, -200.0, -150.0, -125.0], bar=1000.0)
    True
    """
    if len(trace) < 6 or not trace[-1] < bar - FAR_OUTDONE**2:
        return False
    gains = np.diff(trace[-5:])
    before, gain = gains[:-1], gains[1:]
    if not np.all((before > gain) & (gain > 0)):
        return False
    left = gain**2 / (before - gain)
    return bool(np.all(np.array(trace[-3:]) + FAR_OUTDONE * np.maximum(left, FAR_OUTDONE) < bar))


def is_over_same_data(a: Statistics, b: Statistics) -> bool:
    """Whether two passes saw data of the same total weight; otherwise their likelihoods are not comparable.

    The weight of a site that left is missing. Rounding differs between passes only if weights are fractions.
    """
    return abs(a.weight - b.weight) <= SAME_WEIGHT * b.weight


def shorten_step(fraction: float) -> float:
    """Return the next fraction of a Newton-type step to try: half of it, and 0 after ``HALVINGS`` halvings."""
    return fraction / 2 if fraction > 0.5**HALVINGS else 0.0


@dataclass
class _Switch:
    """Decides when to request the information: close to the maximum, and later after each failure of Newton steps.

    EM steps may decide on convergence alone if there are ``many`` parameters, or in a rough climb that is ``quick``: if
    fewer steps lead to the end than the information is worth, its ``cost``.
    """

    newton: bool
    always: bool = False
    wait: int = 0
    many: bool = False
    cost: int = 0
    quick: bool = False
    failures: int = 0
    last_gain: float = np.inf

    @classmethod
    def of(cls, start: Mixture, *, newton: bool, near: bool, rough: bool) -> _Switch:
        """Return the switch for climbs from ``start``; a costly information has to wait for more EM steps."""
        newton = newton and is_informable(start)
        costly, P = not (near or has_short_scores(start)), start.parameter_count
        many = costly and P > MANY_PARAMETERS
        wait = costly * P * (4 if many else 1) // PARAMETERS_PER_EM_STEP
        M, m = row_counts(start)
        cost = (rough and costly) * (M * start.design.p + m) // SCORES_PER_EM_STEP
        return cls(newton, newton and near, max(wait, cost), many, cost)

    @property
    def has_failed(self) -> bool:
        """Whether EM steps may decide on convergence: Newton is disabled, or its steps failed."""
        return not self.newton or self.failures > 0

    def has_settled(self, gain: float, statistics: Statistics, tol: float) -> bool:
        """Whether EM steps have converged while Newton steps wait: what is left to gain is small as well.

        After a gain ``g`` that is ``c`` times the one before, about ``g c / (1 - c)`` is left.
        """
        before, self.last_gain = self.last_gain, gain
        self.quick = takes_few_steps(gain, before, tol * statistics.weight, self.cost)
        if not (self.quick or (self.many and self.wait > 0)):
            return False
        if gain <= ROUNDING * statistics.scale:
            return True
        return gain < before and gain * gain / (before - gain) <= tol * statistics.weight

    @property
    def ready(self) -> bool:
        """Whether a Newton step may be taken now."""
        return self.newton and self.wait == 0

    def refused(self) -> None:
        """Back off: double the number of EM steps before the next Newton attempt, up to ``LONGEST_WAIT``."""
        self.failures += 1
        self.wait = min(2**self.failures, LONGEST_WAIT)

    def is_near(self, gain: float, statistics: Statistics, tol: float) -> bool:
        """Whether the next pass should request the information."""
        near = max(NEWTON_FROM * statistics.scale, tol * statistics.weight)
        self.wait = max(self.wait - 1, 0)
        return self.always or (self.newton and self.wait == 0 and gain <= near and not self.quick)


def drive(dialogue: Climb, respond: Callable[[Expect], Statistics]) -> Ascent:
    """Run a climb; ``respond`` answers its requests.

    Examples
    --------
    >>> from consilience.fit import climb, drive
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

r"""Common experts with a gate of each site: the model of sites whose cases differ and whose experts do not.

At site :math:`m`

.. math:: p_m(y \mid x) = \sum_k \pi_k(x; \alpha_m) f_k(y \mid x; \theta)

with the experts :math:`\theta` of all sites. Sites send the statistics and the information that they send for a common
gate, each at its own mixture. In the parameters of all sites the information is an arrow: blocks
:math:`A_m` of each site's own parameters, :math:`B_m` of these with the common ones, and :math:`D` of the common ones.
A shifted Newton step eliminates the own parameters,

.. math:: (D - \sum_m B_m^\top A_m^{-1} B_m) \, \delta = g - \sum_m B_m^\top A_m^{-1} g_m,
    \qquad \delta_m = A_m^{-1} (g_m - B_m \delta),

so that its cost is linear in the number of sites. The same elimination gives the standard errors of each site's
mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri
from scipy.stats import chi2

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, Fit, InferredFit, StartEnds, StopReason
from consilience.fit.climb import (
    CAUTIOUS_SHIFT,
    CURVATURE_GROWTH,
    LARGEST_FOR_CURVATURE,
    ROUNDING,
    NewtonStep,
    adapt_shift,
    decrement_bound,
    grow_shift,
)
from consilience.fit.fitting import SMALLEST_DECREMENT, finish_fit
from consilience.fit.inference import inference_from_fit, inverse_information
from consilience.fit.left_out import LeftOut, units_of
from consilience.fit.parameters import jacobian, parameters
from consilience.fit.specification import is_at_bound
from consilience.fit.survey import SiteReport, Survey
from consilience.messages import Dialogue, PerSite, ScoreProducts
from consilience.methods.score_steps import uses_sandwich
from consilience.methods.task import Task
from consilience.model import Mixture, Penalty, Statistics
from consilience.model.expectation import Meat
from consilience.model.information import (
    complete_information,
    free_parameters,
    gate_slice,
    is_informable,
    move_parameters,
    ridge,
    score,
)
from consilience.model.received import is_in_range
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.linalg import cholesky_or_none, cholesky_solve, symmetrise


@dataclass(frozen=True, eq=False)
class EqualGates:
    """Likelihood-ratio test of one gate for all sites against a gate of each site.

    Parameters
    ----------
    statistic : float
        Twice the log-likelihood that the sites' own gates gain; NaN if no round evaluated it.
    degrees : int
        Number of additional parameters.
    """

    statistic: float
    degrees: int

    @property
    def p_value(self) -> float:
        """Probability of a larger statistic if all sites have one gate; NaN if the statistic is not known."""
        return float(chi2.sf(self.statistic, self.degrees)) if self.degrees else 1.0

    def __str__(self) -> str:
        if np.isnan(self.statistic):
            return "equal gates are tested after a round of refinement only"
        shown = "P < 0.001" if self.p_value < 0.001 else f"P = {self.p_value:.3f}"
        return f"likelihood ratio of equal gates: {self.statistic:.1f} on {self.degrees} degrees of freedom, {shown}"


@dataclass(frozen=True, eq=False)
class OwnGatesFit(InferredFit):
    """A fit of common experts with a gate of each site; its own mixture has the average of the gates.

    Parameters
    ----------
    inference : Inference
        Standard errors of the experts, and of the average gate of these sites.
    fits : mapping of str to InferredFit
        Fit of each site: the common experts with its own gate.
    test : EqualGates
    reports : tuple of SiteReport
        How each site was used, if the method has reports of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import FederatedEM, Federation, MixtureOfRegressions
    >>> rng = np.random.default_rng(0)
    >>> def site(share):
    ...     x = rng.normal(size=(300, 1))
    ...     first = rng.random(300) < share
    ...     return x, np.where(first, 2 * x[:, 0], 4 - x[:, 0]) + 0.5 * rng.normal(size=300)
    >>> sites = Federation({"north": site(0.5), "south": site(0.9)})
    >>> result = sites.fit(MixtureOfRegressions(2, random_state=0), method=FederatedEM(per_site="shares"))
    >>> [float(model.weights_[0].round(1)) for model in result.models.values()], result.fit.test.p_value < 0.001
    ([0.5, 0.9], True)
    """

    fits: Mapping[str, InferredFit]
    test: EqualGates
    reports: tuple[SiteReport, ...] = ()

    @property
    def parameter_count(self) -> int:
        """Number of free parameters of the experts and of all gates."""
        return super().parameter_count + self.test.degrees

    def evidence(self) -> Sequence[SiteReport]:
        """Return what is known of each site."""
        return self.survey.added_to(self.reports) if self.reports else super().evidence()

    def site_fits(self) -> Mapping[str, Fit]:
        """Return the fit of each site, with standard errors."""
        return self.fits

    def shares(self, level: float = 0.95) -> dict[str, list[Any]]:
        """Return the shares of the experts at each site with intervals, as the columns of a table.

        The share of an expert is the mean of its gate over the rows of the site. Intervals are symmetric in log odds.
        """
        columns: dict[str, list[Any]] = {name: [] for name in ("site", "expert", "share", "lower", "upper")}
        for site, fit in self.fits.items():
            for k, row in enumerate(share_intervals(fit, level)):
                for column, value in zip(columns.values(), (site, k, *row.tolist()), strict=True):
                    column.append(value)
        return columns


def share_intervals(fit: InferredFit, level: float) -> Array:
    """Compute the mean gate of each expert over the rows of a fit with its interval, ``(K, 3)``; NaN if withheld."""
    mixture, statistics, gate = fit.ascent.mixture, fit.ascent.statistics, gate_slice(fit.ascent.mixture)
    shares = statistics.gate.plain[: mixture.K] / max(float(statistics.gate.plain[: mixture.K].sum()), 1.0)
    spread = np.full(mixture.K, np.nan)
    inverse = inverse_information(mixture, statistics, fit.penalty)
    if inverse is not None and "experts" not in fit.inference.withheld:
        C = mixture.gate.complete(statistics.gate) / max(statistics.weight, 1.0)
        slopes = C[:: len(C) // max(mixture.K - 1, 1) or 1]  # of the mean gate: the rows of the intercepts
        slopes = np.vstack([slopes, -slopes.sum(axis=0)])
        variance = np.sum((slopes @ inverse[gate, gate]) * slopes, axis=1)
        spread = np.sqrt(variance) / np.maximum(shares * (1 - shares), np.finfo(float).tiny)
    reach = ndtri(0.5 + level / 2) * spread
    found = np.column_stack([shares, expit(logit(shares) - reach), expit(logit(shares) + reach)])
    return np.asarray(found[fit.permutation])


# ---------------------------------------------------------------- which parameters are a site's own


def check_per_site(per_site: str | None) -> None:
    """Raise an error for a setting of a method that is none."""
    if per_site not in (None, "gate", "shares"):
        raise InvalidInputError(f"per_site={per_site!r}: expected None, 'gate' or 'shares'")


def own_parameters(mixture: Mixture, per_site: str) -> IntArray:
    """Return the positions of the parameters that each site has of its own: the gate, or its intercepts."""
    gate = gate_slice(mixture)
    places = np.arange(gate.start, gate.stop)
    if per_site == "gate" or not mixture.gate.reads_covariates:
        return places
    if not mixture.reads.intercept:
        raise InvalidInputError("per_site='shares' needs a gate with an intercept: pass fit_intercept=True")
    return places[:: mixture.reads.p]


# ---------------------------------------------------------------- the arrow


@dataclass(frozen=True, eq=False)
class Arrow:
    """A symmetric matrix of M sites' own and c common parameters, without blocks between sites.

    Parameters
    ----------
    own : (M, o, o) array
    cross : (M, o, c) array
    common : (c, c) array
    """

    own: Array
    cross: Array
    common: Array

    def __add__(self, other: Arrow) -> Arrow:
        return Arrow(self.own + other.own, self.cross + other.cross, self.common + other.common)

    def scaled(self, factor: float) -> Arrow:
        """Return the matrix times a number."""
        return Arrow(factor * self.own, factor * self.cross, factor * self.common)

    @cached_property
    def reduced(self) -> tuple[Array, Array] | None:
        """``A⁻¹ B (M, o, c)`` and the factor of ``D - Σ Bᵀ A⁻¹ B``; None if the matrix is not positive definite."""
        try:
            np.linalg.cholesky(self.own)
        except np.linalg.LinAlgError:
            return None
        X = np.asarray(np.linalg.solve(self.own, self.cross), dtype=np.float64)
        L = cholesky_or_none(symmetrise(self.common - np.einsum("moc,mod->cd", self.cross, X)))
        return None if L is None else (X, L)

    def solve(self, own: Array, common: Array) -> tuple[Array, Array] | None:
        """Solve for a right-hand side ``(M, o)`` and ``(c,)``; None if the matrix is not positive definite."""
        if self.reduced is None:
            return None
        X, L = self.reduced
        delta = cholesky_solve(L, common - np.einsum("moc,mo->c", X, own))
        of_own: Array = np.linalg.solve(self.own, own[:, :, None])[:, :, 0] - X @ delta
        return of_own, delta

    def form(self, own: Array, common: Array) -> float:
        """Compute the quadratic form of a vector."""
        of_own = np.einsum("mo,mop,mp->", own, self.own, own) + 2 * np.einsum("mo,moc,c->", own, self.cross, common)
        return float(of_own + common @ self.common @ common)


@dataclass(frozen=True, eq=False)
class JointPoint:
    """Mixtures of the sites, with common experts, and the statistics of each site at its mixture.

    Parameters
    ----------
    mixtures : mapping of str to Mixture
    statistics : mapping of str to Statistics
        With the information.
    own : (o,) array of int
        Positions of the parameters that each site has of its own.
    penalty : Penalty
    """

    mixtures: Mapping[str, Mixture]
    statistics: Mapping[str, Statistics]
    own: IntArray
    penalty: Penalty

    @property
    def first(self) -> Mixture:
        """Mixture of the first site."""
        return next(iter(self.mixtures.values()))

    @cached_property
    def common(self) -> IntArray:
        """Positions of the common parameters."""
        return np.setdiff1d(np.arange(self.first.parameter_count), self.own)

    @cached_property
    def total(self) -> Statistics:
        """Sum of the statistics over sites."""
        return reduce(add, self.statistics.values())

    @cached_property
    def ridge(self) -> Array:
        """Second derivative of the ridges at one site."""
        return ridge(self.first, self.penalty)

    @cached_property
    def _parameters(self) -> tuple[Array, Array]:
        theta = np.array([free_parameters(mixture) for mixture in self.mixtures.values()])
        return theta[:, self.own], theta[0, self.common]

    @cached_property
    def value(self) -> float:
        """Penalised log-likelihood of all rows."""
        own, common = self._parameters
        R = self.ridge
        of_own = np.einsum("mo,op,mp->", own, R[np.ix_(self.own, self.own)], own)
        of_common = common @ R[np.ix_(self.common, self.common)] @ common
        return float(self.total.log_likelihood - 0.5 * (of_own + of_common))

    def _arrow(self, matrices: Array) -> Arrow:
        """Return the sum of the sites' matrices ``(M, P, P)``, with the ridges."""
        own, common = self.own, self.common
        of_own, of_common = self.ridge[np.ix_(own, own)], self.ridge[np.ix_(common, common)]
        return Arrow(
            matrices[:, own[:, None], own] + of_own,
            matrices[:, own[:, None], common],
            symmetrise(matrices[:, common[:, None], common].sum(axis=0) + of_common),
        )

    @cached_property
    def observed(self) -> Arrow:
        """Observed information of all parameters, with the ridges."""
        return self._arrow(np.array([statistics.information for statistics in self.statistics.values()]))

    @cached_property
    def complete(self) -> Arrow:
        """Information if the labels were known, with the ridges."""
        pairs = zip(self.mixtures.values(), self.statistics.values(), strict=True)
        return self._arrow(np.array([complete_information(*pair) for pair in pairs]))

    @cached_property
    def gradient(self) -> tuple[Array, Array]:
        """Gradient of the penalised likelihood in the own ``(M, o)`` and in the common ``(c,)`` parameters."""
        pairs = zip(self.mixtures.values(), self.statistics.values(), strict=True)
        scores, (own, common), R = np.array([score(*pair) for pair in pairs]), self._parameters, self.ridge
        of_common = scores[:, self.common].sum(axis=0) - R[np.ix_(self.common, self.common)] @ common
        return scores[:, self.own] - own @ R[np.ix_(self.own, self.own)], of_common

    def step(self, shift: float) -> tuple[NewtonStep, Mapping[str, Mixture]] | None:
        """Return the step with this shift and the mixtures after it; None if it does not exist."""
        shifted = self.observed + self.complete.scaled(shift) if shift else self.observed
        found = shifted.solve(*self.gradient)
        if found is None:
            return None
        own, common = found
        slope = float(np.sum(self.gradient[0] * own) + self.gradient[1] @ common)
        taken = NewtonStep(common, slope - 0.5 * self.observed.form(own, common), shift)
        delta, ahead = np.empty(self.first.parameter_count), {}
        for (site, mixture), of_site in zip(self.mixtures.items(), own, strict=True):
            delta[self.own], delta[self.common] = of_site, common
            if not np.all(np.isfinite(delta)):
                return None
            ahead[site] = move_parameters(mixture, delta)
        usable = all(each.experts.admissible(self.penalty) and is_in_range(each) for each in ahead.values())
        return (taken, ahead) if usable else None

    def ahead(self, shift: float) -> tuple[NewtonStep, Mapping[str, Mixture]] | None:
        """Return the step with the smallest usable shift of at least ``shift``; None if there is none."""
        while shift <= LARGEST_FOR_CURVATURE:
            if (found := self.step(shift)) is not None:
                return found
            shift = grow_shift(shift, CURVATURE_GROWTH)
        return None

    def among(self, sites: Mapping[str, object]) -> JointPoint:
        """Return the point without the sites that have left."""
        if len(sites) == len(self.mixtures):
            return self
        kept = {site: self.mixtures[site] for site in self.mixtures if site in sites}
        return JointPoint(kept, {site: self.statistics[site] for site in kept}, self.own, self.penalty)


# ---------------------------------------------------------------- the climb


@dataclass(frozen=True, eq=False)
class OwnGatesEnd:
    """End of a climb: the last accepted point, the values of all accepted points, passes, and the reason of the end."""

    point: JointPoint
    trace: tuple[float, ...]
    passes: int
    stop: StopReason


def ask_own(mixtures: Mapping[str, Mixture]) -> Dialogue[Mapping[str, Statistics]]:
    """Ask each site for the statistics at its own mixture, with the information."""
    answers: Mapping[str, Statistics] = yield PerSite({s: Expect(m, information=True) for s, m in mixtures.items()})
    return answers


def climb_own_gates(
    starts: Mapping[str, Mixture], own: IntArray, penalty: Penalty, max_iter: int, *, shift: float = CAUTIOUS_SHIFT
) -> Dialogue[OwnGatesEnd]:
    """Maximise the likelihood of all rows over the common experts and the gates of the sites.

    A step is kept if it raises the penalised likelihood; otherwise a shorter one is taken from the same point. After
    convergence one more step takes the result to rounding.

    Parameters
    ----------
    starts : mapping of str to Mixture
        Mixture of each site, with common experts.
    own : (o,) array of int
        Positions of the parameters that each site has of its own.
    penalty : Penalty
    max_iter : int
    shift : float
        Of the first step: 0 for a Newton step.
    """
    answers = yield from ask_own(starts)
    at = JointPoint({site: starts[site] for site in answers}, answers, own, penalty)
    trace, passes, stop = [at.value], 1, StopReason.MAX_ITER
    for _ in range(max_iter):
        newton, bound = at.step(0.0), decrement_bound(at.total.weight)
        if newton is not None and newton[0].decrement < bound:
            if stop is StopReason.CONVERGED_NEWTON or newton[0].decrement < SMALLEST_DECREMENT * at.total.weight:
                return OwnGatesEnd(at, tuple(trace), passes, StopReason.CONVERGED_NEWTON)
            stop, shift = StopReason.CONVERGED_NEWTON, 0.0
        found = at.ahead(shift)
        if found is None:
            return OwnGatesEnd(at, tuple(trace), passes, StopReason.STALLED)
        answers, passes = (yield from ask_own(found[1])), passes + 1
        at = at.among(answers)
        new = JointPoint({site: found[1][site] for site in answers}, answers, own, penalty)
        if not new.value >= at.value - ROUNDING * new.total.scale:
            if stop is StopReason.CONVERGED_NEWTON:
                return OwnGatesEnd(at, tuple(trace), passes, stop)
            shift = grow_shift(found[0].shift)
            continue
        shift, at = adapt_shift(found[0], new.value - at.value), new
        trace.append(at.value)
    return OwnGatesEnd(at, tuple(trace), passes, stop)


OTHER_CASES = (
    "the joint experts explain its rows, the joint gate does not: it has other shares of the experts than the other "
    'sites (FederatedEM(per_site="gate") gives it a gate of its own)'
)
"""Remark on a site with another case mix."""
GATE_STEPS = 8
"""Maximum number of EM steps on a site's own gate by which it is told whether common experts explain its rows."""
SHORTER = 0.25
"""Factor of a step that follows one by which the likelihood fell: a Newton step from a sharp gate can be far too long.
"""
SMALL_GAIN = 0.003
"""Log-likelihood per row that an EM step on a gate gains when the steps end."""


def climb_gates(
    mixtures: Mapping[str, Mixture], penalty: Penalty, *, shapes: bool = False
) -> Dialogue[dict[str, tuple[Mixture, Statistics]]]:
    """Take EM steps on the gate of each site alone; return its mixture with the best gate, and the statistics there.

    After a step by which the likelihood falls, a gate without slopes is tried, and then shorter steps. With ``shapes``
    the experts have shapes of the site as well: its rows may be noisier.
    """
    fraction = dict.fromkeys(mixtures, 1.0)

    def step(site: str, gain: float, mixture: Mixture, statistics: Statistics) -> Mixture | None:
        fraction[site] = min(2 * fraction[site], 1.0) if gain > 0 else SHORTER * fraction[site]
        if fraction[site] == SHORTER and gain <= 0 and mixture.reads.intercept:
            following = _with_flat_gate(mixture, statistics)
        elif not 0 <= gain < SMALL_GAIN * statistics.weight:
            following = _with_gate_after(mixture, statistics, penalty, fraction[site])
        else:
            return None
        return _with_shapes(following, statistics, penalty) if shapes else following

    return _climb_each(mixtures, step)


def climb_shapes(mixtures: Mapping[str, Mixture], penalty: Penalty) -> Dialogue[dict[str, tuple[Mixture, Statistics]]]:
    """Take EM steps on the shapes of each site's experts alone; return its mixture with them and the statistics."""

    def step(_: str, gain: float, mixture: Mixture, statistics: Statistics) -> Mixture | None:
        return _with_shapes(mixture, statistics, penalty) if gain >= SMALL_GAIN * statistics.weight else None

    return _climb_each(mixtures, step)


def _climb_each(
    mixtures: Mapping[str, Mixture], step: Callable[[str, float, Mixture, Statistics], Mixture | None]
) -> Dialogue[dict[str, tuple[Mixture, Statistics]]]:
    """Climb at each site alone: ``step(site, gain, best, statistics)`` returns what comes next there, or None."""
    best: dict[str, tuple[Mixture, Statistics]] = {}
    for _ in range(GATE_STEPS + 1):
        answers: Mapping[str, Statistics] = yield PerSite({site: Expect(at) for site, at in mixtures.items()})
        asked = {}
        for site, found in answers.items():
            gain = found.log_likelihood - best[site][1].log_likelihood if site in best else np.inf
            if gain > 0:
                best[site] = mixtures[site], found
            if (following := step(site, gain, *best[site])) is not None:
                asked[site] = following
        if not asked:
            break
        mixtures = asked
    return best


def _with_flat_gate(mixture: Mixture, statistics: Statistics) -> Mixture:
    shares = np.maximum(statistics.gate.plain[: mixture.K], 0.5)
    return replace(mixture, gate=mixture.gate.with_shares(shares / shares.sum()))


def _with_shapes(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Mixture:
    shapes = mixture.experts.shapes_at(statistics.experts, penalty)
    return replace(mixture, experts=mixture.experts.with_shape_values(shapes))


def _with_gate_after(mixture: Mixture, statistics: Statistics, penalty: Penalty, fraction: float) -> Mixture:
    gate = mixture.gate.step(statistics.gate, penalty, intercept=mixture.reads.intercept, fraction=fraction)
    return replace(mixture, gate=gate)


# ---------------------------------------------------------------- the fit


def check_own_gates(mixture: Mixture) -> None:
    """Raise an error if the information of a model is not available, which a gate of each site needs."""
    if not is_informable(mixture):
        raise InvalidInputError(
            f"per_site needs the information of {mixture.parameter_count} parameters, which is not computed: use fewer "
            "covariates or experts"
        )


def best_end(ends: Sequence[OwnGatesEnd], penalty: Penalty) -> OwnGatesEnd:
    """Return the end with the highest likelihood; one with a shape at its bound is likely spurious."""
    return min(ends, key=lambda each: (is_at_bound(each.point.first, penalty), -each.point.value))


def ask_own_meats(end: OwnGatesEnd, task: Task) -> Dialogue[Mapping[str, Meat] | None]:
    """Ask each site for the products of scores at its own mixture; None where one table would not use them."""
    point = end.point
    if not uses_sandwich(point.total, point.first, task):
        return None
    second = point.total.experts.second
    answers: Mapping[str, Meat] = yield PerSite({s: ScoreProducts(m, second) for s, m in point.mixtures.items()})
    return answers if len(answers) == len(point.mixtures) else None


def own_gates_fit(
    ends: Sequence[OwnGatesEnd],
    common: Fit,
    meats: Mapping[str, Meat] | None = None,
    *,
    institutions: Mapping[str, str],
) -> OwnGatesFit:
    """Return the fit at the best end of several climbs, given the fit with one gate for all sites."""
    penalty = common.penalty
    end = best_end(ends, penalty)
    point = end.point
    values = tuple(each.point.value for each in ends)
    starts = StartEnds(values, tuple(f"start {i}" for i in range(len(ends)))) if len(ends) > 1 else common.starts
    joint = Sandwich.of(point, meats)
    centre = _average(point, joint)
    ascent = Ascent(centre.mixture, centre.statistics, end.trace, end.passes, end.passes, 0, end.stop)
    fit = replace(finish_fit(ascent, penalty, starts), meat=centre.meat)
    fits = {}
    for m, (site, mixture) in enumerate(point.mixtures.items()):
        of_site = replace(ascent, mixture=mixture, statistics=_site_statistics(point, m))
        own = Fit(mixture.permuted(fit.permutation).raw(), of_site, fit.permutation, penalty, StartEnds())
        fits[site] = _with_errors(replace(own, meat=None if joint is None else joint.of_site(m)))
    gain = 2 * (point.total.log_likelihood - common.log_likelihood)
    test = EqualGates(max(gain, 0.0), (len(fits) - 1) * len(point.own))
    left_out = experts_without(point, fit, institutions)
    told = replace(_with_errors(fit), survey=unadvised(common.survey), left_out=left_out)
    return OwnGatesFit(**vars(told), fits=fits, test=test)


def unadvised(survey: Survey) -> Survey:
    """Return the survey without the advice to give each site a gate of its own."""
    sites = (replace(s, notes=tuple(said for said in s.notes if said != OTHER_CASES)) for s in survey.sites)
    return replace(survey, sites=tuple(sites))


def experts_without(point: JointPoint, fit: Fit, institutions: Mapping[str, str]) -> LeftOut | None:
    """Estimate the change of the common parameters without each institution, by one Newton step; NaN for the gate.

    With the own parameters eliminated the information of the common ones is a sum over sites,
    ``S_m = D_m - B_mᵀ A_m⁻¹ B_m``, and so is their score ``s_m``: the step is ``-(S - Σ_u S_m)⁻¹ Σ_u s_m``.
    """
    units = units_of(point.mixtures, institutions)
    if point.observed.reduced is None or len(units) < 2:
        return None
    parts = [_eliminate_own(point, m) for m in range(len(point.mixtures))]
    S, scores = np.array([part[0] for part in parts]), np.array([part[1] for part in parts])
    total = S.sum(axis=0) + point.ridge[np.ix_(point.common, point.common)]
    J, place = jacobian(point.first, fit.permutation)[:, point.common], {s: m for m, s in enumerate(point.mixtures)}
    V = np.sum((J @ np.linalg.inv(total)) * J, axis=1)
    known = np.where(np.arange(len(J)) < parameters(fit.mixture).gate.size, np.nan, 1.0)
    changes, chance = {}, {}
    for unit, sites in units.items():
        own = [place[site] for site in sites]
        L = cholesky_or_none(symmetrise(total - S[own].sum(axis=0)))
        if L is None:
            changes[unit] = chance[unit] = np.full(len(J), np.nan)
        else:
            changes[unit] = -known * (J @ cholesky_solve(L, scores[own].sum(axis=0)))
            V_left = np.sum((J @ cholesky_solve(L, np.eye(len(L)))) * J, axis=1)
            chance[unit] = np.sqrt(np.maximum(V_left / np.where(V > 0, V, np.nan) - 1, 0.0))
    return LeftOut(changes, chance, units)


def _eliminate_own(point: JointPoint, m: int) -> tuple[Array, Array]:
    """Return a site's information ``(c, c)`` and score ``(c,)`` of the common parameters, its own eliminated."""
    site = list(point.mixtures)[m]
    statistics, common = point.statistics[site], point.common
    found, information = score(point.mixtures[site], statistics), statistics.information
    assert information is not None  # the climb asks for it  # noqa: S101
    A, B = point.observed.own[m], point.observed.cross[m]
    gradient = point.gradient[0][m]
    return (
        information[np.ix_(common, common)] - B.T @ np.linalg.solve(A, B),
        found[common] - B.T @ np.linalg.solve(A, gradient),
    )


def _with_errors(fit: Fit) -> InferredFit:
    if fit.ascent.statistics.information is None:
        return InferredFit.without(fit, "the information is not positive definite: the likelihood is flat")
    return InferredFit(**vars(fit), inference=inference_from_fit(fit))


def _site_statistics(point: JointPoint, m: int) -> Statistics:
    """Return the statistics of a site's mixture, for standard errors: the experts are known from all sites.

    Its information is that of its own and the common parameters once the own parameters of the others are eliminated;
    scores in common parameters are those of all sites.
    """
    statistics = replace(list(point.statistics.values())[m], experts=point.total.experts)
    if point.first.gate.parameter_count > len(point.own):
        first = point.total.gate.first.copy()
        first[:, 0] = statistics.gate.first[:, 0]
        statistics = replace(statistics, gate=replace(statistics.gate, first=first))
    if point.observed.reduced is None:
        return replace(statistics, information=None)
    arrow, P = point.observed, point.first.parameter_count
    J = np.empty((P, P))
    own, common = point.own, point.common
    J[np.ix_(own, own)], J[np.ix_(own, common)], J[np.ix_(common, own)] = arrow.own[m], arrow.cross[m], arrow.cross[m].T
    J[np.ix_(common, common)] = arrow.common - _eliminated(arrow, [i for i in range(len(arrow.own)) if i != m])
    return replace(statistics, information=symmetrise(J) - point.ridge)


def _eliminated(arrow: Arrow, sites: Sequence[int]) -> Array:
    """Compute ``Σ Bᵀ A⁻¹ B`` over sites, ``(c, c)``."""
    cross = arrow.cross[sites]
    return np.asarray(np.einsum("moc,mod->cd", cross, np.linalg.solve(arrow.own[sites], cross)))


@dataclass(frozen=True, eq=False)
class Sandwich:
    r"""Products of the scores of each site at its mixture, for standard errors of all mixtures.

    Rows of different sites are independent, so that the products of the scores of all parameters are an arrow, as the
    information is. Eliminating a site's own parameters turns its scores into
    :math:`s_c - B_m^\top A_m^{-1} s_m` in the common ones.

    Parameters
    ----------
    point : JointPoint
    meats : tuple of Meat
        One for each site.
    """

    point: JointPoint
    meats: tuple[Meat, ...]

    @classmethod
    def of(cls, point: JointPoint, meats: Mapping[str, Meat] | None) -> Sandwich | None:
        """Return the sandwich; None without products, or where the information is not positive definite."""
        if meats is None or point.observed.reduced is None:
            return None
        return cls(point, tuple(meats[site] for site in point.mixtures))

    @cached_property
    def _reduced(self) -> Array:
        """Products of each site's scores in the common parameters, its own ones eliminated, ``(M, c, c)``."""
        own, common = self.point.own, self.point.common
        assert self.point.observed.reduced is not None  # noqa: S101 - for the type checker: `of` has looked
        found = []
        for X, meat in zip(self.point.observed.reduced[0], self.meats, strict=True):
            M = meat.products
            cross = X.T @ M[np.ix_(own, common)]
            found.append(M[np.ix_(common, common)] - cross - cross.T + X.T @ M[np.ix_(own, own)] @ X)
        return np.array(found)

    def of_site(self, m: int) -> Meat:
        """Return the products for the own parameters of site ``m`` and the common ones."""
        common = self.point.common
        products = self.meats[m].products.copy()
        products[np.ix_(common, common)] += self._reduced.sum(axis=0) - self._reduced[m]
        return self._with(products)

    def of_linear(self, maps: Sequence[Array], information: Array) -> Meat:
        """Return the products that give estimates ``Σ T_m s_m`` their covariance by way of an information."""
        covariance = _sum_products(maps, [meat.products for meat in self.meats])
        return self._with(symmetrise(information @ covariance @ information))

    def _with(self, products: Array) -> Meat:
        total = reduce(add, self.meats)
        return Meat(products, total.weight, total.clusters)


def _sum_products(maps: Sequence[Array], matrices: Iterable[Array]) -> Array:
    """Compute ``Σ T_m M_m T_mᵀ``."""
    return symmetrise(np.sum([T @ M @ T.T for T, M in zip(maps, matrices, strict=True)], axis=0))


@dataclass(frozen=True, eq=False)
class _Centre:
    """The mixture with the average gate, statistics with its information, and products of scores."""

    mixture: Mixture
    statistics: Statistics
    meat: Meat | None = None


def _average(point: JointPoint, joint: Sandwich | None) -> _Centre:
    """Return the mixture with the average gate of the sites, by rows, and what its standard errors need.

    An average ``Σ w_m α_m`` and the common parameters change with the scores of site m by the matrix ``T_m``
    (:func:`_changes`); their covariance is ``Σ T_m J_m T_mᵀ`` with the information of each site.
    """
    weights = np.array([statistics.weight for statistics in point.statistics.values()])
    weights = weights / max(weights.sum(), 1.0)
    mixture = _with_average_gate(point, weights)
    reduced = point.observed.reduced
    if reduced is None:
        return _Centre(mixture, replace(point.total, information=None))
    slopes = [w * slope for w, slope in zip(weights, _average_slopes(point, weights), strict=True)]
    maps = _changes(point, reduced, slopes)
    covariance = _sum_products(maps, _site_information(point))
    factor = cholesky_or_none(covariance)
    if factor is None:
        return _Centre(mixture, replace(point.total, information=None))
    information = symmetrise(cholesky_solve(factor, np.eye(len(factor))))
    statistics = replace(point.total, information=information - point.ridge)
    return _Centre(mixture, statistics, None if joint is None else joint.of_linear(maps, information))


def _changes(point: JointPoint, reduced: tuple[Array, Array], slopes: Sequence[Array]) -> list[Array]:
    """Compute the change of ``Σ G_m α_m`` and of the common parameters by the scores of each site, ``(P, P)`` each."""
    X, L = reduced
    own, common, C = point.own, point.common, cholesky_solve(L, np.eye(len(L)))
    of_common = sum((G @ x for G, x in zip(slopes, X, strict=True)), np.zeros(X.shape[1:])) @ C
    maps = []
    for G, x, A in zip(slopes, X, point.observed.own, strict=True):
        T = np.empty((point.first.parameter_count,) * 2)
        T[np.ix_(common, common)], T[np.ix_(common, own)] = C, -C @ x.T
        T[np.ix_(own, common)] = -of_common
        T[np.ix_(own, own)] = np.linalg.solve(A, G.T).T + of_common @ x.T
        maps.append(T)
    return maps


def _site_information(point: JointPoint) -> Array:
    """Return the information of each site, ``(M, P, P)``; that of the common parameters is divided equally."""
    arrow, own, common = point.observed, point.own, point.common
    J = np.empty((len(arrow.own), point.first.parameter_count, point.first.parameter_count))
    J[:, own[:, None], own], J[:, own[:, None], common] = arrow.own, arrow.cross
    J[:, common[:, None], own] = arrow.cross.transpose(0, 2, 1)
    J[:, common[:, None], common] = arrow.common / len(arrow.own)
    return J


def _with_average_gate(point: JointPoint, weights: Array) -> Mixture:
    """Return the common experts with the average of coefficients, or of probabilities for a constant gate."""
    gates = [mixture.gate for mixture in point.mixtures.values()]
    read = sum(w * gate.read() for w, gate in zip(weights, gates, strict=True))
    if not point.first.gate.reads_covariates:
        return replace(point.first, gate=gates[0].with_shares(read[:, 0]))
    change = (read - gates[0].read())[:-1] - (read - gates[0].read())[-1]
    return replace(point.first, gate=gates[0].moved(change.ravel()))


def _average_slopes(point: JointPoint, weights: Array) -> list[Array]:
    """Compute the derivative of the average gate's own parameters by those of each site, without the weights."""
    o = len(point.own)
    if point.first.gate.reads_covariates:
        return [np.eye(o)] * len(weights)
    average = _with_average_gate(point, weights).gate.read()[:, 0]
    to_odds = np.column_stack([np.diag(1 / average[:-1]), np.full(o, -1 / average[-1])])
    return [to_odds @ mixture.gate.read_jacobian(np.eye(1)) for mixture in point.mixtures.values()]

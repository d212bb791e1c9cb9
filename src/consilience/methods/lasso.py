"""Lasso of mixtures: coefficients of experts and gate that are exactly zero, along a path of penalties.

At a strength ``λ`` the path maximises

    log-likelihood - ridge - n λ (Σ_k Σ_j |b_kj| / σ_k + Σ_j ‖a_j‖)

over all parameters, where ``b_kj`` are the slopes of the experts and ``a_j = (a_1j, …, a_Kj)`` those of the gate, both
of standardised covariates, and ``n`` is the number of rows. Slopes are in units of the standard deviation ``σ_k`` of a
normal response, and ``σ_k = 1`` for other families: the path does not depend on units, and for one regression the
maximum is unique (N. Städler, P. Bühlmann and S. van de Geer, ℓ1-penalization for mixture regression models, TEST
2010). A covariate is in the gate or is not, for all experts alike. Each step of EM minimises its quadratic by
coordinate descent, which needs the sums of an ordinary step and no other question. The path begins at the fit without
penalty and goes from weak to strong penalties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, Fit, Problem, StopReason
from consilience.fit.climb import HALVINGS, ROUNDING
from consilience.fit.criteria import bic
from consilience.fit.inference import InferredFit, withhold_inference
from consilience.fit.parameters import parameters
from consilience.fit.survey import Survey
from consilience.messages import Dialogue, Each, LogLikelihood, Summarise, Total
from consilience.methods.federated_em import climbs, judges, large_sites, starting_points
from consilience.methods.site_reports import total_summary
from consilience.methods.task import Method, QuestionKind, Task, check_whole
from consilience.model import Experts, Mixture, Penalty, Statistics
from consilience.model.information import free_parameters, move_parameters
from consilience.model.multinomial import centre_coefficients
from consilience.numerics.arrays import Array, Mask

CLIMBS = 4
"""Number of starts of the fit without penalty."""
SWEEPS = 1_000
TIGHT = 1e-10
"""Change of a coefficient, of a standardised covariate, below which coordinate descent has converged."""
FIRST_LEAP, LENGTHENED = 4.0, 4.0
"""Steps of the first leaps at most, and factor by which this most grows where it is reached, or shrinks in vain."""
SELECTED = "coefficients were selected on the same rows: intervals that ignore the selection would be too short"


@dataclass(frozen=True, eq=False)
class Support:
    """Coefficients that are not zero.

    Parameters
    ----------
    experts : (K, p) array of bool
        Of each expert, the intercept among them.
    gate : (p,) array of bool
        Covariates of the gate, the intercept among them; empty for a constant gate.
    """

    experts: Mask
    gate: Mask

    @classmethod
    def of(cls, mixture: Mixture) -> Support:
        """Return the support of a mixture; intercepts are always in it."""
        experts, gate = slopes(mixture)
        intercepts = np.ones((mixture.K, int(mixture.design.intercept)), dtype=bool)
        first = np.ones(int(mixture.reads.intercept) if mixture.gate.reads_covariates else 0, dtype=bool)
        return cls(np.hstack([intercepts, experts != 0]), np.concatenate([first, np.any(gate != 0, axis=0)]))

    def same(self, other: Support) -> bool:
        """Whether two supports are the same."""
        return np.array_equal(self.experts, other.experts) and np.array_equal(self.gate, other.gate)

    def parameter_count(self, mixture: Mixture) -> int:
        """Return the number of parameters of a mixture with this support."""
        zeros = int(np.sum(~self.experts)) + (mixture.K - 1) * int(np.sum(~self.gate))
        return mixture.parameter_count - zeros


@dataclass(frozen=True, eq=False)
class LassoStep:
    """One penalty of a path.

    Parameters
    ----------
    strength : float
        The penalty ``λ``, per row.
    mixture : Mixture
        With the penalty, in the standardised coordinates of the fit; experts have one order along the path.
    refit : Ascent
        The fit of the coefficients that are not zero, without the penalty.
    parameter_count : int
        Number of parameters that are not zero.
    bic : float
        Of the refit.
    held_out : float
        Log-likelihood of the held-out sites at the refit; NaN without them.

    Examples
    --------
    >>> from consilience.methods import LassoStep
    >>> LassoStep.__dataclass_fields__["held_out"].default
    nan
    """

    strength: float
    mixture: Mixture
    refit: Ascent
    parameter_count: int
    bic: float
    held_out: float = float("nan")


@dataclass(frozen=True, eq=False)
class LassoFit(InferredFit):
    """Fit of the selected coefficients, without intervals, and the path of penalties.

    Parameters
    ----------
    path : tuple of LassoStep
        From the weakest penalty to the strongest.
    chosen : int
        Index of the chosen step.

    Examples
    --------
    >>> from consilience.methods import LassoFit
    >>> LassoFit.__dataclass_fields__["chosen"].default
    0
    """

    path: tuple[LassoStep, ...] = ()
    chosen: int = 0

    @property
    def parameter_count(self) -> int:
        """Number of parameters that are not zero."""
        return self.path[self.chosen].parameter_count


@dataclass(frozen=True)
class Lasso(Method):
    """Select covariates of experts and gate by the lasso: a path of penalties, and a choice by BIC or held-out sites.

    The penalty is on the slopes of standardised covariates, so that units do not matter; a category has a slope for
    each level, and these are selected one by one. For each penalty the coefficients that are not zero are fitted again
    without it, and BIC is that of this fit, which is also the model that is returned. Intervals are withheld, since
    coefficients were selected: fit the selected covariates to other rows to have some. Sites are asked for the sums of
    exact EM alone. For one response that is a number.

    Parameters
    ----------
    strengths : tuple of float or None
        Penalties ``λ`` per row; None for ``n_strengths`` from the least at which nearly all slopes are zero down to a
        hundredth of it.
    n_strengths : int
    held_out : tuple of str
        Sites whose rows are not fitted but judge the penalties by their likelihood; the choice is by BIC without any.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, Lasso, MixtureOfRegressions
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 6))
    >>> y = 2 * X[:, 0] - X[:, 3] + rng.normal(size=400)
    >>> sites = Federation({"north": (X[:150], y[:150]), "south": (X[150:], y[150:])})
    >>> result = sites.fit(MixtureOfRegressions(1), Lasso())
    >>> np.flatnonzero(result.model.coef_)
    array([0, 3])
    """

    strengths: tuple[float, ...] | None = None
    n_strengths: int = 20
    held_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_whole("n_strengths", self.n_strengths)
        given = () if self.strengths is None else self.strengths
        if self.strengths is not None and (not given or not all(np.isfinite(s) and s >= 0 for s in given)):
            raise InvalidInputError(f"strengths={self.strengths!r}: expected numbers of at least 0")

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return the questions of exact EM, and likelihoods at held-out sites."""
        return [
            QuestionKind(Summarise, "first", 1),
            QuestionKind(Expect, "in each step, at each penalty"),
            QuestionKind(LogLikelihood, "to choose among starts and penalties"),
        ]

    def most_rounds(self, task: Task) -> int:
        """Return the number of rounds after which a run is ended: those of a fit for each penalty."""
        return super().most_rounds(task) * (1 + len(self.strengths or range(self.n_strengths)))

    def dialogue(self, task: Task) -> Dialogue[tuple[Fit, ...]]:
        """Return the fit at the chosen penalty."""
        task = replace(task, sandwich=False)  # there will be no intervals
        specification, members = task.only("Lasso"), self._members(task)
        summaries = yield Each(Summarise(task.d, task.q), members)
        problem = task.problem(specification, total_summary(summaries))
        check_lasso(problem.blank)
        starters = large_sites(summaries)
        starts = yield from starting_points(problem, task, starters, CLIMBS, judges(tuple(summaries), starters))
        (first,), _ = yield from climbs([problem], [starts], Survey(), members, task)
        at = first.ascent
        given = self.strengths or strengths_from(at, problem.penalty, self.n_strengths)
        path: list[LassoStep] = []
        for strength in sorted(given):
            at = yield from climb_lasso(at, strength, problem, members)
            path.append((yield from refitted(at, strength, path, problem, members)))
        if self.held_out:
            path = yield from judged(path, self.held_out)
        chosen = int(np.argmin([-step.held_out if self.held_out else step.bic for step in path]))
        fit = problem.fit(path[chosen].refit)
        inference = withhold_inference(parameters(fit.mixture), "observed", SELECTED)
        kept = {name: getattr(fit, name) for name in fit.__dataclass_fields__}
        return (LassoFit(**kept | {"starts": first.starts}, inference=inference, path=tuple(path), chosen=chosen),)

    def _members(self, task: Task) -> tuple[str, ...] | None:
        """Return the sites whose rows are fitted; None for all."""
        unknown = [site for site in self.held_out if site not in task.sites]
        left = tuple(site for site in task.sites if site not in self.held_out)
        if unknown or not left:
            raise InvalidInputError(
                f"held_out={self.held_out!r}: expected some of the sites {', '.join(task.sites)}, and not all"
            )
        return left if self.held_out else None


def check_lasso(blank: Mixture) -> None:
    """Raise an error for a mixture whose experts have more than one linear predictor."""
    experts = blank.experts
    if experts.classes or experts.channels != 1 or experts.q != 1:
        raise InvalidInputError("Lasso is for one response that is a number")
    if has_units(experts) and (experts.ties_shapes or experts.shape_parameters != experts.K):
        raise InvalidInputError(
            f"Lasso needs one variance of each expert, or counts, shares or positive responses: {experts.family} "
            "experts of this form have other shapes"
        )


# ---------------------------------------------------------------- the path


def strengths_from(end: Ascent, penalty: Penalty, number: int) -> tuple[float, ...]:
    """Return penalties from the least that would remove all slopes at these labels down to a hundredth of it."""
    largest, first = 0.0, int(end.mixture.design.intercept)
    unit, rows = slope_units(end.mixture.experts), end.statistics.experts.plain[: end.mixture.K]
    variances = end.mixture.experts.shapes_at(end.statistics.experts, penalty)
    for k, (slope, H, b) in enumerate(expert_quadratics(end.mixture, end.statistics, penalty)):
        gradient, change = without_slopes(slope, H, b, first)
        if has_units(end.mixture.experts):  # the residuals without slopes are larger
            wide = np.sqrt(variances[k, 0] + unit[k] ** 2 * fall(slope, H, change) / max(rows[k], 1.0))
            gradient = gradient * unit[k] ** 2 / wide
        largest = max(largest, float(np.abs(gradient).max(initial=0.0)))
    if end.mixture.gate.reads_covariates and end.mixture.K > 1:
        slope, H, theta = gate_quadratic(end.mixture, end.statistics, penalty)
        p = theta.shape[1]
        gap = (H @ theta.ravel() + slope.ravel()).reshape(theta.shape)
        start = int(end.mixture.reads.intercept)
        if p > start:
            largest = max(largest, float(np.linalg.norm(centre_coefficients(gap[:, start:]), axis=0).max()))
    top = largest / max(end.statistics.weight, 1.0)
    if not top > 0:
        raise InvalidInputError("Lasso: the model has no slopes to select")
    return tuple(float(s) for s in top * np.geomspace(0.01, 1.0, number))


def without_slopes(slope: Array, H: Array, b: Array, first: int) -> tuple[Array, Array]:
    """Return the gradient of a quadratic in the slopes where these are 0 and the intercept is best, and the way there.

    Parameters
    ----------
    slope, H, b : array
        Gradient, curvature and coefficients.
    first : int
        Number of intercepts.
    """
    change = -b
    if first:
        change[0] = (slope[0] + H[0, 1:] @ b[1:]) / max(H[0, 0], np.finfo(float).tiny)
    return (slope - H @ change)[first:], change


def fall(slope: Array, H: Array, change: Array) -> float:
    """Return minus twice the rise of a quadratic along a change of its coefficients."""
    return float(change @ H @ change - 2 * slope @ change)


@dataclass(frozen=True, eq=False)
class Reached:
    """A mixture of a climb, the statistics at it, and its penalised log-likelihood."""

    mixture: Mixture
    statistics: Statistics
    value: float


def climb_lasso(
    start: Ascent, strength: float, problem: Problem, sites: tuple[str, ...] | None, support: Support | None = None
) -> Dialogue[Ascent]:
    """Maximise the penalised log-likelihood at one strength; each step is shortened until it does not fall.

    Two steps in a row are extrapolated where that leads higher (:func:`extrapolated`). With a ``support`` the other
    coefficients, which are 0 at the start, stay so.
    """
    penalty, passes, halvings, longest, trace, stop = problem.penalty, 0, 0, FIRST_LEAP, [], StopReason.MAX_ITER

    def valued(mixture: Mixture) -> Dialogue[Reached]:
        statistics = yield Total(Expect(mixture), sites)
        return Reached(mixture, statistics, objective(mixture, statistics, penalty, strength))

    def stepped(point: Reached) -> Mixture:
        return lasso_step(point.mixture, point.statistics, penalty, strength, support or FREE)

    at = Reached(start.mixture, start.statistics, objective(start.mixture, start.statistics, penalty, strength))
    target = stepped(at)
    for _ in range(problem.max_iter):
        ahead, tries = yield from not_below(at, target, valued)
        passes, halvings = passes + tries, halvings + tries - 1
        if ahead is None:
            stop = StopReason.STALLED
            break
        trace += [at.value]
        before, gain, at = at, ahead.value - at.value, ahead
        if gain <= problem.tol * at.statistics.weight:
            stop = StopReason.CONVERGED_EM
            break
        target = stepped(at)
        leap, length = extrapolated((before.mixture, at.mixture, target), longest)
        rows = at.statistics.experts.plain[: leap.K]
        far = yield from valued(replace(leap, experts=leap.experts.bounded(penalty, rows)))
        passes += 1
        if far.value > at.value:
            trace += [at.value]
            at, target = far, stepped(far)
            longest = LENGTHENED * longest if length == longest else longest
        else:
            longest = max(FIRST_LEAP, longest / LENGTHENED)
    return Ascent(at.mixture, at.statistics, (*trace, at.value), passes, 0, halvings, stop)


def not_below(
    at: Reached, target: Mixture, valued: Callable[[Mixture], Dialogue[Reached]]
) -> Dialogue[tuple[Reached | None, int]]:
    """Return the farthest point on the way to a target whose value is not lower, and how many were tried."""
    for halving in range(HALVINGS):
        found = yield from valued(between(at.mixture, target, 0.5**halving))
        if found.value >= at.value - ROUNDING * found.statistics.scale:
            return found, halving + 1
    return None, HALVINGS


def extrapolated(three: tuple[Mixture, Mixture, Mixture], longest: float) -> tuple[Mixture, float]:
    """Return a mixture further along the way of two steps, and the length of the leap in steps.

    From ``θ_0`` over ``θ_1`` to ``θ_2``, with ``r = θ_1 - θ_0`` and ``v = θ_2 - 2 θ_1 + θ_0``, the leap of ``s =
    ‖r‖ / ‖v‖`` steps, from 1 to ``longest``, ends at ``θ_0 + 2 s r + s² v`` (R. Varadhan and C. Roland, Simple and
    globally convergent methods for accelerating the convergence of any EM algorithm, Scandinavian Journal of Statistics
    2008). Coefficients that are 0 at ``θ_2`` stay so.
    """
    a, b, c = (np.concatenate([free_parameters(each), log_sizes(each.experts)]) for each in three)
    r, v, last = b - a, c - 2 * b + a, three[2]
    length = float(np.clip(np.linalg.norm(r) / max(np.linalg.norm(v), np.finfo(float).tiny), 1.0, longest))
    change = np.where(c == 0, 0.0, a + 2 * length * r + length**2 * v - c)
    P, shapes = last.parameter_count, last.experts.shape_values()
    ahead = move_parameters(last, change[:P])  # without the shapes, which are zero there
    wider = shapes * np.exp(np.clip(change[P:], -1.0, 1.0)).reshape(shapes.shape)
    return replace(ahead, experts=ahead.experts.with_shape_values(wider)), length


def log_sizes(experts: Experts) -> Array:
    """Return the logarithms of the sizes of the shapes, flat."""
    return np.log(np.maximum(np.abs(experts.shape_values()), np.finfo(float).tiny)).ravel()


def refitted(
    end: Ascent, strength: float, path: Sequence[LassoStep], problem: Problem, sites: tuple[str, ...] | None
) -> Dialogue[LassoStep]:
    """Return the step of a path with the fit of its support without the penalty, which an earlier step may have."""
    support = Support.of(end.mixture)
    if path and Support.of(path[-1].mixture).same(support):
        return replace(path[-1], strength=strength, mixture=end.mixture)
    refit = yield from climb_lasso(end, 0.0, problem, sites, support)
    count = support.parameter_count(end.mixture)
    score = bic(refit.statistics.log_likelihood, count, refit.statistics.weight)
    return LassoStep(strength, end.mixture, refit, count, score)


def between(a: Mixture, b: Mixture, fraction: float) -> Mixture:
    """Return ``b`` with slopes a fraction of the way from those of ``a``; all of it for 1, to the last bit."""
    if fraction == 1:
        return b
    of_experts = fraction * (b.experts.free_coefficients() - a.experts.free_coefficients())
    experts = a.experts.moved(of_experts, np.zeros(a.experts.shape_parameters))
    gate = a.gate.moved(fraction * (b.gate.contrasts() - a.gate.contrasts()).ravel())
    return replace(a, experts=experts, gate=gate)


def objective(mixture: Mixture, statistics: Statistics, penalty: Penalty, strength: float) -> float:
    """Compute the penalised log-likelihood from statistics at this mixture."""
    experts, gate = slopes(mixture)
    size = np.sum(np.abs(experts) / slope_units(mixture.experts)[:, None]) + np.linalg.norm(gate, axis=0).sum()
    return mixture.penalised(statistics, penalty) - strength * statistics.weight * float(size)


def slopes(mixture: Mixture) -> tuple[Array, Array]:
    """Return the slopes of the experts and those of the gate, ``(K, ·)``; none for a constant gate."""
    experts = mixture.coefficients[:, int(mixture.design.intercept) :]
    if not mixture.gate.reads_covariates:
        return experts, np.empty((mixture.K, 0))
    return experts, centre_coefficients(mixture.gate.contrasts()[:, int(mixture.reads.intercept) :])


def has_units(experts: Experts) -> bool:
    """Whether slopes have the unit of the response, which is that of the square root of the shape."""
    return experts.link == "identity"


def slope_units(experts: Experts) -> Array:
    """Return the unit of the slopes of each expert, ``(K,)``."""
    return np.asarray(np.exp(0.5 * experts.log_shapes()[:, 0]) if has_units(experts) else np.ones(experts.K))


FREE = Support(np.ones((1, 1), dtype=bool), np.ones(1, dtype=bool))
"""All coefficients."""

# ---------------------------------------------------------------- one step


def expert_quadratics(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> list[tuple[Array, Array, Array]]:
    """Return gradient, curvature and coefficients of each expert, with the ridge."""
    p, B = mixture.design.p, mixture.coefficients
    R = penalty.expert_matrix(p, intercept=mixture.design.intercept)
    g = mixture.experts.score(statistics.experts)[0].reshape(mixture.K, p) - B @ R
    H = mixture.experts.complete(statistics.experts)[:, :p, :p] + R
    return list(zip(g, H, B, strict=True))


def gate_quadratic(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> tuple[Array, Array, Array]:
    """Return gradient, curvature and contrasts of the gate, with the ridge."""
    theta = mixture.gate.contrasts()
    p = theta.shape[1]
    ridge = np.kron(centring(mixture.K), penalty.gate_matrix(p, intercept=mixture.reads.intercept))
    g = mixture.gate.score(statistics.gate) - ridge @ theta.ravel()
    return g.reshape(theta.shape), mixture.gate.complete(statistics.gate) + ridge, theta


def centring(K: int) -> Array:
    """Return ``Cᵀ C (K - 1, K - 1)`` of the map from contrasts to centred coefficients."""
    C = centre_coefficients(np.eye(K - 1))
    return np.asarray(C.T @ C, dtype=np.float64)


def lasso_step(
    mixture: Mixture, statistics: Statistics, penalty: Penalty, strength: float, support: Support
) -> Mixture:
    """Return the maximiser of the quadratic with the penalty, and then the best shapes.

    The standard deviation ``σ`` of a normal response maximises ``-n_k log σ - n_k v / 2σ² - n λ Σ_j |b_j| / σ``, where
    ``v`` is its mean squared residual at the new coefficients.
    """
    threshold = strength * statistics.weight
    first, unit, rows = (
        int(mixture.design.intercept),
        slope_units(mixture.experts),
        statistics.experts.plain[: mixture.K],
    )
    parts = expert_quadratics(mixture, statistics, penalty)
    thresholds = np.where(support.experts, threshold / unit[:, None], np.inf) * np.ones(mixture.design.p)
    thresholds[:, :first] = 0.0
    B = np.array([descend(*part, own) for part, own in zip(parts, thresholds, strict=True)])
    change = B - mixture.coefficients
    shapes = mixture.experts.shapes_at(statistics.experts, penalty)
    if has_units(mixture.experts):
        pairs = zip(parts, change, unit, rows, strict=True)
        squares = np.array([s**2 * fall(g, H, own) / max(n, 1.0) for (g, H, _), own, s, n in pairs])
        size = threshold * np.abs(B[:, first:]).sum(axis=1) / np.maximum(rows, 1.0)
        shapes = shapes + squares[:, None]
        shapes = (0.5 * (size + np.sqrt(size**2 + 4 * np.maximum(shapes[:, 0], 0.0))))[:, None] ** 2
    experts = mixture.experts.moved(change.ravel(), np.zeros(mixture.experts.shape_parameters))
    experts = experts.with_shape_values(shapes).bounded(penalty, rows)
    if not mixture.gate.reads_covariates:
        gate = mixture.gate.step(statistics.gate, penalty, intercept=mixture.reads.intercept, fraction=1.0)
        return replace(mixture, experts=experts, gate=gate)
    if mixture.K == 1:
        return replace(mixture, experts=experts)
    g, H, theta = gate_quadratic(mixture, statistics, penalty)
    of_gate = np.where(support.gate, threshold, np.inf) * np.ones(theta.shape[1])
    of_gate[: int(mixture.reads.intercept)] = 0.0
    ahead = descend_in_groups(g, H, theta, of_gate)
    return replace(mixture, experts=experts, gate=mixture.gate.moved((ahead - theta).ravel()))


def descend(g: Array, H: Array, b: Array, threshold: Array) -> Array:
    """Minimise ``½ δᵀ H δ - gᵀ δ + Σ_j threshold_j |b_j + δ_j|`` by coordinate descent; return ``b + δ``.

    A coefficient with an infinite threshold becomes 0.

    Examples
    --------
    >>> descend(np.array([3.0, 0.5, 3.0]), np.eye(3), np.zeros(3), np.array([1.0, 1.0, np.inf]))
    array([2., 0., 0.])
    """
    b, slope, curvature = b.copy(), g.copy(), np.maximum(np.diagonal(H), np.finfo(float).tiny)
    for _ in range(SWEEPS):
        largest = 0.0
        for j in range(len(b)):
            wish = b[j] + slope[j] / curvature[j]
            wish = np.sign(wish) * max(abs(wish) - threshold[j] / curvature[j], 0.0)
            change = wish - b[j]
            if change != 0:
                b[j] = wish
                slope -= change * H[:, j]
                largest = max(largest, abs(change))
        if largest <= TIGHT * max(1.0, float(np.abs(b).max())):
            break
    return b


def descend_in_groups(g: Array, H: Array, theta: Array, threshold: Array) -> Array:
    """Minimise the quadratic of the gate's contrasts ``(K - 1, p)`` with a penalty on each covariate's group.

    The group of a covariate is its centred coefficients, ``a_j = C θ_j``, with the penalty ``threshold_j ‖a_j‖``. Each
    update minimises an upper bound of the quadratic with the largest curvature of the group in these coordinates.

    Examples
    --------
    >>> descend_in_groups(np.array([[3.0, 0.5]]), np.eye(2), np.zeros((1, 2)), np.ones(2)).round(6)
    array([[2.292893, 0.      ]])
    """
    m, p = theta.shape
    blocks = H.reshape(m, p, m, p)
    theta, slope = theta.copy(), g.copy()
    C = centre_coefficients(np.eye(m))  # (K, K - 1), from contrasts to centred coefficients
    back = np.hstack([np.eye(m), -np.ones((m, 1))])  # (K - 1, K), from these to contrasts
    bounds = [float(np.linalg.eigvalsh(back.T @ blocks[:, j, :, j] @ back)[-1]) for j in range(p)]
    for _ in range(SWEEPS):
        largest = 0.0
        for j in range(p):
            bound = max(bounds[j], np.finfo(float).tiny)
            wish = C @ theta[:, j] + back.T @ slope[:, j] / bound
            size = float(np.linalg.norm(wish))
            wish = wish * max(1 - threshold[j] / bound / size, 0.0) if size > 0 else wish
            change = back @ wish - theta[:, j]
            if np.any(change != 0):
                theta[:, j] += change
                slope -= np.einsum("kpl,l->kp", blocks[:, :, :, j], change)
                largest = max(largest, float(np.abs(change).max()))
        if largest <= TIGHT * max(1.0, float(np.abs(theta).max())):
            break
    return theta


# ---------------------------------------------------------------- the choice


def judged(path: Sequence[LassoStep], sites: tuple[str, ...]) -> Dialogue[list[LassoStep]]:
    """Return the steps with the log-likelihood of the held-out sites."""
    found = []
    for step in path:
        answer = yield Total(LogLikelihood(step.refit.mixture), sites)
        found.append(replace(step, held_out=answer.log_likelihood))
    return found

"""Student-t experts: linear regressions of real responses with outliers, each with a scale and degrees of freedom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from scipy.special import digamma, gammaln, polygamma, roots_jacobi, stdtr, stdtrit

from consilience.model.families.base import (
    Bounds,
    Evaluated,
    ExpertScores,
    MessageFields,
    Options,
    Share,
    narrow_ratio,
)
from consilience.model.families.covariance import ALMOST, are_of_full_rank, joint_products
from consilience.model.families.gamma import best_shape, latent_information
from consilience.model.families.glm import GeneralisedLinearExperts
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask, pack, unpack
from consilience.numerics.linalg import is_semidefinite, short_newton_steps, solve_symmetric

DEGREES = Bounds(2.1, 200.0, longest=1.0)
"""Range of the degrees of freedom: above 2 the variance is finite, and at 200 errors are normal for any purpose."""
START = 5.0
"""Degrees of freedom from which they are estimated."""
LARGEST_RESIDUAL = 1e150
"""Residuals in units of the scale are cut here, so that their squares are finite."""
NODES = 16
"""Number of nodes of the quadrature over a response."""
LONGEST_NEWTON = 0.5
"""Largest change of a log shape that a Newton step may make in an M-step."""
STEPS = 200
TOLERANCE = 1e-13
"""Relative gain below which a barycentre has converged."""
SAME_SUM = 1e-9
"""Relative difference of two sums of the same weights, from rounding."""
ESTIMATED, FIXED = "estimated", "fixed"


@dataclass(frozen=True, eq=False)
class StudentEvaluated(Evaluated):
    """Residuals ``z = (y - η) / s`` and ``c = ν / (ν + z²)``, both ``(K, n)``."""

    z: Array
    c: Array


@dataclass(frozen=True, eq=False)
class StudentExperts(GeneralisedLinearExperts):
    """Experts ``y = x̃ᵀ b_k + s_k ε`` with ``ε`` from Student's t distribution with ``ν_k`` degrees of freedom.

    With ``z = (y - x̃ᵀ b) / s`` and ``c = ν / (ν + z²)`` the log density is
    ``log Γ((ν + 1) / 2) - log Γ(ν / 2) - ½ log(π ν) - log s + ½ (ν + 1) log c``. A row has weight ``(ν + 1) c / ν`` in
    the weighted least squares of an M-step: outliers count little. Free shapes are ``log s`` and, unless the degrees of
    freedom are fixed, ``log ν``; ``ν`` is kept between 2.1 and 200.

    Parameters
    ----------
    B : (K, p) array
        Coefficients, intercept first.
    scale : (K,) array
        Scales ``s``, positive; the standard deviation is ``s √(ν / (ν - 2))``.
    nu : (K,) array
        Degrees of freedom ``ν``.
    degrees : {"estimated", "fixed"}
        Whether the degrees of freedom are parameters.
    """

    scale: Array
    nu: Array
    degrees: str = ESTIMATED

    family = "student"
    in_papers = "Student’s t"
    link = "identity"
    shape_name = "scale"
    relaxes: ClassVar[Mapping[str, str]] = {"gaussian": "heavy tails or unequal variances"}
    range_sentence = "the response must be one column of real numbers"
    message_fields: ClassVar[MessageFields] = {"B": (2,), "scale": (1,), "nu": (1,), "degrees": (ESTIMATED, FIXED)}
    largest_predictor = np.inf
    longest_step = np.inf
    default_ridge = 0.0

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts at the mean of the response, with its standard deviation as scale."""
        B = np.zeros((K, p))
        if options.intercept:
            B[:, 0] = summary.y_mean[0]
        scale = np.sqrt(summary.y_covariance[0, 0] * (1 + 1e-6))
        fixed = options.degrees_of_freedom
        nu = START if fixed is None else float(fixed)
        return cls(B, np.full(K, scale), np.full(K, nu), ESTIMATED if fixed is None else FIXED)

    @classmethod
    def invalid_options(cls, options: Options) -> str:
        """Return the reason why the degrees of freedom are out of range; empty if they are not."""
        nu = options.degrees_of_freedom
        if nu is None or DEGREES.least <= nu <= DEGREES.most:
            return ""
        return (
            f"degrees_of_freedom={nu!r}: expected None, to estimate them, or a number from {DEGREES.least:g} to "
            f"{DEGREES.most:g}"
        )

    @classmethod
    def floor(cls, summary: ColumnSummary, fraction: float) -> Array:
        """Return ``fraction`` of the variance of the response, ``(1, 1)``: the least squared scale."""
        return summary.floor(fraction)

    @classmethod
    def unfittable(cls, summary: ColumnSummary) -> str:
        """Return an error message if the response is constant: its scale cannot be estimated."""
        if not np.any(summary.constant_responses):
            return ""
        return f"the response is constant over n_samples={summary.weight:g}: its scale has no estimate"

    @classmethod
    def coefficient_scale(cls, summary: ColumnSummary) -> float:
        """Return the standard deviation of the response."""
        return float(np.sqrt(summary.y_covariance[0, 0]))

    @property
    def estimates_degrees(self) -> bool:
        """Whether the degrees of freedom are parameters."""
        return self.degrees == ESTIMATED

    @property
    def shapes(self) -> int:
        """Number of shapes per expert: the scale and, if they are estimated, the degrees of freedom."""
        return 1 + self.estimates_degrees

    @property
    def form(self) -> str:
        """Whether the degrees of freedom are estimated, or the number at which they are fixed."""
        return ESTIMATED if self.estimates_degrees else f"fixed at {', '.join(f'{nu:g}' for nu in np.unique(self.nu))}"

    def in_range(self, rows: Rows) -> bool:
        """Whether there is a single response."""
        return bool(rows.Y.shape[1] == 1)

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return that all rows are: any real numbers are allowed."""
        return np.ones(len(Y), dtype=bool)

    def response_features(self, rows: Rows) -> Array:
        """Return standardised responses ``(n, 1)``."""
        spread = rows.Y.std()
        return np.asarray((rows.Y - rows.Y.mean()) / (spread if spread > 0 else 1.0))

    def invalid(self) -> str:
        """Return the reason why the arrays are not valid parameters of K experts; empty if they are."""
        if problem := super().invalid():
            return problem
        if not np.all(self.scale > 0):
            return "a scale is not positive"
        return "" if np.array_equal(self.nu, DEGREES.clipped(self.nu)) else "degrees of freedom are out of range"

    # ------------------------------------------------------------------ the E-step

    @property
    def _constant(self) -> Array:
        """``log f`` at the location, ``(K,)``."""
        nu = self.nu
        return gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu) - np.log(self.scale)

    def evaluate(self, block: Block) -> StudentEvaluated:
        """Compute the log density, the residuals and their weights."""
        with np.errstate(over="ignore"):
            z = (block.Y[0] - self.B @ block.panel) / self.scale[:, None]
        np.clip(z, -LARGEST_RESIDUAL, LARGEST_RESIDUAL, out=z)
        nu = self.nu[:, None]
        ratio = z * z / nu
        log_density = self._constant[:, None] - 0.5 * (nu + 1) * np.log1p(ratio)
        return StudentEvaluated(log_density, z, 1 / (1 + ratio))

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(4 * self.K, 2 * self.K, 2 * self.K, p)

    def weights(self, at: StudentEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ (1, c, c², -log c)``, ``Σ τ (c, c²) z x`` and ``Σ τ (c, c²) x xᵀ``."""
        first = tau * at.c
        second = first * at.c
        logs = -np.einsum("kn,kn->k", tau, np.log(at.c))
        plain = np.concatenate([tau.sum(axis=1), first.sum(axis=1), second.sum(axis=1), logs])
        return Weights(plain, np.concatenate([first * at.z, second * at.z]), np.concatenate([first, second]))

    # ------------------------------------------------------------------ what must be true of statistics

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give: products of covariates and residuals with weights ``c`` and ``c²`` ≤ ``c``."""
        n, C1, C2, logs = moments.plain.reshape(4, self.K)
        slack = SAME_SUM * n
        if np.any([-n > 0, -C2 > 0, slack < C2 - C1, C1 - n > slack, -logs > slack]):
            return "sums of weights out of order"
        first = moments.first.reshape(2 * self.K, self.p, 1)
        squares = np.concatenate([self.nu * np.maximum(n - C1, 0.0), self.nu * np.maximum(C1 - C2, 0.0)])  # Σ τ c z²
        S = unpack(moments.second)
        if len(S) and not is_semidefinite(joint_products(S, first, (squares + np.tile(slack, 2))[:, None])):
            return "moments of covariates and residuals that are not positive semidefinite"
        return ""

    def expected_log_density(self, moments: Moments) -> float:
        """Compute ``Σ τ_k log f_k``, from the sums of ``log(1 + z² / ν)``."""
        n, _, _, logs = moments.plain.reshape(4, self.K)
        return float(n @ self._constant - 0.5 * (self.nu + 1) @ logs)

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take a short Newton step; otherwise, or if it was refused (``fraction < 1``), an EM step.

        Newton steps know the degrees of freedom better than EM, which also imputes the weights of the rows. A long one
        may lead anywhere; an EM step never lowers the likelihood.
        """
        if fraction == 0:
            return self
        R = penalty.expert_matrix(self.p, intercept=intercept)
        by_em = self._em_step(moments, penalty, R)
        if fraction < 1:
            return by_em
        coefficients, shapes = self.score(moments)
        gradient = np.concatenate([coefficients[:, 0] - self.B @ R, shapes], axis=1)
        J = self.complete(moments) + np.pad(R, (0, self.shapes))
        return self._chosen(short_newton_steps(J, gradient, LONGEST_NEWTON, self.shapes), by_em, penalty)

    def _chosen(self, change: Array, other: Self, penalty: Penalty) -> Self:
        """Return these experts after a ``change (K, p + shapes)``, and those of ``other`` where it is NaN."""
        none = np.isnan(change[:, 0])
        change = np.where(none[:, None], 0.0, change)
        moved = self.moved(change[:, : self.p], change[:, self.p :])
        scale = np.maximum(moved.scale, np.sqrt(penalty.floor[0, 0]))
        return replace(
            self,
            B=np.where(none[:, None], other.B, moved.B),
            scale=np.where(none, other.scale, scale),
            nu=np.where(none, other.nu, moved.nu),
        )

    def _em_step(self, moments: Moments, penalty: Penalty, R: Array) -> Self:
        """Compute the maximiser given the expected weights of the rows, in the expanded model of PX-EM.

        Student's t is normal with variance ``s² / u``, ``u ~ Gamma(ν / 2, ν / 2)``. Given ``E u`` and ``E log u`` the
        coefficients and the squared scale are those of weighted least squares, divided by the mean of the weights
        rather than by the number of rows, and ``ν`` is the shape of a Gamma distribution (C. Liu, D. B. Rubin and
        Y. N. Wu, Parameter expansion to accelerate EM, Biometrika 1998). With a ridge, ``R (p, p)``, the coefficients
        maximise at the current scale, and the scale at the new coefficients.
        """
        n, sum_c, _, _ = np.split(moments.plain, 4)
        right, S = self.scale[:, None] * moments.first[: self.K], unpack(moments.second[: self.K])
        units = self.scale**2 * self.nu / (self.nu + 1)  # of Σ τ c x xᵀ
        systems = zip(S, units, right - units[:, None] * (self.B @ R), strict=True)
        delta = np.array([solve_symmetric(A + unit * R, g[:, None])[0][:, 0] for A, unit, g in systems])
        empty = ~((n > 0) & (sum_c > 0))
        delta[empty] = 0.0
        explained = np.einsum("kp,kp->k", delta, 2 * right - np.einsum("kpq,kq->kp", S, delta))
        return replace(self.with_shape_values(self._best_shapes(moments, penalty, explained)), B=self.B + delta)

    def _best_shapes(self, moments: Moments, penalty: Penalty, explained: Array) -> Array:
        """Compute the shape values of an M-step whose coefficients reduce ``Σ τ c r²`` by ``explained (K,)``."""
        n, sum_c, _, logs = np.split(moments.plain, 4)
        known = (n > 0) & (sum_c > 0)
        mass, weight = np.where(known, n, 1.0), np.where(known, sum_c, 1.0)
        squares = self.scale**2 * self.nu * (n - sum_c)  # Σ τ c r², from c z² = ν (1 - c)
        variance = np.where(known, np.maximum(squares - explained, 0.0) / weight, self.scale**2)
        values: Array = np.maximum(variance, np.maximum(penalty.floor[0, 0], np.finfo(float).tiny))[:, None]
        if not self.estimates_degrees:
            return values
        mean_log = digamma(0.5 * (self.nu + 1)) - np.log(0.5 * self.nu) - logs / mass
        excess = np.log((1 + 1 / self.nu) * weight / mass) - mean_log
        nu = np.where(known, DEGREES.clipped(2 * best_shape(excess)), self.nu)
        return np.column_stack([values, 1 / nu])

    def full_rank(self, moments: Moments) -> bool:
        """Whether every expert with rows has a design of full rank."""
        return are_of_full_rank(unpack(moments.second[: self.K]), moments.plain[: self.K])

    def lower_bound(self, penalty: Penalty) -> Array:
        """Return the least squared scale, ``(1, 1)``: the floor, or a fraction of the largest."""
        return np.maximum(penalty.floor, np.max(self.scale) ** 2 / penalty.shape_ratio)

    def is_above(self, floor: Array) -> bool:
        """Whether no squared scale is below ``floor``."""
        return bool(np.all(self.scale**2 >= ALMOST * floor[0, 0]))

    def within_ratio(self, ratio: float, rows: Array) -> Self:
        """Return the experts with squared scales of a bounded ratio, as if they were variances."""
        return replace(self, scale=np.sqrt(narrow_ratio(self.scale**2, rows, ratio)))

    def raised(self, floor: Array) -> Self:
        """Return the experts with squared scales of at least ``floor``."""
        return replace(self, scale=np.sqrt(np.maximum(self.scale**2, floor[0, 0])))

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: StudentEvaluated) -> ExpertScores:
        """Compute ``(ν + 1) c z / (ν s)`` on ``x``, ``ν - (ν + 1) c`` for ``log s``, and the score of ``log ν``."""
        nu = self.nu[:, None]
        linear = (1 + 1 / nu) * at.c * at.z / self.scale[:, None]
        of_scale = nu - (nu + 1) * at.c
        if not self.estimates_degrees:
            return ExpertScores(linear[:, None], of_scale[:, None])
        gap = digamma(0.5 * (nu + 1)) - digamma(0.5 * nu)
        of_nu = np.where(DEGREES.reached(self.nu)[:, None], 0.0, 0.5 * (nu * (gap + np.log(at.c)) + of_scale))
        return ExpertScores(linear[:, None], np.stack([of_scale, of_nu], axis=1))

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, 1, p)`` and log shapes ``(K, shapes)``."""
        n, c, _, logs = np.split(moments.plain, 4)
        nu = self.nu
        coefficients = ((1 + 1 / nu) / self.scale)[:, None] * moments.first[: self.K]
        of_scale = nu * n - (nu + 1) * c
        if not self.estimates_degrees:
            return coefficients[:, None], of_scale[:, None]
        gap = digamma(0.5 * (nu + 1)) - digamma(0.5 * nu)
        of_nu = DEGREES.inward(nu, 0.5 * (nu * (n * gap - logs) + of_scale))
        return coefficients[:, None], np.column_stack([of_scale, of_nu])

    def coefficient_curvature(self, moments: Moments) -> Array:
        """Compute ``(1 + 1 / ν) Σ τ c x xᵀ / s²``, that of weighted least squares."""
        units = (1 + 1 / self.nu) / self.scale**2
        return units[:, None, None] * unpack(moments.second[: self.K])

    def complete(self, moments: Moments) -> Array:
        """Compute minus the second derivative in coefficients, ``log s`` and ``log ν``, ``(K, p + m, p + m)``."""
        n, c, cc, logs = np.split(moments.plain, 4)
        zc, zcc = np.split(moments.first, 2)
        (S, SS), nu, s, p = np.split(unpack(moments.second), 2), self.nu, self.scale, self.p
        J = np.empty((self.K, p + 2, p + 2))
        J[:, :p, :p] = ((1 + 1 / nu) / s**2)[:, None, None] * (2 * SS - S)
        J[:, p, :p] = J[:, :p, p] = (2 * (1 + 1 / nu) / s)[:, None] * zcc
        J[:, p, p] = 2 * (nu + 1) * (c - cc)
        J[:, p + 1, :p] = J[:, :p, p + 1] = ((1 + 1 / nu)[:, None] * zcc - zc) / s[:, None]
        tt = n - 2 * c + cc  # Σ τ (1 - c)²
        J[:, p, p + 1] = J[:, p + 1, p] = c - cc - nu * tt
        gap = digamma(0.5 * (nu + 1)) - digamma(0.5 * nu)
        slope = polygamma(1, 0.5 * (nu + 1)) - polygamma(1, 0.5 * nu)
        bend = n * (gap + 0.5 * nu * slope) - logs + n - c + tt - (c - cc) / nu
        J[:, p + 1, p + 1] = -0.5 * nu * bend
        if not self.estimates_degrees:
            return J[:, : p + 1, : p + 1]
        return DEGREES.held(nu, J, n * latent_information(0.5 * nu))

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the coefficients and ``shapes`` to the log scales and log degrees of freedom."""
        B, change = self.B + coefficients.reshape(self.B.shape), shapes.reshape(self.K, -1)
        scale = self.scale * np.exp(np.clip(change[:, 0], -50.0, 50.0))
        nu = DEGREES.moved(self.nu, change[:, 1]) if self.estimates_degrees else self.nu
        return replace(self, B=B, scale=scale, nu=nu)

    # ------------------------------------------------------------------ reported parameters

    @property
    def shape_names(self) -> tuple[str, ...]:
        """Names of the reported shapes."""
        return ("scale", "degrees_of_freedom")[: self.shapes]

    def log_shapes(self) -> Array:
        """Return log scales and, if they are estimated, log degrees of freedom, ``(K, 1)`` or ``(K, 2)``."""
        return np.log(np.column_stack([self.scale, self.nu])[:, : self.shapes])

    def log_shapes_jacobian(self) -> Array:
        """Return the identity; NaN for degrees of freedom at a bound, which have no standard error."""
        known = np.ones((self.K, self.shapes))
        known[:, 1:][DEGREES.reached(self.nu)] = np.nan
        return np.diag(known.ravel())

    def attributes(self) -> dict[str, Array]:
        """Return scales ``(K,)`` and degrees of freedom ``(K,)``."""
        return {"scales_": self.scale.copy(), "degrees_of_freedom_": self.nu.copy()}

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute ``E[y | x, k]``, ``(K, 1, n)``."""
        return (self.B @ panel)[:, None]

    def mean_slopes(self, panel: Array) -> Array:
        """Return ones, ``(K, 1, 1, n)``: the mean is the linear predictor."""
        return np.ones((self.K, 1, 1, panel.shape[1]))

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return the nodes of the quadrature over the residuals, around the mean."""
        nodes, shares = self.rules()
        Y = self.mean(panel) + (self.scale[:, None] * nodes)[:, :, None]
        return Y, np.broadcast_to(shares[:, :, None], Y.shape)

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw responses ``(n, 1)`` of the experts given by ``labels (n,)``."""
        location = np.einsum("np,pn->n", self.B[labels], panel)
        drawn: Array = location + self.scale[labels] * rng.standard_t(self.nu[labels])
        return drawn[:, None]

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        return stdtr(self.nu[:, None], (y - self.B @ panel) / self.scale[:, None])

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``."""
        return self.B @ panel + (self.scale * stdtrit(self.nu, probability))[:, None]

    # ------------------------------------------------------------------ combining experts of several sites

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute half the squared residual and its derivatives: barycentres start from least squares."""
        residual = mean - eta
        return 0.5 * residual**2, residual, np.ones_like(eta)

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute ``KL(f_k(· | x_i) ‖ g_l(· | x_i))`` by quadrature over the response, ``(K, L, n)``."""
        gap = (self.B @ panel)[:, None] - other.B @ panel  # (K, L, n)
        gap /= other.scale[:, None]
        ratio, nu = self.scale[:, None] / other.scale, other.nu  # (K, L), (L,)
        nodes, shares = self.rules()
        excess, own = self.mean_logs(nodes, shares)
        loss = np.zeros_like(gap) + excess[:, None, None]
        for z, share in zip(nodes.T, shares.T, strict=True):  # each (K,)
            apart = gap + (ratio * z[:, None])[:, :, None]
            loss += share[:, None, None] * np.log1p(apart**2 / nu[:, None])
        constant = (self._constant - 0.5 * (self.nu + 1) * own)[:, None] - other._constant
        return np.maximum(constant[:, :, None] + 0.5 * (nu[:, None] + 1) * loss, 0.0)

    def rules(self) -> tuple[Array, Array]:
        """Return nodes and weights of a quadrature over the residuals ``z`` of each expert, both ``(K, NODES)``."""
        rules = [quadrature(float(nu)) for nu in self.nu]
        return np.array([nodes for nodes, _ in rules]), np.array([shares for _, shares in rules])

    def mean_logs(self, nodes: Array, shares: Array) -> tuple[Array, Array]:
        """Compute the error of the quadrature of ``log(1 + z² / ν)`` and its exact mean, both ``(K,)``.

        The logarithm has a singularity at infinity, the same for all experts: its known mean corrects the others.
        """
        exact = digamma(0.5 * (self.nu + 1)) - digamma(0.5 * self.nu)
        return exact - np.einsum("kj,kj->k", shares, np.log1p(nodes**2 / self.nu[:, None])), exact

    def barycentres(self, shares: Sequence[Share]) -> Self:
        """Minimise the divergence from what ``shares`` assign to each expert, by Newton steps and steps of EM."""
        start = super().barycentres(shares)
        found = []
        for k in range(self.K):
            parts = [part for share in shares for part in expand_nodes(share, k)]
            here, there = (experts.permuted(np.array([k])) for experts in (self, start))
            better = parts and there.on(parts)[0] > here.on(parts)[0]
            found.append((there if better else here).fitted(parts) if parts else here)
        return self.joined(found)

    def on(self, parts: Sequence[tuple[Array, Array, Array, float]]) -> tuple[float, Moments]:
        """Compute the expected log-likelihood of one expert and its moments at weighted responses on points."""
        value, total = 0.0, self.layout(self.p).zeros()
        for panel, y, tau, excess in parts:
            z = (y - self.B[0] @ panel) / self.scale[0]
            ratio = z * z / self.nu[0]
            logs, c = np.log1p(ratio), 1 / (1 + ratio)
            first = tau * c
            second = first * c
            plain = np.array([tau.sum(), first.sum(), second.sum(), np.sum(tau * logs) + excess])
            on_x = np.array([(each * z).sum(axis=(0, 1)) for each in (first, second)]) @ panel.T
            on_xx = pack(np.array([(panel * each.sum(axis=(0, 1))) @ panel.T for each in (first, second)]))
            total = total + Moments(plain, on_x, on_xx)
            value += float(self._constant[0] * plain[0] - 0.5 * (self.nu[0] + 1) * plain[3])
        return value, total

    def fitted(self, parts: Sequence[tuple[Array, Array, Array, float]]) -> Self:
        """Maximise the expected log-likelihood of one expert at weighted responses on points."""
        expert, (value, moments) = self, self.on(parts)
        for _ in range(STEPS):
            for proposal in expert._proposals(moments):
                new, proposed = proposal.on(parts)
                if new > value:
                    break
            else:
                return expert
            gain, expert, value, moments = new - value, proposal, new, proposed
            if gain <= TOLERANCE * (1 + abs(value)):
                return expert
        return expert

    def _proposals(self, moments: Moments) -> Iterator[Self]:
        """Yield the Newton step, if the log-likelihood is concave, and the step of EM."""
        coefficients, shapes = self.score(moments)
        gradient = np.concatenate([coefficients[:, 0], shapes], axis=1)
        change = short_newton_steps(self.complete(moments), gradient, np.inf, self.shapes)
        if np.all(np.isfinite(change)):
            yield self.moved(change[:, : self.p], change[:, self.p :])
        yield self._em_step(moments, Penalty(), np.zeros(self.p))

    def like(self, other: Self) -> Self:
        """Return the same experts with degrees of freedom estimated or fixed as in ``other``."""
        return replace(self, degrees=other.degrees)

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return squared scales and, if they are estimated, ``1 / ν``: ``(K, 1)`` or ``(K, 2)``."""
        return np.column_stack([self.scale**2, 1 / self.nu])[:, : self.shapes]

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these shapes."""
        nu = DEGREES.clipped(1 / values[:, 1]) if self.estimates_degrees else self.nu
        return replace(self, scale=np.sqrt(values[:, 0]), nu=nu)

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute the shape values after a step at the current coefficients, a short Newton step or one of EM."""
        J, gradient = self.complete(moments)[:, self.p :, self.p :], self.score(moments)[1]
        of_shapes = short_newton_steps(J, gradient, LONGEST_NEWTON, self.shapes)
        still = np.where(np.isnan(of_shapes[:, :1]), np.nan, np.zeros_like(self.B))
        change = np.concatenate([still, of_shapes], axis=1)
        by_em = self.with_shape_values(self._best_shapes(moments, penalty, np.zeros(self.K)))
        return self._chosen(change, by_em, penalty).shape_values()

    def with_wide_shapes(self, summary: ColumnSummary, factor: float) -> Self:
        """Return the experts with ``factor`` times the variance of the response as squared scale."""
        return replace(self, scale=np.full(self.K, np.sqrt(factor * summary.y_covariance[0, 0])))


def expand_nodes(share: Share, k: int) -> Iterator[tuple[Array, Array, Array, float]]:
    """Yield points ``(p, S)``, responses ``(L, J, S)`` and weights for the quadrature of the experts of target ``k``.

    The fourth is the sum of the errors of the quadrature, as in :meth:`StudentExperts.mean_logs`.
    """
    own = share.own(k)
    mine, points = np.flatnonzero(own.sum(axis=1) > 0), np.flatnonzero(own.sum(axis=0) > 0)
    if len(mine):
        experts, panel = share.experts.permuted(mine), share.panel[:, points]
        nodes, shares = experts.rules()
        y = (experts.B @ panel)[:, None] + (experts.scale[:, None] * nodes)[:, :, None]
        mass = own[np.ix_(mine, points)]
        excess, _ = experts.mean_logs(nodes, shares)
        yield panel, y, mass[:, None] * shares[:, :, None], float(mass.sum(axis=1) @ excess)


@lru_cache(maxsize=1024)
def quadrature(nu: float) -> tuple[Array, Array]:
    """Return nodes and weights ``(NODES,)`` of a quadrature over Student's t with ``ν`` degrees of freedom.

    With ``z = √ν v / √(1 - v²)`` the density of ``v`` is proportional to ``(1 - v²)^(ν / 2 - 1)``, the weight of a
    Gauss-Jacobi rule; logarithms of densities are smooth in ``v``.
    """
    v, weight = roots_jacobi(NODES, 0.5 * nu - 1, 0.5 * nu - 1)
    nodes: Array = np.sqrt(nu) * v / np.sqrt(1 - v**2)
    return nodes, weight / weight.sum()

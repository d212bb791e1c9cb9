"""Gaussian experts: linear regressions with one or several responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtr, ndtri

from consilience.model.families import covariance as cov
from consilience.model.families.base import (
    Evaluated,
    Experts,
    ExpertScores,
    MessageFields,
    Options,
    arrays_problem,
    narrow_ratio,
)
from consilience.model.kernels import Kernel
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask, kronecker, pack, unpack
from consilience.numerics.linalg import is_semidefinite, solve_symmetric, symmetric_exponential
from consilience.numerics.quadrature import hermite_nodes

COSTS_AT_ONCE = 2**20
"""Maximum size of an array of differences between experts."""
SAME_MASS = 1e-9
"""Relative difference of two sums of the same weights, from rounding."""
NODES = 16
"""Number of nodes of the quadrature over a response."""


@dataclass(frozen=True, eq=False)
class GaussianEvaluated(Evaluated):
    """Residuals ``r = y - B_k x̃``, ``(K, q, n)``."""

    r: Array


@dataclass(frozen=True, eq=False)
class SameMeans(Evaluated):
    """Responses ``Y (n, q)`` and the means ``(K, q)`` of all rows, of a Gaussian mixture; the kernel of their pass."""

    Y: Array
    means: Array
    kernel: Kernel

    @cached_property
    def r(self) -> Array:
        """Residuals, ``(K, q, n)``."""
        return np.asarray(self.Y.T - self.means[:, :, None])


@dataclass(frozen=True, eq=False)
class GaussianExperts(Experts):
    """Experts ``y | x, k ~ N(B_k x̃, Σ_k)`` with ``q ≥ 1`` responses.

    Parameters
    ----------
    B : (K, q, p) array
        Regression coefficients, intercept first. An intercept-only design is a Gaussian mixture.
    covariance : array
        ``(K, q, q)`` full, ``(K, q)`` diag, ``(K,)`` spherical, ``(q, q)`` tied.
    structure : {"full", "diag", "spherical", "tied"}
        Covariance structure.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import GaussianExperts
    >>> experts = GaussianExperts(B=np.array([[[0.0, 1.0]]]), covariance=np.array([[[4.0]]]))
    >>> experts.mean(np.array([[1.0], [3.0]])).ravel(), experts.variances
    (array([3.]), array([[4.]]))
    """

    B: Array
    covariance: Array
    structure: cov.Structure = "full"

    family = "gaussian"
    in_papers = "linear"
    squares_tell = True
    several_responses = True
    newton_type = False
    default_ridge = 0.0
    shape_name = "variance"
    range_sentence = "the response must be real numbers"
    message_fields: ClassVar[MessageFields] = {"B": (3,), "covariance": (1, 2, 3), "structure": cov.STRUCTURES}

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts at the mean of the responses, with their covariance."""
        B = np.zeros((K, len(summary.y_mean), p))
        if options.intercept:
            B[:, :, 0] = summary.y_mean
        structure = cov.as_structure(options.structure)
        wide = np.tile(summary.y_covariance + summary.floor(1e-6), (K, 1, 1))
        return cls(B, cov.store_covariances(wide, structure), structure)

    @classmethod
    def numbers(cls, p: int, q: int, options: Options) -> int:
        """Count the coefficients, their weights, and the covariance."""
        return p * (q + 1) + q * q

    @classmethod
    def floor(cls, summary: ColumnSummary, fraction: float) -> Array:
        """Return ``fraction`` of the responses' covariance, ``(q, q)``."""
        return summary.floor(fraction)

    @classmethod
    def unfittable(cls, summary: ColumnSummary) -> str:
        """Return an error message if a response is constant: its variance cannot be estimated."""
        constant = np.flatnonzero(summary.constant_responses)
        if not len(constant):
            return ""
        return (
            f"response column(s) {constant.tolist()} are constant over n_samples={summary.weight:g}: their "
            "variance has no maximum-likelihood estimate; drop them"
        )

    @classmethod
    def constant_log_density(cls, summary: ColumnSummary) -> float:
        """Return ``-(q log 2π + log |S| + q) / 2`` for the covariance ``S (q, q)`` of the responses."""
        S = summary.y_covariance
        sign, log_determinant = np.linalg.slogdet(S)
        return float(-0.5 * (len(S) * (np.log(2 * np.pi) + 1) + log_determinant)) if sign > 0 else float("nan")

    @classmethod
    def coefficient_scale(cls, summary: ColumnSummary) -> float:
        """Return the root mean square of the responses' standard deviations."""
        return float(np.sqrt(np.diagonal(summary.y_covariance).mean()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the experts of several parts; covariances become full, since each part has its own."""
        B, matrices = (np.concatenate(each) for each in zip(*((part.B, part.matrices) for part in parts), strict=True))
        return cls(B, matrices)

    @property
    def q(self) -> int:
        """Number of responses."""
        return int(self.B.shape[1])

    @property
    def channels(self) -> int:
        """Number of linear predictors per expert."""
        return self.q

    @property
    def shapes(self) -> int:
        """Number of covariance parameters per expert before tying."""
        return cov.shape_count(self.structure, self.q)

    @property
    def shape_parameters(self) -> int:
        """Number of free covariance parameters of all experts."""
        return self.shapes * (1 if self.structure == "tied" else self.K)

    @property
    def form(self) -> str:
        """The covariance structure."""
        return self.structure

    @cached_property
    def factors(self) -> tuple[Array, Array]:
        """Cholesky factors ``L_k`` of the covariances and their inverses, both ``(K, q, q)``."""
        return cov.factors(self.covariance, self.structure, self.K, self.q)

    @cached_property
    def _log_normaliser(self) -> Array:
        L, _ = self.factors
        log_det = np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
        return cast(Array, -log_det - 0.5 * self.q * np.log(2 * np.pi))

    @property
    def matrices(self) -> Array:
        """Covariances as matrices ``(K, q, q)``."""
        return cov.matrices(self.covariance, self.structure, self.K, self.q)

    @property
    def variances(self) -> Array:
        """Variance of each response under each expert, ``(K, q)``."""
        return np.diagonal(self.matrices, axis1=1, axis2=2)

    # ------------------------------------------------------------------ responses

    def in_range(self, rows: Rows) -> bool:
        """Whether the number of responses matches; any real numbers are allowed."""
        return bool(rows.Y.shape[1] == self.q)

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return that all rows are: any real numbers are allowed."""
        return np.ones(len(Y), dtype=bool)

    def response_features(self, rows: Rows) -> Array:
        """Return standardised responses ``(n, q)``."""
        spread = rows.Y.std(axis=0)
        return np.asarray((rows.Y - rows.Y.mean(axis=0)) / np.where(spread > 0, spread, 1.0))

    def invalid(self) -> str:
        """Return the reason why coefficients or covariances are not valid for K experts; empty if they are."""
        K, q = self.K, self.q
        shape = {"full": (K, q, q), "diag": (K, q), "spherical": (K,), "tied": (q, q)}[self.structure]
        problem = arrays_problem({"B": (self.B, self.B.shape), "covariance": (self.covariance, shape)})
        return problem or ("" if cov.are_proper(self.matrices) else "a covariance is not positive definite")

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> GaussianEvaluated | SameMeans:
        """Compute the log density ``log N(y_i; B_k x̃_i, Σ_k)`` and the residuals of a block."""
        if self.q > 1 and self.p == 1 and np.all(block.panel == 1.0):
            Y, means = block.Y.T, self.B[:, :, 0]
            distances = block.kernel.distances(Y, means, self._whitening)
            return SameMeans(self._log_density(distances), Y, means, block.kernel)
        K, q, p = self.B.shape
        r = (self.B.reshape(K * q, p) @ block.panel).reshape(K, q, -1)
        np.subtract(block.Y, r, out=r)
        _, Linv = self.factors
        if q == 1:
            z = r[:, 0] * Linv[:, 0]
            return GaussianEvaluated(self._log_density(z * z), r)
        whitened = Linv @ r
        return GaussianEvaluated(self._log_density(np.einsum("kqn,kqn->kn", whitened, whitened)), r)

    def _log_density(self, distances: Array) -> Array:
        """Turn squared lengths of whitened residuals ``(K, n)`` into log densities, in place."""
        distances *= -0.5
        distances += self._log_normaliser[:, None]
        return distances

    @cached_property
    def _whitening(self) -> Array:
        """Inverse Cholesky factors: lower triangles ``(K, q, q)``, or diagonals ``(K, q)``."""
        _, Linv = self.factors
        return Linv if cov.has_matrices(self.structure) else np.diagonal(Linv, axis1=1, axis2=2)

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        scatter = cov.scatter_size(self.structure, self.q)
        return Layout(self.K * (1 + scatter), self.K * self.q, self.K, p)

    def weights(self, at: GaussianEvaluated | SameMeans, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ``, residual scatter, ``Σ τ r x``, ``Σ τ x xᵀ``; ``tau (K, n)`` has case weights."""
        matrices = self.q > 1 and cov.has_matrices(self.structure)
        if isinstance(at, SameMeans):
            first, scatter = at.kernel.scatter(at.Y, at.means, tau, matrices=matrices)
            plain = np.concatenate([tau.sum(axis=1), scatter.ravel()])
            return Weights(plain, np.empty((0, len(at.Y))), tau, first.reshape(-1, 1))
        weighted = at.r * tau[:, None]
        scatter = pack(weighted @ at.r.transpose(0, 2, 1)) if matrices else np.einsum("kqn,kqn->kq", weighted, at.r)
        plain = np.concatenate([tau.sum(axis=1), scatter.ravel()])
        return Weights(plain, weighted.reshape(self.K * self.q, -1), tau)

    # ------------------------------------------------------------------ what must be true of statistics

    def row_products(self, moments: Moments, *, intercept: bool) -> tuple[Array, Array]:
        """Return all products of covariates and responses; of several responses only those that the scatter has."""
        _, scatter, Sxr = self._unfold(moments)
        return cov.regression_products(self.B, unpack(moments.second), Sxr, self._square(scatter))

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give: the products of covariates and residuals are positive semidefinite."""
        n, scatter, Sxr = self._unfold(moments)
        S = unpack(moments.second)
        if np.any(n < 0):
            return "a negative mass"
        if intercept and len(S) and np.any(np.abs(S[:, 0, 0] - n) > SAME_MASS * n.sum()):
            return "a mass that differs from its second moments"
        if not is_semidefinite(cov.joint_products(S, Sxr, scatter)):
            return "moments of covariates and residuals that are not positive semidefinite"
        return ""

    def expected_log_density(self, moments: Moments) -> float:
        """Compute ``Σ_k n_k log|2π Σ_k|^(-1/2) - tr(Σ_k⁻¹ scatter_k) / 2``."""
        n, scatter, _ = self._unfold(moments)
        _, Linv = self.factors
        square = np.where(np.isnan(found := self._square(scatter)), 0.0, found)
        distances = np.einsum("kqr,krs,kqs->k", Linv, square, Linv)
        return float(n @ self._log_normaliser - 0.5 * distances.sum())

    def _square(self, scatter: Array) -> Array:
        """Return the scatter as matrices ``(K, q, q)``, with NaN beside a diagonal."""
        if scatter.ndim == 3:
            return scatter
        return np.where(np.eye(self.q, dtype=bool), scatter[:, :, None], np.nan)

    # ------------------------------------------------------------------ the M-step

    def _unfold(self, moments: Moments) -> tuple[Array, Array, Array]:
        """Return ``n (K,)``, the scatter ``(K, q, q)`` or ``(K, q)``, and ``Sxr (K, p, q)``."""
        n = moments.plain[: self.K]
        scatter = moments.plain[self.K :].reshape(self.K, -1)
        folded = unpack(scatter) if cov.has_matrices(self.structure) else scatter
        return n, folded, moments.first.reshape(self.K, self.q, self.p).transpose(0, 2, 1)

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Compute the exact maximiser: ``δ_k = S_k⁻¹ Σ τ r x``, then the covariance of the remaining residuals.

        With a ridge, ``δ_k`` maximises at the current covariance, and the covariance at the new coefficients.
        """
        if penalty.expert_ridge > 0:
            return self._ridged_step(moments, penalty, intercept)
        n, scatter, Sxr = self._unfold(moments)
        Sxx = unpack(moments.second)
        delta = np.array([solve_symmetric(S, g)[0] for S, g in zip(Sxx, Sxr, strict=True)])  # (K, p, q)
        delta[n <= cov.EMPTY] = 0.0
        if cov.has_matrices(self.structure):
            explained = Sxr.transpose(0, 2, 1) @ delta
            remaining = scatter - 0.5 * (explained + explained.transpose(0, 2, 1))
        else:
            remaining = np.maximum(scatter - np.einsum("kpq,kpq->kq", Sxr, delta), 0.0)
        covariance = cov.maximiser(remaining, n, self.structure, self.covariance, penalty.floor)
        return type(self)(self.B + delta.transpose(0, 2, 1), covariance, self.structure)

    def _ridged_step(self, moments: Moments, penalty: Penalty, intercept: bool) -> Self:
        """Solve ``(Σ_k⁻¹ ⊗ S_k + λ) δ_k = Σ_k⁻¹ Σ τ r x - λ b_k`` in the axes of ``Σ_k``, where responses separate."""
        n, scatter, Sxr = self._unfold(moments)
        R, Sxx = penalty.expert_matrix(self.p, intercept=intercept), unpack(moments.second)
        delta = np.zeros((self.K, self.p, self.q))
        for k in np.flatnonzero(n > cov.EMPTY):
            variances, axes = np.linalg.eigh(self.matrices[k])
            right = (Sxr[k] - R @ self.B[k].T @ self.matrices[k]) @ axes
            rotated = [solve_symmetric(Sxx[k] + v * R, r[:, None])[0] for v, r in zip(variances, right.T, strict=True)]
            delta[k] = np.hstack(rotated) @ axes.T
        gained = delta.transpose(0, 2, 1) @ (Sxr - 0.5 * Sxx @ delta)
        explained = gained + gained.transpose(0, 2, 1)
        if cov.has_matrices(self.structure):
            remaining = scatter - explained
        else:
            remaining = np.maximum(scatter - np.diagonal(explained, axis1=1, axis2=2), 0.0)
        covariance = cov.maximiser(remaining, n, self.structure, self.covariance, penalty.floor)
        return replace(self, B=self.B + delta.transpose(0, 2, 1), covariance=covariance)

    def full_rank(self, moments: Moments) -> bool:
        """Whether every expert with rows has a design of full rank."""
        return cov.are_of_full_rank(unpack(moments.second), moments.plain[: self.K])

    def lower_bound(self, penalty: Penalty) -> Array:
        """Return the least covariance ``(q, q)``: the floor, or a fraction of an upper bound of all experts'."""
        return cov.lower_bound(self.covariance, self.structure, penalty.floor, penalty.shape_ratio)

    def is_above(self, floor: Array) -> bool:
        """Whether no covariance is below ``floor``."""
        return cov.is_above(self.covariance, self.structure, floor)

    def within_ratio(self, ratio: float, rows: Array) -> Self:
        """Return the experts with the likeliest variances of a bounded ratio, if each has one variance."""
        if self.structure == "tied" or self.covariance.size != self.K:
            return self
        narrowed = narrow_ratio(self.covariance.ravel(), rows, ratio)
        return replace(self, covariance=narrowed.reshape(self.covariance.shape))

    def raised(self, floor: Array) -> Self:
        """Return the experts with covariances of at least ``floor``."""
        return replace(self, covariance=cov.raised(self.covariance, self.structure, floor))

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: GaussianEvaluated | SameMeans) -> ExpertScores:
        """Compute the complete-data score: ``Σ_k⁻¹ r`` on ``x``, and ``(zᵀ E_j z - tr E_j) / 2`` for each shape."""
        _, Linv = self.factors
        z = at.r * Linv if self.q == 1 else Linv @ at.r
        linear = z * Linv if self.q == 1 else Linv.transpose(0, 2, 1) @ z
        return ExpertScores(linear, cov.quadratic_scores(z, self.structure))

    def complete(self, moments: Moments) -> Array:
        """Compute ``Σ_k⁻¹ ⊗ S_k``, ``L⁻ᵀ E_j L⁻¹ Σ τ r xᵀ``, ``½ tr(E_i E_j Σ τ z zᵀ)``, ``(K, q p + m, q p + m)``."""
        _, _, Sxr = self._unfold(moments)
        whitened = self._whitened_scatter(moments)
        _, Linv = self.factors
        E, Sxx = cov.basis(self.structure, self.q), unpack(moments.second)
        head, K = self.q * self.p, self.K
        J = np.empty((K, head + len(E), head + len(E)))
        J[:, head:, head:] = 0.5 * (whitened[:, None] @ E).reshape(K, len(E), -1) @ E.reshape(len(E), -1).T
        up = Linv.transpose(0, 2, 1)
        J[:, :head, :head] = kronecker(up @ Linv, Sxx)
        cross = (up[:, None] @ E @ (Linv @ Sxr.transpose(0, 2, 1))[:, None]).reshape(K, len(E), head)
        J[:, head:, :head], J[:, :head, head:] = cross, cross.transpose(0, 2, 1)
        return J

    def _whitened_scatter(self, moments: Moments) -> Array:
        """Compute ``Σ τ z zᵀ``, ``(K, q, q)``."""
        _, scatter, _ = self._unfold(moments)
        _, Linv = self.factors
        S = scatter if cov.has_matrices(self.structure) else scatter[:, :, None] * np.eye(self.q)
        return Linv @ S @ Linv.transpose(0, 2, 1)

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score from the moments: coefficients ``(K, q, p)`` and shapes ``(K, m)``."""
        n, _, Sxr = self._unfold(moments)
        _, Linv = self.factors
        E = cov.basis(self.structure, self.q)
        trace = np.trace(E, axis1=1, axis2=2)
        shapes = np.einsum("jab,kab->kj", E, self._whitened_scatter(moments)) - n[:, None] * trace
        return Linv.transpose(0, 2, 1) @ Linv @ Sxr.transpose(0, 2, 1), 0.5 * shapes

    def tie(self) -> Array:
        """Return the matrix ``(K m, shape_parameters)`` from free shape parameters to those of each expert."""
        eye = np.eye(self.shapes)
        return np.tile(eye, (self.K, 1)) if self.structure == "tied" else np.eye(self.K * self.shapes)

    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Compute the second derivative of the ridge."""
        return kronecker(np.eye(self.K * self.q), penalty.expert_matrix(self.p, intercept=intercept))

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Return ``B + coefficients`` and ``Σ_k ← L_k exp(E_k) L_kᵀ``, ``E_k = Σ_j shapes_kj E_j``."""
        L, _ = self.factors
        E = np.einsum("kj,jab->kab", (self.tie() @ shapes).reshape(self.K, -1), cov.basis(self.structure, self.q))
        with np.errstate(over="ignore", invalid="ignore"):  # a step that overflows is not finite, and refused
            moved = np.array([F @ symmetric_exponential(e) @ F.T for F, e in zip(L, E, strict=True)])
            stored = cov.store_covariances(moved, self.structure)
        return type(self)(self.B + coefficients.reshape(self.B.shape), stored, self.structure)

    # ------------------------------------------------------------------ reported parameters

    def log_shapes(self) -> Array:
        """Return ``log Σ_k,jj``, ``(K, q)``."""
        return np.log(self.variances)

    def log_shapes_jacobian(self) -> Array:
        """Compute ``∂ log Σ_k,jj / ∂ shapes``, ``(K q, shape_parameters)``."""
        L, _ = self.factors
        moves = np.einsum("kja,bac,kjc->kjb", L, cov.basis(self.structure, self.q), L)  # (K, q, m)
        relative = moves / self.variances[:, :, None]
        return np.asarray(block_diag(*relative) @ self.tie(), dtype=np.float64)

    def attributes(self) -> dict[str, Array]:
        """Return variances ``(K,)`` or ``(K, q)``, and covariances in the storage of the structure."""
        variances = self.variances[:, 0] if self.q == 1 else self.variances
        return {"variances_": variances.copy(), "covariances_": self.covariance}

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute ``E[y | x, k]``, ``(K, q, n)``."""
        return self.B @ panel

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array] | None:
        """Return Gauss-Hermite nodes of one response; None for several."""
        if self.q > 1:
            return None
        t, w = hermite_nodes(NODES)
        Y = self.mean(panel) + np.sqrt(self.variances)[:, :, None] * t[:, None]
        return Y, np.broadcast_to(w[:, None], Y.shape)

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw responses ``(n, q)`` of the experts given by ``labels (n,)``."""
        L, _ = self.factors
        noise = rng.standard_normal((len(labels), self.q))
        mean: Array = np.einsum("nqp,pn->nq", self.B[labels], panel)
        mean += np.einsum("nab,nb->na", L[labels], noise)
        return mean

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``, for one response."""
        mean = self.mean(panel)[:, 0]
        return ndtr((y - mean) / np.sqrt(self.variances))

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, for one response."""
        return self.mean(panel)[:, 0] + ndtri(probability) * np.sqrt(self.variances)

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute ``½ (log|Σ_l| - log|Σ_k| + tr Σ_l⁻¹ Σ_k - q + ‖L_l⁻¹ (B_k - B_l) x̃‖²)``, ``(K, L, n)``."""
        constant = self.shape_divergence(other)
        _, Linv = other.factors
        gap = self.mean(panel)[:, None] - other.mean(panel)  # (K, L, q, n)
        return np.asarray(constant[:, :, None] + 0.5 * np.sum((Linv @ gap) ** 2, axis=2))

    def shape_divergence(self, other: Self) -> Array:
        """Compute the divergence at equal means, ``½ (log|Σ_l| - log|Σ_k| + tr Σ_l⁻¹ Σ_k - q)``, ``(K, L)``."""
        (L, _), (M, Minv) = self.factors, other.factors
        log_det = [2 * np.log(np.diagonal(F, axis1=1, axis2=2)).sum(axis=1) for F in (L, M)]
        trace = np.sum((Minv[None] @ L[:, None]) ** 2, axis=(2, 3))
        return np.asarray(0.5 * (log_det[1] - log_det[0][:, None] + trace - self.q))

    def within(self, panel: Array, own: Array, mean: Array) -> Array:
        """Compute the scatter of the responses around ``mean``, ``(q, q)``: between and within experts."""
        gap = self.mean(panel) - mean
        scatter: Array = np.einsum("ls,lqs,lrs->qr", own, gap, gap, optimize=True)
        return scatter + np.tensordot(own.sum(axis=1), self.matrices, axes=1)

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """Fit ``mean`` on ``x̃`` by weighted least squares; residual scatter is added to the covariance ``within``."""
        n = mass.sum(axis=1)
        S = np.einsum("kn,an,bn->kab", mass, panel, panel, optimize=True)
        B = self._solved(S, np.einsum("kn,an,kqn->kaq", mass, panel, mean, optimize=True), n)
        gap = mean - B @ panel
        return self.with_scatter(B, within + np.einsum("kn,kqn,krn->kqr", mass, gap, gap, optimize=True), n)

    def _solved(self, S: Array, right: Array, n: Array) -> Array:
        """Compute ``(S_k⁻¹ right_k)ᵀ`` from ``(K, p, p)`` and ``(K, p, q)``; the current ones where ``n`` is 0."""
        B = self.B.copy()
        for k in np.flatnonzero(n > cov.EMPTY):
            B[k] = solve_symmetric(S[k], right[k])[0].T
        return B

    def with_scatter(self, B: Array, scatter: Array, n: Array, floor: Array | None = None) -> Self:
        """Return experts ``B`` with covariances, in this structure, closest to ``scatter_k / n_k``, ``(K, q, q)``."""
        least = np.zeros((self.q, self.q)) if floor is None else floor
        folded = scatter if cov.has_matrices(self.structure) else np.diagonal(scatter, axis1=1, axis2=2)
        covariance = cov.maximiser(folded, n, self.structure, self.covariance, least)
        return replace(self, B=B, covariance=covariance)

    def like(self, other: Self) -> Self:
        """Return the same experts with covariances in the structure of ``other``."""
        if self.structure == other.structure:
            return self
        covariance = cov.store_covariances(self.matrices, other.structure)
        return replace(self, covariance=covariance, structure=other.structure)

    # ------------------------------------------------------------------ combining from moments

    def moment_costs(self, others: Self, mass: Array, second: Array) -> Array:
        """Compute the divergence from each expert to each of ``others``, summed over its rows, from moments alone.

        ``c_lk = m_l d(Σ_l, Σ_k) + ½ tr Σ_k⁻¹ (B_l - B_k) S_l (B_l - B_k)ᵀ`` with ``m_l = Σ_i τ_il`` and
        ``S_l = Σ_i τ_il x̃_i x̃_iᵀ``, which the E-step provides.

        Parameters
        ----------
        others : GaussianExperts
            K experts on the same design; ``self`` has L.
        mass : (L,) array
        second : (L, p, p) array

        Returns
        -------
        (L, K) array

        Examples
        --------
        >>> import numpy as np
        >>> from consilience.model import GaussianExperts
        >>> one = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
        >>> two = GaussianExperts(np.array([[[0.0]], [[2.0]]]), np.ones((2, 1, 1)))
        >>> one.moment_costs(two, np.array([3.0]), np.array([[[3.0]]]))
        array([[0., 6.]])
        """
        _, Linv = others.factors
        spread = np.empty((self.K, others.K))
        size = max(COSTS_AT_ONCE // (others.K * self.q * self.p), 1)
        for i in range(0, self.K, size):
            gap = Linv @ (self.B[i : i + size, None] - others.B)  # (·, K, q, p)
            flat = gap.reshape(len(gap), -1, self.p)
            spread[i : i + size] = np.sum((flat @ second[i : i + size] * flat).reshape(len(gap), others.K, -1), axis=2)
        return mass[:, None] * self.shape_divergence(others) + 0.5 * spread

    def moment_barycentres(self, parts: Self, labels: IntArray, mass: Array, second: Array) -> Self:
        """Compute the barycentre of the ``parts`` that ``labels (L,)`` assign to each expert; unchanged if none.

        ``B_k = (Σ_l S_l)⁻¹ Σ_l S_l B_l`` and ``Σ_k = Σ_l [m_l Σ_l + (B_l - B_k) S_l (B_l - B_k)ᵀ] / Σ_l m_l``, in the
        covariance structure of these experts. The spread of the coefficients is part of the variance: without it the
        variances, which local fits underestimate, would be too small.
        """
        member = (labels == np.arange(self.K)[:, None]).astype(np.float64)  # (K, L)
        n = member @ mass
        L, p = len(mass), self.p
        S = (member @ second.reshape(L, -1)).reshape(-1, p, p)
        right = (member @ (second @ parts.B.transpose(0, 2, 1)).reshape(L, -1)).reshape(len(n), p, -1)
        B = self._solved(S, right, n)
        gap = parts.B - B[labels]  # (L, q, p)
        scatter = gap @ second @ gap.transpose(0, 2, 1) + mass[:, None, None] * parts.matrices
        return self.with_scatter(B, (member @ scatter.reshape(L, -1)).reshape(len(n), self.q, self.q), n)

    def largest_precision(self, second: Array) -> Array:
        """Return the diagonal of ``Σ_k⁻¹ ⊗ S_k``, ``(K, q p)``: the information for known labels."""
        moments = np.diagonal(second, axis1=1, axis2=2)
        inverse = np.array([np.diagonal(np.linalg.inv(S)) for S in self.matrices])  # (K, q)
        return (inverse[:, :, None] * moments[:, None]).reshape(self.K, -1)

    def labelled_precision(self, second: Array) -> Array:
        """Return ``Σ_k⁻¹ ⊗ S_k``, ``(K, q p, q p)``: the information for known labels."""
        return kronecker(np.asarray(np.linalg.inv(self.matrices)), second)

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return covariance matrices, flat, ``(K, q q)``."""
        return self.matrices.reshape(self.K, -1)

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these covariances, in their structure."""
        return replace(self, covariance=cov.store_covariances(values.reshape(self.K, self.q, self.q), self.structure))

    @property
    def ties_shapes(self) -> bool:
        """Whether all experts share one covariance."""
        return self.structure == "tied"

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute covariances of the residuals from the current coefficients, flat, ``(K, q q)``."""
        still = replace(moments, first=np.zeros_like(moments.first))
        return self.step(still, replace(penalty, expert_ridge=0.0), intercept=True, fraction=1.0).shape_values()

    def with_wide_shapes(self, summary: ColumnSummary, factor: float) -> Self:
        """Return the experts with ``factor`` times the covariance of the responses."""
        wide = np.tile(factor * summary.y_covariance, (self.K, 1, 1))
        return replace(self, covariance=cov.store_covariances(wide, self.structure))

    def relabelled(self, moments: Moments, permutation: IntArray) -> Moments:
        """Return moments at these experts as if their labels had been permuted."""
        return self.solution(moments).permuted(permutation).moments(self.B)

    def solution(self, moments: Moments) -> cov.LeastSquares:
        """Return the weighted least squares solution for moments at these experts."""
        n, scatter, Sxr = self._unfold(moments)
        return cov.LeastSquares.of(n, unpack(moments.second), Sxr.transpose(0, 2, 1), scatter, at=self.B)

    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""
        stored = self.covariance if self.structure == "tied" else self.covariance[permutation]
        return replace(self, B=self.B[permutation], covariance=stored)

    def transformed(self, T: Array) -> Self:
        """Return the experts with coefficients ``T b``, for a change of covariate coordinates."""
        return replace(self, B=self.B @ T.T)

"""Gaussian experts: linear regressions with one or several responses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
from scipy.special import ndtr, ndtri

from consilience.model.families import covariance as cov
from consilience.model.families.base import Evaluated, Scores
from consilience.model.families.covariance import Structure
from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty
from consilience.model.rows import Block
from consilience.numerics.arrays import Array, IntArray, kronecker, pack, unpack
from consilience.numerics.linalg import solve_symmetric, symmetric_exponential


@dataclass(frozen=True, eq=False)
class GaussianEvaluated(Evaluated):
    """Residuals ``r = y - B_k x̃`` and whitened residuals ``z = L_k⁻¹ r``, both ``(K, q, n)``."""

    r: Array
    z: Array


@dataclass(frozen=True, eq=False)
class GaussianExperts:
    """Experts ``y | x, k ~ N(B_k x̃, Σ_k)`` with ``q ≥ 1`` responses.

    Parameters
    ----------
    B : (K, q, p) array
        Regression coefficients, intercept first. An intercept-only design is a Gaussian mixture.
    covariance : array
        ``(K, q, q)`` full, ``(K, q)`` diag, ``(K,)`` spherical, ``(q, q)`` tied.
    structure : {"full", "diag", "spherical", "tied"}
        Which covariances are allowed.

    Examples
    --------
    >>> experts = GaussianExperts(B=np.array([[[0.0, 1.0]]]), covariance=np.array([[[4.0]]]))
    >>> experts.mean(np.array([[1.0], [3.0]])).ravel(), experts.variances
    (array([3.]), array([[4.]]))
    """

    B: Array
    covariance: Array
    structure: Structure = "full"

    discrete = False
    newton_type = False
    family = "gaussian"

    @property
    def K(self) -> int:
        """Number of experts."""
        return len(self.B)

    @property
    def q(self) -> int:
        """Number of responses."""
        return int(self.B.shape[1])

    @property
    def p(self) -> int:
        """Number of coefficients per response."""
        return int(self.B.shape[2])

    @property
    def channels(self) -> int:
        """Linear predictors per expert."""
        return self.q

    @property
    def shapes(self) -> int:
        """Covariance parameters per expert before tying."""
        return cov.shape_count(self.structure, self.q)

    @property
    def shape_parameters(self) -> int:
        """Free covariance parameters of all experts."""
        return self.shapes * (1 if self.structure == "tied" else self.K)

    @property
    def parameter_count(self) -> int:
        """Free parameters."""
        return self.B.size + self.shape_parameters

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

    # ------------------------------------------------------------------ the pass

    def evaluate(self, block: Block) -> GaussianEvaluated:
        """Log density ``log N(y_i; B_k x̃_i, Σ_k)`` and residuals of a block."""
        K, q, p = self.B.shape
        _, Linv = self.factors
        r = (self.B.reshape(K * q, p) @ block.panel).reshape(K, q, -1)
        np.subtract(block.Y, r, out=r)
        if q == 1:
            z = r * Linv
            log_density = z[:, 0] * z[:, 0]
        else:
            z = Linv @ r
            log_density = np.einsum("kqn,kqn->kn", z, z)
        log_density *= -0.5
        log_density += self._log_normaliser[:, None]
        return GaussianEvaluated(log_density, r, z)

    def layout(self, p: int) -> Layout:
        """Shape of the experts' moments."""
        scatter = cov.scatter_size(self.structure, self.q)
        return Layout(self.K * (1 + scatter), self.K * self.q, self.K, p)

    def weights(self, at: GaussianEvaluated, tau: Array, p: int) -> Weights:
        """Rows for ``Σ τ``, the residual scatter, ``Σ τ r x``, ``Σ τ x xᵀ``; ``tau (K, n)`` includes case weights."""
        weighted = at.r * tau[:, None]
        if self.q > 1 and cov.has_matrices(self.structure):
            scatter = pack(weighted @ at.r.transpose(0, 2, 1)).ravel()
        else:
            scatter = np.einsum("kqn,kqn->kq", weighted, at.r).ravel()
        return Weights(
            plain=np.concatenate([tau.sum(axis=1), scatter]),
            first=weighted.reshape(self.K * self.q, -1),
            second=tau,
        )

    # ------------------------------------------------------------------ the step

    def _unfold(self, moments: Moments) -> tuple[Array, Array, Array]:
        """``n (K,)``, scatter ``(K, q, q)`` or ``(K, q)``, ``Sxr (K, p, q)``."""
        n = moments.plain[: self.K]
        scatter = moments.plain[self.K :].reshape(self.K, -1)
        folded = unpack(scatter) if cov.has_matrices(self.structure) else scatter
        return n, folded, moments.first.reshape(self.K, self.q, self.p).transpose(0, 2, 1)

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> GaussianExperts:
        """The exact maximiser in residual form: ``δ_k = S_k⁻¹ Σ τ r x``, then the covariance of what remains."""
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
        return GaussianExperts(self.B + delta.transpose(0, 2, 1), covariance, self.structure)

    def full_rank(self, moments: Moments) -> bool:
        """Whether every expert with rows has a design of full rank."""
        n = moments.plain[: self.K]
        blocks = unpack(moments.second)
        none = np.zeros((self.p, 1))
        return all(solve_symmetric(S, none)[1] for S, mass in zip(blocks, n, strict=True) if mass > self.p)

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """No ridge: 0."""
        return 0.0

    def admissible(self, penalty: Penalty) -> bool:
        """Whether the covariances respect the floor."""
        return cov.is_above(self.covariance, self.structure, penalty.floor)

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: GaussianEvaluated) -> Scores:
        """Complete-data score: ``Σ_k⁻¹ r`` on ``x``, and ``(zᵀ E_j z - tr E_j) / 2`` for each shape."""
        _, Linv = self.factors
        linear = at.z * Linv if self.q == 1 else Linv.transpose(0, 2, 1) @ at.z
        return Scores(linear, cov.quadratic_scores(at.z, self.structure))

    def complete(self, moments: Moments) -> Array:
        """``Σ_k⁻¹ ⊗ S_k``, ``L⁻ᵀ E_j L⁻¹ Σ τ r xᵀ`` and ``½ tr(E_i E_j Σ τ z zᵀ)``, ``(K, q p + m, q p + m)``."""
        _, _, Sxr = self._unfold(moments)
        whitened = self._whitened_scatter(moments)
        _, Linv = self.factors
        E, Sxx = cov.basis(self.structure, self.q), unpack(moments.second)
        head, K = self.q * self.p, self.K
        J = np.empty((K, head + len(E), head + len(E)))
        J[:, head:, head:] = 0.5 * (whitened[:, None] @ E).reshape(K, len(E), -1) @ E.reshape(len(E), -1).T
        for k in range(K):
            J[k, :head, :head] = kronecker(Linv[k].T @ Linv[k], Sxx[k])
            cross = np.array([Linv[k].T @ e @ Linv[k] @ Sxr[k].T for e in E]).reshape(len(E), head)
            J[k, head:, :head], J[k, :head, head:] = cross, cross.T
        return J

    @property
    def full_curvature(self) -> bool:
        """Always."""
        return True

    def _whitened_scatter(self, moments: Moments) -> Array:
        """``Σ τ z zᵀ``, ``(K, q, q)``."""
        _, scatter, _ = self._unfold(moments)
        _, Linv = self.factors
        S = scatter if cov.has_matrices(self.structure) else scatter[:, :, None] * np.eye(self.q)
        whitened: Array = Linv @ S @ Linv.transpose(0, 2, 1)
        return whitened

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Observed score from the moments: coefficients ``(K, q, p)`` and shapes ``(K, m)``."""
        n, _, Sxr = self._unfold(moments)
        _, Linv = self.factors
        E = cov.basis(self.structure, self.q)
        shapes = np.einsum("jab,kab->kj", E, self._whitened_scatter(moments)) - n[:, None] * np.trace(
            E, axis1=1, axis2=2
        )
        return Linv.transpose(0, 2, 1) @ Linv @ Sxr.transpose(0, 2, 1), 0.5 * shapes

    def tie(self) -> Array:
        """Matrix ``(K m, shape_parameters)`` from free shape parameters to those of each expert."""
        eye = np.eye(self.shapes)
        return np.tile(eye, (self.K, 1)) if self.structure == "tied" else np.eye(self.K * self.shapes)

    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Second derivative of the ridge on coefficients: zero."""
        return np.zeros((self.B.size, self.B.size))

    def free_coefficients(self) -> Array:
        """Coefficients in the coordinates of the information, flat."""
        return self.B.ravel()

    def moved(self, coefficients: Array, shapes: Array) -> GaussianExperts:
        """``B + coefficients`` and ``Σ_k ← L_k exp(E_k) L_kᵀ``, ``E_k = Σ_j shapes_kj E_j``."""
        L, _ = self.factors
        E = np.einsum("kj,jab->kab", (self.tie() @ shapes).reshape(self.K, -1), cov.basis(self.structure, self.q))
        moved = np.array([F @ symmetric_exponential(e) @ F.T for F, e in zip(L, E, strict=True)])
        stored = cov.stored(moved, self.structure)
        return GaussianExperts(self.B + coefficients.reshape(self.B.shape), stored, self.structure)

    # ------------------------------------------------------------------ use

    def mean(self, panel: Array) -> Array:
        """``E[y | x, k]``, ``(K, q, n)``."""
        return self.B @ panel

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Responses ``(n, q)`` of the experts named by ``labels (n,)``."""
        L, _ = self.factors
        noise = rng.standard_normal((len(labels), self.q))
        mean: Array = np.einsum("nqp,pn->nq", self.B[labels], panel)
        mean += np.einsum("nab,nb->na", L[labels], noise)
        return mean

    def cdf(self, panel: Array, y: Array) -> Array:
        """``P(Y ≤ y_i | x_i, k)``, ``(K, n)``, for one response."""
        mean = self.mean(panel)[:, 0]
        return ndtr((y - mean) / np.sqrt(self.variances))

    def quantile(self, panel: Array, probability: float) -> Array:
        """Quantile of each expert, ``(K, n)``, for one response."""
        return self.mean(panel)[:, 0] + ndtri(probability) * np.sqrt(self.variances)

    def divergence(self, other: GaussianExperts, panel: Array) -> Array:
        """``½ (log|Σ_l| - log|Σ_k| + tr Σ_l⁻¹ Σ_k - q + ‖L_l⁻¹ (B_k - B_l) x̃‖²)``, ``(K, L, n)``."""
        constant = self.shape_divergence(other)
        _, Linv = other.factors
        gap = self.mean(panel)[:, None] - other.mean(panel)  # (K, L, q, n)
        divergence: Array = constant[:, :, None] + 0.5 * np.sum((Linv @ gap) ** 2, axis=2)
        return divergence

    def shape_divergence(self, other: GaussianExperts) -> Array:
        """The divergence where the means agree: ``½ (log|Σ_l| - log|Σ_k| + tr Σ_l⁻¹ Σ_k - q)``, ``(K, L)``."""
        (L, _), (M, Minv) = self.factors, other.factors
        log_det = [2 * np.log(np.diagonal(F, axis1=1, axis2=2)).sum(axis=1) for F in (L, M)]
        trace = np.sum((Minv[None] @ L[:, None]) ** 2, axis=(2, 3))
        constant: Array = 0.5 * (log_det[1] - log_det[0][:, None] + trace - self.q)
        return constant

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> GaussianExperts:
        """Weighted least squares of ``mean`` on ``x̃``; what remains adds to the covariance ``within``."""
        n = mass.sum(axis=1)
        S = np.einsum("kn,an,bn->kab", mass, panel, panel, optimize=True)
        B = self.solved(S, np.einsum("kn,an,kqn->kaq", mass, panel, mean, optimize=True), n)
        gap = mean - B @ panel
        return self.with_scatter(B, within + np.einsum("kn,kqn,krn->kqr", mass, gap, gap, optimize=True), n)

    def solved(self, S: Array, right: Array, n: Array) -> Array:
        """Coefficients ``(S_k⁻¹ right_k)ᵀ`` from ``(K, p, p)`` and ``(K, p, q)``; the current ones where ``n`` is 0."""
        B = self.B.copy()
        for k in np.flatnonzero(n > cov.EMPTY):
            B[k] = solve_symmetric(S[k], right[k])[0].T
        return B

    def with_scatter(self, B: Array, scatter: Array, n: Array) -> GaussianExperts:
        """Experts ``B`` whose covariances, in this structure, are nearest to ``scatter_k / n_k``, ``(K, q, q)``."""
        folded = scatter if cov.has_matrices(self.structure) else np.diagonal(scatter, axis1=1, axis2=2)
        covariance = cov.maximiser(folded, n, self.structure, self.covariance, np.zeros((self.q, self.q)))
        return GaussianExperts(B, covariance, self.structure)

    def permuted(self, order: IntArray) -> GaussianExperts:
        """Experts in the given order."""
        stored = self.covariance if self.structure == "tied" else self.covariance[order]
        return replace(self, B=self.B[order], covariance=stored)

    def transformed(self, T: Array) -> GaussianExperts:
        """Coefficients ``T b``, for a change of covariate coordinates."""
        return replace(self, B=self.B @ T.T)

"""Categorical experts: softmax regressions, binary or multinomial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NoReturn, Self, cast

import numpy as np

from consilience.model import multinomial
from consilience.model.families.base import Evaluated, Experts, ExpertScores, MessageFields, Options, arrays_problem
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask, kronecker, log_softmax, log_sum_exp, upper_triangle
from consilience.numerics.linalg import is_semidefinite

SHARP = 1e-6
"""Curvature per row below which it has few correct digits."""


@dataclass(frozen=True, eq=False)
class CategoricalEvaluated(Evaluated):
    """Class probabilities ``(K, C, n)``, and the observed class as an indicator ``(C, n)``."""

    probability: Array
    indicator: Array


@dataclass(frozen=True, eq=False)
class CategoricalExperts(Experts):
    """Experts ``P(y = c | x, k) = exp(x̃ᵀ b_kc) / Σ_e exp(x̃ᵀ b_ke)`` with ``Σ_c b_kc = 0``.

    Parameters
    ----------
    B : (K, C, p) array
        Coefficients, intercept first; responses are class codes ``0 … C - 1``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import CategoricalExperts
    >>> experts = CategoricalExperts(B=np.array([[[0.0, -1.0], [0.0, 1.0]]]))
    >>> experts.mean(np.array([[1.0], [0.0]])).ravel()
    array([0.5, 0.5])
    """

    B: Array

    family = "categorical"
    in_papers = "logistic"
    multiplied = "odds"
    link = "multinomial logit"
    discrete = True
    classes = True
    range_sentence = "the response must be one of the classes of the study"
    message_fields: ClassVar[MessageFields] = {"B": (3,)}

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts with coefficients 0."""
        return cls(np.zeros((K, options.n_classes, p)))

    @classmethod
    def numbers(cls, p: int, q: int, options: Options) -> int:
        """Count the coefficients of all classes and their weights."""
        return p * (options.n_classes + 1)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the experts of several parts."""
        return cls(np.concatenate([part.B for part in parts]))

    @property
    def C(self) -> int:
        """Number of classes."""
        return int(self.B.shape[1])

    @property
    def channels(self) -> int:
        """Number of free linear predictors per expert, ``C - 1``."""
        return self.C - 1

    @property
    def outcomes(self) -> int:
        """Number of classes."""
        return self.C

    def in_range(self, rows: Rows) -> bool:
        """Whether the response is a class code ``0 … C - 1``."""
        return rows.Y.shape[1] == 1 and not np.any((rows.Y < 0) | (rows.Y >= self.C))

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return which responses are class codes."""
        y = Y[:, 0]
        return np.asarray((y >= 0) & (y < self.C) & (np.floor(y) == y))

    def response_features(self, rows: Rows) -> Array:
        """Return the classes as indicators ``(n, C)``."""
        return np.asarray((np.arange(self.C) == rows.Y).astype(np.float64))

    def invalid(self) -> str:
        """Return the reason why the coefficients are not valid; empty if they are."""
        return arrays_problem({"B": (self.B, self.B.shape)})

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> CategoricalEvaluated:
        """Compute the log probability of the observed class, and all class probabilities."""
        eta = (self.B.reshape(-1, self.p) @ block.panel).reshape(self.K, self.C, -1)
        total, probability = block.kernel.log_sum_exp(eta.transpose(1, 0, 2))  # (K, n), (C, K, n)
        codes = block.Y[0].astype(np.intp)
        indicator = (np.arange(self.C)[:, None] == codes).astype(float)
        log_density = np.take_along_axis(eta, codes[None, None, :], axis=1)[:, 0] - total
        return CategoricalEvaluated(log_density, probability.transpose(1, 0, 2), indicator)

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(self.K, self.K * self.channels, self.K * multinomial.curvature_row_count(self.C, p), p)

    def weights(self, at: CategoricalEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ``, ``Σ τ (1[y = c] - p_c) x`` and the curvature; ``tau (K, n)`` has case weights."""
        gradient = (at.indicator - at.probability)[:, :-1] * tau[:, None]
        curvature = [multinomial.curvature_rows(pi, mass, p) for pi, mass in zip(at.probability, tau, strict=True)]
        return Weights(tau.sum(axis=1), gradient.reshape(self.K * self.channels, -1), np.concatenate(curvature))

    # ------------------------------------------------------------------ what must be true of statistics

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give: the curvature of each expert is positive semidefinite."""
        if not self.full_curvature or not len(moments.second):
            return super().impossible(moments, intercept=intercept)
        H = self.complete(moments)
        diagonal = np.diagonal(H, axis1=1, axis2=2)
        clear = diagonal.min(axis=1) > SHARP * moments.plain[: self.K]  # elsewhere rounding hides the curvature
        if not is_semidefinite(H[clear]) or np.any(diagonal < 0):
            return "a curvature that is not positive semidefinite"
        return super().impossible(replace(moments, second=moments.second[:0]), intercept=intercept)

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take one safeguarded Newton step per expert."""
        gradients = moments.first.reshape(self.K, self.channels, self.p)
        curvatures = moments.second.reshape(self.K, -1, moments.second.shape[1])
        R = penalty.expert_matrix(self.p, intercept=intercept)
        moved = [
            multinomial.step(b, g, h, ridge=R, fraction=fraction)
            for b, g, h in zip(self.B, gradients, curvatures, strict=True)
        ]
        return type(self)(np.array(moved))

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: CategoricalEvaluated) -> ExpertScores:
        """Compute the scores ``1[y = c] - p_c`` on ``x``, for the contrasts ``c < C - 1``."""
        linear = (at.indicator - at.probability)[:, :-1]
        return ExpertScores(linear, np.empty((self.K, 0, linear.shape[2])))

    def complete(self, moments: Moments) -> Array:
        """Compute the full curvature of each expert's contrasts, ``(K, (C - 1) p, (C - 1) p)``."""
        curvatures = moments.second.reshape(self.K, -1, moments.second.shape[1])
        return np.array([multinomial.blocks_to_matrix(H, self.channels, self.p) for H in curvatures])

    def curvature_rows(self) -> IntArray:
        """Return which second moments have the weights ``τ π_c (1 - π_c)`` of each contrast."""
        i, j = upper_triangle(self.channels)
        return np.flatnonzero(np.tile(i == j, self.K))

    @property
    def full_curvature(self) -> bool:
        """Whether the number of contrasts allows the full Hessian."""
        return multinomial.is_full(self.C, self.p)

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score of the contrasts, ``(K, C - 1, p)``; no shapes."""
        return moments.first.reshape(self.K, self.channels, self.p), np.empty((self.K, 0))

    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Compute the second derivative of the ridge in the contrasts."""
        one = multinomial.ridge_matrix(self.C, penalty.expert_matrix(self.p, intercept=intercept))
        return kronecker(np.eye(self.K), one)

    def free_coefficients(self) -> Array:
        """Return the contrasts ``b_kc - b_kC``, flat."""
        return (self.B[:, :-1] - self.B[:, -1:]).ravel()

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the contrasts."""
        free = (self.free_coefficients() + coefficients).reshape(self.K, self.channels, self.p)
        return type(self)(np.array([multinomial.centre_coefficients(b) for b in free]))

    def coefficient_map(self) -> Array:
        """Map to the log odds of the second of two classes, or to coefficients that sum to zero over classes."""
        return -np.eye(1) if self.channels == 1 else multinomial.centre_coefficients(np.eye(self.channels))

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute class probabilities ``(K, C, n)``."""
        _, probability = log_sum_exp((self.B @ panel).transpose(1, 0, 2))
        return probability.transpose(1, 0, 2)

    def mean_slopes(self, panel: Array) -> Array:
        """Compute ``p_c (1[c = e] - p_e)``, ``(K, C, C, n)``; for two classes in the log odds of the second."""
        probability = self.mean(panel)
        slopes: Array = probability[:, :, None] * (np.eye(self.C)[:, :, None] - probability[:, None])
        return slopes[:, :, 1:] if self.channels == 1 else slopes

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return all classes and their probabilities."""
        probability = self.mean(panel)
        return np.broadcast_to(np.arange(float(self.C))[:, None], probability.shape), probability

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw class codes ``(n, 1)`` from the experts given by ``labels (n,)``."""
        probability = self.mean(panel)[labels, :, np.arange(len(labels))]  # (n, C)
        below = np.cumsum(probability, axis=1) < rng.random((len(labels), 1))
        return cast(Array, np.minimum(below.sum(axis=1), self.C - 1)[:, None].astype(float))

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> NoReturn:
        """Raise an error: classes have no order."""
        raise TypeError("classes have no order, so that they have no quantiles: use the class probabilities")

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> NoReturn:
        """Raise an error: classes have no order."""
        raise TypeError("classes have no order, so that they have no quantiles: use the class probabilities")

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute ``Σ_c p_kc (log p_kc - log p_lc)``, ``(K, L, n)``."""
        ours, theirs = (log_softmax((B @ panel).transpose(1, 0, 2)) for B in (self.B, other.B))  # (C, K, n)
        entropy = np.sum(np.exp(ours) * ours, axis=0)
        return np.asarray(entropy[:, None] - np.einsum("ckn,cln->kln", np.exp(ours), theirs))

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """Fit each expert by softmax regression on soft labels: minimise ``-Σ_i mass_i Σ_c mean_ci log p_c(x_i)``."""
        pairs = zip(self.B, mass, mean, strict=True)
        B = [multinomial.fit_softmax(b, panel, m * v) if m.sum() > 0 else b for b, m, v in pairs]
        return type(self)(np.array(B))

    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""
        return type(self)(self.B[permutation])

    def transformed(self, T: Array) -> Self:
        """Return the experts with coefficients ``T b``, for a change of covariate coordinates."""
        return type(self)(self.B @ T.T)

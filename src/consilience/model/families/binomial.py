"""Binomial experts: logistic regressions of numbers of successes, with numbers of trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

import numpy as np
from scipy.special import bdtr, expit, gammaln, log_expit, xlogy

from consilience.model.families.base import Evaluated, ExpertScores
from consilience.model.families.glm import (
    DEVIATIONS,
    GeneralisedLinearExperts,
    are_counts,
    count_nodes,
    mean_per_size,
    whole_counts,
)
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Weights
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.numerics.solvers import bisect


@dataclass(frozen=True, eq=False)
class BinomialEvaluated(Evaluated):
    """Variances ``m p (1 - p)`` and residuals ``y - m p``, both ``(K, n)``."""

    variance: Array
    residual: Array


@dataclass(frozen=True, eq=False)
class BinomialExperts(GeneralisedLinearExperts):
    """Experts ``y | x, k ~ Binomial(trials, 1 / (1 + exp(-x̃ᵀ b_k)))``; one trial where none are given.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log odds, intercept first.
    """

    family = "binomial"
    in_papers = "logistic"
    multiplied = "odds of a success"
    link = "logit"
    discrete = True
    size_name = "trials"
    range_sentence = "the response must be one column of whole numbers from 0 to the number of trials"

    def in_range(self, rows: Rows) -> bool:
        """Whether the response is a number of successes."""
        trials = np.ones(rows.n) if rows.exposure is None else rows.exposure
        return whole_counts(rows) and bool(np.all(rows.Y[:, 0] <= trials) and np.all(np.floor(trials) == trials))

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return which responses are numbers of successes among a number of trials."""
        trials = np.ones(len(Y)) if exposure is None else exposure
        return are_counts(Y[:, 0]) & are_counts(trials) & (trials > 0) & (Y[:, 0] <= trials)

    def response_features(self, rows: Rows) -> Array:
        """Return empirical log odds ``(n, 1)``."""
        trials = 1.0 if rows.exposure is None else rows.exposure[:, None]
        return np.log((rows.Y + 0.5) / (trials - rows.Y + 0.5))

    def at_level(self, rows: Rows) -> Self:
        """Return the blank experts at the overall log odds."""
        share = np.clip(mean_per_size(rows), 1e-8, 1 - 1e-8)
        return self.with_intercept(float(np.log(share / (1 - share))))

    # ------------------------------------------------------------------ the E-step

    def has_two_outcomes(self, summary: ColumnSummary) -> bool:
        """Whether all responses are 0 or 1: then the mean of their squares is their mean."""
        mean, variance = float(summary.y_mean[0]), float(summary.y_covariance[0, 0])
        return abs(variance + mean**2 - mean) <= 1e-9 * mean

    def evaluate(self, block: Block) -> BinomialEvaluated:
        """Compute the log density ``log C(m, y) + y η - m log(1 + e^η)``, residuals and variances."""
        eta, y = self.predictor(block.panel), block.Y[0]
        m = np.ones_like(y) if block.exposure is None else block.exposure
        share = expit(eta)
        choose = gammaln(m + 1) - gammaln(y + 1) - gammaln(m - y + 1)
        log_density = choose + y * eta + m * log_expit(-eta)
        return BinomialEvaluated(log_density, m * share * (1 - share), y - m * share)

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(self.K, self.K, self.K, p)

    def weights(self, at: BinomialEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ``, ``Σ τ (y - m p) x``, ``Σ τ m p (1 - p) x xᵀ``; ``tau (K, n)`` is weighted."""
        return Weights(tau.sum(axis=1), tau * at.residual, tau * at.variance)

    def scores(self, at: BinomialEvaluated) -> ExpertScores:
        """Compute the scores ``y - m p`` on ``x``."""
        return ExpertScores(at.residual[:, None], np.empty((self.K, 0, at.residual.shape[1])))

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute ``log(1 + e^η) - mean η`` and its derivatives, per trial."""
        share = expit(eta)
        return -log_expit(-eta) - mean * eta, mean - share, share * (1 - share)

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute the probability of a success, ``(K, 1, n)``."""
        return expit(self.predictor(panel))[:, None]

    def mean_slopes(self, panel: Array) -> Array:
        """Compute the derivative of the mean in the linear predictor, ``p (1 - p)``, ``(K, 1, 1, n)``."""
        share = self.mean(panel)[:, :, None]
        return share * (1 - share)

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return the numbers of successes, or nodes in their place if they are many, with their probabilities."""
        if exposure is None:
            share = self.mean(panel)
            return np.broadcast_to(np.arange(2.0)[:, None], (self.K, 2, panel.shape[1])), np.concatenate(
                [1 - share, share], axis=1
            )
        found = []
        for k in range(self.K):
            one = self.permuted(np.array([k]))
            share = one.mean(panel)[0, 0]
            mean, spread = exposure * share, DEVIATIONS * np.sqrt(exposure * share * (1 - share)) + 6
            low, high = np.maximum(np.floor(mean - spread), 0.0), np.minimum(np.ceil(mean + spread), exposure)
            found.append(count_nodes(one, panel, exposure, low, high))
        Y, weight = (np.stack(parts) for parts in zip(*found, strict=True))
        return Y, weight

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw successes ``(n, 1)`` from the experts given by ``labels (n,)``; ``exposure`` are the trials."""
        share = self.mean(panel)[labels, 0, np.arange(len(labels))]
        trials = np.ones(len(labels), dtype=np.int64) if exposure is None else exposure.astype(np.int64)
        return rng.binomial(trials, share).astype(np.float64)[:, None]

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``; ``exposure`` are the trials."""
        trials = np.ones_like(y) if exposure is None else exposure
        inside = bdtr(np.clip(np.floor(y), 0, trials), trials.astype(np.int64), self.mean(panel)[:, 0])
        return cast(Array, np.where(y < 0, 0.0, inside))

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``; ``exposure`` are the trials."""
        share = self.mean(panel)[:, 0]
        lower = np.full_like(share, -1.0)
        upper = np.ones_like(share) if exposure is None else np.broadcast_to(exposure, share.shape)
        least = bisect(lambda y: self.cdf(panel, y, exposure), probability, lower, upper)
        return cast(Array, np.floor(least + 1e-6))

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute ``p_k log(p_k / p_l) + (1 - p_k) log((1 - p_k) / (1 - p_l))`` per trial, ``(K, L, n)``."""
        ours, theirs = self.predictor(panel), other.predictor(panel)
        share = expit(ours)
        entropy = xlogy(share, share) + xlogy(1 - share, 1 - share)
        cross = share[:, None] * log_expit(theirs) + (1 - share)[:, None] * log_expit(-theirs)
        return entropy[:, None] - cross

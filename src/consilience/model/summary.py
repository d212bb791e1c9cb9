"""Weights, means and covariances of columns, as additive values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.design import Design
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array

CONSTANT = 1e-13
"""Relative spread below which a column is constant up to rounding."""
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """Weight, means and centred sums of squares of covariates; means and centred products of responses.

    ``a + b`` is the summary of both data sets (Chan's update), over blocks, shards and sites.

    Examples
    --------
    >>> rows = Rows(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]))
    >>> summary = column_summary(rows)
    >>> summary.x_mean, summary.x_variance, summary.y_covariance
    (array([1.]), array([1.]), array([[0.]]))
    """

    weight: float
    x_mean: Array  # (d,)
    x_squares: Array  # (d,)     Σ w (x - mean)²
    y_mean: Array  # (q,)
    y_products: Array  # (q, q)  Σ w (y - mean)(y - mean)ᵀ

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        total = self.weight + other.weight
        share = other.weight / total if total > 0 else 0.0
        dx, dy = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        return ColumnSummary(
            total,
            self.x_mean + share * dx,
            self.x_squares + other.x_squares + self.weight * share * dx**2,
            self.y_mean + share * dy,
            self.y_products + other.y_products + self.weight * share * np.outer(dy, dy),
        )

    @classmethod
    def unit(cls, d: int, q: int) -> ColumnSummary:
        """Return columns with mean 0 and variance 1, for mixtures of which only the type matters."""
        return cls(1.0, np.zeros(d), np.ones(d), np.zeros(q), np.eye(q))

    @property
    def x_variance(self) -> Array:
        """Variance of each covariate, ``(d,)``."""
        return self.x_squares / max(self.weight, np.finfo(float).tiny)

    @property
    def y_covariance(self) -> Array:
        """Covariance of the responses, ``(q, q)``."""
        return self.y_products / max(self.weight, np.finfo(float).tiny)

    @property
    def constant_covariates(self) -> np.ndarray:
        """Mask of the constant covariates, ``(d,)`` of bool."""
        return np.sqrt(self.x_variance) <= CONSTANT * np.abs(self.x_mean)

    @property
    def constant_responses(self) -> np.ndarray:
        """Mask of the constant responses, ``(q,)`` of bool."""
        return np.sqrt(np.diagonal(self.y_covariance)) <= CONSTANT * np.abs(self.y_mean)

    def design(self, intercept: bool) -> Design:
        """Return standardised coordinates; without an intercept covariates are scaled, not centred."""
        if intercept:
            scale = np.where(self.constant_covariates, 1.0, np.sqrt(self.x_variance))
            return Design(self.x_mean, scale, True)
        size = np.sqrt(self.x_variance + self.x_mean**2)
        return Design(np.zeros_like(size), np.where(size > 0, size, 1.0), False)

    def floor(self, fraction: float) -> Array:
        """Return the floor of covariances: ``fraction`` of the responses' covariance (its diagonal if singular)."""
        covariance = self.y_covariance
        sd = np.sqrt(np.diagonal(covariance))
        correlation = covariance / np.outer(sd, sd)
        if np.linalg.eigvalsh(correlation).min(initial=1.0) < 1e-10:
            covariance = np.diag(sd**2)
        return fraction * covariance


def column_summary(rows: Rows) -> ColumnSummary:
    """Summarise all rows, block by block; sums that overflow are not finite."""
    d, q = rows.X.shape[1], rows.Y.shape[1]
    total = ColumnSummary(0.0, np.zeros(d), np.zeros(d), np.zeros(q), np.zeros((q, q)))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, rows.n, BLOCK):
            part = slice(start, start + BLOCK)
            total = total + _summary(rows.X[part], rows.Y[part], None if rows.weight is None else rows.weight[part])
    return total


def _summary(X: Array, Y: Array, weight: Array | None) -> ColumnSummary:
    w = np.ones(len(X)) if weight is None else weight
    total = float(w.sum())
    share = w / total if total > 0 else w
    x_mean, y_mean = share @ X, share @ Y
    dx, dy = X - x_mean, Y - y_mean
    rounding = share @ dx
    x_mean, dx = x_mean + rounding, dx - rounding  # exact for constant columns, which must vanish when centred
    dx *= dx
    return ColumnSummary(total, x_mean, w @ dx, y_mean, (dy * w[:, None]).T @ dy)

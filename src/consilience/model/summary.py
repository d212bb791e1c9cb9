"""Weights, means and covariances of columns, as additive values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.model.design import Design
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import independent_columns

CONSTANT = 1e-13
"""Relative spread below which a column is constant up to rounding."""
BLOCK = 8192
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """Weight, and means and centred products of covariates and of responses.

    ``a + b`` is the summary of both data sets (Chan's update), over blocks, shards and sites.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows
    >>> from consilience.model.summary import column_summary
    >>> rows = Rows(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]))
    >>> summary = column_summary(rows)
    >>> summary.x_mean, summary.x_variance, summary.y_covariance
    (array([1.]), array([1.]), array([[0.]]))
    """

    weight: float
    x_mean: Array  # (d,)
    x_products: Array  # (d, d)  Σ w (x - mean)(x - mean)ᵀ
    y_mean: Array  # (q,)
    y_products: Array  # (q, q)  Σ w (y - mean)(y - mean)ᵀ

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        total = self.weight + other.weight
        share = other.weight / total if total > 0 else 0.0
        dx, dy = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        return ColumnSummary(
            total,
            self.x_mean + share * dx,
            self.x_products + other.x_products + self.weight * share * np.outer(dx, dx),
            self.y_mean + share * dy,
            self.y_products + other.y_products + self.weight * share * np.outer(dy, dy),
        )

    @classmethod
    def unit(cls, d: int, q: int) -> ColumnSummary:
        """Return columns with mean 0 and variance 1, for mixtures of which only the type matters."""
        return cls(1.0, np.zeros(d), np.eye(d), np.zeros(q), np.eye(q))

    @property
    def x_variance(self) -> Array:
        """Variance of each covariate, ``(d,)``."""
        return np.diagonal(self.x_products) / max(self.weight, TINY)

    @property
    def y_covariance(self) -> Array:
        """Covariance of the responses, ``(q, q)``."""
        return self.y_products / max(self.weight, TINY)

    @property
    def constant_covariates(self) -> np.ndarray:
        """Mask of the constant covariates, ``(d,)`` of bool."""
        return np.sqrt(self.x_variance) <= CONSTANT * np.abs(self.x_mean)

    @property
    def constant_responses(self) -> np.ndarray:
        """Mask of the constant responses, ``(q,)`` of bool."""
        return np.sqrt(np.diagonal(self.y_covariance)) <= CONSTANT * np.abs(self.y_mean)

    def design(self, intercept: bool, columns: tuple[int, ...] | None = None) -> Design:
        """Return standardised coordinates; without an intercept covariates are scaled, not centred.

        Covariates that are linear functions of earlier ones are not read, and none but ``columns`` if these are given.
        """
        return self._read(intercept, columns)[0]

    def form(self, intercept: bool, columns: tuple[int, ...] | None = None) -> Array:
        """Return the matrix ``F (p, p)`` of the variance ``bᵀ F b`` of a linear predictor on :meth:`design`.

        Without an intercept it is the mean square of the predictor.
        """
        return self._read(intercept, columns)[1]

    @cached_property
    def _known(self) -> dict[tuple[bool, tuple[int, ...] | None], tuple[Design, Array]]:
        """Designs and forms that were computed."""
        return {}

    def _read(self, intercept: bool, columns: tuple[int, ...] | None) -> tuple[Design, Array]:
        key = (intercept, columns)
        if key not in self._known:
            self._known[key] = _read(*(self._centred if intercept else self._scaled), intercept, columns)
        return self._known[key]

    @property
    def _centred(self) -> tuple[Array, Array, Array]:
        """Centres, scales and products about the centres."""
        varies = ~self.constant_covariates
        scale = np.where(varies, np.sqrt(self.x_variance), 1.0)
        return self.x_mean, scale, self.x_products / max(self.weight, TINY) * np.outer(varies, varies)

    @property
    def _scaled(self) -> tuple[Array, Array, Array]:
        """Zeros, scales and products about 0."""
        products = self.x_products / max(self.weight, TINY) + np.outer(self.x_mean, self.x_mean)
        size = np.sqrt(np.diagonal(products))
        return np.zeros_like(size), np.where(size > 0, size, 1.0), products

    def floor(self, fraction: float) -> Array:
        """Return the floor of covariances: ``fraction`` of the responses' covariance (its diagonal if singular)."""
        covariance = self.y_covariance
        sd = np.sqrt(np.diagonal(covariance))
        correlation = covariance / np.outer(sd, sd)
        if np.linalg.eigvalsh(correlation).min(initial=1.0) < 1e-10:
            covariance = np.diag(sd**2)
        return fraction * covariance


def _read(
    centre: Array, scale: Array, products: Array, intercept: bool, columns: tuple[int, ...] | None
) -> tuple[Design, Array]:
    """Return the design of the chosen covariates that are not linear functions of earlier ones, and its form."""
    correlation = products / np.outer(scale, scale)
    if not np.all(np.isfinite(correlation)):  # values whose squares overflow: an error where the data are checked
        correlation = np.eye(len(scale))
    chosen = np.arange(len(scale)) if columns is None else np.asarray(columns, dtype=np.intp)
    places, combinations = independent_columns(correlation[np.ix_(chosen, chosen)])
    kept, dependent = chosen[places], np.delete(chosen, places)
    form = np.pad(correlation[np.ix_(kept, kept)], (int(intercept), 0))
    if len(kept) == len(scale):
        return Design(centre, scale, intercept), form
    others = np.zeros((len(scale), len(kept) + intercept))  # of covariates that are not chosen: nothing
    others[dependent, int(intercept) :] = scale[dependent, None] * combinations
    if intercept:
        others[dependent, 0] = centre[dependent]
    return Design(centre[kept], scale[kept], intercept, tuple(map(int, kept)), np.delete(others, kept, axis=0)), form


def column_summary(rows: Rows) -> ColumnSummary:
    """Summarise all rows, block by block; sums that overflow are not finite."""
    d, q = rows.X.shape[1], rows.Y.shape[1]
    total = ColumnSummary(0.0, np.zeros(d), np.zeros((d, d)), np.zeros(q), np.zeros((q, q)))
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
    x_products, y_products = (dx * w[:, None]).T @ dx, (dy * w[:, None]).T @ dy
    if weight is not None:  # not finite if squares of rows without weight overflow: 0 times them would spoil later sums
        x_products, y_products = (
            products + 0.0 * np.sum(part[w == 0] ** 2) for products, part in ((x_products, dx), (y_products, dy))
        )
    return ColumnSummary(total, x_mean, x_products, y_mean, y_products)

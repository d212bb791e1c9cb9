"""Summary of a site's fit, which the coordinator combines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model import Mixture
from consilience.numerics.arrays import Array, IntArray, log_sum_exp, pack, unpack
from consilience.numerics.kmeans import kmeans
from consilience.numerics.linalg import inverse_factor


@dataclass(frozen=True, eq=False)
class SiteModel:
    """A mixture fitted at one site, in raw coordinates, with the moments needed to combine it with others.

    Parameters
    ----------
    mixture : Mixture
    weight : float
        Total weight of the site's rows, or its number of groups.
    label_counts : (K,) array
        ``Σ τ_k`` over labels: rows, or groups.
    mass : (K,) array
        ``Σ w τ_k`` over rows.
    second : (K, p (p + 1) / 2) array
        ``S_k = Σ w τ_k x̃ x̃ᵀ`` of Gaussian experts, packed; without rows for other families.
    log_likelihood : float
        Log-likelihood of the mixture on the site's rows.
    precision : (K, f (f + 1) / 2) array
        Inverse covariance of each expert's free coefficients, packed; without rows if not available.
    covariates : CovariateSummary or None
        Summary of the covariates that the gate reads; None if not needed.
    exposure : float
        Mean exposure of counts.

    Examples
    --------
    >>> from consilience.aggregate import SiteModel
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> truth = soft(10, random_state=0).truth
    >>> none = np.empty((0, 0))
    >>> SiteModel(truth, 10.0, np.full(4, 2.5), np.full(4, 2.5), none, -20.0, none).log_likelihood_per_row
    -2.0
    """

    mixture: Mixture
    weight: float
    label_counts: Array
    mass: Array
    second: Array
    log_likelihood: float
    precision: Array
    covariates: CovariateSummary | None = None
    exposure: float = 1.0

    @property
    def log_likelihood_per_row(self) -> float:
        """Log-likelihood per unit of weight."""
        return self.log_likelihood / self.weight


# ---------------------------------------------------------------- summary of covariates
#
# Columns with many values are modelled jointly by a small Gaussian mixture; columns with few values (codes, flags) by
# their proportions within each component. No row or cell of data leaves the site.


COMPONENTS = 4
FEW_VALUES = 8
"""Maximum number of distinct values of a column that is described by proportions."""
ROWS_PER_PARAMETER = 5
ITERATIONS = 50
TOL = 1e-3
"""Gain in log-likelihood per row below which EM stops."""
RIDGE = 1e-6
"""Minimum variance within a component, as a fraction of the column's."""
RARE = 1e-3
"""Pseudo-count of every value, so that no proportion within a component is zero."""
LEAST_ROWS = 20
"""Minimum number of rows of a class, so that no small group is described."""
LEAST_HELD = 5
"""Minimum number of rows with a value that is disclosed; other values are replaced by the nearest such value."""


@dataclass(frozen=True, eq=False)
class CovariateSummary:
    """Mixture of G classes: Gaussian in the columns with many values, independent proportions in those with few.

    Parameters
    ----------
    weights : (G,) array
        Weight of each class.
    means : (G, c) array
        Means of the c columns with many values.
    covariances : (G, c (c + 1) / 2) array
        Their packed covariances.
    levels : tuple of d arrays
        Values of each column with few values; empty for the others.
    shares : tuple of d (G, ·) arrays
        Proportions of those values within each class.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import covariate_summary
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(5, 1, 500), rng.random(500) < 0.3])
    >>> summary = covariate_summary(X, np.ones(500), rng)
    >>> drawn = summary.sample(2000, rng)
    >>> sorted(set(drawn[:, 1].tolist())), bool(np.abs(drawn.mean(axis=0) - X.mean(axis=0)).max() < 0.15)
    ([0.0, 1.0], True)
    """

    weights: Array
    means: Array
    covariances: Array
    levels: tuple[Array, ...]
    shares: tuple[Array, ...]

    @property
    def d(self) -> int:
        """Number of covariates."""
        return len(self.levels)

    @property
    def parameter_count(self) -> int:
        """Number of estimated numbers: weights, means, covariances and shares."""
        shares = sum(share.size - len(share) for share in self.shares if share.size)
        return len(self.weights) - 1 + self.means.size + self.covariances.size + shares

    @property
    def many(self) -> IntArray:
        """The columns with many values."""
        return np.array([j for j, values in enumerate(self.levels) if not len(values)], dtype=np.intp)

    def moments(self) -> tuple[Array, Array]:
        """Compute the mean and variance of each column, ``(d,)`` both."""
        first, second = np.empty((len(self.weights), self.d)), np.empty((len(self.weights), self.d))
        first[:, self.many] = self.means
        second[:, self.many] = self.means**2 + np.diagonal(unpack(self.covariances), axis1=1, axis2=2)
        for j, values in enumerate(self.levels):
            if len(values):
                first[:, j], second[:, j] = self.shares[j] @ values, self.shares[j] @ values**2
        mean = self.weights @ first / self.weights.sum()
        return mean, self.weights @ second / self.weights.sum() - mean**2

    def log_density(self, X: Array) -> Array:
        """Compute the log density of the points ``X (n, d)``, up to a constant common to summaries of these columns."""
        total, _ = log_sum_exp(self._log_joint(X))
        return total.ravel()

    def responsibilities(self, X: Array) -> Array:
        """Compute the probability of each class given the points ``X (n, d)``, ``(n, G)``.

        Rare values of columns with few values are replaced by the nearest that is described, as in the fit.
        """
        near = [_nearest(v, column) if len(v) else column for v, column in zip(self.levels, X.T, strict=True)]
        return np.asarray(log_sum_exp(self._log_joint(np.column_stack(near)))[1].T)

    def _log_joint(self, X: Array) -> Array:
        """Compute ``log weight_g + log p(x_i | g)``, ``(G, n)``."""
        codes = tuple(_codes(values, column) for values, column in zip(self.levels, X.T, strict=True))
        shares = [np.column_stack([share, np.full(len(share), RARE)]) if share.size else share for share in self.shares]
        classes = _Classes(self.weights, self.means, unpack(self.covariances), shares)
        return classes.log_joint(X[:, self.many], codes)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw ``n`` points ``(n, d)``, stratified by class to reduce variance."""
        edges = np.cumsum(self.weights) / self.weights.sum()
        classes = np.searchsorted(edges, (np.arange(n) + rng.random()) / max(n, 1), side="right")
        classes = np.minimum(classes, len(self.weights) - 1)
        X, many = np.empty((n, self.d)), self.many
        factors = [_factor(S) for S in unpack(self.covariances)]
        for g in np.unique(classes):
            mine = np.flatnonzero(classes == g)
            X[np.ix_(mine, many)] = self.means[g] + rng.standard_normal((len(mine), len(many))) @ factors[g].T
            for j, values in enumerate(self.levels):
                if len(values):
                    X[mine, j] = rng.choice(values, len(mine), p=self.shares[j][g] / self.shares[j][g].sum())
        return X


def _factor(S: Array) -> Array:
    """Compute ``L`` with ``L Lᵀ = S``; from the eigenvalues if ``S`` is not positive definite up to rounding."""
    try:
        return np.asarray(np.linalg.cholesky(S), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(S)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def covariate_summary(X: Array, weight: Array, rng: np.random.Generator) -> CovariateSummary:
    """Fit a summary to the rows of ``X (n, d)`` with weights ``(n,)``: k-means, then EM to a loose tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import covariate_summary
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> covariate_summary(X, np.ones(300), np.random.default_rng(1)).means.shape
    (4, 2)
    """
    levels = tuple(_levels(column, weight) for column in X.T)
    X = np.column_stack([_nearest(v, column) if len(v) else column for v, column in zip(levels, X.T, strict=True)])
    weight, rows = weight / weight.sum(), float(weight.sum())
    centre = weight @ X
    scale = np.sqrt(weight @ (X - centre) ** 2)
    Z = (X - centre) / np.where(scale > 0, scale, 1.0)
    codes = tuple(_codes(v, column) for v, column in zip(levels, X.T, strict=True))
    many = np.array([j for j, v in enumerate(levels) if not len(v)], dtype=np.intp)
    G = int(np.clip(rows // (ROWS_PER_PARAMETER * (X.shape[1] + 1)), 1, COMPONENTS))
    while True:
        classes = _fitted(kmeans(Z, G, weight, rng), G, _Columns(Z[:, many], codes, levels, weight))
        if G == 1 or rows * classes.weights.min() >= LEAST_ROWS:
            break
        G -= 1  # a class of few rows would give them away
    unit = np.where(scale > 0, scale, 1.0)[many]
    S = classes.covariances * np.outer(unit, unit)
    means = centre[many] + unit * classes.means
    return CovariateSummary(classes.weights, means, pack(S), levels, tuple(classes.shares))


def _levels(column: Array, weight: Array) -> Array:
    """Return the values of a column with few values, without rare ones; none for a column with many values."""
    values, place = np.unique(column[weight > 0], return_inverse=True)
    counts = np.bincount(place, weight[weight > 0])
    held = values[counts >= LEAST_HELD]
    return held if len(values) <= FEW_VALUES and len(held) else np.empty(0)


def _nearest(values: Array, column: Array) -> Array:
    """Replace each entry of a column by the nearest of ``values``."""
    return np.asarray(values[np.abs(column[:, None] - values).argmin(axis=1)], dtype=np.float64)


def _codes(values: Array, column: Array) -> IntArray:
    """Return the index of each entry in ``values``, or their number if it is not among them."""
    if not len(values):
        return np.empty(0, dtype=np.intp)
    place = np.searchsorted(values, column).clip(0, len(values) - 1)
    return np.where(values[place] == column, place, len(values))


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns of rows as arrays for EM."""

    Z: Array  # (n, c)                    columns with many values, standardised
    codes: tuple[IntArray, ...]  # d x (n,)  places of the values of the others
    levels: tuple[Array, ...]
    weight: Array  # (n,)                 sums to one


def _fitted(labels: IntArray, G: int, rows: _Columns) -> _Classes:
    """Fit G classes by EM to a loose tolerance, from ``labels (n,)``."""
    resp = (labels == np.arange(G)[:, None]).astype(np.float64)  # (G, n)
    classes = _Classes.of(resp, rows)
    before = -np.inf
    for _ in range(ITERATIONS if G > 1 else 0):
        total, resp = log_sum_exp(classes.log_joint(rows.Z, rows.codes))
        classes = _Classes.of(resp, rows)
        value = float(rows.weight @ total.ravel())
        if value - before < TOL:
            break
        before = value
    return classes


@dataclass(frozen=True, eq=False)
class _Classes:
    """Parameters of the classes on standardised columns, during EM."""

    weights: Array  # (G,)
    means: Array  # (G, c)
    covariances: Array  # (G, c, c)
    shares: list[Array]  # (G, values) of each column, without values where it has many

    @classmethod
    def of(cls, resp: Array, rows: _Columns) -> _Classes:
        """M-step for responsibilities ``(G, n)``."""
        Z, mass = rows.Z, resp * rows.weight
        n = np.maximum(mass.sum(axis=1), 1e-12)
        means = mass @ Z / n[:, None]
        S = np.empty((len(n), Z.shape[1], Z.shape[1]))
        for g, row in enumerate(mass):
            gap = Z - means[g]
            S[g] = (gap * row[:, None]).T @ gap / n[g]
        S += RIDGE * np.eye(Z.shape[1])
        shares = [
            _shares(mass, code, len(v)) if len(v) else np.empty((len(n), 0))
            for code, v in zip(rows.codes, rows.levels, strict=True)
        ]
        return cls(n / n.sum(), means, S, shares)

    def log_joint(self, Z: Array, codes: tuple[IntArray, ...]) -> Array:
        """Compute ``log weight_g + log p(z_i | g)``, ``(G, n)``."""
        joint = np.empty((len(self.weights), len(Z)))
        for g, (m, S) in enumerate(zip(self.means, self.covariances, strict=True)):
            L = _factor(S)
            z = (Z - m) @ inverse_factor(L).T
            joint[g] = np.log(self.weights[g]) - 0.5 * np.einsum("nc,nc->n", z, z) - np.log(np.diagonal(L)).sum()
        for code, share in zip(codes, self.shares, strict=True):
            if share.shape[1]:
                joint += np.log(share)[:, code]
        return joint


def _shares(mass: Array, code: IntArray, values: int) -> Array:
    """Compute smoothed proportions ``(G, values)`` of the values of one column."""
    counts = np.array([np.bincount(code, row, values) for row in mass]) + RARE / values
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))

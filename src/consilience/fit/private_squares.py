"""The public side of a private start for two regressions: what to ask about squared residuals, and where to begin.

The products φ of covariates are whitened by their second moments over public covariates, ``T Tᵀ = E[φ φᵀ]⁻¹``
without directions that hardly vary. Then ``T E[u]`` are the coefficients of the squared residual ``r² / v - 1`` on φ: a
quadratic form ``xᵀ D x``, whose leading eigenvector is the direction between two experts, ``β ± √v e``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model import Mixture
from consilience.model.contributions import GRID
from consilience.model.squares import products
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import symmetrise

SMALL = 1e-3
"""Second moments of products below this share of the largest are left out."""
CLIP = 3.0
"""Bound of a contribution in units of √k."""
LEAST, MOST = 0.15, 4.0
"""Range of the leading eigenvalue, in units of the variance of one expert."""
WITHIN = 0.35
"""Variance of each of two experts in units of that of one."""


@dataclass(frozen=True, eq=False)
class PublicSquares:
    """What the round of squared residuals asks, and what its total means.

    Parameters
    ----------
    mixture : Mixture
        One expert.
    factor : (p (p + 1) / 2, k) array
    clip : float
    size : (p,) array
        Root mean squares of the covariates.
    """

    mixture: Mixture
    factor: Array
    clip: float
    size: Array

    @classmethod
    def at(cls, mixture: Mixture, X: Array) -> PublicSquares:
        """Compute the question at one expert from public covariates ``X (m, d)``."""
        panel = mixture.design.panel(X)
        phi = products(panel)
        values, vectors = np.linalg.eigh(phi @ phi.T / len(X))
        kept = values > SMALL * values[-1]
        factor = vectors[:, kept] / np.sqrt(values[kept])
        return cls(mixture, factor, CLIP * float(np.sqrt(kept.sum())), np.sqrt(np.mean(panel**2, axis=1)))

    def ends(self, total: Array, n: float) -> Array:
        """Return the coefficients of two experts, ``(2, p)``, from a total ``(k,)`` in grid units over n rows."""
        coefficients, p = self.factor @ (total * (self.clip / GRID) / n), len(self.size)
        form, (i, j) = np.zeros((p, p)), np.triu_indices(p)
        form[i, j] = coefficients
        form = symmetrise(form)
        scale = np.where(self.size > 0, self.size, 1.0)
        values, vectors = np.linalg.eigh(form * np.outer(scale, scale))
        away = vectors[:, -1] * np.sqrt(np.clip(values[-1], LEAST, MOST)) / scale
        centre = self.mixture.experts.free_coefficients().ravel()
        spread = np.sqrt(float(self.mixture.experts.shape_values().ravel()[0]))
        return np.stack([centre + spread * away, centre - spread * away])

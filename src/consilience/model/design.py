"""Coordinates of the covariates: an intercept and an affine map, applied block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Design:
    """The map from raw covariates to the design row, ``x̃ = (1, (x - centre) / scale)``.

    A mixture carries its design, so that it can be evaluated on raw ``X`` whatever the coordinates of its
    coefficients. Without an intercept the leading 1 is left out and ``centre`` must be zero.

    Parameters
    ----------
    centre, scale : (d,) array
        Location and (positive) scale of each covariate.
    intercept : bool
        Whether the design row starts with 1.

    Examples
    --------
    >>> design = Design(centre=np.array([10.0]), scale=np.array([2.0]))
    >>> design.panel(np.array([[12.0], [8.0]]))
    array([[ 1.,  1.],
           [ 1., -1.]])
    """

    centre: Array
    scale: Array
    intercept: bool = True

    @classmethod
    def raw(cls, d: int, intercept: bool = True) -> Design:
        """Return the identity map of ``d`` covariates."""
        return cls(np.zeros(d), np.ones(d), intercept)

    @property
    def d(self) -> int:
        """Number of covariates."""
        return len(self.centre)

    @property
    def p(self) -> int:
        """Number of coefficients, ``d`` plus one for the intercept."""
        return self.d + self.intercept

    def panel(self, X: Array, out: Array | None = None) -> Array:
        """Compute the design panel ``(p, n)`` of raw ``X (n, d)``, features on axis 0."""
        panel = np.empty((self.p, len(X))) if out is None else out
        rows = panel[self.intercept :]
        if self.intercept:
            panel[0] = 1.0
        np.subtract(X.T, self.centre[:, None], out=rows)
        rows *= (1 / self.scale)[:, None]
        return panel

    @property
    def is_raw(self) -> bool:
        """Whether coefficients on this design are coefficients on raw covariates."""
        return bool(np.all(self.centre == 0) and np.all(self.scale == 1))

    def to_raw(self) -> Array:
        """Return the matrix ``T (p, p)`` with ``b_raw = T b`` for the coefficients ``b`` of a linear predictor."""
        T = np.diag(np.concatenate([np.ones(int(self.intercept)), 1 / self.scale]))
        if self.intercept:
            T[0, 1:] = -self.centre / self.scale
        return T

    def from_raw(self) -> Array:
        """Return the inverse of :meth:`to_raw`, ``(p, p)``."""
        T = np.diag(np.concatenate([np.ones(int(self.intercept)), self.scale]))
        if self.intercept:
            T[0, 1:] = self.centre
        return T

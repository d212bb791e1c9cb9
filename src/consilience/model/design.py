"""Coordinates of the covariates: an intercept and an affine map, applied block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.kernels import NUMPY, Kernel
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Design:
    """The map from raw covariates to the design row, ``x̃ = (1, (x - centre) / scale)``.

    A mixture carries its design, so that it can be evaluated on raw ``X`` whatever the coordinates of its
    coefficients. Without an intercept the leading 1 is left out and ``centre`` must be zero. A design may read some of
    the covariates only: the others are linear functions of these, and have coefficients that are not identified.

    Parameters
    ----------
    centre, scale : (m,) array
        Location and (positive) scale of each covariate that is read.
    intercept : bool
        Whether the design row starts with 1.
    columns : tuple of int or None
        The covariates that are read, in increasing order; None for all.
    others : (d - m, p) array or None
        Coefficients of the other covariates as linear functions of the design row; None if there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Design
    >>> design = Design(centre=np.array([10.0]), scale=np.array([2.0]))
    >>> design.panel(np.array([[12.0], [8.0]]))
    array([[ 1.,  1.],
           [ 1., -1.]])
    >>> twice = Design(np.zeros(1), np.ones(1), columns=(0,), others=np.array([[0.0, 1.0]]))  # a column and its copy
    >>> twice.d, twice.p, twice.from_raw() @ np.array([5.0, 1.0, 2.0])
    (2, 2, array([5., 3.]))
    """

    centre: Array
    scale: Array
    intercept: bool = True
    columns: tuple[int, ...] | None = None
    others: Array | None = None

    @classmethod
    def raw(cls, d: int, intercept: bool = True) -> Design:
        """Return the identity map of ``d`` covariates."""
        return cls(np.zeros(d), np.ones(d), intercept)

    @property
    def d(self) -> int:
        """Number of covariates."""
        return len(self.centre) + (0 if self.others is None else len(self.others))

    @property
    def p(self) -> int:
        """Number of coefficients: one for each covariate that is read, and the intercept."""
        return len(self.centre) + self.intercept

    @property
    def unread(self) -> tuple[int, ...]:
        """Covariates that are not read, in increasing order."""
        return () if self.columns is None else tuple(sorted(set(range(self.d)) - set(self.columns)))

    @property
    def read(self) -> tuple[int, ...]:
        """Covariates that are read, in increasing order."""
        return tuple(range(self.d)) if self.columns is None else self.columns

    def panel(self, X: Array, out: Array | None = None, kernel: Kernel = NUMPY) -> Array:
        """Compute the design panel ``(p, n)`` of raw ``X (n, d)``, features on axis 0."""
        panel = np.empty((self.p, len(X))) if out is None else out
        rows = panel[self.intercept :]
        if self.intercept:
            panel[0] = 1.0
        read = X if self.columns is None else X[:, list(self.columns)]
        kernel.standardise(read, self.centre, 1 / self.scale, rows)
        return panel

    @property
    def is_raw(self) -> bool:
        """Whether coefficients on this design are coefficients on raw covariates."""
        return self.columns is None and bool(np.all(self.centre == 0) and np.all(self.scale == 1))

    def to_raw(self) -> Array:
        """Return ``T`` with ``b_raw = T b`` for coefficients ``b`` of a linear predictor, ``(p, p)`` or with zero rows.

        Covariates that are not read get the coefficient 0.
        """
        T = np.diag(np.concatenate([np.ones(int(self.intercept)), 1 / self.scale]))
        if self.intercept:
            T[0, 1:] = -self.centre / self.scale
        if self.columns is None:
            return T
        raw = np.zeros((self.d + self.intercept, self.p))
        raw[self._places] = T
        return raw

    def from_raw(self) -> Array:
        """Return the matrix from raw coefficients to those of the same linear predictor on this design."""
        T = np.diag(np.concatenate([np.ones(int(self.intercept)), self.scale]))
        if self.intercept:
            T[0, 1:] = self.centre
        if self.others is None:
            return T
        raw = np.empty((self.p, self.d + self.intercept))
        raw[:, self._places] = T
        raw[:, [j + self.intercept for j in self.unread]] = self.others.T
        return raw

    @property
    def _places(self) -> list[int]:
        """Places of the coefficients among the raw ones."""
        columns = range(len(self.centre)) if self.columns is None else self.columns
        return [*range(int(self.intercept)), *(j + self.intercept for j in columns)]

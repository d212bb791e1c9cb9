"""The kernel of a pass: compiled for many rows if numba is installed, otherwise numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Protocol

from consilience.model.kernels import panels, residuals
from consilience.model.kernels.panels import Products, Workspace
from consilience.numerics.arrays import Array
from consilience.numerics.softmax import log_sum_exp

COMPILED_FROM = 32_768
"""Number of rows of a pass from which it is compiled: for fewer, loading numba takes longer than it saves in a fit."""


class Scatter(Protocol):
    """Type of :func:`consilience.model.kernels.residuals.scatter`."""

    def __call__(self, Y: Array, means: Array, tau: Array, *, matrices: bool) -> tuple[Array, Array]:
        """Compute weighted sums of residuals and of their products."""


@dataclass(frozen=True)
class Kernel:
    """The operations that every family needs for each row, and that take most of the time of a pass.

    Parameters
    ----------
    name : str
        ``"numpy"`` or ``"numba"``.
    standardise : callable
        ``(X (n, d), centre, factor, out (d, n))``: writes ``(X - centre) factor`` with features on axis 0.
    log_sum_exp : callable
        As :func:`consilience.numerics.softmax.log_sum_exp`.
    moments : callable
        ``(panel (p, n), first, second, workspace)``, where weights are lists of parts ``(·, n)``, arrays or
        :class:`Products`, with g and h rows together: returns ``Σ w x``, ``(g, p)``, and the upper triangles of
        ``Σ w x xᵀ``, ``(h, p (p + 1) / 2)``.
    distances, scatter : callable
        As in :mod:`consilience.model.kernels.residuals`, for Gaussian mixtures.
    """

    name: str
    standardise: Callable[[Array, Array, Array, Array], None]
    log_sum_exp: Callable[[Array], tuple[Array, Array]]
    moments: Callable[[Array, Sequence[Array | Products], Sequence[Array | Products], Workspace], tuple[Array, Array]]
    distances: Callable[[Array, Array, Array], Array]
    scatter: Scatter


NUMPY = Kernel("numpy", panels.standardise, log_sum_exp, panels.moments, residuals.distances, residuals.scatter)


def kernel_for(n: int, p: int) -> Kernel:
    """Return the kernel of a pass over ``n`` rows with ``p`` features.

    It depends on the rows and on the installation only, so that all engines use the same.

    Examples
    --------
    >>> kernel_for(100, p=21).name
    'numpy'
    """
    if n < COMPILED_FROM or p > panels.SHARED_PRODUCTS_UP_TO:  # with many features, matrix products are as fast
        return NUMPY
    return compiled() or NUMPY


@lru_cache(maxsize=1)
def compiled() -> Kernel | None:
    """Return the compiled kernel; None without numba, or if it cannot compile here or keep its machine code."""
    try:
        module = import_module("consilience.model.kernels.compiled")
        mixtures = import_module("consilience.model.kernels.compiled_residuals")
    except Exception:  # noqa: BLE001 - a full disk, a folder that is not ours, another version: numpy computes the same
        return None
    return Kernel("numba", module.standardise, module.log_sum_exp, module.moments, mixtures.distances, mixtures.scatter)

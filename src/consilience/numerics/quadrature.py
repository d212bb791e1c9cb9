"""Nodes and weights of Gaussian quadrature."""

from __future__ import annotations

from functools import cache

import numpy as np

from consilience.numerics.arrays import Array


@cache
def hermite_nodes(count: int) -> tuple[Array, Array]:
    """Return nodes and weights ``(count,)`` with ``Σ w f(t) ≈ E f(Z)`` for a standard normal ``Z``.

    Examples
    --------
    >>> nodes, weights = hermite_nodes(8)
    >>> round(float(weights @ nodes**4), 12)
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return _shared(nodes, weights / weights.sum())


@cache
def legendre_nodes(count: int) -> tuple[Array, Array]:
    """Return nodes and weights ``(count,)`` with ``Σ w f(u) ≈ ∫ f(u) du`` over the unit interval.

    Examples
    --------
    >>> nodes, weights = legendre_nodes(8)
    >>> round(float(weights @ nodes**3), 12)
    0.25
    """
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return _shared((nodes + 1) / 2, weights / 2)


def _shared(nodes: Array, weights: Array) -> tuple[Array, Array]:
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights

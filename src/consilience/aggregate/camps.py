"""Test whether sites form two camps: two groups of estimates with a gap between them, of which neither is the outlier.

A centre between two camps represents none of them, and no rule can tell which camp is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.numerics.arrays import Array, Mask

SMALLER = 0.35
"""Minimum fraction of the sites in the smaller camp; fewer are outliers, which robust centres exclude."""
LEVEL, LEVEL_OF_SPREAD = 0.05, 0.01
"""P-values of the two tests below which sites form camps."""
DRAWS = 299
"""Number of simulations under the hypothesis of one group."""
UNSURE = 10.0
"""Multiple of the median variance above which a site is ignored."""
BY_PAIRS = 100
"""Number of sites up to which directions are found from the products of all pairs of sites."""
AT_ONCE = 2**22
"""Maximum size of an array of simulated estimates."""


@dataclass(frozen=True, eq=False)
class Camps:
    """Result of the test for two camps.

    Parameters
    ----------
    gap : float
        P-value of the gap between two groups along the direction in which sites differ most, if sites differ along it
        by a normal distribution of any variance.
    spread : float
        P-value of two groups against one with equal variance in all directions.
    members : (M,) array of bool
        Sites in the smaller camp of the best division.
    counted : (M,) array of bool
        Sites that took part in the test.

    Examples
    --------
    >>> Camps(0.01, 0.001, np.array([True, False]), np.array([True, True])).found
    True
    """

    gap: float
    spread: float
    members: Mask
    counted: Mask

    @property
    def found(self) -> bool:
        """Whether the sites form two camps."""
        return self.gap <= LEVEL and self.spread <= LEVEL_OF_SPREAD

    @property
    def text(self) -> str:
        """Return the finding as a sentence for the result."""
        return (
            f"the sites form two camps, {self.members.sum()} against {int(np.sum(self.counted & ~self.members))}: "
            "the data cannot tell which is right, and a centre between them represents neither"
        )


def camps(estimates: Sequence[Array], covariances: Sequence[Array], *, seed: int = 0) -> Camps:
    """Test whether the estimates of sites form two camps.

    Estimates of all experts are whitened by the median of their covariances and joined to one vector per site. Sites
    differ most along the first principal direction; they are divided there where the two groups differ most, neither
    below 35 % of the sites. Two statistics are compared with simulations of one group, ``N(v, τ² I + C_m)``, with the
    same covariances: the log-likelihood gained by two centres, with one within-group variance for all directions
    (``spread``), and with a variance of its own along this direction (``gap``). Sites form camps if both gain more than
    chance: the first alone would take sites that differ in one respect only, the second alone has little power.

    Parameters
    ----------
    estimates : sequence of (M, f) array
        Coefficients of each expert at M sites; rows of NaN for a site without the expert.
    covariances : sequence of (M, f, f) array
        Their covariances, positive definite.
    seed : int
        Seed of the simulations.

    Returns
    -------
    Camps

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> alike, C = rng.normal(size=(8, 4)), np.tile(np.eye(4), (8, 1, 1))
    >>> camps([alike], [C]).found
    False
    >>> camps([alike + 9 * (np.arange(8) < 4)[:, None]], [C]).found
    True
    """
    z, C = _joined(estimates, covariances)
    M = len(z)
    counted = _counted(z, C)
    z, C = z[counted], [own[counted] for own in C]
    if len(z) < 4:
        return Camps(1.0, 1.0, np.zeros(M, dtype=bool), counted)
    gap, spread, side = _gains(z[None])
    between = _between(z, C)
    null = _simulated(_draws(C, between, np.random.default_rng(seed)))
    members = np.zeros(M, dtype=bool)
    members[counted] = side[0] if 2 * side[0].sum() <= len(z) else ~side[0]
    along = _simulated(_normal(len(z), 1, np.random.default_rng([seed, 1])))[0]
    return Camps(max(_p(gap[0], null[0]), _p(gap[0], along)), _p(spread[0], null[1]), members, counted)


def _p(value: float, null: Array) -> float:
    return float((1 + np.sum(null >= value)) / (1 + len(null)))


def _joined(estimates: Sequence[Array], covariances: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Return whitened vectors ``(M, D)`` over all experts, and the covariances ``(M, f, f)`` of each expert's part.

    An absent expert is at the median.
    """
    D, M = sum(each.shape[1] for each in estimates), len(estimates[0])
    z, C, at = np.zeros((M, D)), list[Array](), 0
    for theta, own in zip(estimates, covariances, strict=True):
        here, f = np.all(np.isfinite(theta), axis=1), theta.shape[1]
        whitened = np.tile(np.eye(f), (M, 1, 1))
        if here.any():
            scale = np.sqrt(np.median(np.diagonal(own[here], axis1=1, axis2=2), axis=0))
            z[here, at : at + f] = (theta[here] - np.median(theta[here], axis=0)) / scale
            whitened[here] = own[here] / scale[:, None] / scale
        C.append(whitened)
        at += f
    return z, C


def _traces(C: Sequence[Array]) -> Array:
    """Compute the sum of the variances of each site, ``(M,)``."""
    return np.asarray(np.concatenate([np.diagonal(own, axis1=1, axis2=2) for own in C], axis=1).sum(axis=1))


def _counted(z: Array, C: Sequence[Array]) -> Mask:
    """Return the sites whose mean variance is not far above the usual one."""
    variances = _traces(C)
    return np.asarray(np.isfinite(z).all(axis=1) & (variances <= UNSURE * np.median(variances)))


def _between(z: Array, C: Sequence[Array]) -> float:
    """Estimate the variance between sites of each coordinate, by moments."""
    total = np.sum((z - z.mean(axis=0)) ** 2) / (len(z) - 1)
    return max(0.0, float(total - _traces(C).mean()) / float(z.shape[1]))


def _draws(C: Sequence[Array], between: float, rng: np.random.Generator) -> Iterator[Array]:
    """Draw estimates of one group, ``(·, M, D)`` each, ``DRAWS`` in all."""
    factors = [np.linalg.cholesky(own + (between + 1e-9) * np.eye(own.shape[1])) for own in C]
    edges = np.cumsum([own.shape[1] for own in C])
    for drawn in _normal(len(C[0]), int(edges[-1]), rng):
        parts = zip(factors, np.split(drawn, edges[:-1], axis=2), strict=True)
        yield np.concatenate([np.einsum("mab,smb->sma", L, part, optimize=True) for L, part in parts], axis=2)


def _normal(M: int, D: int, rng: np.random.Generator) -> Iterator[Array]:
    """Draw standard normal vectors, ``(·, M, D)`` each, ``DRAWS`` in all."""
    size = max(AT_ONCE // (M * D), 1)
    return (rng.normal(size=(min(size, DRAWS - lo), M, D)) for lo in range(0, DRAWS, size))


def _simulated(samples: Iterable[Array]) -> tuple[Array, Array]:
    """Compute the two gains of all samples, ``(DRAWS,)`` each."""
    gains = [_gains(z)[:2] for z in samples]
    return np.concatenate([gap for gap, _ in gains]), np.concatenate([spread for _, spread in gains])


def _gains(z: Array) -> tuple[Array, Array, Mask]:
    """Compute the two gains ``(S,)`` of the best division of ``(S, M, D)`` samples, and its first side ``(S, M)``."""
    _, M, D = z.shape
    z = z - z.mean(axis=1, keepdims=True)
    along = _principal(z)
    order = np.argsort(along, axis=1)
    sums = np.cumsum(np.take_along_axis(along, order, axis=1), axis=1)
    least = max(2, int(np.ceil(SMALLER * M - 1e-9)))
    sizes = np.arange(least, M - least + 1)
    explained = sums[:, sizes - 1] ** 2 * M / (sizes * (M - sizes))  # between the two sides, along the direction
    best = np.argmax(explained, axis=1)
    side = np.argsort(order, axis=1) < sizes[best][:, None]
    total_along, tiny = np.sum(along**2, axis=1), np.finfo(float).tiny
    rest = np.maximum(total_along - explained.max(axis=1), 1e-12 * total_along) + tiny
    gap = 0.5 * M * np.log((total_along + tiny) / rest)
    total = np.einsum("smd,smd->s", z, z) + tiny
    moved = np.sum(np.matmul(side[:, None].astype(np.float64), z)[:, 0] ** 2, axis=1)
    within = np.maximum(total - moved * M / (sizes[best] * (M - sizes[best])), 1e-12 * total)
    return gap, 0.5 * M * D * np.log(total / within), side


def _principal(z: Array) -> Array:
    """Compute the first principal coordinate of centred samples ``(S, M, D)``, ``(S, M)``.

    It is found from the products of all pairs of few sites, or from those of all pairs of coordinates.
    """
    _, M, D = z.shape
    if max(D, BY_PAIRS) >= M:
        values, vectors = np.linalg.eigh(z @ np.swapaxes(z, 1, 2))
        return np.asarray(vectors[:, :, -1] * np.sqrt(np.maximum(values[:, -1:], 0.0)))
    directions = np.linalg.eigh(np.swapaxes(z, 1, 2) @ z)[1][:, :, -1:]
    return np.asarray((z @ directions)[:, :, 0])

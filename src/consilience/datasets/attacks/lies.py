"""Attacks: functions from a site's honest estimate of its experts to the one it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.linalg import solve_symmetric


@dataclass(frozen=True, eq=False)
class Claim:
    """A site's estimate of its experts, in its own fit or in the sums of a round.

    Parameters
    ----------
    n : (K,) array
        Number of rows of each expert.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients: of the fit, or those that an M-step on the sums gives.
    scatter : (K, q, q) or (K, q) array
        Scatter of the residuals from ``B``, or its diagonal.

    Examples
    --------
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> claim.standard_errors().ravel()
    array([0.2, 0.2])
    """

    n: Array
    S: Array
    B: Array
    scatter: Array
    precision: Array = field(default_factory=lambda: np.empty((0, 0)))

    def standard_errors(self) -> Array:
        """Compute standard errors of the coefficients for known labels, ``(K, q, p)``."""
        diagonal = np.diagonal(self.scatter, axis1=1, axis2=2) if self.scatter.ndim > 2 else self.scatter
        variances = diagonal / np.maximum(self.n, 1.0)[:, None]  # (K, q)
        inverse = np.array([np.diagonal(solve_symmetric(S, np.eye(len(S)))[0]) for S in self.S])  # (K, p)
        errors: Array = np.sqrt(variances[:, :, None] * np.maximum(inverse, 0.0)[:, None])
        return errors

    def permuted(self, permutation: IntArray) -> Claim:
        """Reorder the experts."""
        precision = self.precision[permutation] if len(self.precision) else self.precision
        return Claim(
            self.n[permutation], self.S[permutation], self.B[permutation], self.scatter[permutation], precision
        )


@dataclass
class Replay:
    """Attack that repeats the sums of the first round in every round; use one instance per site.

    Examples
    --------
    >>> from consilience.model.moments import Moments
    >>> none = Moments(np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    >>> replay = Replay()
    >>> [replay.instead_of(Statistics(none, none, ll, 1.0, 1.0)).log_likelihood for ll in (-7.0, -5.0)]
    [-7.0, -7.0]
    """

    first: Statistics | None = field(default=None)

    def instead_of(self, answer: Statistics) -> Statistics:
        """Return the statistics to send."""
        self.first = self.first or answer
        return replace(self.first, information=answer.information)


Attack = Callable[[Claim], Claim] | Replay
"""Function from the honest to the attacked estimate."""


def label_flip(claim: Claim) -> Claim:
    """Shift the labels of the experts by one.

    Examples
    --------
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> label_flip(claim).B.ravel()
    array([5., 0.])
    """
    return claim.permuted(np.roll(np.arange(len(claim.n)), -1))


def sign_flip(claim: Claim) -> Claim:
    """Flip the sign of all coefficients.

    Examples
    --------
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[1.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> sign_flip(claim).B.ravel()
    array([-1., -5.])
    """
    return replace(claim, B=-claim.B)


def not_a_number(claim: Claim) -> Claim:
    """Replace all coefficients by NaN.

    Examples
    --------
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> not_a_number(claim).B.ravel()
    array([nan])
    """
    return replace(claim, B=np.full_like(claim.B, np.nan))


def fewer_experts(claim: Claim) -> Claim:
    """Omit the last expert.

    Examples
    --------
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> fewer_experts(claim).B.ravel()
    array([0.])
    """
    return claim.permuted(np.arange(len(claim.n) - 1))


@dataclass(frozen=True)
class Blown:
    """Attack that multiplies the coefficients by ``factor``.

    Examples
    --------
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Blown()(claim).B.ravel()
    array([5000.])
    """

    factor: float = 1e3

    def __call__(self, claim: Claim) -> Claim:
        """Return the attacked claim."""
        return replace(claim, B=self.factor * claim.B)


@dataclass(frozen=True)
class Collusion:
    """Attack that shifts every coefficient by a multiple of its standard error, in a direction common to all attackers.

    Parameters
    ----------
    standard_errors : float
        The multiple: 3 is visible in a site's distance from the others; 1 is within sampling error.
    seed : int
        Seed of the direction, the same for all colluding sites.

    Examples
    --------
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Collusion(3.0)(claim).B.ravel().round(2)
    array([5.6])
    """

    standard_errors: float
    seed: int = 0

    def __call__(self, claim: Claim) -> Claim:
        """Return the attacked claim."""
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], claim.B.shape)
        return replace(claim, B=claim.B + self.standard_errors * signs * claim.standard_errors())


@dataclass(frozen=True)
class MoreRows:
    """Attack that claims ``rows`` rows: all sums are scaled to that number.

    Examples
    --------
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> MoreRows()(claim).n
    array([1.e+09])
    """

    rows: float = 1e9

    def __call__(self, claim: Claim) -> Claim:
        """Return the attacked claim."""
        factor = self.rows / claim.n.sum()
        return replace(claim, n=factor * claim.n, S=factor * claim.S, scatter=factor * claim.scatter)

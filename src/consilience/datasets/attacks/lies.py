"""What lying sites say of their experts: functions from what a site would say to what it does say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, Labels
from consilience.numerics.linalg import solve_symmetric


@dataclass(frozen=True, eq=False)
class Told:
    """What a site says of its experts, in its own fit or in the sums of a round.

    Parameters
    ----------
    n : (K,) array
        Rows of each expert.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients: of the fit, or those to which the sums lead.
    scatter : (K, q, q) or (K, q) array
        Of the residuals from ``B``, or its diagonal.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> told.standard_errors().ravel()
    array([0.2, 0.2])
    """

    n: Array
    S: Array
    B: Array
    scatter: Array
    precision: Array = field(default_factory=lambda: np.empty((0, 0)))

    def standard_errors(self) -> Array:
        """Of the coefficients where labels are known, ``(K, q, p)``."""
        diagonal = np.diagonal(self.scatter, axis1=1, axis2=2) if self.scatter.ndim > 2 else self.scatter
        variances = diagonal / np.maximum(self.n, 1.0)[:, None]  # (K, q)
        inverse = np.array([np.diagonal(solve_symmetric(S, np.eye(len(S)))[0]) for S in self.S])  # (K, p)
        errors: Array = np.sqrt(variances[:, :, None] * np.maximum(inverse, 0.0)[:, None])
        return errors

    def permuted(self, order: Labels) -> Told:
        """The same under other labels."""
        precision = self.precision[order] if len(self.precision) else self.precision
        return Told(self.n[order], self.S[order], self.B[order], self.scatter[order], precision)


@dataclass
class Replay:
    """Answer every round with the sums of the first; one such value for each site.

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
        """What is sent."""
        self.first = self.first or answer
        return replace(self.first, information=answer.information)


Attack = Callable[[Told], Told] | Replay
"""From what a site would say to what it does say."""


def label_flip(told: Told) -> Told:
    """Name every expert by the label of the next.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> label_flip(told).B.ravel()
    array([5., 0.])
    """
    return told.permuted(np.roll(np.arange(len(told.n)), -1))


def sign_flip(told: Told) -> Told:
    """Send all coefficients with the other sign.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[1.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> sign_flip(told).B.ravel()
    array([-1., -5.])
    """
    return replace(told, B=-told.B)


def not_a_number(told: Told) -> Told:
    """Send NaN for all coefficients.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> not_a_number(told).B.ravel()
    array([nan])
    """
    return replace(told, B=np.full_like(told.B, np.nan))


def fewer_experts(told: Told) -> Told:
    """Leave the last expert out, whatever was asked.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> fewer_experts(told).B.ravel()
    array([0.])
    """
    return told.permuted(np.arange(len(told.n) - 1))


@dataclass(frozen=True)
class Blown:
    """Send coefficients ``factor`` times as large.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Blown()(told).B.ravel()
    array([5000.])
    """

    factor: float = 1e3

    def __call__(self, told: Told) -> Told:
        """What is sent."""
        return replace(told, B=self.factor * told.B)


@dataclass(frozen=True)
class Collusion:
    """Move every coefficient by so many of its standard errors, in a direction on which the liars agree.

    Parameters
    ----------
    standard_errors : float
        3 shows in a site's distance from the others; 1 is hidden in chance.
    seed : int
        Of the direction: the same for all who collude.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Collusion(3.0)(told).B.ravel().round(2)
    array([5.6])
    """

    standard_errors: float
    seed: int = 0

    def __call__(self, told: Told) -> Told:
        """What is sent."""
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], told.B.shape)
        return replace(told, B=told.B + self.standard_errors * signs * told.standard_errors())


@dataclass(frozen=True)
class MoreRows:
    """Claim ``rows`` rows: all sums are blown up to that number.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> MoreRows()(told).n
    array([1.e+09])
    """

    rows: float = 1e9

    def __call__(self, told: Told) -> Told:
        """What is sent."""
        factor = self.rows / told.n.sum()
        return replace(told, n=factor * told.n, S=factor * told.S, scatter=factor * told.scatter)

"""What moments say of Gaussian experts, whatever experts they were taken at: the normal equations, solved and undone.

Moments are sums over residuals from the experts they were taken at. A solution is free of these: it can be renamed, or
changed, and turned into moments at any experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.families import covariance as cov
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.moments import Moments
from consilience.numerics.arrays import Array, IntArray, pack, unpack
from consilience.numerics.linalg import solve_symmetric


@dataclass(frozen=True, eq=False)
class Solution:
    """The experts to which a step leads, with the moments that do not depend on where it began.

    Parameters
    ----------
    n : (K,) array
        ``Σ τ_k``.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients.
    scatter : (K, q, q) array, or (K, q)
        Of the residuals from ``B``; its diagonal for structures without correlations.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, Mixture, Rows, expect
    >>> experts = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    >>> found = solution(experts, expect(mixture, Rows(np.empty((2, 0)), np.array([[1.0], [3.0]]))).experts)
    >>> found.B.ravel(), found.scatter.ravel()
    (array([2.]), array([2.]))
    """

    n: Array
    S: Array
    B: Array
    scatter: Array

    def permuted(self, order: IntArray) -> Solution:
        """The same under other labels."""
        return Solution(self.n[order], self.S[order], self.B[order], self.scatter[order])

    def moments(self, experts: GaussianExperts) -> Moments:
        """The moments at ``experts`` from which the step leads here; as many experts as the solution has."""
        back = self.B - experts.B[: len(self.B)]
        scatter = self.scatter + _explained(back, self.S, self.scatter)
        plain = np.concatenate([self.n, (pack(scatter) if scatter.ndim == 3 else scatter).ravel()])
        return Moments(plain, (back @ self.S).reshape(-1, experts.p), pack(self.S))


def solution(experts: GaussianExperts, moments: Moments) -> Solution:
    """Where the step from ``experts``, at which ``moments`` were taken, leads.

    Examples
    --------
    See :class:`Solution`.
    """
    K, q, p = experts.B.shape
    S, Sxr = unpack(moments.second), moments.first.reshape(K, q, p)
    delta = np.array([solve_symmetric(a, b.T)[0].T for a, b in zip(S, Sxr, strict=True)])
    packed = moments.plain[K:].reshape(K, -1)
    about = unpack(packed) if cov.has_matrices(experts.structure) else packed
    return Solution(moments.plain[:K], S, experts.B + delta, about - _explained(delta, S, about))


def _explained(delta: Array, S: Array, like: Array) -> Array:
    """``δ S δᵀ`` of each expert, ``(K, q, q)``, or its diagonal ``(K, q)``."""
    full: Array = delta @ S @ delta.transpose(0, 2, 1)
    return full if like.ndim == 3 else np.diagonal(full, axis1=1, axis2=2)

"""Convert Gaussian moments to least-squares solutions and back.

Moments are sums over residuals from given coefficients. A solution does not depend on these: it can be relabelled, or
changed, and converted to moments at any coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.moments import Moments
from consilience.numerics.arrays import Array, IntArray, pack
from consilience.numerics.linalg import solve_symmetric


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Weighted least squares fits of K experts, with moments that do not depend on an expansion point.

    Parameters
    ----------
    n : (K,) array
        ``Σ τ_k``.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients.
    scatter : (K, q, q) array, or (K, q)
        Scatter of the residuals from ``B``; its diagonal for structures without correlations.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, expect
    >>> experts = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    >>> found = experts.solution(expect(mixture, Rows(np.empty((2, 0)), np.array([[1.0], [3.0]]))).experts)
    >>> found.B.ravel(), found.scatter.ravel()
    (array([2.]), array([2.]))
    """

    n: Array
    S: Array
    B: Array
    scatter: Array

    @classmethod
    def of(cls, n: Array, S: Array, first: Array, scatter: Array, *, at: Array) -> LeastSquares:
        """Solve from moments of residuals ``r`` from coefficients ``at (K, q, p)``; ``first`` is ``Σ τ r x``."""
        delta = np.array([solve_symmetric(a, b.T)[0].T for a, b in zip(S, first, strict=True)])
        return cls(n, S, at + delta, scatter - _explained(delta, S, scatter))

    def permuted(self, permutation: IntArray) -> LeastSquares:
        """Reorder the experts."""
        return LeastSquares(self.n[permutation], self.S[permutation], self.B[permutation], self.scatter[permutation])

    def moments(self, at: Array) -> Moments:
        """Return the moments of residuals from coefficients ``at (K, q, p)``; an M-step on them gives this solution.

        ``at`` may have more experts: the first ones are used.
        """
        back = self.B - at[: len(self.B)]
        scatter = self.scatter + _explained(back, self.S, self.scatter)
        plain = np.concatenate([self.n, (pack(scatter) if scatter.ndim == 3 else scatter).ravel()])
        return Moments(plain, (back @ self.S).reshape(-1, at.shape[2]), pack(self.S))


def _explained(delta: Array, S: Array, like: Array) -> Array:
    """Compute ``δ S δᵀ`` of each expert, ``(K, q, q)``, or its diagonal ``(K, q)``."""
    full: Array = delta @ S @ delta.transpose(0, 2, 1)
    return full if like.ndim == 3 else np.diagonal(full, axis1=1, axis2=2)

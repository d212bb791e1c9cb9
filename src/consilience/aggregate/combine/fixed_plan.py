"""The combined coefficients without some sites, at the same assignment of experts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.combine.heterogeneity import Stated
from consilience.aggregate.combine.pool import Pool
from consilience.fit.influence import ExpertsWithout
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.numerics.linalg import solve_symmetric


@dataclass(frozen=True, eq=False)
class FixedPlan:
    """The experts of sites that were combined, the combined expert of each, and its weight there.

    Parameters
    ----------
    owners : tuple of str, (L,)
        Site of each expert.
    labels : (L,) array of int
    weight : (L, f, f) array
    coefficients : (L, f) array
    """

    owners: tuple[str, ...]
    labels: IntArray
    weight: Array
    coefficients: Array

    @classmethod
    def of(cls, pool: Pool, labels: IntArray, used: Mask, stated: Stated) -> FixedPlan:
        """Return the plan of the experts that were used."""
        at = np.flatnonzero(used)
        owners = tuple(pool.names[m] for m in pool.owner[at])
        return cls(owners, labels[at], np.nan_to_num(stated.weight[at]), pool.coefficients[at])

    def permuted(self, place: IntArray) -> FixedPlan:
        """Return the plan with combined expert ``k`` at ``place[k]``."""
        return replace(self, labels=place[self.labels])

    def without(self, gone: Collection[str]) -> ExpertsWithout:
        """Return the experts that the other sites give at the same plan; NaN for one that they do not have.

        ``b = (Σ W_l)⁻¹ Σ W_l b_l`` over the experts of the other sites, with a variance of about ``(Σ W_l)⁻¹``.
        """
        left = np.array([owner not in gone for owner in self.owners])
        K, f = int(self.labels.max()) + 1, self.coefficients.shape[1]
        found = ExpertsWithout(np.full((K, f), np.nan), np.zeros((K, f, f)), np.zeros((K, f, f)))
        for k in range(K):
            (b, V), (b_left, V_left) = (self._mean(mine) for mine in (self.labels == k, (self.labels == k) & left))
            found.change[k], found.before[k], found.after[k] = b_left - b, V, V_left
        return found

    def _mean(self, mine: Mask) -> tuple[Array, Array]:
        """Return the weighted mean of some experts' coefficients and its variance; NaN if they do not determine it."""
        W, f = self.weight[mine], self.coefficients.shape[1]
        V, full_rank = solve_symmetric(W.sum(axis=0), np.eye(f))
        if not full_rank:
            return np.full(f, np.nan), np.zeros((f, f))
        return V @ np.einsum("lab,lb->a", W, self.coefficients[mine]), V

"""The experts of all sites with the rows they explain: the input of the reduction.

Rows are represented by moments, for which some families have closed forms, or by a support: points of the covariates at
which experts of any family are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from consilience.model import Experts, Share
from consilience.numerics.arrays import Array, IntArray

BLOCK = 2**21
"""Maximum size of an array of divergences."""


@dataclass(frozen=True, eq=False)
class MomentComponents:
    """L experts on one design with their moments; barycentres have closed forms and need no covariates.

    Parameters
    ----------
    experts : Experts
        Experts of all sites, site after site, of a family that is
        :class:`~consilience.model.families.base.MomentExperts`.
    mass : (L,) array
        ``m_l = Σ_i τ_il``.
    second : (L, p, p) array
        ``S_l = Σ_i τ_il x̃_i x̃_iᵀ``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import MomentComponents
    >>> from consilience.model import GaussianExperts
    >>> experts = GaussianExperts(np.array([[[0.0]], [[4.0]]]), np.ones((2, 1, 1)))
    >>> components = MomentComponents(experts, np.array([3.0, 1.0]), np.array([[[3.0]], [[1.0]]]))
    >>> middle = components.barycentres(np.array([0, 0]), components.experts.permuted(np.array([0])))
    >>> middle.B.ravel(), middle.covariance.ravel()  # the variance holds the spread of the two means
    (array([1.]), array([4.]))
    """

    experts: Any
    mass: Array
    second: Array

    @classmethod
    def joined(cls, parts: Sequence[MomentComponents]) -> MomentComponents:
        """Concatenate the components of several sites."""
        experts = joined_experts([part.experts for part in parts])
        mass = np.concatenate([part.mass for part in parts])
        return cls(experts, mass, np.concatenate([part.second for part in parts]))

    def taken(self, index: IntArray) -> MomentComponents:
        """Return the components at ``index``, which is sorted."""
        if len(index) == len(self.mass):
            return self
        return MomentComponents(self.experts.permuted(index), self.mass[index], self.second[index])

    def costs(self, targets: Any) -> Array:
        """Compute the cost of each component at each target, ``(L, K)``."""
        return np.asarray(self.experts.moment_costs(targets, self.mass, self.second))

    def plan(self, targets: Any) -> tuple[IntArray, float]:
        """Return the nearest target of each component, ``(L,)``, and the objective."""
        return nearest(self.costs(targets))

    def barycentres(self, labels: IntArray, current: Any) -> Any:
        """Compute the barycentre of the components that ``labels (L,)`` assign to each target; unchanged if none."""
        return current.moment_barycentres(self.experts, labels, self.mass, self.second)


@dataclass(frozen=True, eq=False)
class SupportPart:
    """Experts on points of the covariates, with the mass of each expert at each point.

    Parameters
    ----------
    experts : Experts
        L experts.
    panel : (p, S) array
        The points in the experts' design.
    mass : (L, S) array

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import SupportPart
    >>> from consilience.model import GaussianExperts
    >>> experts = GaussianExperts(np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
    >>> float(SupportPart(experts, np.ones((1, 2)), np.ones((1, 2))).costs(experts)[0, 0])
    0.0
    """

    experts: Experts
    panel: Array
    mass: Array

    def taken(self, index: IntArray) -> SupportPart:
        """Return the components at ``index``."""
        return SupportPart(self.experts.permuted(index), self.panel, self.mass[index])

    def costs(self, targets: Experts) -> Array:
        """Compute the cost of each component at each target, ``(L, K)``."""
        parts = [support_costs(self.experts, targets, X, m) for X, m in self._blocks(targets.K)]
        return np.asarray(np.sum(parts, axis=0))

    def row_plan(self, targets: Experts) -> tuple[IntArray, float]:
        """Return the nearest target of each component at each point, ``(L, S)``, and the objective."""
        labels, value = [], 0.0
        for panel, mass in self._blocks(targets.K):
            divergence = self.experts.divergence(targets, panel)  # (L, K, ·)
            labels.append(divergence.argmin(axis=1))
            value += float(np.sum(mass * divergence.min(axis=1)))
        return np.concatenate(labels, axis=1), value

    def _blocks(self, K: int) -> list[tuple[Array, Array]]:
        size = max(BLOCK // (K * self.experts.K), 1)
        places = range(0, self.panel.shape[1], size)
        return [(self.panel[:, i : i + size], self.mass[:, i : i + size]) for i in places]

    def share(self, labels: IntArray) -> Share:
        """Return the part with the targets of its components, ``(L,)``, or of its components at each point."""
        return Share(self.experts, self.panel, self.mass, labels[:, None] if labels.ndim == 1 else labels)


@dataclass(frozen=True, eq=False)
class SupportComponents:
    """Experts of any family, each site's on its own points, or all on the same points.

    Parameters
    ----------
    parts : tuple of SupportPart
    per_row : bool
        Whether the plan is per point, as in the paper, instead of per expert. Needs one part, in which all experts
        share their points.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import SupportComponents, SupportPart
    >>> from consilience.model import GaussianExperts
    >>> experts = GaussianExperts(np.array([[[0.0]], [[4.0]]]), np.ones((2, 1, 1)))
    >>> components = SupportComponents((SupportPart(experts, np.ones((1, 1)), np.array([[3.0], [1.0]])),))
    >>> components.barycentres(np.array([0, 0]), experts.permuted(np.array([0]))).covariance.ravel()
    array([4.])
    """

    parts: tuple[SupportPart, ...]
    per_row: bool = False

    @cached_property
    def experts(self) -> Any:
        """Experts of all parts, part after part."""
        return joined_experts([part.experts for part in self.parts])

    @property
    def mass(self) -> Array:
        """Mass of each expert, ``(L,)``."""
        return np.concatenate([part.mass.sum(axis=1) for part in self.parts])

    def taken(self, index: IntArray) -> SupportComponents:
        """Return the components at ``index``, which is sorted."""
        edges = np.cumsum([0, *(part.experts.K for part in self.parts)])
        if len(index) == edges[-1]:
            return self
        mine = np.split(index, np.searchsorted(index, edges[1:-1]))
        owned = zip(self.parts, mine, edges[:-1], strict=True)
        parts = [part.taken(own - first) for part, own, first in owned if len(own)]
        return SupportComponents(tuple(parts), self.per_row)

    def costs(self, targets: Any) -> Array:
        """Compute the cost of each component at each target, ``(L, K)``."""
        return np.concatenate([part.costs(targets) for part in self.parts])

    def plan(self, targets: Any) -> tuple[IntArray, float]:
        """Return the nearest target of each component, ``(L,)`` or ``(L, S)``, and the objective."""
        return self.parts[0].row_plan(targets) if self.per_row else nearest(self.costs(targets))

    def barycentres(self, labels: IntArray, current: Any) -> Any:
        """Compute the barycentre of what ``labels`` assign to each target; unchanged if nothing."""
        edges = np.cumsum([part.experts.K for part in self.parts])[:-1]
        pairs = zip(self.parts, np.split(labels, edges), strict=True)
        return current.barycentres([part.share(own) for part, own in pairs])


Components = MomentComponents | SupportComponents


def nearest(costs: Array) -> tuple[IntArray, float]:
    """Return the cheapest target of each component, the first of ties, and the sum of these costs."""
    labels: IntArray = np.argmin(costs, axis=1)
    return labels, float(costs[np.arange(len(costs)), labels].sum())


def joined_experts(parts: Sequence[Any]) -> Any:
    """Concatenate experts of one family."""
    return type(parts[0]).joined(parts)


# ---------------------------------------------------------------- transport costs


def support_costs(experts: Experts, others: Experts, panel: Array, mass: Array) -> Array:
    """Compute the cost of each expert at each of ``others``: ``Σ_s mass_ls KL(f_l ‖ g_k)(x_s)``.

    Parameters
    ----------
    experts, others : Experts
        L and K experts of one family.
    panel : (p, S) array
        The support in the experts' design.
    mass : (L, S) array
        Mass of each expert at each point.

    Returns
    -------
    (L, K) array

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import support_costs
    >>> from consilience.model import GaussianExperts
    >>> one = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
    >>> two = GaussianExperts(np.array([[[0.0]], [[2.0]]]), np.ones((2, 1, 1)))
    >>> support_costs(one, two, np.ones((1, 3)), np.ones((1, 3)))
    array([[0., 6.]])
    """
    return np.asarray(np.einsum("lks,ls->lk", experts.divergence(others, panel), mass))

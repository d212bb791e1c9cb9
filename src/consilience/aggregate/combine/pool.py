"""The models of all sites in common coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from consilience.aggregate.combine.components import Components, MomentComponents, SupportComponents, SupportPart
from consilience.aggregate.combine.points import Points, SupportKind, confidence, merge_points, support_points
from consilience.aggregate.combine.site_model import SiteModel
from consilience.errors import InvalidInputError
from consilience.model import Design
from consilience.model.families.base import MomentExperts
from consilience.model.kernels import Workspace, second_moments
from consilience.numerics.arrays import Array, IntArray, Mask, kronecker, pack, triangle_size, unpack


@dataclass(frozen=True, eq=False)
class Pool:
    """Site models on one design, with points; sites are sorted independently of their order of arrival.

    Parameters
    ----------
    names : tuple of str
    models : tuple of SiteModel
        Models in the coordinates of ``design``.
    design : Design
    points : tuple of Points
        Points at which gates, and experts without moments, are compared; empty if not needed.
    gate_design : Design or None
        Coordinates of what gates read, if they are others.
    """

    names: tuple[str, ...]
    models: tuple[SiteModel, ...]
    design: Design
    points: tuple[Points, ...]
    gate_design: Design | None = None

    @classmethod
    def of(
        cls,
        models: Mapping[str, SiteModel],
        design: Design,
        support: SupportKind,
        rng: np.random.Generator,
        gate_design: Design | None = None,
    ) -> Pool:
        """Build the pool of site models with the points of a ``support``."""
        order = canonical_order(tuple(models), tuple(models.values()))
        names = tuple(list(models)[i] for i in order)
        raw = [models[name] for name in names]
        points = support_points(raw, names, support, rng)
        common = tuple(to_common_coordinates(model, design, gate_design) for model in raw)
        return cls(names, common, design, points, gate_design)

    def with_shared_points(self) -> Pool:
        """Return the pool with all points in one group, for a plan per row."""
        if not self.points:
            raise InvalidInputError("plan='row' needs covariates, and the sites sent no summaries: pass a support")
        return replace(self, points=(merge_points(self.points, self.models),))

    @property
    def M(self) -> int:
        """Number of sites."""
        return len(self.models)

    @cached_property
    def owner(self) -> IntArray:
        """Site of each component, ``(L,)``."""
        return np.repeat(np.arange(self.M), [model.mixture.K for model in self.models])

    @cached_property
    def own(self) -> tuple[slice, ...]:
        """Places of each site's components, ``M`` slices."""
        edges = np.searchsorted(self.owner, np.arange(self.M + 1)).tolist()
        return tuple(map(slice, edges[:-1], edges[1:]))

    @cached_property
    def rows(self) -> Array:
        """Weight of the rows that each component explains, ``(L,)``."""
        return np.concatenate([model.mass for model in self.models])

    @cached_property
    def components(self) -> Components:
        """The experts of all sites with the rows they explain."""
        if isinstance(self.models[0].mixture.experts, MomentExperts):
            parts = [MomentComponents(m.mixture.experts, m.mass, unpack(m.second)) for m in self.models]
            return MomentComponents.joined(parts)
        return SupportComponents(tuple(self._part(m) for m in range(self.M)))

    def _part(self, m: int) -> SupportPart:
        """Return the experts of a site on its points."""
        model, (panel, weight), (read, _) = self.models[m], self._places(m, self.panels), self.points_of(m)
        pi = np.broadcast_to(model.mixture.gate.evaluate(read)[1], (model.mixture.K, len(weight)))
        return SupportPart(model.mixture.experts, panel, pi * weight * model.exposure)

    @cached_property
    def panels(self) -> tuple[Array, ...]:
        """The points in the experts' design, ``(p, S)`` each."""
        return tuple(self.design.panel(part.X) for part in self.points)

    @cached_property
    def reads(self) -> Design:
        """Coordinates of what gates read."""
        return self.design if self.gate_design is None else self.gate_design

    @cached_property
    def gate_panels(self) -> tuple[Array, ...]:
        """What gates read at the points, ``(p_g, S)`` each."""
        return self.panels if self.gate_design is None else tuple(self.reads.panel(part.X) for part in self.points)

    def points_of(self, m: int) -> tuple[Array, Array]:
        """Return what gates read ``(p_g, S)`` at points that represent the rows of site ``m``, and their weights."""
        return self._places(m, self.gate_panels)

    def _places(self, m: int, panels: tuple[Array, ...]) -> tuple[Array, Array]:
        group = self._group[m]
        at, weight = self.points[group].places(m)
        return panels[group][:, at], weight

    @cached_property
    def _group(self) -> dict[int, int]:
        """The group of points of each site."""
        return {m: place for place, part in enumerate(self.points) for m in part.members.tolist()}

    @cached_property
    def coefficients(self) -> Array:
        """Free coefficients of each component, ``(L, f)``."""
        return np.concatenate([m.mixture.coefficients for m in self.models])

    @cached_property
    def precision(self) -> Array:
        """Inverse covariance of those coefficients, packed, ``(L, f (f + 1) / 2)``; NaN for sites that sent none."""
        size = triangle_size(self.coefficients.shape[1])
        parts = [m.precision if len(m.precision) else np.full((m.mixture.K, size), np.nan) for m in self.models]
        return np.concatenate(parts)

    @property
    def informed(self) -> Mask:
        """Mask of the components whose precision is known, ``(L,)``."""
        return np.isfinite(self.precision[:, 0])

    def targets(self, labels: IntArray, K: int, used: Mask) -> tuple[Array, Array]:
        """Return the data for fitting the gate: points ``(p_g, S)`` and masses ``(K, S)`` of the sites ``used``."""
        panels, targets = [], []
        for part, panel in zip(self.points, self.gate_panels, strict=True):
            target, share = np.zeros((K, len(part.X))), np.zeros(len(part.X))
            heard = [(j, m) for j, m in enumerate(part.members) if used[m]]
            gates = [self.models[m].mixture.gate.evaluate(panel)[1] for _, m in heard]
            sure = [np.ones(len(part.X))] * len(heard) if part.fitted else self._confidences(part, panel, heard, gates)
            for (j, m), pi, counts in zip(heard, gates, sure, strict=True):
                np.add.at(target, labels[self.own[m]], pi * (part.share[j] * counts))
                share += part.share[j]
            mine = (part.owner < 0) | used[part.owner]
            weight = part.weight[mine] / np.maximum(share[mine], np.finfo(float).tiny)
            panels.append(panel[:, mine])
            targets.append(target[:, mine] * weight)
        return np.concatenate(panels, axis=1), np.concatenate(targets, axis=1)

    def _confidences(self, part: Points, panel: Array, heard: list[tuple[int, int]], gates: list[Array]) -> list[Array]:
        """Compute the weight of each gate at each point, ``(S,)`` each; the products ``x̃ x̃ᵀ`` are shared."""
        if not heard:
            return []
        weights = [part.weight * part.share[j] * pi * (1 - pi) for (j, _), pi in zip(heard, gates, strict=True)]
        curvatures = unpack(second_moments(panel, np.concatenate(weights), Workspace()))
        each = np.split(curvatures, np.cumsum([len(pi) for pi in gates])[:-1])
        return [confidence(pi, H, panel) for pi, H in zip(gates, each, strict=True)]


def to_common_coordinates(model: SiteModel, design: Design, gate_design: Design | None = None) -> SiteModel:
    """Convert a site model to the coordinates of ``design``, with experts in a fixed order."""
    T = design.to_raw()
    mixture = model.mixture.in_coordinates(design, gate_design)
    coefficients = mixture.coefficients
    order = np.lexsort([*coefficients.T[::-1], -model.label_counts])
    f = coefficients.shape[1]
    U = kronecker(np.eye(f // design.p), T)
    return replace(
        model,
        mixture=mixture.permuted(order),
        label_counts=model.label_counts[order],
        mass=model.mass[order],
        second=pack(T.T @ unpack(model.second) @ T)[order] if len(model.second) else model.second,
        precision=pack(U.T @ unpack(model.precision) @ U)[order] if len(model.precision) else model.precision,
    )


def canonical_order(names: Sequence[str], models: Sequence[SiteModel]) -> list[int]:
    """Return an order of the sites that depends only on their models, up to ties."""

    def key(i: int) -> tuple[Any, ...]:
        model = models[i]
        return (-model.weight, model.log_likelihood, tuple(model.mixture.experts.free_coefficients()), names[i])

    return sorted(range(len(models)), key=key)

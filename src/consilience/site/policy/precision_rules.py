"""Rules on the precision matrices of the experts' coefficients, and what is sent instead of one that fails.

The information on coefficients is what complete labels would give, minus what is missing without them:
``Σ τ v x xᵀ - Σ τ (1 - τ) s² x xᵀ``, up to terms of other parameters. The file states the first sum of a Gaussian
expert. Where experts are well separated, the second rests on the few rows between them; if it is that of one row, the
difference of the two matrices has rank one and its eigenvector is the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from consilience.aggregate.combine.site_model import SiteModel
from consilience.model.families.base import MomentExperts
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, pack, unpack
from consilience.numerics.linalg import solve_symmetric
from consilience.site.policy.check import Check, dominance
from consilience.site.policy.policy import Policy
from consilience.site.policy.weighted_rows import WeightedRows

NEGLIGIBLE = 1e-13
"""Fraction of the information that rounding hides."""


def precision_rules(rows: Rows, model: SiteModel, weights: WeightedRows, policy: Policy) -> list[Check]:
    """Check that few rows dominate neither the information on coefficients nor what is missing of it."""
    if not len(model.precision):
        return []
    return list(_checks(rows, model, weights, policy))


def _checks(rows: Rows, model: SiteModel, weights: WeightedRows, policy: Policy) -> Iterator[Check]:
    most, limit = policy.experts.dominance_rows, policy.experts.missing_information_percent
    flat = flattened_experts(model)
    for k, missing in enumerate(weights.missing):
        size = _sizes(model.mixture, rows, weights.tau[k])
        full = float(np.sum(weights.tau[k] * weights.scores[k] * size))
        share = 0.0 if flat[k] else dominance(missing * size, most, NEGLIGIBLE * full)
        check = Check.at_most("precision", "missing_information", f"expert {k + 1}", limit, share)
        yield replace(check, place=k)
    if not isinstance(model.mixture.experts, MomentExperts):  # its weights are the responsibilities
        worst = max((dominance(np.abs(row), most) for row in weights.curvature), default=0.0)
        yield Check.at_most("precision", "information", "all experts", limit, worst)


def _sizes(mixture: Mixture, rows: Rows, tau: Array) -> Array:
    """Compute ``x̃ᵀ (Σ τ x̃ x̃ᵀ)⁻¹ x̃`` of each row, ``(n,)``: its size whatever the units of the columns."""
    panel = mixture.design.panel(rows.X)
    solved, _ = solve_symmetric((panel * tau) @ panel.T, panel)
    return np.asarray(np.maximum(np.einsum("pn,pn->n", panel, solved), 0.0))


def complete_precision(model: SiteModel) -> Array | None:
    """Compute ``Σ_k⁻¹ ⊗ S_k`` of Gaussian experts, the precision for known labels, ``(K, f, f)``; else None."""
    experts = model.mixture.experts
    if not isinstance(experts, MomentExperts) or not len(model.second):
        return None
    return experts.labelled_precision(unpack(model.second))


def flattened_experts(model: SiteModel) -> np.ndarray:
    """Return which experts have a precision that is a multiple of the precision for known labels, ``(K,)``."""
    complete = complete_precision(model)
    if complete is None:
        return np.zeros(model.mixture.K, dtype=bool)
    own = unpack(model.precision)
    factor = np.trace(own, axis1=1, axis2=2) / np.trace(complete, axis1=1, axis2=2)
    gap = np.abs(own - factor[:, None, None] * complete).max(axis=(1, 2))
    return np.asarray(gap <= NEGLIGIBLE * np.abs(complete).max(axis=(1, 2)))


def flattened(model: SiteModel, failed: list[int]) -> SiteModel:
    """Return the model with a precision that discloses one number more than the file has anyway, for some experts.

    It is ``κ Σ_k⁻¹ ⊗ S_k`` with the fraction ``κ = tr(C⁻¹ J) / f`` of the information that is left without labels. For
    other families all precision matrices are left out, and the combined model may lack standard errors.

    Parameters
    ----------
    model : SiteModel
    failed : list of int
        Places of the experts.
    """
    complete = complete_precision(model)
    if complete is None:
        return replace(model, precision=np.empty((0, 0)))
    own = unpack(model.precision).copy()
    for k in failed:
        solved, _ = solve_symmetric(complete[k], own[k])
        fraction = float(np.clip(np.trace(solved) / len(solved), 0.0, 1.0))
        own[k] = fraction * complete[k]
    return replace(model, precision=pack(own))

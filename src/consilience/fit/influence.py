"""How estimates would change without an institution: by a step from scores, or from the coefficients of the sites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from consilience.fit.fitting import Fit
from consilience.fit.inference import inverse_information
from consilience.fit.left_out import LeftOut, shares_of, units_of
from consilience.fit.parameters import jacobian
from consilience.model.information import coefficient_slice
from consilience.numerics.arrays import Array


def left_out_by_scores(fit: Fit, scores: Mapping[str, Array] | None, institutions: Mapping[str, str]) -> LeftOut | None:
    """Estimate the change of each reported parameter without each institution, by one step from scores.

    ``-(J - J_u)⁻¹ s_u``, with the information of an institution taken as its share ``a`` of the rows, ``J_u = a J``. At
    a maximum the scores of all sites add to zero. If they are known near one only, such as at the mixture before the
    last step, the score at the maximum is ``s_u - a Σ s`` to first order. Returns None if the scores of single sites
    are not known, or there is no information.

    Parameters
    ----------
    fit : Fit
        Its survey has the rows of the sites.
    scores : mapping of str to (P,) array or None
        Score of each site that took part, at the ascent's mixture or near it.
    institutions : mapping of str to str
    """
    mixture = fit.ascent.mixture
    inverse = inverse_information(mixture, fit.ascent.statistics, fit.penalty)
    if scores is None or inverse is None:
        return None
    units, weights = units_of(scores, institutions), {site.name: site.weight for site in fit.survey.sites}
    if len(units) < 2:
        return None
    shares, total = shares_of(units, weights), reduce(add, scores.values())
    D, changes = jacobian(mixture, fit.permutation) @ inverse, {}
    chance = {unit: np.full(len(D), np.sqrt(a / (1 - a))) for unit, a in shares.items()}
    for unit, sites in units.items():
        own = sum((scores[site] for site in sites), np.zeros_like(total)) - shares[unit] * total
        changes[unit] = -(D @ own) / (1 - shares[unit])
    return LeftOut(changes, chance, units)


@dataclass(frozen=True, eq=False)
class ExpertsWithout:
    """The experts without some sites, in the order of the fit and the coordinates of its ascent.

    Parameters
    ----------
    change : (K, f) array
        Change of their coefficients; NaN where it is not known.
    before, after : (K, f, f) array
        Covariance of their coefficients with and without these sites, up to a common factor.
    """

    change: Array
    before: Array
    after: Array


def left_out_of_experts(
    fit: Fit,
    sites: Iterable[str],
    institutions: Mapping[str, str],
    without: Callable[[Collection[str]], ExpertsWithout],
) -> LeftOut | None:
    """Compute the change of the experts' coefficients without each institution; NaN for gate and shapes.

    Parameters
    ----------
    fit : Fit
    sites : iterable of str
        Sites that took part.
    institutions : mapping of str to str
    without : callable
        The experts without a collection of sites.
    """
    units, mixture = units_of(sites, institutions), fit.ascent.mixture
    if len(units) < 2:
        return None
    at, K = coefficient_slice(mixture), mixture.K
    J = jacobian(mixture, fit.permutation)
    of_experts = np.any(J[:, at] != 0, axis=1)
    T = J[:, at].reshape(len(J), K, -1)[:, fit.permutation]  # (D, K, f), experts in the order of the fit
    changes, chance = {}, {}
    for unit, members in units.items():
        found = without(members)
        known = np.where(of_experts, 1.0, np.nan)
        changes[unit] = known * np.einsum("dkf,kf->d", T, np.nan_to_num(found.change))
        lost = np.any(T[:, np.isnan(found.change)] != 0, axis=1)
        changes[unit][lost] = np.nan
        before, after = (np.einsum("dkf,kfg,dkg->d", T, V, T, optimize=True) for V in (found.before, found.after))
        chance[unit] = known * np.sqrt(np.maximum(after / np.where(before > 0, before, np.nan) - 1, 0.0))
    return LeftOut(changes, chance, units)

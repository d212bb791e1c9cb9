"""How much a result depends on single institutions, in standard errors, with the names of coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.disagreement import SIGMAS
from consilience.fit import Fit
from consilience.fit.survey import SiteInfluence, SiteReport
from consilience.fitted.protocols import FittedMixture, expert_label, parameter_keys
from consilience.numerics.arrays import Array, Mask

INFLUENTIAL = 2.0
"""Change of a coefficient in standard errors, without an institution, from which the institution is named."""
TO_DEVIATION = 1.4826
"""Standard deviation of a normal distribution over its median distance from the median."""


@dataclass(frozen=True)
class UnitInfluence:
    """The coefficient that would change most without an institution.

    Parameters
    ----------
    unit : str
        Name of the institution.
    sites : tuple of str
    change : SiteInfluence
        The largest change, and of what.
    large : bool
        Whether the change is more than two standard errors, and more than chance explains.
    """

    unit: str
    sites: tuple[str, ...]
    change: SiteInfluence
    large: bool

    def __str__(self) -> str:
        of = "" if self.sites == (self.unit,) else f" ({', '.join(self.sites)})"
        return f"{self.unit}{of}: {self.change}"


def influence_in_errors(model: FittedMixture, fit: Fit) -> dict[str, Array]:
    """Return the change of each reported parameter without each institution, in standard errors, ``(D,)``."""
    if fit.left_out is None:
        return {}
    errors = model.inference_.deviations() if fit.left_out.errors is None else fit.left_out.errors
    errors = np.where(errors > 0, errors, np.nan)
    return {unit: change / errors for unit, change in fit.left_out.changes.items()}


def unit_influences(model: FittedMixture, fit: Fit) -> list[UnitInfluence]:
    """Return the coefficient of an expert that would change most without each institution.

    A change is large if it is more than two standard errors, and further from the median over institutions than chance
    and the usual differences between institutions explain (:func:`are_unusual`). Of several large changes the largest
    is said.
    """
    if fit.left_out is None:
        return []
    keys = parameter_keys(model)
    at = [i for i, key in enumerate(keys) if key is not None and key[0] == "expert"]
    units, in_errors = fit.left_out.units, influence_in_errors(model, fit)
    z = np.array([in_errors[unit][at] for unit in units])
    large = (np.abs(z) > INFLUENTIAL) & are_unusual(z, np.array([fit.left_out.chance[unit][at] for unit in units]))
    found = []
    for unit, changes, beyond in zip(units, np.nan_to_num(z), large, strict=True):
        j = int(np.argmax(np.abs(changes) * (beyond if beyond.any() else 1.0)))
        part, k, response, term = keys[at[j]] or ("", 0, "", "")
        if part and changes[j] != 0:
            change = SiteInfluence(float(changes[j]), f"{term or response} of {expert_label(model, k)}")
            found.append(UnitInfluence(unit, units[unit], change, bool(beyond.any())))
    return found


def are_unusual(z: Array, chance: Array) -> Mask:
    """Return which changes without an institution ``(U, D)`` chance does not explain, nor usual differences.

    In units of chance, a change is compared with 0 and with the median over institutions: one that pulls the result
    away from all others gives these changes of the other sign. It is unusual if it is further from both than four
    times the usual distance, at least 1: the root mean square of the median distances of all parameters and of one,
    each scaled to a standard deviation. Where institutions differ in a parameter, each of them changes it. Of two
    institutions neither is named.
    """
    known: Mask = np.isfinite(z) & (chance > 0)
    r = np.where(known, z / np.where(known, chance, 1.0), np.nan)
    if not known.any():
        return known
    apart = r.copy()
    apart[:, known.any(axis=0)] -= np.nanmedian(r[:, known.any(axis=0)], axis=0)
    some, of_all, of_one = known.any(axis=0), float(np.nanmedian(np.abs(apart))), np.zeros(z.shape[1])
    of_one[some] = np.nanmedian(np.abs(apart[:, some]), axis=0)
    usual = np.maximum(1.0, TO_DEVIATION * np.sqrt((of_all**2 + of_one**2) / 2))
    return np.asarray(known & (np.nan_to_num(np.minimum(np.abs(r), np.abs(apart))) > SIGMAS * usual))


def site_influences(model: FittedMixture, fit: Fit) -> dict[str, SiteInfluence]:
    """Return the largest change of a coefficient without the institution of each site."""
    return {site: each.change for each in unit_influences(model, fit) for site in each.sites}


def with_influences(reports: Sequence[SiteReport], known: Mapping[str, SiteInfluence]) -> list[SiteReport]:
    """Return the reports on sites, which are dataclasses, with the influence of each."""
    return [replace(site, influence=known.get(site.name)) for site in reports]  # type: ignore[type-var]

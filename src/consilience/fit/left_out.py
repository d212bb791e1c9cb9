"""How a result would change without one institution: what a method knows of it, and which sites an institution has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from consilience.errors import InvalidInputError
from consilience.numerics.arrays import Array

LARGEST_SHARE = 0.99
"""Share of an institution in all rows up to which its influence is estimated from its share."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Change of the reported parameters if all sites of an institution are left out.

    A site of which no institution is known is an institution of its own.

    Parameters
    ----------
    changes : mapping of str to (D,) array
        Change of each reported parameter without each institution; NaN where it is not known.
    chance : mapping of str to (D,) array
        Standard deviation of the change in standard errors, if all sites are alike: ``√(V_u / V - 1)`` for the variance
        ``V_u`` of an estimate without the institution, which is ``√(a / (1 - a))`` for a share ``a`` of the rows.
    units : mapping of str to tuple of str
        Sites of each institution.
    errors : (D,) array or None
        Standard errors in which changes are measured, if they are not those of the result: without the variance
        between sites, which a site that differs from the others makes large.
    """

    changes: Mapping[str, Array]
    chance: Mapping[str, Array]
    units: Mapping[str, tuple[str, ...]]
    errors: Array | None = None


def units_of(sites: Iterable[str], institutions: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the sites of each institution; a site without one stands for itself.

    Examples
    --------
    >>> units_of(["north", "south", "east"], {"north": "A", "east": "A"})
    {'A': ('north', 'east'), 'south': ('south',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for site in sites:
        unit = institutions.get(site, site)
        found[unit] = (*found.get(unit, ()), site)
    return found


def check_institutions(institutions: Mapping[str, str], sites: Iterable[str]) -> None:
    """Raise an error for an institution of an unknown site, or with the name of a site of another institution."""
    names = set(sites)
    if unknown := [site for site in institutions if site not in names]:
        raise InvalidInputError(f"institutions: there is no site {unknown[0]!r}")
    for unit in institutions.values():
        if not isinstance(unit, str) or not unit:
            raise InvalidInputError(f"institutions: got {unit!r}, expected the name of an institution")
        if unit in names and institutions.get(unit) != unit:
            raise InvalidInputError(f"institutions: {unit!r} is also the name of a site that is not part of it")


def shares_of(units: Mapping[str, tuple[str, ...]], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each institution in the rows of all of them, at most 0.99."""
    total = max(sum(weights.get(site, 0.0) for sites in units.values() for site in sites), 1.0)
    of_unit = {unit: sum(weights.get(site, 0.0) for site in sites) / total for unit, sites in units.items()}
    return {unit: min(share, LARGEST_SHARE) for unit, share in of_unit.items()}

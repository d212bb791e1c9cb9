"""Registry of the families of experts. A new family is one module and one line here."""

from __future__ import annotations

from consilience.errors import InvalidInputError
from consilience.model.families.base import Experts
from consilience.model.families.binomial import BinomialExperts
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gamma import GammaExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.negative_binomial import NegativeBinomialExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.student import StudentExperts

FAMILIES: dict[str, type[Experts]] = {
    each.family: each
    for each in (
        GaussianExperts,
        CategoricalExperts,
        PoissonExperts,
        GammaExperts,
        BinomialExperts,
        StudentExperts,
        NegativeBinomialExperts,
    )
}
"""Families in the order of their codes in messages: add new ones at the end."""


def family_of(name: str) -> type[Experts]:
    """Return the family of this name, or raise an error that lists the names.

    Examples
    --------
    >>> family_of("poisson").size_name
    'exposure'
    >>> family_of("poison")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: family 'poison': expected one of gaussian, categorical, poisson...
    """
    if name not in FAMILIES:
        raise InvalidInputError(f"family {name!r}: expected one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def regression_families() -> tuple[str, ...]:
    """Return the names of the families whose responses are numbers, not classes.

    Examples
    --------
    >>> "gaussian" in regression_families(), "categorical" in regression_families()
    (True, False)
    """
    return tuple(name for name, family in FAMILIES.items() if not family.classes)

"""Registry of the families of experts: a new family is one module and one line here, or an entry point of a package."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib.metadata import EntryPoint, entry_points

from consilience.errors import InvalidInputError
from consilience.model.families.base import Experts
from consilience.model.families.binomial import BinomialExperts
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gamma import GammaExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.negative_binomial import NegativeBinomialExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.student import StudentExperts

GROUP = "consilience.families"
"""Group of entry points by which an installed package registers a family: its name, and its class."""
ELSEWHERE = f"; a family of another package must be installed on this side and registered under {GROUP}"
"""What is said of a family that is not known."""
OWN: tuple[type[Experts], ...] = (
    GaussianExperts,
    CategoricalExperts,
    PoissonExperts,
    GammaExperts,
    BinomialExperts,
    StudentExperts,
    NegativeBinomialExperts,
)
"""Families of the library in the order of their codes in messages: add new ones at the end."""


class Families(MutableMapping[str, type[Experts]]):
    """Families by name: those of the library first, then those that installed packages register.

    A registered family is imported when its name is first looked up, and cannot take the name of another one.
    """

    def __init__(self) -> None:
        self._known = {each.family: each for each in OWN}

    def __getitem__(self, name: str) -> type[Experts]:
        if name not in self._known:
            for registered in entry_points(group=GROUP, name=name):
                self._known[name] = _imported(registered)
                break
        return self._known[name]

    def __setitem__(self, name: str, family: type[Experts]) -> None:
        self._known[name] = family

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        known = tuple(self._known)
        yield from known
        yield from sorted({each.name for each in entry_points(group=GROUP)}.difference(known))

    def __len__(self) -> int:
        return len(tuple(iter(self)))


FAMILIES = Families()
"""The families by name."""


def _imported(registered: EntryPoint) -> type[Experts]:
    """Return the class of an entry point; raise an error if it is not a family of that name."""
    said = f"family {registered.name!r} is registered as {registered.value!r} under {GROUP}"
    try:
        family = registered.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(f"{said}, which cannot be imported ({error}): repair or remove its package") from error
    if not (isinstance(family, type) and issubclass(family, Experts) and family.family == registered.name):
        raise InvalidInputError(f"{said}, which is not a class of experts whose family is {registered.name!r}")
    return family


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
        raise InvalidInputError(f"family {name!r}: expected one of {', '.join(FAMILIES)}{ELSEWHERE}")
    return FAMILIES[name]


def regression_families() -> tuple[str, ...]:
    """Return the names of the families whose responses are numbers, not classes.

    Examples
    --------
    >>> "gaussian" in regression_families(), "categorical" in regression_families()
    (True, False)
    """
    return tuple(name for name, family in FAMILIES.items() if not family.classes)

"""Names of sites: normalised, and refused if two of them could be taken for one another."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from consilience.errors import InvalidInputError

LONGEST = 200
_GREEK_AND_CYRILLIC = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧονАВЕЅІЈКМНОРСТУХаеѕіјорсухԁԛԝ"
_LATIN = "ABEZHIKMNOPTYXovABESIJKMHOPCTYXaesijopcyxdqw"
_ALIKE = str.maketrans(_GREEK_AND_CYRILLIC, _LATIN)
"""Letters of other alphabets that look like Latin ones."""


def site_names(given: Iterable[object]) -> tuple[str, ...]:
    """Return the names of sites in normal form (NFC, without spaces at the ends); raise an error if two look alike.

    Parameters
    ----------
    given : iterable of object
        Names as text, or objects whose text is the name.
    """
    names = tuple(unicodedata.normalize("NFC", str(name)).strip() for name in given)
    seen: dict[str, str] = {}
    for name in names:
        if not name or len(name) > LONGEST or any(unicodedata.category(letter)[0] == "C" for letter in name):
            raise InvalidInputError(
                f"site {name!a}: expected a name of 1 to {LONGEST} characters without control characters"
            )
        other = seen.get(key := looks(name).casefold())
        seen[key] = name
        if other is not None:
            raise InvalidInputError(
                f"sites {other!a} and {name!a} cannot be told apart: give each site a name of its own"
            )
    return names


def looks(name: str) -> str:
    """Return a form that is the same for names that look alike: alphabet and the width of spaces do not count."""
    return " ".join(unicodedata.normalize("NFKC", name).translate(_ALIKE).split())

"""Compare the answers of a site with its earlier ones: same fingerprint, same sums over its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.messages import Failure, FailureCode, Question
from consilience.messages.codec import MODULUS
from consilience.messages.table import stated_products
from consilience.model.received import CrossProducts

SOME_ROWS = 10.0
"""Number of rows from which two sites do not have the same rows by chance."""

Sites = tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """What a run allows a site to weigh.

    With limits every site sends its own answer in every round, also where sums could be formed on the way.

    Parameters
    ----------
    max_rows : float
        Maximum weight of the rows of a site.
    max_share : float
        Maximum share of a site in the weight of the rows of all sites.

    Examples
    --------
    >>> from consilience import Limits
    >>> Limits(max_share=0.5).max_rows
    inf
    """

    max_rows: float = np.inf
    max_share: float = 1.0

    def __post_init__(self) -> None:
        if not (self.max_rows > 0 and 0 < self.max_share <= 1):
            raise InvalidInputError("expected max_rows above 0, and max_share above 0 and at most 1")

    def sentences(self) -> list[str]:
        """Return the limits that were set, in words."""
        said = [f"at most {self.max_rows:.10g} rows of a site"] if np.isfinite(self.max_rows) else []
        return said + ([f"at most {100 * self.max_share:g} % of all rows of a site"] if self.max_share < 1 else [])


UNLIMITED = Limits()


class Consistency:
    """What the sites of a run have stated about their rows.

    An answer of several sites, added on the way, is compared with the sum of what these sites have stated.
    """

    def __init__(self) -> None:
        self._fingerprints: dict[Sites, int] = {}
        self._products: dict[Sites, CrossProducts] = {}
        self._owners: dict[int, str] = {}

    def failure(self, sites: Sites, question: Question, answer: Any, fingerprint: int) -> Failure | None:
        """Return the failure of an answer that does not fit the earlier ones; otherwise keep what it states."""
        if self.fingerprint(sites) not in (None, fingerprint):
            return Failure(FailureCode.DATA_CHANGED)
        known = self._stated(sites)
        for products in stated_products(question, answer):
            known = products if known is None else known.like(products)  # the questions of a fit share coordinates
            reason = known.contradiction(products)
            if reason:
                return Failure(FailureCode.CONTRADICTORY, detail=reason)
            known = known.joined(products)
        if known is not None:
            self._products[sites] = known
        self._fingerprints[sites] = fingerprint
        return None

    def copies(self, sites: Iterable[str]) -> dict[str, Failure]:
        """Return the sites whose rows are those of a site before them, with its name."""
        found: dict[str, Failure] = {}
        for site in sites:
            known, fingerprint = self._products.get((site,)), self._fingerprints.get((site,))
            if not fingerprint or known is None or not known.values[0, 0] >= SOME_ROWS:
                continue
            owner = self._owners.setdefault(fingerprint, site)
            if owner != site:
                found[site] = Failure(FailureCode.SAME_DATA, detail=owner)
        return found

    def has_checked(self, site: str) -> bool:
        """Return whether a site has stated its rows on its own, and they are not those of another site."""
        return (site,) in self._products and self._owners.get(self._fingerprints[site,], site) == site

    def oversized(self, sites: Sequence[str], limits: Limits) -> dict[str, Failure]:
        """Return the sites that state more rows than allowed, or a larger share of the rows of ``sites``."""
        known = {site: self._products.get((site,)) for site in sites}
        rows = {site: float(each.values[0, 0]) for site, each in known.items() if each is not None}
        most = min(limits.max_rows, limits.max_share * sum(rows.values()) if len(rows) > 1 else np.inf)
        return {site: Failure(FailureCode.TOO_MANY_ROWS, detail=f"{n:.10g}") for site, n in rows.items() if n > most}

    def fingerprint(self, sites: Sites) -> int | None:
        """Return the fingerprint that is known of the rows of some sites; None if it is not."""
        if sites in self._fingerprints:
            return self._fingerprints[sites]
        single = [self._fingerprints.get((site,)) for site in sites]
        return sum_of(each for each in single if each is not None) if None not in single else None

    def _stated(self, sites: Sites) -> CrossProducts | None:
        if sites in self._products:
            return self._products[sites]
        single = [self._products.get((site,)) for site in sites]
        known = [each for each in single if each is not None]
        return reduce(add, known) if len(known) == len(sites) else None


def sum_of(fingerprints: Iterable[int]) -> int:
    """Return the fingerprint of the rows of several sites together."""
    return sum(fingerprints) % MODULUS

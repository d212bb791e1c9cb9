"""Compare the answers of a site with its earlier ones: same fingerprint, same sums over its rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import Any

from consilience.messages.codec import MODULUS
from consilience.messages.failures import Failure, FailureCode
from consilience.messages.questions import Question
from consilience.messages.table import stated_products
from consilience.model.cross_products import CrossProducts

SOME_ROWS = 10.0
"""Number of rows from which two sites do not have the same rows by chance."""

Sites = tuple[str, ...]


class Consistency:
    """What the sites of a run have stated about their rows.

    An answer of several sites, added on the way, is compared with the sum of what these sites have stated.

    Examples
    --------
    >>> from consilience.messages.questions import Identify, Identity
    >>> stated = Consistency()
    >>> stated.failure(("north",), Identify(), Identity(5.0), fingerprint=1)
    >>> stated.failure(("north",), Identify(), Identity(5.0), fingerprint=2).code.name
    'DATA_CHANGED'
    >>> stated.failure(("north",), Identify(), Identity(6.0), fingerprint=1).code.name
    'CONTRADICTORY'
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
            reason = "" if known is None else known.contradiction(products)
            if reason:
                return Failure(FailureCode.CONTRADICTORY, detail=reason)
            known = products if known is None else known.joined(products)
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
    """Return the fingerprint of the rows of several sites together.

    Examples
    --------
    >>> sum_of([MODULUS - 1, 3])
    2
    """
    return sum(fingerprints) % MODULUS

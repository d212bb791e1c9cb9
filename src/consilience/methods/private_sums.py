"""Ask for private sums, as they are or masked, from a budget of equal parts.

Masked sums are opened over all sites or not at all. Each site masks its integers (:mod:`consilience.site.masks`) and
adds a share of the noise. If a site does not answer, the answers of the others cannot be read. The site is then out for
the run, and the others are asked again: with other masks, with new noise, and charged again, since the missing answer
may still arrive and open the first sum too; the two would differ by that site's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

from consilience.errors import InvalidInputError
from consilience.messages import (
    Answers,
    Dialogue,
    Each,
    Masked,
    MaskedSums,
    NoisySums,
    PrivateSum,
    Several,
    Total,
)

SPARE = 2
"""Parts of the budget beyond those of the steps: for what is asked again, otherwise for one more step."""
LARGEST = 2**62
"""No sum over sites is larger; of integers whose masks do not cancel, about half are."""


LOST = "no masked sum was opened before the budget was spent: too many sites were lost"


@dataclass
class Purse:
    """The budget of the sites in a run: how many parts it has, and what was spent.

    Parameters
    ----------
    parts : int
    sites : tuple of str or None
        Sites whose sums are masked together: those that have answered. None if sums are not masked.
    spent : list of int
        Parts of the budget of each round.
    """

    parts: int
    sites: tuple[str, ...] | None = None
    spent: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Parts that are not spent."""
        return self.parts - sum(self.spent)

    def ask(self, question: PrivateSum, share: int) -> Dialogue[NoisySums | None]:
        """Ask a question once for each of some parts, and return the sum of the answers; None if a site was lost."""
        asked = tuple(replace(question, place=sum(self.spent) + i) for i in range(share))
        self.spent.append(share)
        if self.sites is not None:
            found, self.sites = yield from masked_sums(asked, self.sites)
            return found
        if share == 1:
            one: NoisySums = yield Total(asked[0])
            return one
        several = yield Total(Several(asked))
        total: NoisySums = reduce(add, several.items)
        return total

    def insist(self, question: PrivateSum, share: int) -> Dialogue[NoisySums]:
        """Ask again, with other parts, until all sites that are left have answered; return the mean over parts."""
        while self.left >= share:
            found = yield from self.ask(question, share)
            if found is not None:
                values = tuple(round(value / share) for value in found.values)
                return NoisySums(values, found.clip, -(-found.variance // share**2))
        raise InvalidInputError(LOST)


def masked_sums(
    asked: Sequence[PrivateSum], sites: Sequence[str]
) -> Dialogue[tuple[NoisySums | None, tuple[str, ...]]]:
    """Ask for the sum over sites, and over questions of one step, with masks.

    Returns
    -------
    NoisySums or None
        None if a site did not answer: nothing was opened.
    tuple of str
        The sites that answered.
    """
    parts = tuple(Masked(each, tuple(sorted(sites))) for each in asked)
    question = parts[0] if len(parts) == 1 else Several(parts)
    found = yield Each(question, tuple(sites))
    if set(found) != set(sites):
        return None, tuple(site for site in sites if site in found)
    items = [each.items if isinstance(each, Answers) else (each,) for each in found.values()]
    return reduce(add, (opened(each) for each in zip(*items, strict=True))), tuple(sites)


def opened(parts: Sequence[MaskedSums]) -> NoisySums:
    """Return the sum over all sites; raise an error if the masks do not cancel."""
    found = MaskedSums.opened(parts)
    if any(abs(value) >= LARGEST for value in found.values):
        raise InvalidInputError(
            "the masks of the sites do not cancel: they have different keys, or different questions"
        )
    return found


def affordable(plan: Sequence[tuple[float, int]], parts: int) -> list[tuple[float, int]]:
    """Return a plan of steps ``(λ, parts)`` that takes at most so many parts: later steps have fewer, or are left out.

    Examples
    --------
    >>> affordable([(0.1, 1), (0.0, 2), (0.0, 3)], 4)
    [(0.1, 1), (0.0, 2), (0.0, 1)]
    """
    kept: list[tuple[float, int]] = []
    for lam, share in plan:
        kept.append((lam, min(share, parts)))
        parts -= kept[-1][1]
    return [step for step in kept if step[1]]

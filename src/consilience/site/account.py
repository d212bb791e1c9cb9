"""The account of a site for private answers: what it may spend, and what it has spent.

The budget of a site is a number of equal parts, each for one answer. A part is charged before its noise is drawn, so
that whatever fails later costs the part; the same question about a spent part gets the same answer again, and another
question gets none. Nothing in a question changes the budget, and nothing that an account does depends on rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from threading import Lock
from typing import Any, TypeVar

from consilience.errors import InvalidInputError
from consilience.files.json_text import bytes_hash
from consilience.messages import FailureCode, SiteError
from consilience.messages.questions import MaskedSums, NoisySums
from consilience.model.contributions import total_sensitivity

Sums = TypeVar("Sums", NoisySums, MaskedSums)


@dataclass(eq=False)
class Account:
    """What a site may spend on private answers.

    Parameters
    ----------
    rho : Fraction
        ρ of each part.
    parts : int
        Number of parts.
    rows_each : int
        Largest number of rows of the unit that is protected: 1 for rows, that of a person for persons.
    charged : mapping of int to str, optional
        Parts that were charged before, with the hash of the question, where an account is kept outside of this process.
    record : callable, optional
        Called with a part and its question before anything is drawn, to record the charge; it raises an error if the
        part may not be spent.

    Examples
    --------
    >>> account = Account(Fraction(1, 40), parts=2)
    >>> account.answer(0, b"question", lambda rho: NoisySums((3,), 1.0, 7)).values
    (3,)
    >>> account.spent
    Fraction(1, 40)
    """

    rho: Fraction
    parts: int
    rows_each: int = 1
    charged: Mapping[int, str] = field(default_factory=dict, repr=False)
    record: Callable[[int, bytes], None] | None = field(default=None, repr=False)
    _charged: dict[int, str] = field(default_factory=dict, init=False, repr=False)
    _given: dict[int, Any] = field(default_factory=dict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rho <= 0 or self.parts < 1 or self.rows_each < 1:
            raise InvalidInputError(
                f"rho={self.rho}, parts={self.parts}, rows_each={self.rows_each}: expected positive numbers"
            )
        self._charged = dict(self.charged)

    def __reduce__(self) -> Any:
        """Return what a process needs that answers in place of this one: the budget and what is charged."""
        if self.record is not None:
            raise TypeError("an account in a ledger is not copied into other processes")
        return Account, (self.rho, self.parts, self.rows_each, dict(self._charged))

    @property
    def spent(self) -> Fraction:
        """ρ of all parts that were charged."""
        return self.rho * len(self._charged)

    def sensitivity(self, P: int) -> int:
        """Return the largest change of the sums over rows, of P parameters, by all rows of one protected unit."""
        return self.rows_each * total_sensitivity(P)

    def answer(self, place: int, question: bytes, draw: Callable[[Fraction], Sums]) -> Sums:
        """Charge a part of the budget, then return ``draw(rho)``; return what was drawn for the same question before.

        Raises
        ------
        SiteError
            If there is no such part, or if it was charged for another question or for one without an answer.
        """
        with self._lock:
            asked = bytes_hash(question)
            if self._charged.get(place, asked) != asked or not 0 <= place < self.parts:
                raise SiteError(FailureCode.REFUSED, f"part {place} of the budget is spent, or there is none")
            if place in self._given:
                kept: Sums = self._given[place]
                return kept
            if place in self._charged:
                raise SiteError(
                    FailureCode.REFUSED, f"part {place} of the budget was charged for an answer that failed"
                )
            if self.record is not None:
                self.record(place, question)
            self._charged[place] = asked
            self._given[place] = draw(self.rho)
            found: Sums = self._given[place]
            return found

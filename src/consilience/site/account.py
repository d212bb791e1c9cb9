"""The account of a site for private answers: what it may spend, and what it has spent.

The budget of a site is a number of equal parts, each for one answer. A part is charged before its noise is drawn, so
that whatever fails later costs the part; the same question about a spent part gets the same answer again, and another
question gets none. Nothing in a question changes the budget, and nothing that an account does depends on rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from threading import Lock

from consilience.errors import InvalidInputError
from consilience.messages import FailureCode, SiteError
from consilience.messages.questions import NoisySums


@dataclass(eq=False)
class Account:
    """What a site may spend on private answers.

    Parameters
    ----------
    rho : Fraction
        ρ of each part.
    parts : int
        Number of parts.

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
    _charged: dict[int, bytes] = field(default_factory=dict, init=False, repr=False)
    _given: dict[int, NoisySums] = field(default_factory=dict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rho <= 0 or self.parts < 1:
            raise InvalidInputError(f"rho={self.rho}, parts={self.parts}: expected positive numbers")

    @property
    def spent(self) -> Fraction:
        """ρ of all parts that were charged."""
        return self.rho * len(self._charged)

    def answer(self, place: int, question: bytes, draw: Callable[[Fraction], NoisySums]) -> NoisySums:
        """Charge a part of the budget, then return ``draw(rho)``; return what was drawn for the same question before.

        Raises
        ------
        SiteError
            If there is no such part, or if it was charged for another question or for one without an answer.
        """
        with self._lock:
            if self._charged.get(place, question) != question or not 0 <= place < self.parts:
                raise SiteError(FailureCode.REFUSED, f"part {place} of the budget is spent, or there is none")
            if place in self._given:
                return self._given[place]
            if place in self._charged:
                raise SiteError(
                    FailureCode.REFUSED, f"part {place} of the budget was charged for an answer that failed"
                )
            self._charged[place] = question
            self._given[place] = draw(self.rho)
            return self._given[place]

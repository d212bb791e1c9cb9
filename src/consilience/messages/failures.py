"""Failures as values: a code with a sentence that carries no data, never an exception across the border."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from consilience.errors import ConsilienceError


class FailureCode(Enum):
    """What went wrong at a site, or on the way: members are the sentences that leave it.

    Examples
    --------
    >>> print(FailureCode.MISSING_VALUES)
    a column has missing or infinite values: fill or drop those rows
    """

    # said by the site
    UNREADABLE_QUESTION = "the question could not be read"
    OTHER_FORMAT = "the message is in another format than this version reads: install the same version on both sides"
    OTHER_COLUMNS = "the data do not have the columns that were asked for"
    NOT_NUMBERS = "a column that must hold numbers does not"
    MISSING_VALUES = "a column has missing or infinite values: fill or drop those rows"
    UNKNOWN_CLASS = "the response has a class that the study does not name"
    OUT_OF_RANGE = "the response has values that its family does not have"
    BAD_WEIGHTS = "weights must be zero or positive, exposures positive"
    DATA_NOT_FOUND = "the data were not found at their address"
    NO_STORE = "the store of the data could not be reached: check its address and the network"
    NO_CREDENTIALS = "the store of the data refused the credentials: check the access key, its secret and its rights"
    DATA_UNREADABLE = "the data could not be read: not the file format that its name says, or damaged"
    NO_ANSWER_TO_KIND = "the site does not answer this kind of question"
    INTERNAL = "an unexpected error at the site: the trace is in the site's own log"
    # said by whoever carries the messages, or receives them
    NO_ANSWER = "no answer before the deadline"
    WORKER_LOST = "the workers that tried to answer were lost: out of memory, killed, or unreachable"
    UNREADABLE_ANSWER = "the answer could not be read"
    WRONG_SHAPE = "the answer has another shape than the question asked for"
    NOT_FINITE = "the answer has numbers that are not finite"
    # said by the site; new ones go to the end: the place is the number that is sent
    GROUPED = "the rows have groups, and the method gives each row a label of its own: use one that knows groups"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Failure:
    """A site's failure, as it may leave the site.

    Parameters
    ----------
    code : FailureCode
    reference : int
        Number of the trace in the site's own log; 0 where there is none.
    detail : str
        What the question expected, added by the coordinator: it is not sent.

    Examples
    --------
    >>> print(Failure(FailureCode.INTERNAL, reference=7))
    an unexpected error at the site: the trace is in the site's own log (reference 7)
    """

    code: FailureCode
    reference: int = 0
    detail: str = ""

    def __str__(self) -> str:
        said = f"{self.code}: {self.detail}" if self.detail else str(self.code)
        return f"{said} (reference {self.reference})" if self.reference else said


class SiteError(ConsilienceError):
    """Raised inside a site for a failure with a code; it leaves the site as a :class:`Failure`.

    Examples
    --------
    >>> try:
    ...     raise SiteError(FailureCode.OTHER_COLUMNS)
    ... except SiteError as error:
    ...     print(error.code.name)
    OTHER_COLUMNS
    """

    def __init__(self, code: FailureCode, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else str(code))
        self.code = code

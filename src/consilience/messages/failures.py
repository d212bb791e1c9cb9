"""Failures as values: a code and a sentence without data are sent instead of an exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from consilience.errors import ConsilienceError


class FailureCode(Enum):
    """Kinds of failure at a site or in transport; the values are the sentences shown to users.

    Examples
    --------
    >>> from consilience.messages import FailureCode
    >>> print(FailureCode.MISSING_VALUES)
    a column has missing or infinite values: fill or drop those rows
    """

    # reported by the site
    UNREADABLE_QUESTION = "the question could not be read"
    OTHER_FORMAT = "the message has a format that this version cannot read: install the same version on both sides"
    OTHER_COLUMNS = "the data do not have the requested columns"
    NOT_NUMBERS = "a column that must be numeric is not"
    MISSING_VALUES = "a column has missing or infinite values: fill or drop those rows"
    UNKNOWN_CLASS = "the response has a class that is not among the classes of the model"
    UNKNOWN_LEVEL = "a category has a level that is not in the data dictionary"
    OUT_OF_RANGE = "the response has values outside the range of its family"
    BAD_WEIGHTS = "weights must be zero or positive, and exposures positive"
    DATA_NOT_FOUND = "the data were not found at their address"
    NO_STORE = "the data store could not be reached: check its address and the network"
    NO_CREDENTIALS = "the data store refused the credentials: check the access key, its secret and its permissions"
    DATA_UNREADABLE = "the data could not be read: the file is damaged, or its format is not the one in its name"
    NO_ANSWER_TO_KIND = "the site does not answer questions of this type"
    INTERNAL = "an unexpected error at the site"
    # reported by the engine or the coordinator
    NO_ANSWER = "no answer before the deadline"
    WORKER_LOST = "the workers that computed the answer were lost: out of memory, killed, or unreachable"
    UNREADABLE_ANSWER = "the answer could not be read"
    WRONG_SHAPE = "the answer does not have the requested shape"
    NOT_FINITE = "the answer has values that are not finite"
    # reported by the site; add new members at the end: the position is the number that is sent
    GROUPED = "the rows have groups, but the method labels single rows: use a method that supports groups"
    DATA_CHANGED = "the data have changed since the site's first answer: restore them, or start again"
    # reported by the site or the coordinator
    IMPOSSIBLE = "the answer contains what no data can give"
    CONTRADICTORY = "the answer contradicts an earlier answer of the site about the same data"
    SAME_DATA = "the site has the same rows as another site"
    TOO_MANY_ROWS = "the site states more rows, or a larger share of all rows, than the run allows"
    # reported by the site
    TOO_COSTLY = "the question asks for more work or memory than the site allows"
    VALUE_OUT_OF_RANGE = "a column has values outside the range that the study states: check units and missing codes"
    REFUSED = "the site refuses the question and ends the run: the reason is in its own ledger"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Failure:
    """A failure as a site reports it: a code, and a reference to the site's log.

    Parameters
    ----------
    code : FailureCode
    reference : int
        Number of the traceback in the site's log; 0 if there is none.
    detail : str
        What is known of the reason. Added by the coordinator, not sent.

    Examples
    --------
    >>> from consilience.messages import Failure, FailureCode
    >>> print(Failure(FailureCode.OTHER_COLUMNS, reference=7))
    the data do not have the requested columns (reference 7 in the site's log)
    """

    code: FailureCode
    reference: int = 0
    detail: str = ""

    def __str__(self) -> str:
        if self.detail:
            return f"{self.code}: {self.detail}"
        return f"{self.code} (reference {self.reference} in the site's log)" if self.reference else str(self.code)


class SiteError(ConsilienceError):
    """Error with a failure code, raised within a site and reported as a :class:`Failure`.

    Examples
    --------
    >>> from consilience.messages import FailureCode, SiteError
    >>> try:
    ...     raise SiteError(FailureCode.OTHER_COLUMNS)
    ... except SiteError as error:
    ...     print(error.code.name)
    OTHER_COLUMNS
    """

    def __init__(self, code: FailureCode, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else str(code))
        self.code, self.detail = code, detail

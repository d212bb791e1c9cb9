"""The words of a study: what its rows, sites, columns and kinds are called, in which units effects are said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Back = Literal["none", "exp", "expm1", "square"]
"""What undoes the transform of a response that sites made before the fit."""
Change = Literal["percent", "ratio", "odds", "difference"]
"""How an effect is said: per cent of the response, a multiple of it or of the odds, or a difference in its unit."""


@dataclass(frozen=True)
class ResponseWords:
    """The response in words: ``less`` and ``more`` are adjectives of smaller and larger values.

    Examples
    --------
    >>> from consilience.report import ResponseWords
    >>> ResponseWords("length of stay", "days", back="exp", less="shorter", more="longer").unit
    'days'
    """

    label: str = ""
    unit: str = ""
    back: Back = "none"
    change: Change | None = None
    less: str = ""
    more: str = ""


@dataclass(frozen=True)
class ColumnWords:
    """A covariate in words.

    Parameters
    ----------
    label, unit : str
    per : float, "doubling" or None
        The difference for which effects are said, in the unit of the column; a round number by default.
    compare : (float, float) or None
        Two values that are compared instead, the lower one first.
    levels : mapping of str to str
        Names of the levels of a category.

    Examples
    --------
    >>> from consilience.report import ColumnWords
    >>> ColumnWords("age", "years", per=10).per
    10
    """

    label: str = ""
    unit: str = ""
    per: float | Literal["doubling"] | None = None
    compare: tuple[float, float] | None = None
    levels: Mapping[str, str] = field(default_factory=dict)


NOTHING_SAID = ColumnWords()


def with_article(noun: str) -> str:
    """Return a noun with its article, as far as its letters tell.

    Examples
    --------
    >>> with_article("hospital"), with_article("insurer"), with_article("unit")
    ('a hospital', 'an insurer', 'a unit')
    """
    silent = noun.lower().startswith(("hour", "heir", "honest"))
    vowel = noun[:1].lower() in "aeio" or (noun[:1].lower() == "u" and not noun.lower().startswith(("uni", "use")))
    return f"{'an' if silent or vowel else 'a'} {noun}"


@dataclass(frozen=True)
class Words:
    """All words of a study; what is empty has a default.

    Parameters
    ----------
    title, question, period : str
    rows, sites : (str, str)
        What a row and a site are called: one, and several.
    simulated : bool
        Whether the data are simulated.
    names : tuple of str
        Names of the kinds, by increasing response.
    typical : tuple of mappings
        Rows for which predictions are shown, by column.
    response : ResponseWords
    columns : mapping of str to ColumnWords

    Examples
    --------
    >>> from consilience.report import Words
    >>> Words(rows=("stay", "stays")).count_rows(1), Words().count_sites(5)
    ('1 stay', '5 sites')
    """

    title: str = ""
    question: str = ""
    period: str = ""
    rows: tuple[str, str] = ("row", "rows")
    sites: tuple[str, str] = ("site", "sites")
    simulated: bool = False
    names: tuple[str, ...] = ()
    typical: tuple[Mapping[str, Any], ...] = ()
    response: ResponseWords = ResponseWords()
    columns: Mapping[str, ColumnWords] = field(default_factory=dict)

    def column(self, name: str) -> ColumnWords:
        """Return the words of a column."""
        return self.columns.get(name, NOTHING_SAID)

    def label(self, name: str) -> str:
        """Return the label of a column: its name by default."""
        return self.column(name).label or name

    def level(self, column: str, level: Any) -> str:
        """Return the name of a level of a category."""
        return self.column(column).levels.get(str(level), str(level))

    @property
    def a_row(self) -> str:
        """One row with its article.

        Examples
        --------
        >>> from consilience.report import Words
        >>> Words(rows=("hour", "hours")).a_row, Words(rows=("stay", "stays")).a_row
        ('an hour', 'a stay')
        """
        return with_article(self.rows[0])

    def count_rows(self, n: float) -> str:
        """Return a number of rows in words."""
        return f"{n:,.0f} {self.rows[round(n) != 1]}"

    def count_sites(self, n: int) -> str:
        """Return a number of sites in words."""
        return f"{n} {self.sites[n != 1]}"

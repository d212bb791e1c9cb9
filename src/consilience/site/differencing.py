"""Whether a release would disclose single rows by its difference to an earlier one over nearly the same rows.

Two sums that differ by one row give the row, however many rows each has. So a site refuses what rests on rows that
differ from those of an earlier release or run by at least one and fewer than ``min_rows`` rows, whether these were
added, removed or swapped, and whatever the studies are called. Rows are compared in the columns that the earlier study
read. If the table lacks one of them, the rows cannot be compared, and only a difference in the number of rows of
``min_rows`` or more shows that the sets are far enough apart. A column that is recoded in all rows makes new rows of
them: sets of nearly the same number of rows without a common row are refused too. In both cases the people at the site
may state that the rows are those of other people; the statement is recorded.

What the rule does not cover: it compares with one earlier release at a time, not with unions and differences of
several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from consilience.errors import InvalidInputError
from consilience.site.row_tags import RowTags, difference
from consilience.site.used_rows import UsedRows

OTHERS = (
    "If the rows are those of other people, such as of another year, state it: 'consilience site fit --other-people "
    '"REASON"\'; the ledger keeps the statement'
)
"""What to do where rows cannot be compared."""


@dataclass(frozen=True)
class Earlier:
    """What a site keeps of an earlier release or run.

    Parameters
    ----------
    entry : int
        Its number in the ledger.
    study : str
        Identity of the study, ``sha256:...``.
    columns : tuple of str
        Sorted names of the columns that were read.
    rows : int
        Number of rows used.
    load : callable
        Returns the tags of these rows.
    is_release : bool
        Whether there are stored bytes that can be returned.
    """

    entry: int
    study: str
    columns: tuple[str, ...]
    rows: int
    load: Callable[[], RowTags]
    is_release: bool = True


@dataclass(frozen=True)
class Decision:
    """Whether something may leave.

    Parameters
    ----------
    outcome : {"allowed", "stored", "refused"}
        "stored": these rows were released for this study before, and the same bytes are returned.
    entry : int, optional
        Entry of the ledger that decided.
    said : str
        The reason of a refusal and how to go on; without numbers of rows or values.
    """

    outcome: Literal["allowed", "stored", "refused"]
    entry: int | None = None
    said: str = ""


def decided(
    study: str, used: UsedRows, earlier: Iterable[Earlier], min_rows: int, *, other_people: bool = False
) -> Decision:
    """Decide whether a release or run over these rows is allowed beside all earlier ones.

    Parameters
    ----------
    study : str
        Identity of the study, ``sha256:...``.
    used : UsedRows
        Rows that would be used, with all columns of the table.
    earlier : iterable of Earlier
        All earlier releases and runs over the data set, of any study.
    min_rows : int
        Smallest number of rows about which something may be said.
    other_people : bool
        Whether the people at the site state that the rows are not those of earlier releases, where nobody can tell.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": list(range(100))})
    >>> rows = [UsedRows(table.slice(0, n), ("age",), bytes(32)) for n in (100, 99, 50)]
    >>> first = Earlier(2, "sha256:a", ("age",), 100, lambda: rows[0].tags)
    >>> [decided("sha256:a", each, [first], 10).outcome for each in rows]
    ['stored', 'refused', 'allowed']
    >>> decided("sha256:b", rows[0], [first], 10).outcome
    'allowed'
    """
    if min_rows < 1:
        raise InvalidInputError(f"min_rows={min_rows}: expected at least 1")
    found = [(each, _compared(used, each, min_rows)) for each in earlier]
    for each, apart in found:
        if each.is_release and each.study == study and apart == 0:
            return Decision("stored", each.entry, f"entry {each.entry} released these rows for this study")
    for each, apart in found:
        if apart is not None and 0 < apart < min_rows:
            return _too_near(each, min_rows)
        if apart is None and not other_people:
            return _incomparable(used, each)
        if apart is not None and _looks_recoded(used, each, apart, min_rows) and not other_people:
            return _recoded(each)
    return Decision("allowed")


def check_unchanged(used: UsedRows, begun: Earlier) -> None:
    """Raise an error if the rows are not exactly those with which a run began: the run ends there.

    Examples
    --------
    >>> import pyarrow as pa
    >>> used = UsedRows(pa.table({"age": [61, 70]}), ("age",), bytes(32))
    >>> check_unchanged(used, Earlier(2, "sha256:a", ("age",), 2, lambda: used.tags, is_release=False))
    """
    tags = used.tags_in(begun.columns)
    if tags is None or tags != begun.load():
        raise InvalidInputError(
            f"the rows are not those with which the run of entry {begun.entry} of the ledger began: the run ends. "
            "Begin a new run; it is held against this one"
        )


def _compared(used: UsedRows, earlier: Earlier, min_rows: int) -> int | None:
    """Return by how many rows the sets differ, or a lower bound of at least ``min_rows``; None if nobody can tell."""
    fewer = abs(used.n - earlier.rows)
    if fewer >= min_rows:
        return fewer
    tags = used.tags_in(earlier.columns)
    return None if tags is None else difference(tags, earlier.load())


def _looks_recoded(used: UsedRows, earlier: Earlier, apart: int, min_rows: int) -> bool:
    """Whether the sets have nearly the same number of rows, and none in common."""
    return abs(used.n - earlier.rows) < min_rows and apart == used.n + earlier.rows > 0


def _too_near(earlier: Earlier, min_rows: int) -> Decision:
    return Decision(
        "refused",
        earlier.entry,
        f"the rows differ from those of entry {earlier.entry} of the ledger, but by fewer than {min_rows} rows: the "
        "difference of the two results would disclose these rows. Use exactly the rows of that entry (for the same "
        f"study its stored file is returned), or wait until at least {min_rows} rows have been added or removed",
    )


def _incomparable(used: UsedRows, earlier: Earlier) -> Decision:
    absent = ", ".join(repr(name) for name in earlier.columns if used.table.column_names.count(name) != 1)
    return Decision(
        "refused",
        earlier.entry,
        f"the rows cannot be compared with those of entry {earlier.entry} of the ledger, because the table lacks "
        f"columns that were read there: {absent}. Use a table that has them; the study need not read them. {OTHERS}",
    )


def _recoded(earlier: Earlier) -> Decision:
    return Decision(
        "refused",
        earlier.entry,
        f"no row of entry {earlier.entry} of the ledger is found again, although the numbers of rows nearly agree: a "
        "column may have been recoded, and the difference of the two results would then disclose single rows. Use the "
        f"table with the values that it had. {OTHERS}",
    )

"""Whether a release would disclose single people by sums and differences of it and of earlier ones.

Two sums that differ by one row give the row, however many rows each has; so do four sums of which two are added and two
subtracted. A site compares what it would release with all earlier releases and runs, whatever the studies are called:

1. *In pairs.* Rows that differ from those of an earlier release by at least one and fewer than ``min_rows`` are
   refused, whether these were added, removed, swapped or corrected. Rows are compared in the columns that the earlier
   study read.
2. *Together.* Let ``U (n, r)`` say which of ``n`` people are in which of ``r`` releases. A combination ``U c`` of the
   releases singles out person ``i`` as far as ``(U c)_i^2 / |U c|^2``, of which the maximum over ``c`` is the leverage
   ``h_i = u_i^T (U^T U)^{-1} u_i``. It may not exceed ``1 / min_rows``: no combination rests on fewer people.

If the policy names the column that tells people apart, the unit is the person: a column that was recoded, in all rows
or in some, then hides nobody. Without it the unit is the row. If the table then lacks a column of an earlier study,
only a difference in the number of rows of ``min_rows`` or more shows that the sets are far enough apart; and sets of
nearly the same number of rows without a common row are refused, since a column may have been recoded. In both cases the
people at the site may state that the rows are those of other people; the statement is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInputError
from consilience.kit.examination import UsedRows
from consilience.kit.row_tags import RowTags, count_differences, count_tags_apart, number_tags

OTHERS = (
    "If the rows are those of other people, such as of another year, state it: 'consilience site fit --other-people "
    '"REASON"\'; the ledger keeps the statement'
)
"""What to do where rows cannot be compared."""
TOGETHER = (
    "with earlier releases together, the result would rest on few people: sums and differences of them would disclose "
    "single rows. Use exactly the rows of an earlier release, or wait until enough rows have been added or removed"
)
"""Why a release is refused that is far enough from each earlier one alone."""


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
    load_people : callable, optional
        Returns the tags of the people of these rows; None if the policy named no column of people then.
    """

    entry: int
    study: str
    columns: tuple[str, ...]
    rows: int
    load: Callable[[], RowTags]
    is_release: bool = True
    load_people: Callable[[], RowTags] | None = None


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


def decide(
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
    """
    if min_rows < 1:
        raise InvalidInputError(f"min_rows={min_rows}: expected at least 1")
    found = [(each, rows_apart(used, each, min_rows)) for each in earlier]
    for each, apart in found:
        if each.is_release and each.study == study and apart == 0:
            return Decision("stored", each.entry, f"entry {each.entry} released these rows for this study")
    for each, apart in found:
        if said := _refusal(used, each, apart, min_rows, other_people=other_people):
            return Decision("refused", each.entry, said)
    if found and leverage_together(used, [each for each, _ in found]) > (1 + 1e-9) / min_rows:
        return Decision("refused", None, TOGETHER)
    return Decision("allowed")


def rows_apart(used: UsedRows, earlier: Earlier, min_rows: int) -> int | None:
    """Return by how many rows the sets differ, or a lower bound of at least ``min_rows``; None if nobody can tell."""
    fewer = abs(used.n - earlier.rows)
    if fewer >= min_rows:
        return fewer
    tags = used.tags_in(earlier.columns)
    return None if tags is None else count_differences(tags, earlier.load())


def _refusal(used: UsedRows, earlier: Earlier, apart: int | None, min_rows: int, *, other_people: bool) -> str:
    """Say why nothing may be released beside an earlier release or run; empty if it may."""
    by_person = people_apart(used, earlier)
    if (apart is not None and 0 < apart < min_rows) or (by_person is not None and 0 < by_person < min_rows):
        return (
            f"the rows differ from those of entry {earlier.entry} of the ledger, but by fewer than {min_rows} rows: "
            "the difference of the two results would disclose these rows. Use exactly the rows of that entry (for the "
            f"same study its stored file is returned), or wait until at least {min_rows} rows have been added or "
            "removed. If patients have withdrawn, 'consilience site fit --leave-out-crowd' leaves out a crowd with them"
        )
    if other_people or by_person is not None:
        return ""
    if apart is None:
        absent = ", ".join(repr(name) for name in earlier.columns if used.table.column_names.count(name) != 1)
        return (
            f"the rows cannot be compared with those of entry {earlier.entry} of the ledger, because the table lacks "
            f"columns that were read there: {absent}. Use a table that has them; the study need not read them. {OTHERS}"
        )
    if abs(used.n - earlier.rows) < min_rows and apart == used.n + earlier.rows > 0:  # nearly as many, none in common
        return (
            f"no row of entry {earlier.entry} of the ledger is found again, although the numbers of rows nearly agree: "
            "a column may have been recoded, and the difference of the two results would then disclose single rows. "
            f"Use the table with the values that it had. {OTHERS}"
        )
    return ""


def people_apart(used: UsedRows, earlier: Earlier) -> int | None:
    """Return how many people are in one of the sets, or have other numbers of rows in the two; None if not known."""
    mine, theirs = used.people_tags, None if earlier.load_people is None else earlier.load_people()
    if mine is None or theirs is None or mine.columns != theirs.columns:
        return None
    return count_tags_apart(mine, theirs)


# ---------------------------------------------------------------- all releases together


def leverage_together(used: UsedRows, earlier: Sequence[Earlier]) -> float:
    """Compute the largest leverage of a person, or of a row, in the span of all releases and of this one.

    ``max_i u_i^T (U^T U)^{-1} u_i`` over the rows ``u_i`` of :func:`membership`.
    """
    patterns, counts = np.unique(membership(used, earlier), axis=0, return_counts=True)
    patterns = patterns.astype(float)
    inverse = np.linalg.pinv((patterns.T * counts) @ patterns, hermitian=True)
    return float(np.einsum("pr,rs,ps->p", patterns, inverse, patterns).max())


def membership(used: UsedRows, earlier: Sequence[Earlier]) -> NDArray[np.bool_]:
    """Return which people, or rows, are in which release, ``(units, 1 + releases)``; the first column is this one.

    Units are those of the whole table, also rows that this study drops, and those of earlier releases that have left
    it. Of units that have left, nobody can tell whether releases in other columns have them too: they count as others.
    """
    sets = [comparable_tags(used, each) for each in earlier]
    columns = [used.kept, *(used.whole_in(each) for each in sets)]
    inside = np.stack(columns, axis=1)
    if (people := used.whole_tags(used.people_columns)) is not None:
        _, unit = np.unique(number_tags(people)[0], return_inverse=True)
        by_person = np.zeros((int(unit.max(initial=-1)) + 1, inside.shape[1]), dtype=bool)
        np.logical_or.at(by_person, unit, inside)
        inside = by_person
    return np.concatenate([inside, *(_left(used, sets, names) for names in {each.columns for each in sets})])


def comparable_tags(used: UsedRows, earlier: Earlier) -> RowTags:
    """Return the tags of the people of an earlier release, if these are known now and then, otherwise of its rows."""
    if earlier.load_people is not None:
        people = earlier.load_people()
        if people.columns == used.people_columns:
            return people
    return earlier.load()


def _left(used: UsedRows, sets: Sequence[RowTags], names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which units that have left the table are in which releases with tags in the same columns."""
    places = [place for place, each in enumerate(sets) if each.columns == names]
    whole = used.whole_tags(names)
    there, *found = number_tags(
        np.empty((0, 2), dtype=np.uint64) if whole is None else whole, *(sets[place].tags for place in places)
    )
    gone = np.setdiff1d(np.concatenate(found), there)
    members = np.zeros((len(gone), 1 + len(sets)), dtype=bool)
    for place, each in zip(places, found, strict=True):
        members[:, 1 + place] = np.isin(gone, each)
    return members

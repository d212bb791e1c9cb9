"""A crowd that is left out together with people who withdraw, so that no difference of releases is about them alone.

A release over rows without those of one person, beside an earlier one with them, gives the person away. The site
therefore leaves out further people, at least ``min_rows``, whom its secret chooses among those that both releases would
have. The difference of the two is then about a crowd. The choice is by the tag of each person, a keyed hash:

- the same rows have the same crowd, however often they are fitted;
- who was left out by a release stays out of all later ones, of any study: otherwise the crowd could be subtracted;
- those who withdraw later therefore have a crowd of their own, among the people who are left.

The rule against differences (:mod:`consilience.kit.differencing`) decides about what is left as about any other rows.
The crowd grows until that rule allows the release.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.errors import RefusedError
from consilience.kit.differencing import Decision, Earlier, comparable_tags, decide, people_apart, rows_apart
from consilience.kit.examination import UsedRows
from consilience.kit.row_tags import RowTags
from consilience.numerics.arrays import Mask

SIZES = (1, 2, 4, 8)
"""Sizes of a crowd that are tried, in units of the least number of rows for a difference."""


def rows_in_crowds(used: UsedRows, crowds: Iterable[RowTags]) -> Mask:
    """Return which rows of a table are those of people in crowds that earlier releases left out, ``(N,)``.

    Raises
    ------
    RefusedError
        If the table lacks a column by which a crowd is known: its people would come back.
    """
    found = np.zeros(used.whole.num_rows, dtype=bool)
    for crowd in crowds:
        if used.whole_tags(crowd.columns) is None:
            absent = ", ".join(repr(name) for name in crowd.columns if used.whole.column_names.count(name) != 1)
            raise RefusedError(
                "an earlier release left out a crowd together with people who withdrew, and it stays out. The table "
                f"lacks columns by which the crowd is known: {absent}. Use a table that has them; the study need not "
                "read them"
            )
        found |= used.whole_in(crowd)
    return found


def find_crowd(study: str, used: UsedRows, earlier: Sequence[Earlier], min_rows: int) -> RowTags | None:
    """Return the tags of the people, or rows, that have to stay out with those who withdrew; None if nobody has to.

    Parameters
    ----------
    study : str
        Identity of the study, ``sha256:...``.
    used : UsedRows
        Rows that would be used, without those of people who withdrew.
    earlier : sequence of Earlier
        All earlier releases and runs.
    min_rows : int
        Smallest number of rows about which something may be said.

    Raises
    ------
    RefusedError
        If no crowd among the rows of the table is large enough.
    """
    near = [each for each in earlier if is_near(used, each, min_rows)]
    if not near or decide(study, used, earlier, min_rows).outcome != "refused":
        return None
    order, decision = _in_order(used, near), Decision("refused")
    for size in (min_rows * times for times in SIZES):
        crowd = RowTags(_unit_columns(used), np.unique(order[:size], axis=0))
        left = used.without(used.whole_in(crowd))
        if crowd.n < size or not left.n:
            break
        decision = decide(study, left, earlier, min_rows)
        if decision.outcome == "allowed":
            return crowd
    raise RefusedError(
        "no crowd of the rows that are left can be left out as well: use more rows, such as those of a longer period. "
        f"{decision.said}".strip()
    )


def is_near(used: UsedRows, earlier: Earlier, min_rows: int) -> bool:
    """Return whether rows differ from those of an earlier release, but by too few rows or people."""
    by_row, by_person = rows_apart(used, earlier, min_rows), people_apart(used, earlier)
    return any(apart is not None and 0 < apart < min_rows for apart in (by_row, by_person))


def _unit_columns(used: UsedRows) -> tuple[str, ...]:
    """Return the columns that tell people apart; those that the study reads if none does."""
    return used.people_columns or tuple(sorted(set(used.read)))


def _in_order(used: UsedRows, near: Sequence[Earlier]) -> NDArray[np.uint64]:
    """Return the tags ``(n, 2)`` of the units that these releases and this one have; their order is a keyed hash's."""
    common = used.kept.copy()
    for each in near:
        common &= used.whole_in(comparable_tags(used, each))
    units = used.whole_tags(_unit_columns(used))
    return np.empty((0, 2), dtype=np.uint64) if units is None else np.asarray(np.unique(units[common], axis=0))

"""The rows of a table that a study uses, with their tags in the columns of this study and of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from consilience.columns import Column
from consilience.errors import InvalidInputError
from consilience.site.examination import complete
from consilience.site.row_tags import RowTags, row_tags


@dataclass(frozen=True, eq=False)
class UsedRows:
    """The rows of a table that a study uses, with all columns of the table, and their tags.

    The columns that an earlier study read may not be among those of this one: its rows are compared in its columns, as
    long as the table has them.

    Parameters
    ----------
    table : pyarrow.Table
        The rows used.
    read : tuple of str
        Names of the columns that the study reads.
    secret : bytes

    Examples
    --------
    >>> from consilience.columns import Rule
    >>> table = pa.table({"age": [61, None], "days": [3, 4]})
    >>> used = UsedRows.of(table, [Column("age", rule=Rule(missing="drop"))], bytes(32))
    >>> used.tags.n, used.tags_in(["days"]).n, used.tags_in(["weight"]) is None
    (1, 1, True)
    """

    table: pa.Table
    read: tuple[str, ...]
    secret: bytes = field(repr=False)
    _known: dict[tuple[str, ...], RowTags] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, table: pa.Table, columns: Iterable[Column], secret: bytes) -> UsedRows:
        """Return the rows that the rules of the columns for missing values do not drop."""
        read = tuple(columns)
        names = tuple(column.name for column in read)
        return cls(table.filter(pa.array(complete(table, read))), names, secret)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def tags(self) -> RowTags:
        """Tags in the columns that are read."""
        found = self.tags_in(self.read)
        if found is None:
            raise InvalidInputError("the table lacks a column that the study reads: check the table first")
        return found

    def tags_in(self, columns: Iterable[str]) -> RowTags | None:
        """Return the tags in other columns; None if the table lacks one of them."""
        names = tuple(sorted(set(columns)))
        if any(self.table.column_names.count(name) != 1 for name in names):
            return None
        if names not in self._known:
            self._known[names] = row_tags(self.table, names, self.secret)
        return self._known[names]

"""What the people at a site may see of a study: its text, what was read of the table, and what is asked now.

The notes are kept in the folder of the site, for its local page. They have no row, no smallest or largest value, and no
number of rows of a group below the limit of the policy. Nothing of them leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, StringConstraints

from consilience.columns import Column
from consilience.columns.arrow import TEXT, codes_of
from consilience.data.file_columns import numbers_in
from consilience.errors import ConsilienceError, InvalidInputError
from consilience.files.documents import Finite, Part, validated
from consilience.files.json_text import parse_json, read_capped, replace_file, write_json
from consilience.kit.folder import SiteFolder
from consilience.kit.ledger import time_text
from consilience.kit.policy.policy import Policy
from consilience.kit.private_files import OWNER_ONLY
from consilience.kit.row_tags import missing_in, whole_column
from consilience.kit.study import Study
from consilience.kit.study_words import ResponseText
from consilience.numerics.arrays import Array
from consilience.report.scale import UNDO

FOLDER = "studies"
"""Folder of the notes, which is made with the first of them."""
MOST_BYTES = 2**23
MOST_STUDIES = 1000
BARS = 16
"""Number of bars of a histogram."""
LONGEST = 2000
Words = Annotated[str, StringConstraints(max_length=LONGEST)]
Count = Annotated[int, Field(ge=0)]


class LevelNote(Part):
    """A level of a category: in how many rows it is; None if it is in some, and in fewer than may be said."""

    level: Words
    rows: Count | None


class ColumnNote(Part):
    """A column as it was read.

    Parameters
    ----------
    name : str
    missing : int
        Number of rows without a value.
    said : str
        Mean, standard deviation and quartiles of a number; empty for a category.
    low, high : float, optional
        Ends of the histogram, which are not those of the values.
    bars : list of int
        Rows in each part of the range; of fewer than may be said, the fewest that may.
    levels : list of LevelNote
    """

    name: Words
    missing: Count
    said: Words = ""
    low: Finite | None = None
    high: Finite | None = None
    bars: Annotated[list[Count], Field(max_length=BARS)] = Field(default_factory=list)
    levels: Annotated[list[LevelNote], Field(max_length=1000)] = Field(default_factory=list)


class ReadingNote(Part):
    """What was read of a table for a study.

    Parameters
    ----------
    time : str
    entry : int
        Number of entries of the ledger at that time.
    study_path, table_path : str
        The files, as a person named them.
    fits : bool
        Whether the table fits the study.
    lines : list of str
        From the rows read to those used, in words.
    findings : list of str
        What does not fit, and what to do.
    fewest : int
        The fewest rows of a group that are counted here.
    columns : list of ColumnNote
    """

    time: Words
    entry: Count
    study_path: Words
    table_path: Words
    fits: bool
    lines: Annotated[list[Words], Field(max_length=2000)]
    findings: Annotated[list[Words], Field(max_length=2000)]
    fewest: Count
    columns: Annotated[list[ColumnNote], Field(max_length=1000)]


class QuestionNote(Part):
    """A question of a run in rounds, as it was shown to people: its round, in words, and the folder it came in."""

    time: Words
    entry: Count
    run: Words
    number: Count
    asked: Words
    mailbox: Words


class StudyNotes(Part):
    """The notes on one study.

    Parameters
    ----------
    study : str
        Text of the study, with its words.
    reading : ReadingNote, optional
    question : QuestionNote, optional
    """

    format: Literal["consilience study notes"] = "consilience study notes"
    version: Literal[1] = 1
    study: Annotated[str, StringConstraints(max_length=2**21)]
    reading: ReadingNote | None = None
    question: QuestionNote | None = None


# ---------------------------------------------------------------- storing


def keep_notes(
    folder: SiteFolder, study: Study, *, reading: ReadingNote | None = None, question: QuestionNote | None = None
) -> None:
    """Keep what is known of a study; what is not given stays as it was."""
    path = folder.path / FOLDER / f"{study.identity.removeprefix('sha256:')}.json"
    earlier = None
    with suppress(ConsilienceError):  # notes that cannot be read are made anew
        earlier = _read(path)
    found = StudyNotes(
        study=study.to_text(),
        reading=reading or (earlier.reading if earlier else None),
        question=question or (earlier.question if earlier else None),
    )
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_private(path, write_json(found.model_dump()).encode())


def notes_of(folder: SiteFolder) -> dict[str, StudyNotes]:
    """Return the notes on all studies by the identity of the study; those that cannot be read are left out."""
    found = {}
    for path in sorted((folder.path / FOLDER).glob("*.json"))[:MOST_STUDIES]:
        with suppress(ConsilienceError):
            notes = _read(path)
            found[Study.from_text(notes.study).identity] = notes
    return found


def _read(path: Path) -> StudyNotes:
    try:
        text = read_capped(path, MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path.name} is not text in UTF-8") from error
    return validated(StudyNotes, parse_json(text, "notes on a study"), "notes on a study")


def replace_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, in place of an earlier one: it is there as a whole or as it was."""
    try:
        replace_file(path, data, OWNER_ONLY)
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be written: {error.strerror}") from error


# ---------------------------------------------------------------- reading a table


def keep_reading(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    paths: tuple[Path, Path],
    *,
    entry: int,
    lines: Sequence[str] = (),
    findings: Sequence[str] = (),
    fits: bool = True,
) -> None:
    """Keep what was read of a table for a study.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
        As it was read through the mapping.
    paths : (Path, Path)
        Files of study and table, as a person named them.
    entry : int
        Number of entries of the ledger before.
    lines, findings : sequence of str
        The flow in words, and what does not fit.
    fits : bool
    """
    fewest = Policy.from_text(folder.policy).stricter(study.minimum).site.rows_per_level
    reading = ReadingNote(
        time=time_text(),
        entry=entry,
        study_path=str(paths[0])[:LONGEST],
        table_path=str(paths[1])[:LONGEST],
        fits=fits,
        lines=[each[:LONGEST] for each in lines],
        findings=[each[:LONGEST] for each in findings],
        fewest=fewest,
        columns=column_notes(study, table, fewest),
    )
    keep_notes(folder, study, reading=reading)


def column_notes(study: Study, table: pa.Table, fewest: int) -> list[ColumnNote]:
    """Describe the columns of a study that a table has.

    Parameters
    ----------
    study : Study
    table : pyarrow.Table
    fewest : int
        The fewest rows of a group that may be counted.
    """
    read = [study.response, *study.sources.columns]
    words = None if study.words is None else study.words.response
    units = {} if words is None or words.back == "none" else {study.response.name: words}
    there = [each for each in read if table.column_names.count(each.name) == 1]
    return [_column_note(table, each, fewest, units.get(each.name)) for each in there]


def _column_note(table: pa.Table, column: Column, fewest: int, words: ResponseText | None) -> ColumnNote:
    values = whole_column(table, column.name)
    missing = missing_in(values)
    note = ColumnNote(name=column.name, missing=int(missing.sum()))
    if column.is_category:
        return note.model_copy(update={"levels": _levels(values, column, fewest)})
    numbers = numbers_in(values, missing)
    known = numbers[np.isfinite(numbers)]
    if len(known) < max(fewest, 2):
        return note
    mean, spread = float(known.mean()), float(known.std(ddof=1))
    rule = column.rule
    low = max(mean - 4 * spread, -np.inf if rule.low is None else rule.low)
    high = min(mean + 4 * spread, np.inf if rule.high is None else rule.high)
    said = f"mean {mean:.3g}, SD {spread:.3g}"
    if len(known) >= 4 * fewest:
        quarters = np.quantile(known, [0.25, 0.5, 0.75])
        said += f"; {_quarters(quarters)}"
        if words is not None:
            said += f"; in {words.unit or 'its unit'}: {_quarters(UNDO[words.back](quarters))}"
    if not low < high:  # all values are the same, or outside of the range
        return note.model_copy(update={"said": said})
    counts, _ = np.histogram(np.clip(known, low, high), BARS, (low, high))
    bars = [int(max(n, fewest)) if n else 0 for n in counts]
    return note.model_copy(update={"said": said, "low": low, "high": high, "bars": bars})


def _quarters(quarters: Array) -> str:
    return f"middle {quarters[1]:.3g}, middle half {quarters[0]:.3g} to {quarters[2]:.3g}"


def _levels(values: pa.Array, column: Column, fewest: int) -> list[LevelNote]:
    levels: Sequence[object] = column.levels
    if not isinstance(levels[0], str) and str(values.type) in TEXT:
        values = pa.array(numbers_in(values, missing_in(values)))
    codes = codes_of(values, column.levels)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    return [
        LevelNote(level=str(level), rows=None if 0 < n < fewest else int(n))
        for level, n in zip(levels, counts, strict=True)
    ]

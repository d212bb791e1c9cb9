"""An answer that has left a site, printed for people: what was asked, every part in words, and every number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from consilience.cli.answer_fields import fields_of_answer
from consilience.cli.catalogue import CommandError, CommandFault, report_as
from consilience.cli.options import AsJson, SiteName, Where
from consilience.cli.output import Output, folder_of
from consilience.cli.preview import leaves
from consilience.files.json_text import MOST_BYTES, bytes_hash, read_capped
from consilience.kit import ledger
from consilience.kit.folder import SiteFolder
from consilience.kit.site_rounds import reply_of
from consilience.messages import Failure, decode

SHOWN = 12
"""Numbers of a row that are printed, unless all are asked for."""
ANSWERS = ("answer", "refusal")


def show_answer(
    name: SiteName,
    which: Annotated[
        str, typer.Argument(metavar="[ENTRY|FILE]", help="Entry of the ledger, or the file; the last answer if none.")
    ] = "",
    numbers: Annotated[bool, typer.Option("--numbers", help="Print every number.")] = False,
    where: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Print an answer of a round that has left: what was asked, each part in words, its numbers, size and hash."""
    folder = folder_of(name, where)
    with report_as(CommandFault.LEDGER):
        entry = _entry_of(folder, which)
        answer = decode(reply_of(folder, entry))
    parts = [] if isinstance(answer, Failure) else list(fields_of_answer(answer))
    Output(as_json).data(_document(entry, parts), "\n".join(_lines(entry, answer, parts, numbers=numbers)))


def _entry_of(folder: SiteFolder, which: str) -> ledger.Entry:
    """Return the entry of an answer, by its number or by the bytes of its file."""
    found = [entry for entry in folder.entries if entry.kind in ANSWERS and "reply" in entry.details]
    if not which:
        said = "no answer of a round has left this site"
    elif which.isdecimal():
        found = [entry for entry in found if entry.number == int(which)]
        said = f"entry {which} of the ledger is no answer of a round; 'consilience site log show' lists them"
    else:
        named = bytes_hash(read_capped(which, MOST_BYTES))
        found = [entry for entry in found if entry.details.get("file") == named]
        said = f"{which} is no answer that the ledger of this site names: it is of another site, or was changed"
    if not found:
        raise CommandError(CommandFault.LEDGER, said)
    return found[-1]


def _lines(entry: ledger.Entry, answer: Any, parts: Sequence[Any], *, numbers: bool) -> Iterator[str]:
    details = entry.details
    yield f"Entry {entry.number} of the ledger, {entry.time}: round {details['number']} of run {details['run']}"
    yield f"Study {details['study']}"
    yield f"Asked: {details.get('asks') or 'not recorded by the version that answered'}."
    yield f"Approved by {details.get('approved_by') or 'nobody who is named'}."
    if "file" in details:
        digest = str(details["file"]).removeprefix("sha256:")
        yield f"The file that left: {details['bytes']:,} bytes, SHA-256 {digest}"
    if isinstance(answer, Failure):
        yield f"It says that this site did not answer: {answer.code.name.lower().replace('_', ' ')}, and nothing else."
        return
    for place, name, said, value in parts:
        yield ""
        yield f"{place}{name}: {said}"
        found = list(_arrays(value))
        for part, values in found:
            yield from (f"  {part}{line}" for line in _rows(values, numbers=numbers))
        if not found:
            yield f"  {value}"


def _arrays(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and numbers in a part of an answer; whole numbers beside each other are one array."""
    if isinstance(value, tuple) and value and all(type(each) is int for each in value):
        yield "", np.array(value)
    else:
        yield from leaves("", value)


def _rows(values: Any, *, numbers: bool) -> Iterator[str]:
    """Yield the rows of an array, or one number."""
    flat = np.asarray(values)
    rows = flat.reshape(-1, flat.shape[-1]) if flat.ndim > 1 else flat.reshape(1, -1)
    size = f" ({' x '.join(map(str, flat.shape))})" if flat.ndim else ""
    shown = rows if numbers else rows[:SHOWN]
    form = "{:>12}" if np.issubdtype(flat.dtype, np.integer) else "{:>12.6g}"
    for i, row in enumerate(shown):
        most = len(row) if numbers else SHOWN
        more = f"  and {len(row) - most} more" if len(row) > most else ""
        yield f"{size if i == 0 else ' ' * len(size)}  {'  '.join(map(form.format, row[:most]))}{more}"
    if len(rows) > len(shown):
        yield f"  and {len(rows) - len(shown)} more rows; --numbers prints them"


def _document(entry: ledger.Entry, parts: Sequence[Any]) -> dict[str, Any]:
    """Return an answer as a JSON object."""
    kept = ("study", "run", "number", "asked", "asks", "approved_by", "account", "file", "bytes")
    values = [
        {"place": place, "name": name, "meaning": said, "values": _plain(value)} for place, name, said, value in parts
    ]
    found = {key: entry.details[key] for key in kept if key in entry.details}
    return {"entry": entry.number, "time": entry.time, **found, "parts": values}


def _plain(value: Any) -> Any:
    """Return the numbers of a part by their names, or its text."""
    found = {name: np.asarray(each).tolist() for name, each in _arrays(value)}
    return (found[""] if set(found) == {""} else found) if found else str(value)

"""What commands print and read: data to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
import tempfile
import unicodedata
import warnings
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer
from rich.console import Console

from consilience.cli.catalogue import CommandError, CommandFault, report_as
from consilience.data.tables import read_table
from consilience.errors import ConsilienceError, ConsilienceWarning
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.saving import load
from consilience.files.json_text import bytes_hash
from consilience.kit.folder import SiteFolder
from consilience.kit.private_files import slug
from consilience.kit.study import UNNAMED, Study


def printable(text: str) -> str:
    r"""Return a text as a terminal may show it: control and format characters as escapes, as JSON has them.

    Names of files and words of others may have characters that clear the screen or hide text.

    Examples
    --------
    >>> print(printable("a" + chr(27) + "[2J.json"))
    a\u001b[2J.json
    """
    return "".join(
        json.dumps(letter)[1:-1] if unicodedata.category(letter) in ("Cc", "Cf") and letter not in "\n\t" else letter
        for letter in text
    )


def is_confirmed(question: str) -> bool:
    """Whether a person answers a question with yes; it is asked on standard error."""
    answer = typer.confirm(printable(question), default=False, err=True)
    end_piped_line()
    return answer


def end_piped_line() -> None:
    """End the line of a question whose answer was not typed: a terminal shows the line break of one that was."""
    if not sys.stdin.isatty():
        sys.stderr.write("\n")


def plain_time(time: str) -> str:
    """Return a time of a ledger as a page shows it.

    Examples
    --------
    >>> plain_time("2026-01-31T12:00:00Z")
    '2026-01-31 12:00:00'
    """
    return time.replace("T", " ").removesuffix("Z")


@dataclass(frozen=True)
class Output:
    """How a command prints.

    Parameters
    ----------
    as_json : bool
        Whether data are printed as one JSON object.
    quiet : bool
        Whether nothing but data, warnings and errors is printed.
    """

    as_json: bool = False
    quiet: bool = False

    def data(self, document: Mapping[str, Any], text: str) -> None:
        """Print data to standard output: the document as JSON, or the text."""
        text = json.dumps(document, ensure_ascii=False, indent=2) if self.as_json else text
        sys.stdout.write(f"{printable(text)}\n")

    def say(self, text: str, style: str = "") -> None:
        """Print a remark to standard error."""
        if not self.quiet:
            console().print(printable(text), style=style, highlight=False, markup=False)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that a long step is under way; library warnings become remarks after it."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConsilienceWarning)
            if self.quiet or not sys.stderr.isatty():
                self.say(f"{text} ...")
                yield
            else:
                with console().status(text):
                    yield
        for each in caught:  # also if quiet: a result that may be wrong is never silent
            console().print(printable(f"warning: {each.message}"), style="yellow", highlight=False, markup=False)


def console() -> Console:
    """Return the console of standard error; it has no colours if NO_COLOR is set or it is not a terminal."""
    return Console(stderr=True, soft_wrap=True)


PAGE = "page.html"
"""Name of a page for the people of a site, or for the coordinator, in their own folder."""


@contextmanager
def page_stops_nothing() -> Iterator[None]:
    """Say what is wrong with a page that cannot be written: the result of the command stands."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is
        said = str(error) if isinstance(error, ConsilienceError) else type(error).__name__
        Output().say(f"{PAGE} was not written: {said}", style="yellow")


def open_in_browser(page: Path, *, as_json: bool) -> None:
    """Print the path of a page, and open it if a person looks."""
    path = page.resolve()
    Output(as_json).data({"page": str(path)}, str(path))
    if sys.stdout.isatty() and not as_json:
        webbrowser.open(path.as_uri())


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise an error if a file exists and may not be replaced, or if its folder cannot be written."""
    if path.exists() and not overwrite:
        raise CommandError(CommandFault.OUTPUT, f"{path} exists")
    try:  # before work is done, or an approval is recorded
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise CommandError(CommandFault.OUTPUT, f"nothing can be written to {path.parent}: {error.strerror}") from error


def write(path: Path, text: str, *, overwrite: bool) -> None:
    """Write a text, unless the file exists and may not be replaced."""
    write_bytes(path, (text if text.endswith("\n") else f"{text}\n").encode(), overwrite=overwrite)


def write_bytes(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a file, unless it exists and may not be replaced."""
    check_free(path, overwrite=overwrite)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CommandError(CommandFault.OUTPUT, f"{path} cannot be written: {error.strerror}") from error


def study_of(path: Path, *, draft: bool = False) -> Study:
    """Read a study file; raise an error if its start is still to be named, unless it may be a draft."""
    with report_as(CommandFault.STUDY):
        found = Study.read(path)
    if found.lacks_start and not draft:
        raise CommandError(
            CommandFault.STUDY,
            f"{path}: privacy.start is still to be named. 'consilience study start {path} model.json' writes the hash "
            "of a public model, such as the fit of a site that may release it; 'consilience init --trust limits' "
            "drafts a study that needs none",
        )
    return found


def table_of(path: Path) -> pa.Table:
    """Read a table."""
    with report_as(CommandFault.TABLE):
        return read_table(path)


def folder_of(name: str, where: Path) -> SiteFolder:
    """Open the folder of a site; the error says how to make one."""
    with report_as(CommandFault.FOLDER):
        return SiteFolder.open(where / slug(name))


def model_of(path: Path) -> MixtureEstimator:
    """Read a model file."""
    with report_as(CommandFault.MODEL):
        return load(path)


def check_start_file(study: Study, start: Path | None) -> None:
    """Raise an error if the study names the file from which it starts, and another one is given."""
    named = None if study.privacy is None else study.privacy.start
    if named not in (None, "private", UNNAMED) and start is not None and bytes_hash(start.read_bytes()) != named:
        raise CommandError(CommandFault.RUN, f"{start} is not the model file that the study names as its start")

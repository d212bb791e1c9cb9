"""The errors of the command line: a code, an exit status and a next step for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from consilience.errors import ConsilienceError, RefusedError


@dataclass(frozen=True)
class Kind:
    """A kind of error.

    Parameters
    ----------
    code : str
        Number by which people find it in the documentation; it never changes its meaning.
    status : int
        Exit status: 1 unexpected, 2 usage, 3 the input does not fit, 4 refused by a rule, 5 not to be trusted.
    title, remedy : str
        What it means, and what to do.
    """

    code: str
    status: int
    title: str
    remedy: str


class CommandFault(Enum):
    """All kinds of errors, as the documentation lists them."""

    UNEXPECTED = Kind(
        "CSL-001", 1, "An error that was not foreseen", "Please report it, with the command and without any data."
    )
    STUDY = Kind(
        "CSL-100",
        3,
        "The study file is not valid",
        "Correct the entries that are named; 'consilience init --from table.csv' drafts a study.",
    )
    TABLE = Kind(
        "CSL-110",
        3,
        "The table cannot be read",
        "Export it again as Parquet, or as CSV in UTF-8 with one line of column names.",
    )
    MISFIT = Kind(
        "CSL-111",
        3,
        "The table does not fit the study",
        "Correct what 'consilience site check' names, or ask the coordinator to change the study.",
    )
    FOLDER = Kind(
        "CSL-112",
        3,
        "The folder of the site cannot be used",
        "Make it with 'consilience site init NAME', pass --in if it is elsewhere, or restore it from a backup.",
    )
    POLICY = Kind(
        "CSL-113",
        3,
        "The fit cannot be made",
        "Correct what is named; 'consilience doctor --site NAME' checks folder, policy and ledger.",
    )
    RELEASE = Kind(
        "CSL-114",
        3,
        "There is nothing to release",
        "Run 'consilience site fit' first, then 'consilience site preview'.",
    )
    REFUSED = Kind(
        "CSL-115",
        4,
        "The rules of the site do not allow this",
        "Do what the message says; the limits are in policy.toml.",
    )
    DECLINED = Kind("CSL-116", 4, "The release was not approved", "Fit again, or change the study or the policy.")
    MAPPING = Kind(
        "CSL-118",
        3,
        "The mapping of the export cannot be used",
        "Correct what is named in mapping.toml; 'consilience site map SITE STUDY TABLE' drafts one.",
    )
    LEDGER = Kind(
        "CSL-117",
        5,
        "The ledger of the site is not whole",
        "Restore it from a backup; 'consilience site log repair' drops a last line that a crash left unfinished.",
    )
    SITE_FILE = Kind(
        "CSL-120", 5, "A site file is damaged or was changed", "Ask the site to send its file again; do not edit it."
    )
    SIGNATURE = Kind(
        "CSL-122",
        5,
        "A file is not signed as the roster says",
        "Ask the site for its signed file, and compare the public key on another way, such as by telephone.",
    )
    ROSTER = Kind(
        "CSL-123",
        3,
        "The roster is not valid",
        "Correct the entries that are named; 'consilience site key' prints a key.",
    )
    COMBINATION = Kind(
        "CSL-121",
        3,
        "The files of the sites cannot be combined",
        "Pass one file of each site, all for this version of the study.",
    )
    QUESTION = Kind(
        "CSL-124",
        3,
        "The question cannot be answered",
        "Do what the message says; 'consilience status DIR' shows the run.",
    )
    RUN = Kind(
        "CSL-125",
        3,
        "The run cannot go on",
        "Do what the message says; what was answered is kept, and the same command goes on.",
    )
    SITES = Kind(
        "CSL-126",
        5,
        "Sites have not answered, or their answers cannot be used",
        "Ask the sites that are named; give them more time with --until, or go on without them: --on-drop continue.",
    )
    MODEL = Kind(
        "CSL-130", 3, "The model file is not valid", "Pass a file that 'consilience combine' or 'model.save' wrote."
    )
    PREDICTION = Kind(
        "CSL-131",
        3,
        "The table cannot be scored with this model",
        "The table needs the columns of the model; 'consilience show model.json' lists them.",
    )
    EXTRA = Kind("CSL-132", 3, "A package is missing", "Run the command that the message names.")
    INSTALLATION = Kind(
        "CSL-133", 3, "The installation has problems", "Mend the lines that are marked, then run 'consilience doctor'."
    )
    FILE = Kind("CSL-141", 3, "A file or folder cannot be used", "Check that it exists, and who may read and write it.")
    OUTPUT = Kind(
        "CSL-140", 3, "The output cannot be written", "Choose another path, or pass --overwrite to replace the file."
    )


class CommandError(Exception):
    """An error of a command: what happened, in one sentence, and its kind."""

    def __init__(self, problem: CommandFault, said: str) -> None:
        super().__init__(said)
        self.problem, self.said = problem, said


@contextmanager
def report_missing_extra() -> Iterator[None]:
    """Report an optional package that is not installed; the message of its error says how to install it."""
    try:
        yield
    except ImportError as error:
        raise CommandError(CommandFault.EXTRA, str(error)) from error


@contextmanager
def report_as(problem: CommandFault, refused: CommandFault | None = None) -> Iterator[None]:
    """Report errors of the library within the block as a problem of this kind.

    Parameters
    ----------
    problem : CommandFault
    refused : CommandFault, optional
        Kind of an error that says that the rules of a site do not allow something.
    """
    try:
        yield
    except RefusedError as error:
        raise CommandError(refused or problem, str(error)) from error
    except ConsilienceError as error:
        raise CommandError(problem, str(error)) from error

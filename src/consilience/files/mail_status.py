"""What is in the folder of a run: rounds, who has answered, bytes, and what is awaited. It can be read by anyone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from consilience.files.letters import AnswerLetter, QuestionLetter
from consilience.files.mail_folder import END, MailFolder
from consilience.files.run_file import RunFile


@dataclass(frozen=True)
class RoundStatus:
    """One round.

    Parameters
    ----------
    number : int
    asks : str
        What an answer discloses, in words.
    answered, awaited : tuple of str
        Names of sites.
    due : str
        Until when answers are taken; empty if there is no limit.
    bytes_sent, bytes_received : int
        Size of the files of questions and of answers; a file counts once for each site that reads it.
    """

    number: int
    asks: str
    answered: tuple[str, ...]
    awaited: tuple[str, ...]
    due: str
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True)
class RunStatus:
    """A run in a folder.

    Parameters
    ----------
    run : RunFile
    rounds : tuple of RoundStatus
    unused : mapping of str to str
        Names of files that are not letters of this run, with the reason.
    finished : bool
        Whether the coordinator has marked the end.
    """

    run: RunFile
    rounds: tuple[RoundStatus, ...]
    unused: dict[str, str]
    finished: bool

    @property
    def awaited(self) -> tuple[str, ...]:
        """Sites whose answer to the latest question is not there."""
        return () if self.finished or not self.rounds else self.rounds[-1].awaited


def status_of(folder: Path) -> RunStatus:
    """Read the folder of a run.

    Examples
    --------
    >>> import tempfile
    >>> from consilience.files.mail_folder import question_name, write_whole
    >>> folder = Path(tempfile.mkdtemp())
    >>> run = RunFile("sha256:" + 64 * "0", ("north", "south"), {}, "sha256:" + 64 * "1")
    >>> write_whole(folder / "run.json", run.to_text())
    >>> letter = QuestionLetter(run.identity, run.study, 1, run.sites, "sums", b"?")
    >>> write_whole(folder / question_name(1), letter.to_text())
    >>> status_of(folder).awaited
    ('north', 'south')
    """
    run, mail = RunFile.read(folder), MailFolder(folder)
    letters = list(mail.letters())
    unused = dict(mail.unreadable) | {path.name: "it is of another run" for path, x in letters if x.run != run.identity}
    mine = [(path, letter) for path, letter in letters if letter.run == run.identity]
    numbers = sorted({letter.number for _, letter in mine if isinstance(letter, QuestionLetter)})
    rounds = tuple(_round(number, [each for each in mine if each[1].number == number]) for number in numbers)
    return RunStatus(run, rounds, unused, _is_over(folder, run))


def _round(number: int, letters: Sequence[tuple[Path, object]]) -> RoundStatus:
    questions: dict[str, tuple[Path, QuestionLetter]] = {}
    asked: set[str] = set()
    for path, letter in letters:
        if isinstance(letter, QuestionLetter):
            questions[letter.hash] = path, letter
            asked |= set(letter.sites)
    answers = {x.site: path for path, x in letters if isinstance(x, AnswerLetter) and x.asked in questions}
    return RoundStatus(
        number,
        "; ".join(dict.fromkeys(question.asks for _, question in questions.values())),
        tuple(sorted(asked & set(answers))),
        tuple(sorted(asked - set(answers))),
        min((str(question.envelope.get("due", "")) for _, question in questions.values()), default=""),
        sum(path.stat().st_size * len(question.sites) for path, question in questions.values()),
        sum(path.stat().st_size for site, path in answers.items() if site in asked),
    )


def end_text(run: RunFile, rounds: int) -> str:
    """Return the text of the mark of the end of a run."""
    return json.dumps({"format": "consilience end", "version": 1, "run": run.identity, "rounds": rounds}) + "\n"


def _is_over(folder: Path, run: RunFile) -> bool:
    path = folder / END
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")).get("run") == run.identity)
    except (OSError, ValueError, AttributeError):
        return False

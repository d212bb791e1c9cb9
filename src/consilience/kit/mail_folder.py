"""The folder of a run by files: which questions and answers are in it, told apart by content and not by name.

People and sync services copy, rename and delete files, and show them half written. A file that is not a whole question
or answer is named with the reason and never used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from consilience.errors import EngineError, InvalidInputError
from consilience.files.json_text import MOST_BYTES, bytes_hash, parse_json, read_capped, read_text, replace_file
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import RUN, AnswerLetter, FormerQuestion, Letter, QuestionLetter, RunFile
from consilience.kit.private_files import slug
from consilience.kit.roster import MOST_SITES
from consilience.kit.sealed_answers import AnyAnswer, SealedAnswer, opened_or_why
from consilience.kit.versions import kits_of

MOST_FILES = 100 * MOST_SITES
STUDY, END = "study.toml", "finished.json"
"""Files of a run besides questions and answers: the study, and the mark of its end."""
_READ: tuple[type[Letter | SealedAnswer], ...] = (QuestionLetter, AnswerLetter, SealedAnswer)
KINDS = {each.kind: each for each in _READ}


def question_name(number: int, site: str = "") -> str:
    """Return the name of the file of a question."""
    return f"round-{number:02d}.question{'.' + slug(site) if site else ''}.json"


def answer_name(number: int, site: str) -> str:
    """Return the name of the file of an answer."""
    return f"round-{number:02d}.answer.{slug(site)}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file of a run, whole whenever it is seen."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise EngineError(f"{path} cannot be written: {error.strerror}") from error


@dataclass
class MailFolder:
    """The letters of a folder.

    Parameters
    ----------
    path : Path
    """

    path: Path
    unreadable: dict[str, str] = field(default_factory=dict)
    """Names of files that are not whole letters, with the reason."""
    _known: dict[str, tuple[tuple[int, int], Letter | SealedAnswer]] = field(default_factory=dict, repr=False)

    def letters(self) -> Iterator[tuple[Path, Letter | SealedAnswer]]:
        """Yield all letters with their paths, by name; files that were read before and have not changed are kept."""
        self.unreadable.clear()
        paths = sorted(self.path.glob("*.json"))
        if len(paths) > MOST_FILES:
            raise EngineError(f"{self.path.name} has more than {MOST_FILES:,} files: use a folder for this run alone")
        for path in paths:
            if path.name in (RUN, END):
                continue
            try:
                state = path.stat()
                mark = (state.st_size, state.st_mtime_ns)
                known = self._known.get(path.name)
                letter = known[1] if known is not None and known[0] == mark else letter_of(path)
            except (InvalidInputError, OSError) as error:
                self.unreadable[path.name] = str(error) if isinstance(error, InvalidInputError) else "it cannot be read"
                continue
            self._known[path.name] = mark, letter
            yield path, letter

    def questions(self) -> list[tuple[Path, QuestionLetter]]:
        """Return the questions in the folder."""
        return [(path, letter) for path, letter in self.letters() if isinstance(letter, QuestionLetter)]

    def answers(self) -> list[tuple[Path, AnyAnswer]]:
        """Return the answers in the folder."""
        return [(path, letter) for path, letter in self.letters() if isinstance(letter, AnswerLetter | SealedAnswer)]


def letter_of(path: Path) -> Letter | SealedAnswer:
    """Return the question or answer in a file; raise an error if it is damaged, or something else."""
    text = read_text(path, "a question or an answer", follow=False)
    document = parse_json(text, "a question or an answer")
    kind = KINDS.get(str(document.get("format"))) if isinstance(document, dict) else None
    if kind is None:
        raise InvalidInputError("the file is neither a question nor an answer")
    return kind.from_text(text)


# ---------------------------------------------------------------- mail status


@dataclass(frozen=True)
class SentAnswer:
    """An answer in the folder of a run, as a file.

    Parameters
    ----------
    site, name : str
    bytes : int
        Size on disk.
    sha256 : str
        Hash of its bytes, as sha256sum prints it.
    """

    site: str
    name: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, site: str, path: Path) -> SentAnswer:
        """Return what is said of a file."""
        data = read_capped(path, MOST_BYTES, follow=False)
        return cls(site, path.name, len(data), bytes_hash(data).removeprefix("sha256:"))


@dataclass(frozen=True)
class RoundStatus:
    """One round.

    Parameters
    ----------
    number : int
    asks : str
        What an answer discloses, in words.
    answered, awaited : tuple of str
        Names of sites; of those that are awaited only where the coordinator's own folder has the list.
    asked : int
        Number of sites that were asked.
    due : str
        Until when answers are taken; empty if there is no limit.
    files : tuple of SentAnswer
        The answers, as files.
    bytes_sent, bytes_received : int
        Size of the files of questions and of answers; a file counts once for each site that reads it.
    """

    number: int
    asks: str
    answered: tuple[str, ...]
    awaited: tuple[str, ...]
    asked: int
    due: str
    files: tuple[SentAnswer, ...]
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
    kits : mapping of str to str
        Version of the kit of each site that has answered, as :func:`~consilience.kit.versions.kits_of` returns them.
    finished : bool
        Whether the coordinator has marked the end.
    """

    run: RunFile
    rounds: tuple[RoundStatus, ...]
    unused: dict[str, str]
    finished: bool
    kits: dict[str, str] = field(default_factory=dict)

    @property
    def awaited(self) -> tuple[str, ...]:
        """Sites whose answer to the latest question is not there, where their names are known."""
        return () if self.finished or not self.rounds else self.rounds[-1].awaited

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Bytes of the answers of each site, round by round."""
        found: dict[str, list[int]] = {}
        for file in (file for each in self.rounds for file in each.files):
            found.setdefault(file.site, []).append(file.bytes)
        return found

    @property
    def missing(self) -> int:
        """Number of sites whose answer to the latest question is not there."""
        return 0 if self.finished or not self.rounds else self.rounds[-1].asked - len(self.rounds[-1].answered)


def status_of(folder: Path, run: RunFile | None = None, identity: SiteIdentity | None = None) -> RunStatus:
    """Read the folder of a run; the coordinator can pass the run with the names of its sites, and the key."""
    run, mail = RunFile.read(folder) if run is None else run, MailFolder(folder)
    letters = list(mail.letters())
    unused = dict(mail.unreadable) | {path.name: "it is of another run" for path, x in letters if x.run != run.identity}
    mine = [(path, letter) for path, letter in letters if letter.run == run.identity]
    numbers = sorted({letter.number for _, letter in mine if isinstance(letter, QuestionLetter)})
    rounds = tuple(_round(run, number, [each for each in mine if each[1].number == number]) for number in numbers)
    asked = {letter.hash for _, letter in mine if isinstance(letter, QuestionLetter)}
    answers = [each for _, letter in mine if (each := _answer_to(letter, asked, identity)) is not None]
    kits = kits_of(answer for answer in answers if not run.sites or answer.site in run.sites)
    return RunStatus(run, rounds, unused, is_over(folder, run), kits)


def _answer_to(letter: object, asked: Collection[str], identity: SiteIdentity | None) -> AnswerLetter | None:
    """Return the answer in a file if it is one to these questions, and if it can be opened."""
    if isinstance(letter, SealedAnswer) and letter.asked in asked:
        letter = opened_or_why(letter, identity)
    return letter if isinstance(letter, AnswerLetter) and letter.asked in asked else None


def _round(run: RunFile, number: int, letters: Sequence[tuple[Path, object]]) -> RoundStatus:
    questions = {letter.hash: (path, letter) for path, letter in letters if isinstance(letter, QuestionLetter)}
    sent = [(path, each) for path, each in letters if isinstance(each, AnswerLetter | SealedAnswer)]
    answers = {each.site: path for path, each in sent if each.asked in questions}
    readers = {hashed: _readers(run, letter) for hashed, (_, letter) in questions.items()}
    asked = {site for names, _ in readers.values() for site in names}
    answered = asked & set(answers) if run.sites else set(answers)
    files = tuple(SentAnswer.of(site, answers[site]) for site in sorted(answered))
    return RoundStatus(
        number,
        "; ".join(dict.fromkeys(question.disclosed for _, question in questions.values())),
        tuple(sorted(answered)),
        tuple(sorted(asked - answered)),
        sum(count for _, count in readers.values()),
        min((str(question.envelope.get("due", "")) for _, question in questions.values()), default=""),
        files,
        sum(path.stat().st_size * readers[hashed][1] for hashed, (path, _) in questions.items()),
        sum(each.bytes for each in files),
    )


def _readers(run: RunFile, letter: QuestionLetter) -> tuple[tuple[str, ...], int]:
    """Return the names of the sites that a question is for, where they are known, and their number."""
    if isinstance(letter, FormerQuestion):
        return letter.sites, len(letter.sites)
    return ((letter.to,), 1) if letter.to else (run.sites, run.number)


def end_text(run: RunFile, rounds: int) -> str:
    """Return the text of the mark of the end of a run."""
    return json.dumps({"format": "consilience end", "version": 1, "run": run.identity, "rounds": rounds}) + "\n"


def is_over(folder: Path, run: RunFile) -> bool:
    """Whether the coordinator has marked the end of a run in its folder."""
    path = folder / END
    try:
        return bool(json.loads(read_text(path, "the mark of the end", follow=False)).get("run") == run.identity)
    except (InvalidInputError, ValueError, AttributeError):
        return False

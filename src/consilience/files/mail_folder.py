"""The folder of a run by files: which questions and answers are in it, told apart by content and not by name.

People and sync services copy, rename and delete files, and show them half written. A file that is not a whole question
or answer is named with the reason and never used.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from consilience.errors import EngineError, InvalidInputError
from consilience.files.file_names import slug
from consilience.files.json_text import parsed, read_text
from consilience.files.letters import AnswerLetter, Letter, QuestionLetter
from consilience.files.run_file import RUN

MOST_FILES = 100_000
STUDY, END = "study.toml", "finished.json"
"""Files of a run besides questions and answers: the study, and the mark of its end."""
KINDS: dict[str, type[Letter]] = {kind.kind: kind for kind in (QuestionLetter, AnswerLetter)}


def question_name(number: int, site: str = "") -> str:
    """Return the name of the file of a question.

    Examples
    --------
    >>> question_name(2), question_name(2, "Hospital North")
    ('round-02.question.json', 'round-02.question.hospital-north.json')
    """
    return f"round-{number:02d}.question{'.' + slug(site) if site else ''}.json"


def answer_name(number: int, site: str) -> str:
    """Return the name of the file of an answer.

    Examples
    --------
    >>> answer_name(2, "north")
    'round-02.answer.north.json'
    """
    return f"round-{number:02d}.answer.{slug(site)}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name and rename it, so that it is whole whenever it is seen."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise EngineError(f"{path} cannot be written: {error.strerror}") from error


@dataclass
class MailFolder:
    """The letters of a folder.

    Parameters
    ----------
    path : Path

    Examples
    --------
    >>> import tempfile
    >>> folder = MailFolder(Path(tempfile.mkdtemp()))
    >>> letter = AnswerLetter("sha256:" + 64 * "0", "sha256:" + 64 * "1", 2, "north", "sha256:" + 64 * "2", b"!")
    >>> write_whole(folder.path / "a copy of it.json", letter.to_text())
    >>> [(path.name, found.site) for path, found in folder.answers()]
    [('a copy of it.json', 'north')]
    """

    path: Path
    unreadable: dict[str, str] = field(default_factory=dict)
    """Names of files that are not whole letters, with the reason."""
    _known: dict[str, tuple[tuple[int, int], Letter]] = field(default_factory=dict, repr=False)

    def letters(self) -> Iterator[tuple[Path, Letter]]:
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

    def answers(self) -> list[tuple[Path, AnswerLetter]]:
        """Return the answers in the folder."""
        return [(path, letter) for path, letter in self.letters() if isinstance(letter, AnswerLetter)]


def letter_of(path: Path) -> Letter:
    """Return the question or answer in a file; raise an error if it is damaged, or something else."""
    text = read_text(path, "a question or an answer")
    document = parsed(text, "a question or an answer")
    kind = KINDS.get(str(document.get("format"))) if isinstance(document, dict) else None
    if kind is None:
        raise InvalidInputError("the file is neither a question nor an answer")
    return kind.from_text(text)

"""A site's side of a store: letters of ``to/SITE/`` into a folder of its own, and answers to ``from/SITE/``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from consilience.couriers.letter_stores import LetterStore
from consilience.couriers.post import FIRST, LAST, QUESTION
from consilience.files.json_text import replace_file


@dataclass
class Inbox:
    """The letters of one site in a store.

    Parameters
    ----------
    store : LetterStore
    site : str
        Name of the site as it stands in names of files.
    copies : Path
        Folder of the site with the letters as they were fetched.
    """

    store: LetterStore
    site: str
    copies: Path
    marks: dict[str, str] = field(default_factory=dict, init=False)
    """Names of the files that were fetched, each with its mark in the store."""

    def fetch(self) -> None:
        """Copy the letters that are new or changed, as they are: half of one is noticed when it is read.

        Raises
        ------
        StoreError
            If the store cannot be used now.
        """
        source = f"to/{self.site}"
        self.copies.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, mark in sorted(self.store.names(source).items()):
            is_letter = name in (*FIRST, *LAST) or QUESTION.fullmatch(name) is not None
            if is_letter and (self.marks.get(name) != mark or not (self.copies / name).exists()):
                replace_file(self.copies / name, self.store.read(source, name))
                self.marks[name] = mark

    def deliver(self, name: str, answer: str) -> None:
        """Write an answer into the store, over one of the same name."""
        self.store.write(f"from/{self.site}", name, answer.encode())

"""A coordinator and sites that see nothing but a store of letters: each site has a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from consilience.couriers.letter_stores import LetterStore
from consilience.couriers.post import Post
from consilience.kit.mail_folder import MailFolder, answer_name
from consilience.kit.mail_run import draft_answer, finish_answer, is_answered, open_question, read_mail
from consilience.kit.private_files import slug
from consilience.kit.study import Study
from mail_office import Office


class LiveOffice(Office):
    """The people of a live run, in one process.

    Parameters
    ----------
    path, study
        As in :class:`Office`.
    reach : callable
        The store as a site reaches it, by the name of the site; as the coordinator does, for an empty name.
    """

    def __init__(self, path: Path, study: Study, reach: Callable[[str], LetterStore], **more: Any) -> None:
        super().__init__(path, study, **more)
        self.reach = reach
        self.stores = {name: reach(name) for name in self.names}
        self.post = Post(self.mail, reach(""), [slug(name) for name in self.names])

    def fetch(self, name: str) -> Path:
        """Copy the letters to a site; the folder with them."""
        place = self.path / "at" / slug(name)
        place.mkdir(parents=True, exist_ok=True)
        folder = f"to/{slug(name)}"
        for each in self.stores[name].names(folder):
            (place / each).write_bytes(self.stores[name].read(folder, each))
        return place

    def serve(self, name: str) -> bool:
        """Answer the question that is open at a site; whether there was one."""
        place = self.fetch(name)
        run, study = read_mail(place)
        mail = MailFolder(place)
        letter = open_question(mail, run, name)
        if letter is None or is_answered(self.folders[name], mail, letter):
            return False
        draft = draft_answer(self.folders[name], study, self.tables[name], run, letter)
        text, goal = finish_answer(self.folders[name], draft), answer_name(letter.number, name)
        self.stores[name].write(f"from/{slug(name)}", goal, text.encode())
        (place / goal).write_text(text)
        return True

    def to_the_end(self) -> Any:
        """Move letters until the run ends; the result."""
        for _ in range(400):
            done = self.advance()
            self.post.step()
            if done is not None:
                return done
            for name in self.names:
                self.serve(name)
            self.post.step()
        raise AssertionError("the run does not end")

    def rounds_in_ledger(self, name: str) -> list[int]:
        """Rounds of the answers that a site's ledger has."""
        return [each.details["number"] for each in self.folders[name].entries if "reply" in each.details]

"""A live run whose sites answer by their own programs, each within a mandate that people have signed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from consilience.couriers.letter_stores import LetterStore
from consilience.kit.mandate import draft_mandate, keep_draft, sign_mandate
from consilience.kit.serving import Serving, State
from consilience.kit.study import Study
from live_office import LiveOffice


class ServingOffice(LiveOffice):
    """The people and programs of a live run, in one process.

    Parameters
    ----------
    path, study, reach
        As in :class:`LiveOffice`.
    """

    def __init__(self, path: Path, study: Study, reach: Callable[[str], LetterStore], **more: Any) -> None:
        super().__init__(path, study, reach, **more)
        assert self.identity is not None
        self.programs: dict[str, Serving] = {}
        for name, folder in self.folders.items():
            pq.write_table(self.tables[name], path / f"{name}.parquet")
            keep_draft(folder, mandate := draft_mandate(study, self.identity.public_key, mode="mandate"))
            sign_mandate(folder, mandate, "a data steward")
            self.programs[name] = Serving(folder, self.stores[name], path / f"{name}.parquet")
            self.programs[name].place.mkdir()

    def step(self, name: str) -> State:
        """Let the program of a site do what it can."""
        return self.programs[name].step()

    def round(self, after: Callable[[], None] = lambda: None) -> Any:
        """Ask, let each site answer, and take the answers; the result when the run is over."""
        done = self.advance()
        self.post.step()
        for name in self.names:
            self.step(name)
        after()
        self.post.step()
        return done

    def to_the_end(self, after: Callable[[], None] = lambda: None) -> Any:
        """Go on until the run ends; ``after`` is called each time when sites have answered. The result."""
        for _ in range(100):
            if (done := self.round(after)) is not None:
                return done
        raise AssertionError("the run does not end")

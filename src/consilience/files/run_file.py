"""The file of a run by files: what all its questions and answers have in common, ``run.json`` in their folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.canonical import content_hash
from consilience.files.json_text import parsed, read_text, written
from consilience.files.letters import as_bytes, as_hash, as_name, as_text
from consilience.files.roster import Roster
from consilience.messages.site_names import site_names

RUN = "run.json"
FORMAT, VERSION = "consilience run", 1
MOST_SITES = 100_000


@dataclass(frozen=True)
class RunFile:
    """What the files of a run have in common.

    Parameters
    ----------
    study : str
        Identity of the study, ``sha256:...``.
    sites : tuple of str
        Names of all sites, in the order of summation.
    keys : mapping of str to str
        Public keys of sites that sign.
    coordinator : str
        Hash of the secret of the coordinator who began the run, so that another one is noticed.
    start : bytes
        Public start of the run, as an encoded question for its likelihood; empty if there is none.

    Examples
    --------
    >>> run = RunFile("sha256:" + 64 * "0", ("north", "south"), {}, "sha256:" + 64 * "1")
    >>> RunFile.from_text(run.to_text()) == run
    True
    """

    study: str
    sites: tuple[str, ...]
    keys: Mapping[str, str]
    coordinator: str
    start: bytes = b""

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        return {
            "study": self.study,
            "sites": list(self.sites),
            "keys": dict(self.keys),
            "coordinator": self.coordinator,
            "start": as_text(self.start),
        }

    @property
    def identity(self) -> str:
        """Identity of the run, ``sha256:...``."""
        return content_hash(self.content)

    @property
    def roster(self) -> Roster | None:
        """Roster of the sites; None if no site signs."""
        if not self.keys:
            return None
        sites = [{"name": site, **({"key": self.keys[site]} if site in self.keys else {})} for site in self.sites]
        return Roster.from_tables({"format": Roster.kind, "version": 1, "sites": sites})

    def to_text(self) -> str:
        """Return the text of the file."""
        return written({"format": FORMAT, "version": VERSION, "hash": self.identity, "content": self.content})

    @classmethod
    def from_text(cls, text: str) -> RunFile:
        """Read a run; raise an error if the file was changed, or is something else."""
        document = parsed(text, "the file of a run")
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInputError(f"{RUN} is not the file of a run")
        if document.get("version") != VERSION:
            raise InvalidInputError(f"{RUN} has another version than {VERSION}: upgrade consilience")
        content = document.get("content")
        if not isinstance(content, dict) or content_hash(content) != document.get("hash"):
            raise InvalidInputError(f"{RUN} was changed or damaged: restore it")
        try:
            return cls._of(content)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{RUN} is not valid: {type(error).__name__}") from error

    @classmethod
    def _of(cls, content: Mapping[str, Any]) -> RunFile:
        if set(content) != {"study", "sites", "keys", "coordinator", "start"} or len(content["sites"]) > MOST_SITES:
            raise ValueError
        sites = tuple(as_name(site) for site in content["sites"])
        keys = {as_name(site): as_name(key) for site, key in content["keys"].items()}
        if not sites or site_names(sites) != sites or not set(keys) <= set(sites):
            raise ValueError
        start = as_bytes(content["start"])
        return cls(as_hash(content["study"]), sites, keys, as_hash(content["coordinator"]), start)

    @classmethod
    def read(cls, folder: Path) -> RunFile:
        """Read the run of a folder; raise an error if there is none, or if its file was changed."""
        return cls.from_text(read_text(folder / RUN, f"a folder with {RUN}"))

"""Questions and answers of a run as files: content with a hash, and an envelope around it, as other files have.

A question says in words what it asks for; the numbers of questions and answers are the messages of any engine, in
base64. An answer names the content hash of its question, so that it answers that question and no other.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from consilience.errors import InvalidInputError
from consilience.files.json_text import content_hash, parse_json, read_text, write_json
from consilience.kit.roster import HASH, MOST_SITES, Roster
from consilience.messages.site_names import site_names
from consilience.messages.table import decode_question

VERSION = 1
"""Version of the format that is written; all versions up to it are read."""
MOST_ROUNDS = 100_000
_HEAD = {"format", "version", "hash", "content", "envelope"}


@dataclass(frozen=True, eq=False)
class SealedText:
    """A file that people read: content with a hash, and an envelope around it.

    Parameters
    ----------
    envelope : mapping
        Times, place in a ledger and signature; not part of the content.
    """

    kind: ClassVar[str]
    envelope: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        raise NotImplementedError

    @cached_property
    def hash(self) -> str:
        """Hash of the content's canonical bytes, ``sha256:...``."""
        return content_hash(self.content)

    def to_text(self) -> str:
        """Return the file as JSON text."""
        head = {"format": self.kind, "version": VERSION, "hash": self.hash}
        return write_json({**head, "content": self.content, "envelope": dict(self.envelope)})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a file from JSON text; raise an error if it is damaged, was changed, or is of another kind."""
        document = parse_json(text, f"a {cls.kind}")
        if not isinstance(document, dict) or document.get("format") != cls.kind:
            raise InvalidInputError(f'not a {cls.kind}: expected an object with "format": "{cls.kind}"')
        if type(document.get("version")) is int and document["version"] > VERSION:
            raise InvalidInputError(f"the {cls.kind} has format {document['version']}: upgrade consilience")
        if set(document) != _HEAD or document["version"] != VERSION or not isinstance(document["content"], dict):
            raise InvalidInputError(f"not a valid {cls.kind}: its fields are not those of version {VERSION}")
        if content_hash(document["content"]) != document["hash"]:
            raise InvalidInputError("the content does not have the hash that the file states: it was changed")
        try:
            return cls._of(document["content"], document["envelope"])
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise InvalidInputError(f"not a valid {cls.kind}: {type(error).__name__}") from error

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> Self:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Letter(SealedText):
    """What questions and answers have in common.

    Parameters
    ----------
    run : str
        Identity of the run, ``sha256:...``.
    study : str
        Identity of the study, ``sha256:...``.
    number : int
        Number of the round, from 1.
    """

    run: str
    study: str
    number: int

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        return {"run": self.run, "study": self.study, "round": self.number, **self._rest}

    @property
    def _rest(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class QuestionLetter(Letter):
    """A question of a run.

    Parameters
    ----------
    sites : tuple of str
        The sites that are asked this question.
    asks : str
        What an answer discloses, in the words of the coordinator; people are shown :attr:`disclosed`.
    question : bytes
        The encoded question.
    totals : tuple of bytes
        Encoded totals of the rounds before; letters of earlier versions have them.
    heads : mapping of str to (int, str)
        Number and hash of the last entry of each site's ledger that the coordinator has seen, by the names of sites: a
        site whose ledger lacks it was restored from an older copy.
    """

    kind: ClassVar[str] = "consilience question"
    sites: tuple[str, ...]
    asks: str
    question: bytes
    totals: tuple[bytes, ...] = ()
    heads: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def disclosed(self) -> str:
        """What an answer discloses, in words that follow from the question itself."""
        return decode_question(self.question).disclosed

    @property
    def _rest(self) -> dict[str, Any]:
        return {
            "sites": list(self.sites),
            "asks": self.asks,
            "question": as_text(self.question),
            "totals": [as_text(total) for total in self.totals],
            **({"heads": {site: list(head) for site, head in self.heads.items()}} if self.heads else {}),
        }

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> Self:
        return cls(
            *_head(content, {"sites", "asks", "question", "totals"} | ({"heads"} & set(content))),
            tuple(as_name(site) for site in content["sites"]),
            as_name(content["asks"]),
            as_bytes(content["question"]),
            tuple(as_bytes(total) for total in content["totals"]),
            {as_name(site): as_head(head) for site, head in content.get("heads", {}).items()},
            envelope=as_mapping(envelope),
        )


@dataclass(frozen=True, eq=False)
class AnswerLetter(Letter):
    """The answer of a site.

    Parameters
    ----------
    site : str
    asked : str
        Content hash of the question.
    answer : bytes
        The encoded answer or failure.
    """

    kind: ClassVar[str] = "consilience answer"
    site: str
    asked: str
    answer: bytes

    @property
    def _rest(self) -> dict[str, Any]:
        return {"site": self.site, "asked": self.asked, "answer": as_text(self.answer)}

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> Self:
        return cls(
            *_head(content, {"site", "asked", "answer"}),
            as_name(content["site"]),
            as_hash(content["asked"]),
            as_bytes(content["answer"]),
            envelope=as_mapping(envelope),
        )


def _head(content: Mapping[str, Any], own: set[str]) -> tuple[str, str, int]:
    """Return run, study and round of a letter; raise an error if it has other fields than these and its own."""
    if set(content) != own | {"run", "study", "round"}:
        raise ValueError
    number = content["round"]
    if type(number) is not int or not 1 <= number <= MOST_ROUNDS:
        raise ValueError
    return as_hash(content["run"]), as_hash(content["study"]), number


def as_hash(value: Any) -> str:
    """Return a hash, ``sha256:...``; raise an error for anything else."""
    if not isinstance(value, str) or not HASH.fullmatch(value):
        raise ValueError
    return value


def as_head(value: Any) -> tuple[int, str]:
    """Return number and hash of an entry of a ledger; raise an error for anything else."""
    number, hashed = value
    if type(number) is not int or number < 1:
        raise ValueError
    return number, as_hash(hashed)


def as_name(value: Any) -> str:
    """Return a text that is not long; raise an error for anything else."""
    if not isinstance(value, str) or len(value) > 10_000:
        raise ValueError
    return value


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; raise an error for anything else."""
    if not isinstance(value, dict):
        raise TypeError
    return value


def as_text(data: bytes) -> str:
    """Return bytes as text in base64."""
    return b64encode(data).decode("ascii")


def as_bytes(value: Any) -> bytes:
    """Return the bytes of a text in base64; raise an error for anything else."""
    if not isinstance(value, str):
        raise TypeError
    return b64decode(value, validate=True)


# ---------------------------------------------------------------- run file

RUN = "run.json"
FORMAT, RUN_VERSION = "consilience run", 1


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
    masks : mapping of str to str
        Public keys of the sites for masked sums, with their signatures; empty if sums are not masked.
    kit : str
        Version of the library that began the run, which is not part of its identity; empty if it is not stated.
    """

    study: str
    sites: tuple[str, ...]
    keys: Mapping[str, str]
    coordinator: str
    start: bytes = b""
    masks: Mapping[str, str] = field(default_factory=dict)
    kit: str = field(default="", compare=False)

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        return {
            "study": self.study,
            "sites": list(self.sites),
            "keys": dict(self.keys),
            "coordinator": self.coordinator,
            "start": as_text(self.start),
            **({"masks": dict(self.masks)} if self.masks else {}),
        }

    @cached_property
    def identity(self) -> str:
        """Identity of the run, ``sha256:...``."""
        return content_hash(self.content)

    @cached_property
    def roster(self) -> Roster | None:
        """Roster of the sites; None if no site signs."""
        if not self.keys:
            return None
        sites = [{"name": site, **({"key": self.keys[site]} if site in self.keys else {})} for site in self.sites]
        return Roster.from_tables({"format": Roster.kind, "version": 1, "sites": sites})

    def to_text(self) -> str:
        """Return the text of the file."""
        head = {"format": FORMAT, "version": RUN_VERSION, "hash": self.identity, "content": self.content}
        return write_json({**head, **({"kit": self.kit} if self.kit else {})})

    @classmethod
    def from_text(cls, text: str) -> RunFile:
        """Read a run; raise an error if the file was changed, or is something else."""
        document = parse_json(text, "the file of a run")
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInputError(f"{RUN} is not the file of a run")
        if document.get("version") != RUN_VERSION:
            raise InvalidInputError(f"{RUN} has another version than {RUN_VERSION}: upgrade consilience")
        content = document.get("content")
        if not isinstance(content, dict) or content_hash(content) != document.get("hash"):
            raise InvalidInputError(f"{RUN} was changed or damaged: restore it")
        try:
            return replace(cls._of(content), kit=as_name(document.get("kit", "")))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{RUN} is not valid: {type(error).__name__}") from error

    @classmethod
    def _of(cls, content: Mapping[str, Any]) -> RunFile:
        known = {"study", "sites", "keys", "coordinator", "start"} | ({"masks"} & set(content))
        if set(content) != known or len(content["sites"]) > MOST_SITES:
            raise ValueError
        sites = tuple(as_name(site) for site in content["sites"])
        keys = {as_name(site): as_name(key) for site, key in content["keys"].items()}
        masks = {as_name(site): as_name(key) for site, key in content.get("masks", {}).items()}
        if not sites or site_names(sites) != sites or not set(keys) | set(masks) <= set(sites):
            raise ValueError
        start = as_bytes(content["start"])
        return cls(as_hash(content["study"]), sites, keys, as_hash(content["coordinator"]), start, masks)

    @classmethod
    def read(cls, folder: Path) -> RunFile:
        """Read the run of a folder; raise an error if there is none, or if its file was changed."""
        return cls.from_text(read_text(folder / RUN, f"a folder with {RUN}"))

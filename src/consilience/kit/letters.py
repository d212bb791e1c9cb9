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
from consilience.kit.roster import HASH, MOST_SITES, Roster, signed_hash
from consilience.messages.site_names import site_names
from consilience.messages.table import decode_question

MOST_ROUNDS = 100_000
LONGEST_WAVE = 100
"""Largest length of the name of a wave."""
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
    version: ClassVar[int] = 1
    """Version of the format that is written; all versions up to it are read."""
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
        head = {"format": self.kind, "version": self.version, "hash": self.hash}
        return write_json({**head, "content": self.content, "envelope": dict(self.envelope)})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a file from JSON text; raise an error if it is damaged, was changed, or is of another kind."""
        document = parse_json(text, f"a {cls.kind}")
        if not isinstance(document, dict) or document.get("format") != cls.kind:
            raise InvalidInputError(f'not a {cls.kind}: expected an object with "format": "{cls.kind}"')
        version = document.get("version")
        if type(version) is not int or version < 1 or set(document) != _HEAD or type(document["content"]) is not dict:
            raise InvalidInputError(f"not a valid {cls.kind}: its fields are not those of version {cls.version}")
        if version > cls.version:
            raise InvalidInputError(f"the {cls.kind} has format {version}: upgrade consilience")
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
    """A question of a run, to one site or to all.

    Parameters
    ----------
    to : str
        The site that is asked; empty if all are asked the same. No letter names other sites.
    asks : str
        What an answer discloses, in the words of the coordinator; people are shown :attr:`disclosed`.
    question : bytes
        The encoded question.
    head : (int, str) or None
        Number and hash of the last entry of the site's ledger that the coordinator has seen: a site whose ledger lacks
        it was restored from an older copy.
    answered : (str, int) or None
        Run and round of the answer that stated this entry; it is recorded after the entry that it states.
    """

    kind: ClassVar[str] = "consilience question"
    version: ClassVar[int] = 2
    to: str
    asks: str
    question: bytes
    head: tuple[int, str] | None = None
    answered: tuple[str, int] | None = None

    @property
    def disclosed(self) -> str:
        """What an answer discloses, in words that follow from the question itself."""
        return decode_question(self.question).disclosed

    def is_for(self, site: str) -> bool:
        """Whether a site is asked."""
        return self.to in ("", site)

    def head_of(self, site: str) -> tuple[int, str] | None:
        """Return the entry of a site's ledger that the coordinator has seen; None if it states none."""
        return self.head if self.to == site else None

    @property
    def signed_hash(self) -> str:
        """The hash that the coordinator signs: of the content and of the rest of the envelope."""
        return signed_hash(self.hash, self.envelope)

    @property
    def _rest(self) -> dict[str, Any]:
        head = {} if self.head is None else {"head": list(self.head)}
        head |= {} if self.answered is None else {"answered": list(self.answered)}
        return {"to": self.to, "asks": self.asks, "question": as_text(self.question), **head}

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> QuestionLetter:
        if "sites" in content:
            return FormerQuestion.read(content, envelope)
        head = _head(content, {"to", "asks", "question"} | ({"head", "answered"} & set(content)))
        seen = as_head(content["head"]) if "head" in content else None
        answered = as_place(content["answered"]) if "answered" in content else None
        to, asks, question = as_name(content["to"]), as_name(content["asks"]), as_bytes(content["question"])
        return QuestionLetter(*head, to, asks, question, seen, answered, envelope=as_mapping(envelope))


@dataclass(frozen=True, eq=False)
class FormerQuestion(QuestionLetter):
    """A question of format 1, which names all sites.

    Parameters
    ----------
    sites : tuple of str
        The sites that are asked.
    totals : tuple of bytes
        Encoded totals of the rounds before.
    heads : mapping of str to (int, str)
        As :attr:`QuestionLetter.head`, by the names of sites.
    """

    version: ClassVar[int] = 1
    sites: tuple[str, ...] = ()
    totals: tuple[bytes, ...] = ()
    heads: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def is_for(self, site: str) -> bool:
        """Whether a site is asked."""
        return site in self.sites

    def head_of(self, site: str) -> tuple[int, str] | None:
        """Return the entry of a site's ledger that the coordinator has seen; None if it states none."""
        return self.heads.get(site)

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
    def read(cls, content: Mapping[str, Any], envelope: Any) -> FormerQuestion:
        """Return the question of checked content."""
        return cls(
            *_head(content, {"sites", "asks", "question", "totals"} | ({"heads"} & set(content))),
            "",
            as_name(content["asks"]),
            as_bytes(content["question"]),
            sites=tuple(as_name(site) for site in content["sites"]),
            totals=tuple(as_bytes(total) for total in content["totals"]),
            heads={as_name(site): as_head(head) for site, head in content.get("heads", {}).items()},
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
    run, number = as_place((content["run"], content["round"]))
    return run, as_hash(content["study"]), number


def format_of(text: str) -> str:
    """Return the format that a file states; empty if it is not JSON, or states none."""
    try:
        document = parse_json(text, "a file")
    except InvalidInputError:
        return ""
    return str(document.get("format", "")) if isinstance(document, dict) else ""


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


def as_place(value: Any) -> tuple[str, int]:
    """Return run and number of a round; raise an error for anything else."""
    run, number = value
    if type(number) is not int or not 1 <= number <= MOST_ROUNDS:
        raise ValueError
    return as_hash(run), number


def as_parent(value: Any) -> tuple[str, str]:
    """Return identity and coordinator of a run; raise an error for anything else."""
    run, signer = value
    return as_hash(run), as_name(signer)


def as_name(value: Any) -> str:
    """Return a text that is not long; raise an error for anything else."""
    if not isinstance(value, str) or len(value) > 10_000:
        raise ValueError
    return value


def is_wave(value: Any) -> bool:
    """Return whether a value is the name of a wave."""
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_WAVE and value.isprintable()


def as_wave(value: Any) -> str:
    """Return the name of a wave; raise an error for anything else."""
    if not is_wave(value):
        raise ValueError
    return str(value)


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
FORMAT, FORMER_VERSION, RUN_VERSION = "consilience run", 1, 2


@dataclass(frozen=True)
class RunFile:
    """What the files of a run have in common.

    Only the coordinator knows the names of the sites; the file has their number and a hash of the list. Where sums are
    masked, each site needs the keys of all, and the file names them.

    Parameters
    ----------
    study : str
        Identity of the study, ``sha256:...``.
    sites : tuple of str
        Names of all sites, in the order of summation; empty where they are not known.
    keys : mapping of str to str
        Public keys of sites that sign, where they are known.
    coordinator : str
        Hash of the secret of the coordinator who began the run, so that another one is noticed.
    start : bytes
        Public start of the run, as an encoded question for its likelihood; empty if there is none.
    masks : mapping of str to str
        Public keys of the sites for masked sums, with their signatures; empty if sums are not masked.
    kit : str
        Version of the library that began the run, which is not part of its identity; empty if it is not stated.
    signer : str
        Public key with which the coordinator signs this file and all questions; empty for a run that nobody signs.
    box : str
        Public key for which answers are sealed; empty if they are not.
    listed : (int, str) or None
        Number of sites and hash of their names and keys, as a file states them; None if they follow from the names.
    former : bool
        Whether the file has format 1, which names all sites, and has no signature.
    signature : str
        Signature of the identity; not part of it.
    parent : (str, str) or None
        The run that a regional coordinator serves with this one, by its identity, and the public key of its
        coordinator; None for a run of its own.
    wave : str
        Wave of the study that sites answer with; empty if none is stated.
    """

    study: str
    sites: tuple[str, ...]
    keys: Mapping[str, str]
    coordinator: str
    start: bytes = b""
    masks: Mapping[str, str] = field(default_factory=dict)
    kit: str = field(default="", compare=False)
    signer: str = ""
    box: str = ""
    listed: tuple[int, str] | None = None
    former: bool = False
    signature: str = field(default="", compare=False)
    parent: tuple[str, str] | None = None
    wave: str = ""

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        begun = {"study": self.study, "coordinator": self.coordinator, "start": as_text(self.start)}
        begun |= {"wave": self.wave} if self.wave else {}
        named = {"sites": list(self.sites), "keys": dict(self.keys)}
        masks = {"masks": dict(self.masks)} if self.masks else {}
        if self.former:
            return {**begun, **named, **masks}
        number, listed = self._listed
        keys = {"signer": self.signer, "box": self.box}
        serves = {"parent": list(self.parent)} if self.parent else {}
        return {**begun, "number": number, "listed": listed, **keys, **serves, **(named if masks else {}), **masks}

    @cached_property
    def _listed(self) -> tuple[int, str]:
        """Number of sites, and the hash of their names and keys."""
        if self.listed is not None:
            return self.listed
        return len(self.sites), content_hash([[name, self.keys.get(name, "")] for name in self.sites])

    @property
    def number(self) -> int:
        """Number of sites."""
        return self._listed[0]

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
        version = FORMER_VERSION if self.former else RUN_VERSION
        head = {"format": FORMAT, "version": version, "hash": self.identity, "content": self.content}
        rest = {"kit": self.kit, "signature": self.signature}
        return write_json({**head, **{name: value for name, value in rest.items() if value}})

    @classmethod
    def from_text(cls, text: str) -> RunFile:
        """Read a run; raise an error if the file was changed, or is something else."""
        document = parse_json(text, "the file of a run")
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInputError(f"{RUN} is not the file of a run")
        version = document.get("version")
        if version not in (FORMER_VERSION, RUN_VERSION):
            raise InvalidInputError(f"{RUN} has another version than {RUN_VERSION}: upgrade consilience")
        content = document.get("content")
        if not isinstance(content, dict) or content_hash(content) != document.get("hash"):
            raise InvalidInputError(f"{RUN} was changed or damaged: restore it")
        try:
            found = cls._of(content, former=version == FORMER_VERSION)
            kit, signature = as_name(document.get("kit", "")), as_name(document.get("signature", ""))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{RUN} is not valid: {type(error).__name__}") from error
        return replace(found, kit=kit, signature=signature)

    @classmethod
    def _of(cls, content: Mapping[str, Any], *, former: bool) -> RunFile:
        own = {"sites", "keys"} if former else {"number", "listed", "signer", "box"} | ({"parent"} & set(content))
        named = set() if former or "masks" not in content else {"sites", "keys"}
        if set(content) != {"study", "coordinator", "start"} | own | named | ({"masks", "wave"} & set(content)):
            raise ValueError
        if len(content.get("sites", ())) > MOST_SITES:
            raise ValueError
        sites = tuple(as_name(site) for site in content.get("sites", ()))
        keys = {as_name(site): as_name(key) for site, key in content.get("keys", {}).items()}
        masks = {as_name(site): as_name(key) for site, key in content.get("masks", {}).items()}
        if (sites and site_names(sites) != sites) or not set(keys) | set(masks) <= set(sites):
            raise ValueError
        begun = as_hash(content["study"]), sites, keys, as_hash(content["coordinator"]), as_bytes(content["start"])
        found = cls(*begun, masks, former=former, wave=as_wave(content["wave"]) if "wave" in content else "")
        if former:
            if not sites:
                raise ValueError
            return found
        listed = as_head((content["number"], content["listed"]))
        if listed[0] > MOST_SITES or (sites and found._listed != listed):
            raise ValueError
        signer, box = as_name(content["signer"]), as_name(content["box"])
        parent = as_parent(content["parent"]) if "parent" in content else None
        return replace(found, signer=signer, box=box, parent=parent, listed=None if sites else listed)

    @classmethod
    def read(cls, folder: Path) -> RunFile:
        """Read the run of a folder; raise an error if there is none, or if its file was changed."""
        return cls.from_text(read_text(folder / RUN, f"a folder with {RUN}"))

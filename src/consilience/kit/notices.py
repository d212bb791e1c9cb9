"""Signed notices on what was sent before: a site withdraws from a study, or a coordinator states that files are gone.

Both are files as letters are, readable and signed. A coordinator who writes notices has a key, as sites have; a site
whose policy names the public key honours them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import parse_json
from consilience.files.site_file import SiteFile
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import SealedText, as_hash, as_mapping, as_name, format_of
from consilience.kit.policy.policy import Policy
from consilience.kit.release import coordinator_envelope, envelope_of
from consilience.kit.roster import signed_hash, verify_signature

MOST_FILES = 100
"""Largest number of files in one notice."""
LONGEST_REASON = 1_000


def _today() -> str:
    """Return the day in UTC, ``YYYY-MM-DD``."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _as_day(value: Any) -> str:
    """Return a day, ``YYYY-MM-DD``; raise an error for anything else."""
    return f"{datetime.strptime(value, '%Y-%m-%d').replace(tzinfo=UTC):%Y-%m-%d}"


def is_notice(text: str) -> bool:
    """Return whether a text is one of the notices, by the format that it states."""
    return format_of(text) in (Withdrawal.kind, Retraction.kind)


def read_notice(text: str) -> Withdrawal | Retraction:
    """Read a notice of either kind."""
    document = parse_json(text, "a notice")
    is_withdrawal = isinstance(document, dict) and document.get("format") == Withdrawal.kind
    return Withdrawal.from_text(text) if is_withdrawal else Retraction.from_text(text)


# ---------------------------------------------------------------- a site withdraws


@dataclass(frozen=True, eq=False)
class Withdrawal(SealedText):
    """A site withdraws from a study: its file is not to be combined any more.

    Parameters
    ----------
    site : str
    study : str
        Identity of the study, ``sha256:...``.
    day : str
        Day of the withdrawal, ``YYYY-MM-DD``.
    reason : str
        In the words of the site; the coordinator reads it.

    Examples
    --------
    >>> print(Withdrawal("north", f"sha256:{64 * '0'}", "2026-11-19", "the ethics board asked for it"))
    north withdrew on 2026-11-19
    """

    kind: ClassVar[str] = "consilience withdrawal"
    site: str
    study: str
    day: str
    reason: str

    def __str__(self) -> str:
        return f"{self.site} withdrew on {self.day}"

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        said = "This site withdraws from the study. Do not combine its file, and delete it."
        return {"site": self.site, "study": self.study, "day": self.day, "reason": self.reason, "said": said}

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> Self:
        if set(content) != {"site", "study", "day", "reason", "said"}:
            raise ValueError
        site, study, reason = as_name(content["site"]), as_hash(content["study"]), as_name(content["reason"])
        return cls(site, study, _as_day(content["day"]), reason, envelope=as_mapping(envelope))


def write_withdrawal(folder: SiteFolder, study: str, reason: str) -> Withdrawal:
    """Return the notice by which a site withdraws from a study, signed if the site has a key; nothing is recorded."""
    if not reason.strip():
        raise InvalidInputError("a withdrawal needs its reason, in words that the coordinator may read")
    found = Withdrawal(folder.name, study, _today(), reason.strip()[:LONGEST_REASON])
    return replace(found, envelope=envelope_of(folder, found.hash))


def keep_withdrawal(folder: SiteFolder, notice: Withdrawal, decided_by: str) -> bytes:
    """Record that a site withdraws, and return the bytes of the notice; those of the first one if it did so before."""
    for entry in folder.entries:
        if entry.kind == "withdrawal" and entry.details["study"] == notice.study:
            return str(entry.details["notice"]).encode()
    text = notice.to_text()
    details = {"study": notice.study, "reason": notice.reason, "decided_by": decided_by[:200], "notice": text}
    folder.record("withdrawal", details)
    return text.encode()


# ---------------------------------------------------------------- a coordinator retracts


@dataclass(frozen=True, eq=False)
class Retraction(SealedText):
    """A coordinator states that files of sites were destroyed, and that nothing was made of them.

    Parameters
    ----------
    files : tuple of (str, str)
        Site and content hash of each file.
    day : str
        Day of the statement, ``YYYY-MM-DD``.
    """

    kind: ClassVar[str] = "consilience retraction"
    files: tuple[tuple[str, str], ...]
    day: str

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        said = "All copies of these files were destroyed. They were not combined, and no result was made of them."
        return {"files": [{"site": site, "hash": named} for site, named in self.files], "day": self.day, "said": said}

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> Self:
        if set(content) != {"files", "day", "said"} or not 1 <= len(content["files"]) <= MOST_FILES:
            raise ValueError
        files = tuple((as_name(each["site"]), as_hash(each["hash"])) for each in content["files"])
        return cls(files, _as_day(content["day"]), envelope=as_mapping(envelope))

    def check_signed(self, public_key: str) -> None:
        """Raise an error unless the notice was signed with the private key of a public key.

        Raises
        ------
        RefusedError
            If it was not.
        ImportError
            If the package cryptography is missing.
        """
        if not verify_signature(public_key, self.envelope.get("signature"), signed_hash(self.hash, self.envelope)):
            raise RefusedError(
                "the notice is not signed with the key of the coordinator that the policy names: it was changed, or "
                "another one wrote it. Ask for the notice again, and compare the public key on another way"
            )


def write_retraction(files: Sequence[SiteFile], identity: SiteIdentity) -> Retraction:
    """Return the signed notice of a coordinator that files were destroyed and not combined."""
    if not 1 <= len(files) <= MOST_FILES:
        raise InvalidInputError(f"a notice names between 1 and {MOST_FILES} files")
    found = Retraction(tuple((file.site, file.hash) for file in files), _today())
    return replace(found, envelope=coordinator_envelope(identity, found.hash))


def coordinator_key(path: Path) -> SiteIdentity:
    """Return the key of a coordinator; make one, with its folder, if the file does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        SiteIdentity.new().store(path)
    return SiteIdentity.load(path)


# ---------------------------------------------------------------- at the site


def check_replaceable(folder: SiteFolder, policy: Policy, replaces: Sequence[int]) -> None:
    """Raise an error unless the policy lets the coordinator retract files, and these entries are releases of such."""
    if replaces and not policy.corrections.coordinator:
        raise RefusedError(
            "the policy of this site replaces nothing that was released. Let who may decide this for the site put the "
            "public key of the coordinator into policy.toml, [corrections] coordinator; what it risks is said there"
        )
    releases = {entry.number for entry in folder.entries if entry.kind == "release" and "content" in entry.details}
    for number in replaces:
        if number not in releases:
            raise InvalidInputError(f"entry {number} of the ledger is not a release: nothing can be replaced there")


def record_retractions(folder: SiteFolder, numbers: Sequence[int], notices: Sequence[Retraction]) -> None:
    """Record the notices by which the coordinator has retracted releases of a site.

    Parameters
    ----------
    folder : SiteFolder
    numbers : sequence of int
        Entries of the releases.
    notices : sequence of Retraction

    Raises
    ------
    RefusedError
        If a notice is not signed with the key that the policy names, or if none names the file of an entry.
    """
    for number, notice in check_notices(folder, numbers, notices).items():
        folder.record("retraction", {"replaces": [number], "notice": notice.to_text()})


def check_notices(folder: SiteFolder, numbers: Sequence[int], notices: Sequence[Retraction]) -> dict[int, Retraction]:
    """Return the notice for each release; raise an error as :func:`record_retractions` does, and record nothing."""
    policy, found = Policy.from_text(folder.policy), dict[int, Retraction]()
    check_replaceable(folder, policy, numbers)
    for notice in notices:
        notice.check_signed(policy.corrections.coordinator)
    for number in numbers:
        named = (folder.name, str(folder.entries[number - 1].details["content"]))
        telling = [notice for notice in notices if named in notice.files]
        if not telling:
            raise RefusedError(
                f"no notice says that the file of entry {number} was destroyed and not combined: ask the coordinator "
                "for one (consilience study retract)"
            )
        found[number] = telling[0]
    return found


def say_replaced(replaces: Sequence[int]) -> list[str]:
    """Say what a fit replaces, and the risk that remains; nothing if it replaces nothing."""
    listed = ", ".join(map(str, replaces))
    said = (
        f"This fit replaces the release of entry {listed} of the ledger, from which it may differ by a few rows. It "
        "leaves only with a signed notice of the coordinator that the earlier file was destroyed and not combined. "
        "Nobody can check this: if the file was kept, the difference of both is the rows that were corrected"
    )
    return [said] * bool(replaces)

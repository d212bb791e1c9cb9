"""From a fit to a release: what is kept until a person approves it, whether it may still leave, and what left.

The folder of the site keeps the bytes of each release, and the tags of the rows that it used.

Files are written before the entry of the ledger that names them, and carry their hash as a name: after a crash in
between there is a file that no entry names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal

from consilience._version import __version__
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import bytes_hash, parse_json, read_capped, read_text, write_json
from consilience.files.noisy_file import AnySiteFile, NoisyFile, read_sent_file
from consilience.files.site_file import SiteFile
from consilience.kit import approvals, ledger
from consilience.kit.differencing import Decision, Earlier, decide
from consilience.kit.examination import UsedRows
from consilience.kit.folder import LEDGER, SiteFolder, SiteIdentity
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import MembershipTest, membership_test
from consilience.kit.policy.rules import Check
from consilience.kit.private_files import write_once
from consilience.kit.roster import signed_hash, verify_signature
from consilience.kit.row_tags import RowTags
from consilience.kit.spending import NOISE

FORMAT = "consilience fit report"
VERSION = 1
COVERS = "content and envelope"
"""What an envelope says that its signature covers."""
STATED = "stated:"
"""Beginning of a note that repeats what people stated; it stands in the ledger."""


@dataclass(frozen=True, eq=False)
class FitReport:
    """A fit that waits at the site for its release. It has counts, and never leaves.

    Parameters
    ----------
    study_name : str
    file : SiteFile or NoisyFile
        What would leave, without an envelope.
    checks : tuple of Check
        Every rule of the policy, with what was found.
    steps : tuple of str
        What was changed in the fit so that it keeps the policy.
    notes : tuple of str
        What the people at the site stated.
    leverage : float
        Largest leverage of a row in the regression of an expert, between 0 and 1.
    mapped : tuple of str
        Hash of the mapping through which the table was read, and what it does in words; empty without one.
    flow : tuple of str
        From the rows read to those used, in words and in full; empty if the study leaves out no rows.
    """

    study_name: str
    file: AnySiteFile
    checks: tuple[Check, ...]
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    leverage: float = 0.0
    mapped: tuple[str, ...] = ()
    flow: tuple[str, ...] = ()

    @property
    def membership(self) -> MembershipTest | None:
        """What the membership attack on the file achieves; None without a model, or with noise."""
        return membership_test(self.file.fit) if isinstance(self.file, SiteFile) else None

    def to_text(self) -> str:
        """Return the report as JSON text."""
        return write_json(
            {
                "format": FORMAT,
                "version": VERSION,
                "study_name": self.study_name,
                "file": self.file.to_text(),
                "checks": [_check_document(check) for check in self.checks],
                "steps": list(self.steps),
                "notes": list(self.notes),
                "leverage": self.leverage,
                "mapped": list(self.mapped),
                "flow": list(self.flow),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> FitReport:
        """Read a report from JSON text."""
        found = parse_json(text, "a fit report")
        if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
            raise InvalidInputError("the stored fit was written by another version of the library: fit again")
        try:
            return cls(
                str(found["study_name"]),
                read_sent_file(found["file"]),
                tuple(_check_of(each) for each in found["checks"]),
                tuple(found["steps"]),
                tuple(found["notes"]),
                float(found["leverage"]),
                tuple(found.get("mapped", ())),
                tuple(found.get("flow", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError("the stored fit is damaged: fit again") from error


def _check_document(check: Check) -> dict[str, Any]:
    """Return a check as a JSON object; null stands for an infinite number, such as the fewest rows of no level."""
    return {**asdict(check), "observed": check.observed if isfinite(check.observed) else None}


def _check_of(document: Mapping[str, Any]) -> Check:
    stated = {each.name: document[each.name] for each in fields(Check)}
    return Check(**{**stated, "observed": inf if stated["observed"] is None else stated["observed"]})


# ---------------------------------------------------------------- sealing


def seal_file(folder: SiteFolder, file: AnySiteFile, at: ledger.Entry) -> AnySiteFile:
    """Return a file with its envelope, in which time, place in the ledger and version are those of an entry.

    The same entry and key give the same bytes: a file has its size and its hash before anybody approves it. Without a
    key the signature is null: the file is marked as unsigned. Without a version none is stated.
    """
    if file.site != folder.name:
        raise InvalidInputError(f"the file is of site {file.site!a} and the folder of {folder.name!a}")
    return replace(file, envelope=envelope_of(folder, file.hash, at))


def envelope_of(folder: SiteFolder, content_hash: str, at: ledger.Entry | None = None) -> dict[str, Any]:
    """Return the envelope of a content: time, entry of the ledger, version of the kit, and a signature of all.

    They are those of now and of the last entry, or of the entry ``at``.
    """
    last, identity = at or folder.entries[-1], folder.identity
    kit = __version__ if at is None else str(at.details.get(ledger.KIT, ""))
    said = {
        "time": ledger.time_text() if at is None else at.time,
        "ledger": {"entry": last.number, "hash": last.hash},
        "covers": COVERS,
        **({ledger.KIT: kit} if kit else {}),
    }
    return {**said, "signature": None if identity is None else identity.sign(signed_hash(content_hash, said))}


def coordinator_envelope(identity: SiteIdentity, content_hash: str) -> dict[str, Any]:
    """Return the envelope of a content of a coordinator, who has no ledger: time, and a signature of all."""
    said = {"time": ledger.time_text(), "covers": COVERS}
    return {**said, "signature": identity.sign(signed_hash(content_hash, said))}


def verify_ledger(folder: SiteFolder, files: Iterable[AnySiteFile] = ()) -> ledger.LedgerCheck:
    """Verify the ledger of a site, also against what its releases say about it.

    Parameters
    ----------
    folder : SiteFolder
        The releases that it stores are read.
    files : iterable of SiteFile or NoisyFile
        Files that left the site, from elsewhere: the folder may have been changed as a whole.
    """
    known: dict[int, str] = {}
    copies = [read_sent_file(read_text(path)) for path in sorted((folder.path / "releases").glob("*.json"))]
    for number, hashed in _positions(folder.name, [*copies, *files]):
        if known.setdefault(number, hashed) != hashed:
            return ledger.LedgerCheck((), number, "two files state different hashes of this entry: a fork")
    return ledger.verify(folder.path / LEDGER, known)


def _positions(name: str, files: Iterable[AnySiteFile]) -> Iterator[tuple[int, str]]:
    """Yield number and hash of the entries that the files of a site state."""
    for file in files:
        stated = file.envelope.get("ledger")
        if file.site == name and isinstance(stated, dict):
            number, hashed = stated.get("entry"), stated.get("hash")
            if type(number) is int and number > 0 and isinstance(hashed, str):
                yield number, hashed


# ---------------------------------------------------------------- releases

MOST_BYTES = 2**28
"""Maximum size of a release."""


def earlier_of(folder: SiteFolder, replaced: Iterable[int] = ()) -> list[Earlier]:
    """Return all releases and runs without noise that the ledger of a site names, of any study.

    Releases that the coordinator has retracted, and those of the entries ``replaced``, are left out.
    """
    found, entries = [], folder.entries
    gone = retracted_in(entries) | set(replaced)
    for entry in entries:
        if entry.kind in ("release", "run") and entry.details.get("way") != NOISE and entry.number not in gone:
            details = entry.details
            try:
                columns, rows = tuple(details["columns"]), int(details["rows"])
                load = partial(read_tags, folder, str(details["tags"]))
                people = partial(read_tags, folder, str(details["people"])) if "people" in details else None
                is_release = entry.kind == "release"
                found.append(Earlier(entry.number, details["study"], columns, rows, load, is_release, people))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInputError(
                    f"entry {entry.number} of the ledger does not say which rows it used: it was written by another "
                    "program, and nothing can be compared with it"
                ) from error
    return found


def crowds_of(folder: SiteFolder) -> list[RowTags]:
    """Return the crowds that releases of a site left out together with people who withdrew: they stay out."""
    releases = (entry.details for entry in folder.entries if entry.kind == "release")
    named = dict.fromkeys(str(details["crowd"]) for details in releases if "crowd" in details)
    return [read_tags(folder, each) for each in named]


def decide_for_site(
    folder: SiteFolder,
    study: str,
    used: UsedRows,
    min_rows: int,
    *,
    other_people: bool = False,
    replaces: Sequence[int] = (),
) -> Decision:
    """Decide by the ledger of a site whether a release or run over these rows is allowed.

    ``other_people`` is a statement of the people at the site, as in :func:`~consilience.kit.differencing.decide`;
    ``replaces`` are entries of releases that count as gone.
    """
    return decide(study, used, earlier_of(folder, replaces), min_rows, other_people=other_people)


def retracted_in(entries: Iterable[ledger.Entry]) -> set[int]:
    """Return the numbers of the releases that a coordinator has retracted."""
    return {number for entry in entries if entry.kind == "retraction" for number in entry.details["replaces"]}


def check_not_withdrawn(folder: SiteFolder, study: str) -> None:
    """Raise an error if the site has withdrawn from a study."""
    for entry in folder.entries:
        if entry.kind == "withdrawal" and entry.details["study"] == study:
            raise RefusedError(
                f"this site withdrew from the study, for good (entry {entry.number} of the ledger): nothing leaves. "
                "Tell the coordinator, who has the notice"
            )


def record_release(
    folder: SiteFolder,
    kind: Literal["release", "run"],
    study: str,
    tags: RowTags,
    data: bytes | None = None,
    *,
    people: RowTags | None = None,
    details: Mapping[str, Any] | None = None,
    head: str | None = None,
) -> ledger.Entry:
    """Keep the tags of the rows used and the bytes of a release, and add the entry to the ledger.

    Parameters
    ----------
    folder : SiteFolder
    kind : {"release", "run"}
    study : str
        Identity of the study, ``sha256:...``.
    tags : RowTags
        Tags of the rows used.
    data : bytes, optional
        What leaves; a release has them.
    people : RowTags, optional
        Tags of the people of these rows, if the policy names a column that tells them apart.
    details : mapping, optional
        More details of the entry, such as who approved.
    head : str, optional
        Hash of the last entry when this was decided: if the ledger has grown since, nothing is recorded.
    """
    if (kind == "release") != (data is not None):
        raise InvalidInputError("a release, and no run, has bytes that are kept")
    found: dict[str, Any] = {
        **(details or {}),
        "study": study,
        "columns": list(tags.columns),
        "rows": tags.n,
        "tags": keep_tags(folder, tags),
        **({} if people is None else {"people": keep_tags(folder, people)}),
    }
    if data is not None:
        found |= {"file": keep_bytes(folder.path / "releases", data), "bytes": len(data)}
    return folder.record(kind, found, head=head)


def release_entry(folder: SiteFolder, study: str, tags: str) -> ledger.Entry | None:
    """Return the entry by which rows with tags of this hash were released for a study; None if there is none."""
    entries = folder.entries
    gone = retracted_in(entries)
    for entry in entries:
        same = (entry.details.get("study"), entry.details.get("tags")) == (study, tags)
        if entry.kind == "release" and same and entry.number not in gone:
            return entry
    return None


def read_release(folder: SiteFolder, entry: int | None) -> bytes:
    """Return the bytes of the release that an entry of the ledger names; raise an error if they were changed."""
    named = [each.details.get("file") for each in folder.entries if each.number == entry and each.kind == "release"]
    if not named or not isinstance(named[0], str):
        raise InvalidInputError(f"entry {entry} of the ledger is not a release")
    return read_kept_bytes(folder.path / "releases", named[0], MOST_BYTES)


def write_again(folder: SiteFolder, earlier: ledger.Entry) -> tuple[bytes, ledger.Entry]:
    """Return the bytes that an earlier release wrote, and the entry that has them.

    If the site has another key since then, the same content is signed with it, once, and the ledger has the signature:
    a coordinator who has the new key in the roster can then combine the file.
    """
    data, key = read_release(folder, earlier.number), folder.public_key
    file = read_sent_file(data.decode())
    if key is None or verify_signature(key, file.envelope.get("signature"), signed_hash(file.hash, file.envelope)):
        return data, earlier
    entries = folder.entries
    for entry in entries:
        if entry.kind == "signature" and (entry.details["release"], entry.details["key"]) == (earlier.number, key):
            return read_kept_bytes(folder.path / "releases", str(entry.details["file"]), MOST_BYTES), entry
    check_not_withdrawn(folder, str(earlier.details["study"]))
    named = next(entry for entry in entries if entry.kind in ("init", "key") and entry.details.get("key") == key)
    data = seal_file(folder, file, named).to_text().encode()
    details = {"study": earlier.details["study"], "release": earlier.number, "key": key}
    details |= {"file": keep_bytes(folder.path / "releases", data), "bytes": len(data)}
    details |= {"account": approvals.own_account(), "approved_by": earlier.details.get("approved_by", "")}
    return data, folder.record("signature", details, head=entries[-1].hash)


def keep_tags(folder: SiteFolder, tags: RowTags) -> str:
    """Store the tags of rows in the folder, unless they are there; return their hash."""
    return keep_bytes(folder.path / "tags", tags.data, ".tags")


def read_tags(folder: SiteFolder, named: str) -> RowTags:
    """Return the stored tags with this hash; raise an error if the file was changed."""
    path = _path(folder.path / "tags", named, ".tags")
    tags = RowTags.read(path)
    if tags.hash != named:
        raise InvalidInputError(f"{path.name} does not have the hash that the ledger states: restore the file")
    return tags


def keep_bytes(folder: Path, data: bytes, suffix: str = ".json") -> str:
    """Write bytes to a file that is named by their hash, unless it is there; return the hash."""
    named = bytes_hash(data)
    path = _path(folder, named, suffix)
    if path.exists():
        read_kept_bytes(folder, named, len(data), suffix)
    else:
        write_once(path, data)
    return named


def read_kept_bytes(folder: Path, named: str, most: int, suffix: str = ".json") -> bytes:
    """Return the bytes of the file with this hash; raise an error if it was changed."""
    path = _path(folder, named, suffix)
    data = read_capped(path, most)
    if bytes_hash(data) != named:
        raise InvalidInputError(f"{path.name} does not have the hash that the ledger states: restore the file")
    return data


def _path(folder: Path, named: str, suffix: str) -> Path:
    """Return the path of a file; its name has hexadecimal digits only, whatever the ledger says."""
    digits = named.removeprefix("sha256:")
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise InvalidInputError("the ledger names a file by something else than its hash")
    return folder / f"{digits}{suffix}"


# ---------------------------------------------------------------- approval

LONGEST_REASON = 4_000


@dataclass(frozen=True, eq=False)
class LastFit:
    """The last fit of a site, and its entry in the ledger."""

    report: FitReport
    entry: ledger.Entry

    @property
    def fitted_by(self) -> str | None:
        """Account that fitted; None if an earlier version of the library did not record it."""
        stated = self.entry.details.get("fitted_by")
        return None if stated is None else str(stated)


def keep_noisy_fit(folder: SiteFolder, report: FitReport, tags: RowTags) -> ledger.Entry:
    """Store noisy sums in the site's folder and record them; they are what :func:`release_fit` releases."""
    return _record_fit(folder, report, tags, {"way": NOISE})


def keep_fit(
    folder: SiteFolder,
    report: FitReport,
    used: UsedRows,
    crowd: RowTags | None = None,
    replaces: Sequence[int] = (),
) -> ledger.Entry:
    """Store a fit in the site's folder and record it; it is the one that :func:`release_fit` releases.

    Parameters
    ----------
    folder : SiteFolder
    report : FitReport
    used : UsedRows
    crowd : RowTags, optional
        People, or rows, that are left out together with those who withdrew.
    replaces : sequence of int
        Entries of releases in whose place this one is to stand.
    """
    people = used.people_tags
    more = {
        **({} if people is None else {"people": keep_tags(folder, people)}),
        **({} if crowd is None else {"crowd": keep_tags(folder, crowd)}),
        **({"replaces": list(replaces)} if replaces else {}),
        **{name: stated for name in ("wave", "data_cut") if (stated := getattr(report.file, name)) is not None},
        **({"stated": stated} if (stated := [note for note in report.notes if note.startswith(STATED)]) else {}),
    }
    return _record_fit(folder, report, used.tags, more)


def _record_fit(folder: SiteFolder, report: FitReport, tags: RowTags, more: Mapping[str, Any]) -> ledger.Entry:
    """Store a report and the tags of its rows, and record them."""
    details = {
        "study": report.file.study,
        "rows": tags.n,
        "tags": keep_tags(folder, tags),
        "fit": keep_bytes(folder.path / "fits", report.to_text().encode()),
        **({"mapping": report.mapped[0]} if report.mapped else {}),
        **more,
        "fitted_by": approvals.own_account(),
    }
    return folder.record("fit", details)


def keep_again(folder: SiteFolder, number: int) -> ledger.Entry:
    """Make the fit that a release came from the last one again, and record it."""
    entries = folder.entries
    fit = entries[number - 1].details.get("fit")
    if type(fit) is not int or not 0 < fit < number or entries[fit - 1].kind != "fit":
        raise InvalidInputError(f"entry {number} of the ledger does not say which fit it released")
    return keep_again_as(folder, entries[fit - 1])


def keep_again_as(folder: SiteFolder, entry: ledger.Entry) -> ledger.Entry:
    """Make the fit of an entry the last one again, and record it."""
    return folder.record("fit", entry.details)


def fit_file(folder: SiteFolder, last: LastFit) -> bytes:
    """Return the bytes that leave if a fit is released: all that people look at, approve and hash."""
    return seal_file(folder, last.report.file, last.entry).to_text().encode()


def fit_subject(folder: SiteFolder, last: LastFit) -> dict[str, Any]:
    """Return what is shown and approved of a fit, as details of entries of the ledger: the file that would leave."""
    data = fit_file(folder, last)
    stated = {"study": last.report.file.study, "fit": last.entry.number}
    return {**stated, "file": bytes_hash(data), "bytes": len(data)}


def record_refusal(folder: SiteFolder, study: str, reason: str) -> ledger.Entry:
    """Record that nothing may leave for a study, and why; the reason stays at the site."""
    details = {"study": study, "reason": reason[:LONGEST_REASON]}
    return folder.record("refusal", details)


def record_decline(folder: SiteFolder, last: LastFit, who: str) -> ledger.Entry:
    """Record that a person looked at a fit and did not approve it."""
    details = {"fit": last.entry.number, "declined_by": who[:200], "account": approvals.own_account()}
    return folder.record("decline", details)


def last_fit(folder: SiteFolder, study: str | None = None) -> LastFit:
    """Return the last fit of a site, for a study if one is named.

    Raises
    ------
    InvalidInputError
        If there is none, or if its file was changed.
    """
    entries = [entry for entry in folder.entries if entry.kind == "fit" and study in (None, entry.details.get("study"))]
    if not entries:
        raise InvalidInputError("there is no fit yet: run 'consilience site fit'")
    data = read_kept_bytes(folder.path / "fits", str(entries[-1].details.get("fit")), MOST_BYTES)
    return LastFit(FitReport.from_text(data.decode()), entries[-1])


def earlier_release(folder: SiteFolder, last: LastFit) -> ledger.Entry | None:
    """Return the entry by which the same rows were released for the same study; None if there is none."""
    return release_entry(folder, last.entry.details["study"], last.entry.details["tags"])


def still_replaced(folder: SiteFolder, last: LastFit) -> list[int]:
    """Return the entries that a fit replaces and that were not retracted yet."""
    gone = retracted_in(folder.entries)
    return [number for number in last.entry.details.get("replaces", ()) if number not in gone]


def check_latest(folder: SiteFolder, last: LastFit) -> None:
    """Raise an error if the site withdrew, or if a later fit was refused: people may take this one for that one."""
    check_not_withdrawn(folder, last.report.file.study)
    later = folder.entries[last.entry.number :]
    refused = [each.number for each in later if each.kind == "refusal" and "state" not in each.details]  # not of rounds
    if refused:
        raise RefusedError(
            f"a later fit was refused (entry {refused[-1]} of the ledger), and this is the one before it: fit again "
            "with the table that you want to release"
        )


def check_still_valid(folder: SiteFolder, last: LastFit) -> None:
    """Raise an error if the fit was decided on other rules, or before another release or run."""
    policy, later = Policy.from_text(folder.policy), folder.entries[last.entry.number :]
    if isinstance(last.report.file, NoisyFile):
        policy.check_way(NOISE)  # the limits of its budget were applied when it was charged
        return
    if policy.identity != last.report.file.evidence.get("policy"):
        raise RefusedError("the policy was changed after the fit: fit again, so that the new limits are applied")
    if any(entry.kind in ("release", "run") and entry.details.get("way") != NOISE for entry in later):
        raise RefusedError(
            "something else was released after the fit: fit again, so that the rows are compared with it too"
        )


def approve_fit(folder: SiteFolder, approved_by: str, shown: LastFit) -> int:
    """Record that this account approves a fit that was shown; return how many approvals are still missing.

    Raises
    ------
    RefusedError
        If another fit was made after it, or if this account may not approve it.
    """
    check_shown(folder, shown)
    check_approver(folder, shown)
    rules = Policy.from_text(folder.policy).approval
    return approvals.approve(folder, rules, fit_subject(folder, shown), shown.fitted_by, approved_by)


def check_approver(folder: SiteFolder, last: LastFit) -> None:
    """Raise an error if this account may not approve a fit, or if the policy asks for no approval before a release."""
    check_latest(folder, last)
    check_still_valid(folder, last)
    rules = Policy.from_text(folder.policy).approval
    if not rules.apply:
        raise RefusedError("the policy names no approvers: run 'consilience site release', which asks whoever runs it")
    approved = approvals.approved_in(folder.entries, fit_subject(folder, last))
    if reason := approvals.refused_approver(rules, approvals.own_account(), last.fitted_by, approved):
        raise RefusedError(reason)


def is_approved(folder: SiteFolder, last: LastFit) -> bool:
    """Whether as many have approved a fit as the policy says."""
    rules = Policy.from_text(folder.policy).approval
    return len(approvals.counted_in(folder.entries, rules, fit_subject(folder, last))) >= rules.approvals


def check_shown(folder: SiteFolder, shown: LastFit) -> None:
    """Raise an error if another fit was made after the one that was shown."""
    last = last_fit(folder)
    if last.entry.hash != shown.entry.hash:
        raise RefusedError(
            f"another fit (entry {last.entry.number} of the ledger) was made after the one that was shown: look at it, "
            "and decide again"
        )


def release_fit(folder: SiteFolder, approved_by: str, *, shown: LastFit | None = None) -> bytes:
    """Seal and record the last fit and return the bytes that leave; the same content if these rows left before.

    Parameters
    ----------
    folder : SiteFolder
    approved_by : str
        Who approved, for the ledger, if the policy names no approvers; the name stays at the site.
    shown : LastFit, optional
        The fit that was approved: nothing is released if there is another one by now.

    Raises
    ------
    RefusedError
        If another fit was made after the one that was shown, if approvals are missing that the policy asks for, or if
        something else forbids the release.
    """
    last = last_fit(folder)
    if shown is not None:
        check_shown(folder, shown)
    check_latest(folder, last)
    if (earlier := earlier_release(folder, last)) is not None:
        return write_again(folder, earlier)[0]
    check_still_valid(folder, last)
    if waiting := still_replaced(folder, last):
        raise RefusedError(
            f"the fit replaces entry {waiting[0]} of the ledger: run 'consilience site release' with --replaces "
            f"{waiting[0]} --notice FILE, the signed notice of the coordinator that this file was destroyed and not "
            "combined"
        )
    rules = Policy.from_text(folder.policy).approval
    accounts = approvals.check_approved(folder, rules, fit_subject(folder, last))
    head = folder.entries[-1].hash
    data = fit_file(folder, last)
    details: dict[str, Any] = {
        "approved_by": ", ".join(accounts) or approved_by[:200],
        "account": approvals.own_account(),
    }
    details |= {"fit": last.entry.number, "content": last.report.file.hash}
    details |= {"way": NOISE} if isinstance(last.report.file, NoisyFile) else {}
    details |= {"crowd": last.entry.details["crowd"]} if "crowd" in last.entry.details else {}
    tags, stated = read_tags(folder, str(last.entry.details["tags"])), last.entry.details.get("people")
    people = None if stated is None else read_tags(folder, str(stated))
    record_release(folder, "release", last.report.file.study, tags, data, people=people, details=details, head=head)
    return data

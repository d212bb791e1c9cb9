"""A run in rounds at a site: exact sums under contract, or sums with noise; each answer in the ledger before it leaves.

What was answered is kept with its question: the same question again has the same reply, to the byte, and another one in
its place has none. A run is over the rows with which it began.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import bytes_hash
from consilience.kit import approvals, ledger, release
from consilience.kit.cohort import criteria_of
from consilience.kit.examination import UsedRows
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.contract import check_question
from consilience.kit.policy.policy import ContractRules, Policy, PrivacyRules
from consilience.kit.private_rows import private_rows
from consilience.kit.row_tags import row_tags
from consilience.kit.site_fit import validate_rows, wanted_of
from consilience.kit.spending import NOISE, charge, charges_in, check_spending, check_study, spent_in
from consilience.kit.study import Study
from consilience.kit.study_model import method_of
from consilience.messages import Failure, FailureCode, Masked, PrivateSum, decode, encode
from consilience.messages.table import decode_question
from consilience.model.contributions import refusal
from consilience.numerics.budget import noise_variance, shared_variance
from consilience.site import Site, respond
from consilience.site.account import Account
from consilience.site.masks import Masks

ANSWERS = "rounds"
"""Folder of the replies, and of the files in which they leave."""
Seal = Callable[[bytes], bytes]
"""What makes the file that leaves from a reply."""
REFUSAL = encode(Failure(FailureCode.REFUSED))
"""The one reply to a question that is refused."""


@dataclass(frozen=True)
class RunPart:
    """One question of a run, as the ledger names it.

    Parameters
    ----------
    run : str
        Identity of the run.
    number : int
        Number of the round.
    asked : str
        Identity of the question, by which its reply is found again.
    table : str
        Path of the table, for the next part.
    approved_by : str
        Who approves the answer.
    mapping : str
        Hash of the mapping through which the table was read; empty without one.
    asks : str
        What an answer discloses, in words.
    """

    run: str
    number: int
    asked: str
    table: str = ""
    approved_by: str = ""
    mapping: str = ""
    asks: str = ""

    @property
    def named(self) -> dict[str, Any]:
        """What the entry of an answer says of it."""
        found = {name: value for name, value in vars(self).items() if name != "table"}
        return {name: value for name, value in found.items() if value or name not in ("mapping", "asks")}


def stored_reply(folder: SiteFolder, run: str, number: int, asked: str) -> bytes | None:
    """Return the reply to a question of a run that was answered before; None if it was not.

    Raises
    ------
    RefusedError
        If another question of the same round was answered.
    """
    entry = answer_entry(folder, run, number, asked)
    return None if entry is None else _kept(folder, str(entry.details["reply"]), ".reply")


def stored_file(folder: SiteFolder, run: str, number: int, asked: str) -> bytes | None:
    """Return the file that left with a reply; None if it did not, or if an earlier version of the kit answered."""
    entry = answer_entry(folder, run, number, asked)
    return None if entry is None or "file" not in entry.details else _kept(folder, str(entry.details["file"]))


def _kept(folder: SiteFolder, named: str, suffix: str = ".json") -> bytes:
    return release.read_kept_bytes(folder.path / ANSWERS, named, release.MOST_BYTES, suffix)


def answer_entry(folder: SiteFolder, run: str, number: int, asked: str) -> ledger.Entry | None:
    """Return the entry of the answer to a question of a run; raise an error if another question was answered."""
    for entry in folder.entries:
        if has_answer(entry, run, number):
            if entry.details.get("asked") != asked:
                raise RefusedError(
                    f"another question of round {number} was answered (entry {entry.number} of the ledger): this one "
                    "was changed, or is of another coordinator"
                )
            return entry
    return None


def has_answer(entry: ledger.Entry, run: str, number: int) -> bool:
    """Return whether an entry is that of an answer, or of a refusal, in a round of a run."""
    details = entry.details
    return details.get("run") == run and details.get("number") == number and "reply" in details


def entries_of(folder: SiteFolder, run: str) -> list[ledger.Entry]:
    """Return the entries of a run, of its beginning and of its answers and charges."""
    others = ("decline", "approval", "draft")
    return [entry for entry in folder.entries if entry.details.get("run") == run and entry.kind not in others]


def table_of_run(folder: SiteFolder, run: str) -> str:
    """Return the path of the table that was named first in a run; empty if the site has not begun it."""
    paths = [entry.details.get("table") for entry in folder.entries if entry.details.get("run") == run]
    return next((str(path) for path in paths if path), "")


def check_rows_of_run(folder: SiteFolder, run: str, tags: str) -> bool:
    """Return whether a run has begun; raise an error if it began with other rows, by the hash of their tags."""
    begun = [entry for entry in entries_of(folder, run) if "tags" in entry.details]
    if begun and begun[0].details["tags"] != tags:
        raise RefusedError(
            f"the rows are not those with which the run of entry {begun[0].number} of the ledger began: the run ends "
            "for this site. Use the table as it was"
        )
    return bool(begun)


def reply_of(folder: SiteFolder, entry: ledger.Entry) -> bytes:
    """Return the reply that an entry of an answer, or of a refusal, names."""
    if entry.kind not in ("answer", "refusal") or "reply" not in entry.details:
        raise InvalidInputError(f"entry {entry.number} of the ledger is no answer of a round")
    return _kept(folder, str(entry.details["reply"]), ".reply")


def keep_reply(folder: SiteFolder, part: RunPart, reply: bytes, seal: Seal, more: Mapping[str, Any]) -> None:
    """Store a reply and the file in which it leaves, and record them: an answer, or a refusal with its reason."""
    path = answers_of(folder)
    file = seal(reply)
    details = {
        **part.named,
        **more,
        "account": approvals.own_account(),
        "reply": release.keep_bytes(path, reply, ".reply"),
        "file": release.keep_bytes(path, file),
        "bytes": len(file),
    }
    folder.record("refusal" if "reason" in more else "answer", details)


def answers_of(folder: SiteFolder) -> Path:
    """Return the folder of the replies, which is made for those who may use that of the site."""
    path = folder.path / ANSWERS
    if not path.exists():
        path.mkdir(mode=0o700)
        path.chmod(stat.S_IMODE(folder.path.stat().st_mode))  # whatever the umask is
    return path


# ---------------------------------------------------------------- approvals


def keep_prepared(
    folder: SiteFolder, subject: Mapping[str, Any], table: str, reply: bytes | None, file: bytes | None
) -> str:
    """Record what is to be approved, once, with the table; return the account that named the table of the run first.

    ``reply`` and ``file`` are what would leave, if that is known before noise is drawn.
    """
    drafts = [entry.details for entry in folder.entries if entry.kind == "draft"]
    if not any(subject.items() <= details.items() for details in drafts):
        details = {**subject, "table": table, "prepared_by": approvals.own_account()}
        if reply is not None and file is not None:
            details |= {"file": release.keep_bytes(answers_of(folder), file), "bytes": len(file)}
            details |= {"drafted": bytes_hash(reply)}
        folder.record("draft", details)
        drafts.append(details)
    return next(str(details["prepared_by"]) for details in drafts if details.get("run") == subject["run"])


def drafted_file(folder: SiteFolder, run: str, number: int, asked: str, reply: bytes) -> bytes | None:
    """Return the file with this reply that people were shown for a question before; None if there is none."""
    wanted = {"run": run, "number": number, "asked": asked, "drafted": bytes_hash(reply)}
    found = [entry.details for entry in folder.entries if entry.kind == "draft"]
    named = [str(details["file"]) for details in found if wanted.items() <= details.items()]
    return _kept(folder, named[-1]) if named else None


# ---------------------------------------------------------------- under contract


@dataclass(frozen=True, eq=False)
class ContractAnswer:
    """An exact answer that has not left.

    Parameters
    ----------
    reply : bytes
        What leaves: an encoded answer, or the one failure.
    reason : str
        Why the question is refused; it stays at the site.
    """

    reply: bytes
    reason: str = ""


def answer_contract(question: bytes, site: Site, rules: ContractRules) -> ContractAnswer:
    """Answer a question exactly, if the policy lists it and it is not too costly."""
    n = sum(rows.n for rows in site.chunks())
    try:
        check_question(decode_question(question), n, rules)
    except RefusedError as error:
        return ContractAnswer(REFUSAL, str(error))
    return ContractAnswer(respond(question, site))


@dataclass(frozen=True, eq=False)
class ContractSite:
    """A site in a run under contract.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    part : RunPart
    site : Site
    policy : Policy
        Tightened by the study.
    used : UsedRows
    """

    folder: SiteFolder
    study: Study
    part: RunPart
    site: Site
    policy: Policy
    used: UsedRows

    def considered(self, question: bytes) -> ContractAnswer:
        """Return the answer to a question; nothing is recorded."""
        return answer_contract(question, self.site, self.policy.contract)

    def accept(self, found: ContractAnswer, seal: Seal, accounts: str = "") -> bytes:
        """Record an answer and the file that ``seal`` makes of it, and return the reply that leaves.

        ``accounts`` are those that approved, if the policy names some.
        """
        folder, tags = self.folder, self.used.tags
        part = replace(self.part, approved_by=accounts or self.part.approved_by)
        if not check_rows_of_run(folder, part.run, tags.hash):
            named = {"method": repr(method_of(self.study))[:1000], "run": part.run, "table": part.table}
            release.record_release(
                folder, "run", self.study.identity, tags, people=self.used.people_tags, details=named
            )
        more = {"reason": found.reason} if found.reason else {"way": "coordinator"}
        keep_reply(folder, part, found.reply, seal, {"study": self.study.identity, "tags": tags.hash, **more})
        return found.reply


def open_contract(folder: SiteFolder, study: Study, table: pa.Table, part: RunPart) -> ContractSite:
    """Open a site for a question of a run under contract.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    part : RunPart

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If the policy does not allow contracts, if there are too few rows, or if the run began with other rows.
    """
    policy = Policy.from_text(folder.policy).stricter(study.minimum)
    policy.check_way(study.way)
    rows = validate_rows(study, table)
    if rows.n < policy.site.min_rows:
        raise RefusedError(f"the policy asks for at least {policy.site.min_rows} rows, and the table has {rows.n:,}")
    used = UsedRows.of(table, wanted_of(study).read, folder.secret, policy.people.column, criteria_of(study))
    check_rows_of_run(folder, part.run, used.tags.hash)
    site = Site(folder.name, rows, key=folder.secret)
    return ContractSite(folder, study, part, site.by_client() if method_of(study).by_client else site, policy, used)


# ---------------------------------------------------------------- with noise


@dataclass(frozen=True, eq=False)
class PrivateSite:
    """A site in a run with noise.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    part : RunPart
    site : Site
        With an account in the ledger of the site.
    tags : str
        Hash of the tags of the rows.
    told : list of str
        What the people at the site are told about the rows.
    rows : int
        Number of rows that fit the study, which stays at the site.
    """

    folder: SiteFolder
    study: Study
    part: RunPart
    site: Site
    tags: str
    told: list[str]
    rows: int

    def answered(self, question: bytes, seal: Seal, accounts: str = "") -> bytes:
        """Charge the question, draw the noise, record the answer and its file, and return the reply that leaves.

        Raises
        ------
        RefusedError
            If there is no answer; nothing leaves, and what was charged is spent.
        """
        reply = respond(question, self.site)
        if isinstance(decode(reply), Failure):
            raise RefusedError(f"the question has no answer here, and nothing leaves: {last_reason(self.site)}")
        more = {"study": self.study.identity, "tags": self.tags, "way": NOISE}
        part = replace(self.part, approved_by=accounts or self.part.approved_by)
        keep_reply(self.folder, part, reply, seal, more)
        return reply


def last_reason(site: Site) -> str:
    """Return why a site has given no answer; it stays there."""
    return site.reasons[-1][1] if site.reasons else "it is not known why"


def open_private(
    folder: SiteFolder, study: Study, table: pa.Table, part: RunPart, masks: Masks | None = None
) -> PrivateSite:
    """Open a site for a question of a run with noise. Nothing is refused for a value of a row.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    part : RunPart
    masks : Masks, optional
        With what the answers are masked.

    Raises
    ------
    InvalidInputError
        If the table lacks a column.
    RefusedError
        If the policy does not allow noise or this much of it, if the run would spend more than is left, or if it began
        with other rows.
    """
    policy, privacy = Policy.from_text(folder.policy), study.privacy
    policy.check_way(study.way)
    if privacy is None:
        raise InvalidInputError("the study has no table [privacy]")
    if study.lacks_start:
        raise InvalidInputError("the study does not name the model from which it starts: the coordinator completes it")
    check_study(policy.privacy, privacy)
    read = private_rows(study, table)
    if reason := refusal(read.rows):
        raise InvalidInputError(reason)
    tags = row_tags(table, [column.name for column in wanted_of(study).read], folder.secret).hash
    check_rows_of_run(folder, part.run, tags)
    account = ledger_account(folder, policy.privacy, study, part, tags, masks)
    key = blake2b(part.run.encode(), digest_size=32, key=folder.secret, person=b"consilience-run").digest()
    site = Site(folder.name, read.rows, key=key, account=account, masks=masks)
    return PrivateSite(folder, study, part, site, tags, read.told, read.rows.n - read.zeros)


def ledger_account(  # noqa: PLR0917 - what a charge names
    folder: SiteFolder, rules: PrivacyRules, study: Study, part: RunPart, tags: str, masks: Masks | None
) -> Account:
    """Return the account of a site in a run: parts that were charged before are spent, and charges go to the ledger.

    Raises
    ------
    RefusedError
        If what the run has not spent yet is more than what is left.
    """
    budget = method_of(study).budget
    if budget is None:
        raise InvalidInputError("the method of the study has no budget")
    rho, parts = budget.rho, budget.parts
    mine = [each.entry.details for each in charges_in(folder) if each.entry.details.get("run") == part.run]
    charged = {int(details["place"]): str(details["question"]) for details in mine}
    if len(charged) < parts:
        check_spending(rules, spent_in(folder), rho * (parts - len(charged)))

    def record(place: int, question: bytes) -> None:
        found = decode_question(question)
        asked = found.question if isinstance(found, Masked) else found
        if not isinstance(asked, PrivateSum):
            raise InvalidInputError("only sums with noise are charged")
        sensitivity = account.sensitivity(asked.size)
        variance, masked = noise_variance(sensitivity, rho), {}
        if isinstance(found, Masked) and masks is not None:
            variance = shared_variance(sensitivity, rho, len(found.sites), masks.colluding)
            masked = {"sums": "masked", "sites": list(found.sites), "colluding": masks.colluding}
        what = {
            "study": study.identity, "run": part.run, "number": part.number, "place": place,
            "question": bytes_hash(question), "unit": budget.unit, "sensitivity": sensitivity,
            "variance": variance, "tags": tags, "table": part.table,
            "approved_by": part.approved_by, **masked,
        }  # fmt: skip
        charge(folder, rules, rho, what)

    account = Account(rho, parts, budget.rows_each or 1, charged, record)
    return account

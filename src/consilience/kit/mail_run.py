"""Runs by files: a site answers a question that came as a file, and the coordinator takes a run further."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from consilience._version import __version__
from consilience.errors import AwaitedError, InvalidInputError, RefusedError
from consilience.federation.federated_fit import FederatedOrders
from consilience.files.json_text import bytes_hash, parse_json, read_text
from consilience.kit import approvals
from consilience.kit.combination import run_study
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.forecast import forecast_study, say_outlook
from consilience.kit.letters import LONGEST_WAVE, RUN, AnswerLetter, QuestionLetter, RunFile, is_wave
from consilience.kit.mail_folder import END, STUDY, MailFolder, end_text, write_whole
from consilience.kit.mailbox import POLL, Mailbox, begin_folder, read_run
from consilience.kit.mapping import TableMapping, mapped_by
from consilience.kit.mask_keys import fingerprint_of, keys_of_run, masks_of_run
from consilience.kit.policy.contract import parts_of
from consilience.kit.policy.policy import Policy, RunRules
from consilience.kit.release import LONGEST_REASON, check_not_withdrawn, envelope_of
from consilience.kit.roster import verify_signature
from consilience.kit.sealed_answers import seal_answer
from consilience.kit.site_fit import flow_of
from consilience.kit.site_rounds import (
    RunPart,
    drafted_file,
    entries_of,
    has_answer,
    keep_prepared,
    open_contract,
    open_private,
    stored_file,
    stored_reply,
)
from consilience.kit.spending import cost_line
from consilience.kit.study import Study, Trust
from consilience.kit.study_model import method_of
from consilience.messages import LogLikelihood, decode, encode
from consilience.messages.site_names import site_names
from consilience.messages.table import decode_question
from consilience.model import Mixture
from consilience.runs import Journal, RunOptions
from consilience.runs.run import OnDrop
from consilience.site.masks import Masks


@dataclass(frozen=True, eq=False)
class Draft:
    """An answer that has not left.

    Parameters
    ----------
    letter : QuestionLetter
    way : str
        Whom the site has to trust, as the study says.
    reply : bytes or None
        The encoded answer or failure; None if its noise is drawn only after a person has approved.
    file : bytes or None
        The file that would leave, in the same way.
    answer : callable or None
        ``answer(accounts)`` records the answer and its file, with the accounts that approved if the policy names some,
        and returns the reply; None if the question was answered before.
    said : tuple of str
        What the people at the site are told before they approve.
    reason : str
        Why the site refuses the question; it stays there.
    table : str
        Path of the table, for those who approve after others.
    """

    letter: QuestionLetter
    way: Trust
    reply: bytes | None
    file: bytes | None
    answer: Callable[[str], bytes] | None = None
    said: tuple[str, ...] = ()
    reason: str = ""
    table: str = ""

    @property
    def subject(self) -> dict[str, Any]:
        """What is approved, as details of entries of the ledger."""
        letter = self.letter
        asked = {"study": letter.study, "run": letter.run, "number": letter.number, "asked": letter.hash}
        return asked if self.file is None else {**asked, "file": bytes_hash(self.file)}

    @property
    def is_new(self) -> bool:
        """Whether the question was not answered before."""
        return self.answer is not None


def read_mail(folder: Path, study: Study | None = None) -> tuple[RunFile, Study]:
    """Read the run of a folder and its study, which is the one in the folder if no other is given.

    Raises
    ------
    AwaitedError
        If one of them is not there as a whole: a sync service may still be copying it. Half of a study can be a valid
        study, and is told by its hash.
    InvalidInputError
        If there is no run, or if its file was changed.
    """
    text = read_text(folder / RUN, f"a folder with {RUN}")
    try:
        parse_json(text, "the file of a run")
    except InvalidInputError as error:
        raise AwaitedError(f"{RUN} in {folder.name} is not whole: it may still be copied", ()) from error
    run = RunFile.from_text(text)
    if study is None:
        with suppress(InvalidInputError):
            study = Study.read(folder / STUDY)
        if study is None or study.identity != run.study:
            raise AwaitedError(f"{STUDY} in {folder.name} is not whole: it may still be copied, or was changed", ())
    return run, study


def open_question(mail: MailFolder, run: RunFile, site: str) -> QuestionLetter | None:
    """Return the latest question of a run to a site; None if there is none.

    Raises
    ------
    RefusedError
        If two questions of one round differ: one of them was changed, or is of another coordinator.
    """
    mine = [letter for _, letter in mail.questions() if letter.run == run.identity and letter.is_for(site)]
    if not mine:
        return None
    latest = max(letter.number for letter in mine)
    found = {letter.hash: letter for letter in mine if letter.number == latest}
    if len(found) > 1:
        raise RefusedError(f"there are different questions of round {latest}: ask the coordinator which one is right")
    return next(iter(found.values()))


def is_answered(folder: SiteFolder, mail: MailFolder, letter: QuestionLetter) -> bool:
    """Whether the site's own answer to a question is in the folder; one that somebody else wrote does not count."""
    file = stored_file(folder, letter.run, letter.number, letter.hash)
    wanted = (letter.run, letter.number, folder.name, letter.hash)
    return file is not None and any(
        (each.run, each.number, each.site, each.asked) == wanted and each.to_text().encode() == file
        for _, each in mail.answers()
    )


def draft_answer(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    run: RunFile,
    letter: QuestionLetter,
    *,
    source: Path | None = None,
    approved_by: str = "",
    mapping: TableMapping | None = None,
    wave: str = "",
) -> Draft:
    """Prepare the answer to a question; nothing leaves, and nothing is charged yet.

    An exact answer is computed, so that people can look at it; noise is drawn when they have approved. A question that
    was answered before has the same reply, which is not computed again.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    run : RunFile
    letter : QuestionLetter
    source : Path, optional
        File of the table, for the ledger.
    approved_by : str
        Who approves the answer, for the ledger.
    mapping : TableMapping, optional
        Through which the table was read; recorded.
    wave : str
        Wave of the table, as the people at the site state it; empty if they do not.

    Raises
    ------
    InvalidInputError
        If the question is not of this run or for this site, or if the table does not fit the study.
    RefusedError
        If the policy does not allow the way of the study, if the run is of another wave, if the rows differ from those
        of the run, if another question of the same round was answered, or if the budget is spent.
    """
    check_letter(folder, study, run, letter)
    check_signed(Policy.from_text(folder.policy).runs, run, letter)
    check_not_withdrawn(folder, study.identity)
    check_wave(run, wave)
    if study.way == "limits" or study.is_noisy_file:
        raise RefusedError("the study is one file of each site: use 'consilience site fit' and 'site release'")
    reply = stored_reply(folder, letter.run, letter.number, letter.hash)
    if reply is not None:
        kept = stored_file(folder, letter.run, letter.number, letter.hash)
        return Draft(letter, study.way, reply, kept or answer_file(folder, letter, run.box, reply))
    path, read_by = "" if source is None else str(source.resolve()), "" if mapping is None else mapping.identity
    asks = letter.disclosed[:LONGEST_REASON]
    part = RunPart(letter.run, letter.number, letter.hash, path, approved_by, read_by, asks)
    first = not entries_of(folder, letter.run)
    of_wave = [f"This run is of wave {run.wave}: answer it with the table of that wave."] * bool(run.wave)
    said = (*(beginning_lines(folder, run) if first else ()), *of_wave, *mapped_by(mapping)[1:])
    if study.way == "noise":
        colluding = method_of(study).masked
        masks = None if colluding is None else masks_of_run(folder, run, letter.number, colluding)
        private = open_private(folder, study, table, part, masks)
        worth = (worth_line(study, run, private.rows),) if first else ()
        told = (*said, *private.told, *masked_line(run, masks), _cost_of(folder, study, letter), *worth)
        answer = partial(private.answered, letter.question, partial(answer_file, folder, letter, run.box))
        return Draft(letter, study.way, None, None, answer, told, table=path)
    site = open_contract(folder, study, table, part)
    said = (*said, *(flow_of(study, table).lines if study.cohort else ()))
    found = site.considered(letter.question)
    shown = drafted_file(folder, letter.run, letter.number, letter.hash, found.reply)
    file = shown or answer_file(folder, letter, run.box, found.reply)
    return Draft(
        letter, study.way, found.reply, file, partial(site.accept, found, lambda _: file), said, found.reason, path
    )


def beginning_lines(folder: SiteFolder, run: RunFile) -> tuple[str, ...]:
    """Return what people at a site are told before their first answer in a run."""
    begins = (
        "This is the first answer in this run: read the study before you approve it. The run does not name its sites: "
        "answer if its coordinator has asked this site to take part."
    )
    if run.parent is not None:
        begins += f" {relayed_line(*run.parent)}"
    if not run.signer:
        return begins, "Nobody signed the run: whoever can write into its folder can ask."
    if Policy.from_text(folder.policy).runs.signed_by:
        return (begins,)
    return begins, (
        f"The run is signed with {run.signer}: compare this key with the coordinator's on another way than this "
        "folder, and state it in [runs] of policy.toml."
    )


def relayed_line(parent: str, signer: str) -> str:
    """Return what people at a site are told of the run that a region serves, as the region says it."""
    return (
        f"It is the run of a region, which says that it passes on the sum of its sites: to the run {parent[:19]}..., "
        f"whose coordinator has the key {signer}."
    )


def masked_line(run: RunFile, masks: Masks | None) -> tuple[str, ...]:
    """Return what people at a site are told about masks; nothing if sums are not masked."""
    if masks is None:
        return ()
    said = (
        f"The answer is masked: it is read only in the sum over {run.number} sites, if all of them answer. The "
        f"fingerprint of their keys is {fingerprint_of(run)}: compare it with two other sites, once, by telephone. "
        f"This counts on at most {masks.colluding} of the sites telling the coordinator what they know."
    )
    return (said,)


def _cost_of(folder: SiteFolder, study: Study, letter: QuestionLetter) -> str:
    """Return what an answer with noise costs, and what is spent with it."""
    budget, rules = method_of(study).budget, Policy.from_text(folder.policy).privacy
    rho = Fraction(0) if budget is None else budget[0] * sum(1 for _ in parts_of(decode_question(letter.question)))
    return cost_line(folder, rules, rho)


def worth_line(study: Study, run: RunFile, rows: int) -> str:
    """Return what a run with noise will know by its public start, if all sites have as many rows as this one."""
    said = say_outlook(forecast_study(study, start_of(run)), (max(rows, 1),) * run.number)
    return f"Forecast if each of the {run.number} sites had {rows:,} rows, as many as this one: {said}"


def check_letter(folder: SiteFolder, study: Study, run: RunFile, letter: QuestionLetter) -> None:
    """Raise an error if a question is not of this run and study, or not for this site."""
    if run.study != study.identity or letter.study != study.identity:
        raise InvalidInputError("the question is for another study, or for another version of it")
    if letter.run != run.identity:
        raise InvalidInputError("the question is of another run")
    if not letter.is_for(folder.name):
        raise InvalidInputError(f"the question is not for {folder.name!a}")
    if (seen := letter.head_of(folder.name)) is not None:
        check_restored(folder, *seen)
        if letter.answered is not None:
            check_recorded(folder, *letter.answered)


def check_signed(rules: RunRules, run: RunFile, letter: QuestionLetter) -> None:
    """Raise an error unless run and question are signed by one coordinator, and by the one that the policy names.

    Raises
    ------
    RefusedError
        If the policy allows no unsigned run and this one is, or if a signature is missing, wrong or another's.
    ImportError
        If the package cryptography is missing.
    """
    if not run.signer:
        if rules.allow_unsigned and not rules.signed_by:
            return
        raise RefusedError(
            "the run is not signed: whoever can write into its folder can ask. Ask the coordinator to begin it with a "
            "key, or let who may decide this for the site state allow_unsigned = true in [runs] of policy.toml"
        )
    if rules.signed_by and run.signer != rules.signed_by:
        raise RefusedError(
            f"the run is of another coordinator: its key is {run.signer}, and the policy names {rules.signed_by}. Ask "
            "the coordinator which key is right, on another way than this folder"
        )
    if not verify_signature(run.signer, run.signature, run.identity):
        raise RefusedError(
            f"{RUN} is not signed with the key that it names: it was changed, or is of nobody who has this key. Ask "
            "the coordinator to write it again"
        )
    if not verify_signature(run.signer, letter.envelope.get("signature"), letter.signed_hash):
        raise RefusedError(
            f"the question of round {letter.number} is not signed by the coordinator of the run: it was changed, or is "
            "of somebody else. Ask the coordinator to write it again"
        )


def check_wave(run: RunFile, wave: str) -> None:
    """Raise an error if a table is of a wave that is not that of the run."""
    if wave and wave != run.wave:
        wanted = f"of wave {run.wave}" if run.wave else "of no stated wave"
        raise RefusedError(
            f"the table is of wave {wave}, and the run is {wanted}: answer with the table of that wave, or ask the "
            "coordinator for a run of this one (consilience run --wave)"
        )


RESTORED = (
    "the ledger here does not have it: the folder was restored from an older copy, or copied. Nothing is answered, "
    "since what was spent and released after that copy is not known here. Restore the latest copy of the folder"
)


def check_restored(folder: SiteFolder, number: int, hashed: str) -> None:
    """Raise an error if the ledger lacks an entry that the coordinator has seen: an older copy was restored."""
    entries = folder.entries
    if number > len(entries) or entries[number - 1].hash != hashed:
        raise RefusedError(f"the coordinator has seen entry {number} of this site's ledger, and {RESTORED}")


def check_recorded(folder: SiteFolder, run: str, number: int) -> None:
    """Raise an error if the ledger lacks an answer that the coordinator has, which is recorded after it is made."""
    if not any(has_answer(entry, run, number) for entry in folder.entries):
        raise RefusedError(f"the coordinator has this site's answer of round {number} of {run[:19]}..., and {RESTORED}")


def finish_answer(folder: SiteFolder, draft: Draft, approved: Mapping[str, Any] | None = None) -> str:
    """Record an answer in the ledger, and return the text of the file that leaves, which is stored.

    A question that was answered before has the same file again.

    Parameters
    ----------
    folder : SiteFolder
    draft : Draft
    approved : mapping, optional
        What people have approved in place of this answer, such as a mandate.

    Raises
    ------
    RefusedError
        If approvals are missing that the policy asks for.
    """
    if draft.answer is not None:
        rules = Policy.from_text(folder.policy).approval
        accounts = approvals.check_approved(folder, rules, approved or draft.subject)
        draft.answer(", ".join(accounts))
    letter = draft.letter
    file = stored_file(folder, letter.run, letter.number, letter.hash) or draft.file
    if file is None:
        raise InvalidInputError("there is no answer that could leave")
    return file.decode()


def answer_file(folder: SiteFolder, letter: QuestionLetter, box: str, reply: bytes) -> bytes:
    """Return the file of an answer: signed if the site has a key, and sealed if the run has one for it."""
    found = AnswerLetter(letter.run, letter.study, letter.number, folder.name, letter.hash, reply)
    signed = replace(found, envelope=envelope_of(folder, found.hash))
    return (seal_answer(signed, box) if box else signed).to_text().encode()


def approve_answer(folder: SiteFolder, draft: Draft, approved_by: str) -> int:
    """Record that this account approves an answer; return how many approvals are still missing.

    Raises
    ------
    RefusedError
        If this account may not approve it.
    """
    rules = Policy.from_text(folder.policy).approval
    prepared_by = keep_prepared(folder, draft.subject, draft.table, draft.reply, draft.file)
    return approvals.approve(folder, rules, draft.subject, prepared_by, approved_by)


def prepare_answer(folder: SiteFolder, draft: Draft) -> tuple[bool, str]:
    """Record what is to be approved; return whether the run begins with it, and why this account may not approve it."""
    rules, entries = Policy.from_text(folder.policy).approval, folder.entries
    begins = not any(entry.kind == "draft" and entry.details.get("run") == draft.letter.run for entry in entries)
    prepared_by = keep_prepared(folder, draft.subject, draft.table, draft.reply, draft.file)
    approved = approvals.counted_in(entries, rules, draft.subject)
    return begins, approvals.refused_approver(rules, approvals.own_account(), prepared_by, approved)


def is_approved_answer(folder: SiteFolder, draft: Draft) -> bool:
    """Whether as many have approved an answer as the policy says."""
    rules = Policy.from_text(folder.policy).approval
    return len(approvals.counted_in(folder.entries, rules, draft.subject)) >= rules.approvals


def start_of(run: RunFile) -> Mixture | None:
    """Return the public start of a run; None if it has none."""
    if not run.start:
        return None
    question = decode(run.start)
    if not isinstance(question, LogLikelihood):
        raise InvalidInputError("the start of the run is not a mixture")
    return question.mixture


def start_bytes(start: Mixture | None) -> bytes:
    """Return a public start as it stands in the file of a run."""
    return b"" if start is None else encode(LogLikelihood(start))


# ---------------------------------------------------------------- mail run

JOURNAL = "run.journal"


def begin_by_files(
    study: Study,
    mailbox: Path,
    own: Path,
    *,
    sites: Sequence[str] = (),
    keys: Mapping[str, str] | None = None,
    start: Mixture | None = None,
    masks: Mapping[str, str] | None = None,
    identity: SiteIdentity | None = None,
    wave: str = "",
) -> RunFile:
    """Begin a run in a folder, or go on with the one that is there.

    Parameters
    ----------
    study : Study
    mailbox : Path
        Folder that the sites see.
    own : Path
        Folder of the coordinator: its secret, its journal and its copies of the questions.
    sites : sequence of str
        Names of the sites; those of the run in the folder if none are given.
    keys : mapping of str to str, optional
        Public keys of sites that sign.
    start : Mixture, optional
        Public start of the run; that of the run in the folder if none is given.
    masks : mapping of str to str, optional
        Public keys of the sites for masked sums.
    identity : SiteIdentity, optional
        Key with which the coordinator signs the run and its questions; without one nobody does, and sites answer only
        if their policy allows that.
    wave : str
        Wave of the study that sites answer with, as they are told; that of the run in the folder if none is given.

    Raises
    ------
    EngineError
        If the folder is of another run or coordinator.
    InvalidInputError
        If the names of the sites are missing, or a key where the study requires signatures.
    """
    if study.way == "limits" or study.is_noisy_file:
        raise InvalidInputError("the study is one file of each site: combine the files that sites release")
    there = read_run(mailbox, own) if (mailbox / RUN).exists() else None
    if there is None and not sites:
        raise InvalidInputError("a new run needs the names of its sites: pass a roster, or each name")
    names = tuple(sorted(site_names(sites))) if sites or there is None else there.sites
    known = dict(keys or {}) if sites or there is None else dict(there.keys)
    begins = there.start if there is not None and start is None else start_bytes(start)
    finds_start = study.privacy is not None and study.privacy.start == "private"
    if study.way == "noise" and not begins and not finds_start:
        raise InvalidInputError("a run with noise needs a public start: pass --start model.json")
    if finds_start and start is not None:
        raise InvalidInputError("the study finds its start from sums with noise: leave --start out")
    unsigned = [name for name in names if name not in known]
    if study.minimum.require_signatures and unsigned:
        raise InvalidInputError(f"the study requires signatures, and the roster has no key of {', '.join(unsigned)}")
    if method_of(study).masked is None:
        given: Mapping[str, str] = {}
    else:
        given = dict(masks or {}) if sites or there is None else there.masks
    of_wave = wave if wave or there is None else there.wave
    if wave and not is_wave(wave):
        raise InvalidInputError(f"wave {wave!a}: expected a name of at most {LONGEST_WAVE} printable characters")
    wanted = RunFile(study.identity, names, known, "", begins, given, __version__, wave=of_wave)
    if method_of(study).masked is not None:
        keys_of_run(wanted)
    found = begin_folder(mailbox, own, wanted, identity)
    if not (mailbox / STUDY).exists():
        write_whole(mailbox / STUDY, study.to_text())
    return found


def advance_by_files(
    study: Study,
    mailbox: Path,
    own: Path,
    run: RunFile,
    *,
    days: float | None = None,
    until: datetime | None = None,
    patience: float | None = 0.0,
    on_drop: OnDrop = "stop",
    poll: float = POLL,
    identity: SiteIdentity | None = None,
    notice: Callable[[str, str], None] | None = None,
    institutions: Mapping[str, str] | None = None,
) -> FederatedOrders:
    """Take a run as far as the answers in its folder allow; return its result if it ends.

    Parameters
    ----------
    study : Study
    mailbox, own : Path
        As in :func:`begin_by_files`.
    run : RunFile
    days, until, patience, poll, identity, notice
        As in :class:`~consilience.kit.mailbox.Mailbox`.
    on_drop : {"stop", "continue"}
    institutions : mapping of str to str, optional
        Institution of the sites that share one, as in :class:`~consilience.Federation`.

    Raises
    ------
    AwaitedError
        If answers are not there yet: the same call goes on later.
    RoundStoppedError
        If a site failed, or its time is over, and ``on_drop`` is ``"stop"``.
    """
    journal = Journal(own / JOURNAL, run.identity)
    box = Mailbox(
        mailbox,
        own,
        run,
        journal,
        identity,
        require_signatures=study.minimum.require_signatures,
        days=days,
        until=until,
        patience=patience,
        poll=poll,
        notice=notice,
    )
    options = RunOptions(journal, on_drop=on_drop)
    done = run_study(study, box, start=start_of(run), options=options, institutions=institutions)
    write_whole(mailbox / END, end_text(run, len(done.best.record.rounds)))
    return done

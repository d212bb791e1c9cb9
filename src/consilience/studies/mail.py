"""A site's answer to a question that came as a file: held against study, policy and ledger, shown, sealed, and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.letters import AnswerLetter, QuestionLetter
from consilience.files.mail_folder import MailFolder
from consilience.files.run_file import RunFile
from consilience.files.study import Study
from consilience.messages.questions import LogLikelihood
from consilience.messages.table import decode, encode
from consilience.methods.task import Task
from consilience.model.mixture import Mixture
from consilience.site.folder import SiteFolder
from consilience.site.policy.rounds import GuardedSite
from consilience.site.policy.rounds.guard import Outcome
from consilience.site.rounds import Part, stored_reply
from consilience.site.sealing import envelope_of
from consilience.studies.methods import method_of
from consilience.studies.models import task_of
from consilience.studies.site_run import guarded_at_site


@dataclass(frozen=True, eq=False)
class Draft:
    """An answer that has not left: what it has, and what the guard decided.

    Parameters
    ----------
    letter : QuestionLetter
    site : GuardedSite or None
        The site, which records the answer before it leaves; None if the question was answered before.
    outcome : Outcome or None
    reply : bytes
        The encoded answer, or the one failure.
    """

    letter: QuestionLetter
    site: GuardedSite | None
    outcome: Outcome | None
    reply: bytes

    @property
    def is_new(self) -> bool:
        """Whether the question was not answered before."""
        return self.site is not None


def open_question(mail: MailFolder, run: RunFile, site: str) -> QuestionLetter | None:
    """Return the latest question of a run to a site; None if there is none.

    Raises
    ------
    RefusedError
        If two questions of one round differ: one of them was changed, or is of another coordinator.
    """
    mine = [letter for _, letter in mail.questions() if letter.run == run.identity and site in letter.sites]
    if not mine:
        return None
    latest = max(letter.number for letter in mine)
    found = {letter.hash: letter for letter in mine if letter.number == latest}
    if len(found) > 1:
        raise RefusedError(f"there are different questions of round {latest}: ask the coordinator which one is right")
    return next(iter(found.values()))


def is_answered(folder: SiteFolder, mail: MailFolder, letter: QuestionLetter) -> bool:
    """Whether the site's own answer to a question is in the folder; one that somebody else wrote does not count."""
    reply = stored_reply(folder, letter.run, letter.number, letter.hash)
    wanted = (folder.name, letter.number, letter.hash, reply)
    return reply is not None and any(
        (each.site, each.number, each.asked, each.answer) == wanted for _, each in mail.answers()
    )


def drafted_answer(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    run: RunFile,
    letter: QuestionLetter,
    *,
    source: Path | None = None,
    approved_by: str = "",
) -> Draft:
    """Compute the answer to a question through the site's guard; nothing leaves, and nothing is charged yet.

    A question that was answered before has the same reply, which is not computed again.

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

    Raises
    ------
    InvalidInputError
        If the question is not of this run or for this site, or if the table does not fit the study.
    RefusedError
        If the rows differ from those of the run, or by a few from those of an earlier release or run, or if another
        question of the same round was answered.
    """
    check_letter(folder, study, run, letter)
    reply = stored_reply(folder, letter.run, letter.number, letter.hash)
    if reply is not None:
        return Draft(letter, None, None, reply)
    table_path = "" if source is None else str(source.resolve())
    part = Part(letter.run, letter.number, letter.hash, table_path, approved_by)
    site = guarded_at_site(folder, study, table, method_of(study), task_from(study, start_of(run)), part=part)
    outcome = site.considered(letter.question, letter.totals)
    return Draft(letter, site, outcome, outcome.reply)


def check_letter(folder: SiteFolder, study: Study, run: RunFile, letter: QuestionLetter) -> None:
    """Raise an error if a question is not of this run and study, or not for this site."""
    if run.study != study.identity or letter.study != study.identity:
        raise InvalidInputError("the question is for another study, or for another version of it")
    if letter.run != run.identity:
        raise InvalidInputError("the question is of another run")
    if folder.name not in letter.sites:
        raise InvalidInputError(f"the question is not for {folder.name!a}")


def sealed_answer(folder: SiteFolder, draft: Draft) -> AnswerLetter:
    """Record an answer in the ledger, and return the letter that leaves, signed if the site has a key."""
    if draft.site is not None and draft.outcome is not None:
        draft.site.accept(draft.outcome)
    letter = draft.letter
    found = AnswerLetter(letter.run, letter.study, letter.number, folder.name, letter.hash, draft.reply)
    return replace(found, envelope=envelope_of(folder, found.hash))


def task_from(study: Study, start: Mixture | None) -> Task:
    """Return the task of a study with a public start."""
    return replace(task_of(study), start=start)


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

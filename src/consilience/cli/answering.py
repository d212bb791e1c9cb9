"""The command by which a site answers a question of a run: preview, approval, one file."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.answer_preview import answer_text
from consilience.cli.catalogue import CommandError, Problem, reported_as
from consilience.cli.options import AsJson, MailPath, NoInput, Quiet, SiteName, Where, folder_of, study_of, table_of
from consilience.cli.output import Output
from consilience.files.letters import AnswerLetter, QuestionLetter
from consilience.files.mail_folder import STUDY, MailFolder, answer_name, write_whole
from consilience.files.run_file import RunFile
from consilience.files.study import Study
from consilience.site import ledger
from consilience.site.folder import LEDGER, SiteFolder
from consilience.site.policy import Policy
from consilience.site.rounds import table_of_run
from consilience.studies import examined_for
from consilience.studies.mail import Draft, drafted_answer, is_answered, open_question, sealed_answer

NOTHING_YET = 6
"""Exit status if there is nothing to do until others have answered or asked."""


def answer(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    mailbox: MailPath,
    table: Annotated[Path | None, typer.Option(help="Table of the site; needed for the first answer.")] = None,
    study: Annotated[Path | None, typer.Option(help="Study file; the one in DIR by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the answer; DIR by default.")] = None,
    by: Annotated[str | None, typer.Option(help="Who approves, for the ledger; the user's name if not given.")] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Print every number that would leave.")] = False,
    no_input: NoInput = False,
    where: Where = Path(),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Answer the latest question of a run by files: show what would leave, ask for approval, and write one file."""
    folder, output = folder_of(name, where), Output(as_json, quiet)
    with reported_as(Problem.QUESTION, refused=Problem.REFUSED):
        mail, run = MailFolder(mailbox), RunFile.read(mailbox)
        letter = open_question(mail, run, folder.name)
        waits = letter is None or is_answered(folder, mail, letter)
    for other, reason in mail.unreadable.items():
        output.say(f"not used: {other}: {reason}", style="yellow")
    if letter is None or waits:
        raise _waiting(output, letter, folder.name)
    wanted = study_of(mailbox / STUDY if study is None else study)
    path = table or Path(table_of_run(folder, run.identity))
    if path == Path():
        raise CommandError(Problem.QUESTION, "this is the first answer in the run: name the table with --table")
    rows = table_of(path)
    if not examined_for(wanted, rows).fits:
        raise CommandError(Problem.MISFIT, f"run 'consilience site check {name} STUDY {path}' for the findings")
    who = by or getpass.getuser()
    with reported_as(Problem.QUESTION, refused=Problem.REFUSED), output.working(f"{folder.name} answers"):
        draft = drafted_answer(folder, wanted, rows, run, letter, source=path, approved_by=who)
    _approve(folder, draft, wanted, who, output, numbers=numbers, no_input=no_input)
    with reported_as(Problem.QUESTION, refused=Problem.REFUSED):
        sealed = sealed_answer(folder, draft)
    target = (out or mailbox) / answer_name(letter.number, folder.name)
    with reported_as(Problem.OUTPUT):
        write_whole(target, sealed.to_text())
    refusal = None if draft.outcome is None else draft.outcome.refusal
    output.data(
        {"file": str(target), "round": letter.number, "refused": refusal.rule if refusal else None},
        f"{target} written. The ledger has the answer.",
    )


def _waiting(output: Output, letter: QuestionLetter | None, site: str) -> typer.Exit:
    """Say that there is nothing to do, and return the end of the command."""
    said = (
        f"There is no question to {site} yet."
        if letter is None
        else f"{site} has answered round {letter.number}: wait for the next question."
    )
    output.data({"state": "nothing to do", "round": None if letter is None else letter.number}, said)
    return typer.Exit(NOTHING_YET)


def _approve(
    folder: SiteFolder, draft: Draft, study: Study, who: str, output: Output, *, numbers: bool, no_input: bool
) -> None:
    """Show the preview and ask; an answer that left before is not asked about again."""
    if no_input and draft.is_new and not Policy.from_text(folder.policy).release.allow_no_input:
        raise CommandError(Problem.REFUSED, "the policy does not allow an answer without the question to a person")
    letter = draft.letter
    size = len(AnswerLetter(letter.run, letter.study, letter.number, folder.name, letter.hash, draft.reply).to_text())
    Output(quiet=output.quiet and no_input).say(answer_text(draft, study, size, numbers=numbers))
    if not draft.is_new or no_input or typer.confirm("Write this answer?", default=False, err=True):
        return
    details = {"study": letter.study, "run": letter.run, "number": letter.number, "declined_by": who}
    ledger.append(folder.path / LEDGER, "decline", details)
    raise CommandError(Problem.DECLINED, "nothing has left; the ledger has your answer")

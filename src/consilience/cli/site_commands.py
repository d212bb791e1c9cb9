"""The commands of a site: its folder, check, fit, preview, release, annex and ledger. Only ``serve`` sends anything."""

from __future__ import annotations

import getpass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from consilience.cli.annex import annex_of
from consilience.cli.answer_view import show_answer
from consilience.cli.catalogue import CommandError, CommandFault, report_as, report_missing_extra
from consilience.cli.letter_commands import share_letter
from consilience.cli.live_commands import (
    approve_open_question,
    pause_site,
    resume_site,
    serve_site,
    show_site_status,
    site_mandate,
)
from consilience.cli.mapping_commands import MappingPath, map_export, mapped_table, mapping_of
from consilience.cli.notice_commands import retractions_of, withdraw_site
from consilience.cli.options import (
    WITHOUT_A_PERSON,
    Approver,
    AsJson,
    MailPath,
    NoInput,
    Overwrite,
    Quiet,
    SiteName,
    StudyPath,
    TablePath,
    Where,
)
from consilience.cli.output import (
    Output,
    check_free,
    check_start_file,
    folder_of,
    is_confirmed,
    model_of,
    open_in_browser,
    study_of,
    write,
    write_bytes,
)
from consilience.cli.preview import WAYS, answer_text, final_lines, preview_document, text_of
from consilience.cli.rehearsing import rehearse_study
from consilience.cli.site_page import PagedCommand, option_of, write_page
from consilience.errors import AwaitedError, RefusedError
from consilience.files.json_text import bytes_hash, read_text
from consilience.files.noisy_file import read_sent_file
from consilience.kit import ledger, release
from consilience.kit.examination import Examination, check_people
from consilience.kit.folder import KEY, LEDGER, POLICY, SiteFolder, SiteIdentity
from consilience.kit.letters import QuestionLetter
from consilience.kit.mail_folder import STUDY, MailFolder, answer_name, write_whole
from consilience.kit.mail_run import (
    Draft,
    approve_answer,
    check_letter,
    draft_answer,
    finish_answer,
    is_answered,
    is_approved_answer,
    open_question,
    prepare_answer,
    read_mail,
)
from consilience.kit.mapping import TableMapping
from consilience.kit.mask_keys import public_mask_key
from consilience.kit.notices import record_retractions
from consilience.kit.policy.policy import PROFILES, Policy
from consilience.kit.policy.refit import table_refusal
from consilience.kit.private_files import slug
from consilience.kit.private_rows import private_rows
from consilience.kit.site_fit import (
    MisfitError,
    Statement,
    examine_for_study,
    few_filled,
    fit_at_site,
    flow_of,
    study_rows,
)
from consilience.kit.site_noise import draft_steps
from consilience.kit.site_rounds import table_of_run
from consilience.kit.spending import budget_document, budget_text
from consilience.kit.study import Study
from consilience.kit.study_notes import LONGEST, QuestionNote, keep_notes, keep_reading

NOTHING_YET = 6
"""Exit status if there is nothing to do until others have answered or asked."""


def answer_question(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    mailbox: MailPath,
    table: Annotated[Path | None, typer.Option(help="Table of the site; needed for the first answer.")] = None,
    study: Annotated[Path | None, typer.Option(help="Study file; the one in DIR by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the answer; DIR by default.")] = None,
    by: Approver = None,
    wave: Annotated[str, typer.Option(help="Wave of the table: an answer to a run of another wave is refused.")] = "",
    numbers: Annotated[bool, typer.Option("--numbers", help="Print every number that would leave.")] = False,
    mapping: MappingPath = None,
    no_input: NoInput = False,
    where: Where = Path(),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Answer the latest question of a run by files: show what would leave, ask for approval, and write one file."""
    folder, output = folder_of(name, where), Output(as_json, quiet)
    given = None if study is None else study_of(study)
    with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED):
        try:
            run, wanted = read_mail(mailbox, given)
        except AwaitedError as error:
            output.data({"state": "nothing to do", "round": None}, f"{error}: try again later.")
            raise typer.Exit(NOTHING_YET) from error
        mail = MailFolder(mailbox)
        letter = open_question(mail, run, folder.name)
        waits = letter is None or is_answered(folder, mail, letter)
        if letter is not None:
            check_letter(folder, wanted, run, letter)  # a folder that was restored may not know the table
    for other, reason in mail.unreadable.items():
        output.say(f"not used: {other}: {reason}", style="yellow")
    if letter is None or waits:
        raise _waiting(output, letter, folder.name)
    path = table or Path(table_of_run(folder, run.identity))
    if path == Path():
        raise CommandError(CommandFault.QUESTION, "this is the first answer in the run: name the table with --table")
    private = wanted.way == "noise"
    made = mapping_of(name, where, mapping)
    rows = mapped_table(path, wanted, made, as_text=private)
    if not private and not examine_for_study(wanted, rows).fits:
        raise CommandError(CommandFault.MISFIT, f"run 'consilience site check {name} STUDY {path}' for the findings")
    who, entry = by or getpass.getuser(), len(folder.entries)
    with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED), output.working(f"{folder.name} answers"):
        lines = private_rows(wanted, rows).told if private else flow_of(wanted, rows).lines
        keep_reading(folder, wanted, rows, (study or mailbox / STUDY, path), entry=entry, lines=lines)
        keep_notes(folder, wanted, question=_question_note(letter, mailbox, entry))
        draft = draft_answer(folder, wanted, rows, run, letter, source=path, approved_by=who, mapping=made, wave=wave)
    _approve(folder, draft, wanted, who, output, numbers=numbers, no_input=no_input)
    with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED):
        text = finish_answer(folder, draft)
    target = (out or mailbox) / answer_name(letter.number, folder.name)
    with report_as(CommandFault.OUTPUT):
        write_whole(target, text)
    said = "The site refuses the question; the ledger has the reason." if draft.reason else "The ledger has the answer."
    output.data(
        {"file": str(target), "round": letter.number, "refused": draft.reason or None}, f"{target} written. {said}"
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


def _question_note(letter: QuestionLetter, mailbox: Path, entry: int) -> QuestionNote:
    """Return what the local page says of a question."""
    said = {"run": letter.run, "asked": letter.disclosed[:LONGEST], "mailbox": str(mailbox)[:LONGEST]}
    return QuestionNote(time=ledger.time_text(), entry=entry, number=letter.number, **said)


def _approve(
    folder: SiteFolder, draft: Draft, study: Study, who: str, output: Output, *, numbers: bool, no_input: bool
) -> None:
    """Show the preview and ask; an answer that left before, or that all have approved, is not asked about again."""
    policy, letter = Policy.from_text(folder.policy), draft.letter
    others = policy.approval.apply
    is_open = draft.is_new and not (others and is_approved_answer(folder, draft))
    if no_input and is_open and (others or not policy.release.allow_no_input):
        raise CommandError(CommandFault.REFUSED, f"the policy does not allow an answer {WITHOUT_A_PERSON}")
    Output(quiet=output.quiet and no_input).say(answer_text(draft, study, numbers=numbers))
    if not is_open:
        return
    if others:
        _check_approver(folder, draft, output)
    if not no_input and not is_confirmed("Write this answer?"):
        details = {"study": letter.study, "run": letter.run, "number": letter.number, "declined_by": who}
        folder.record("decline", details)
        raise CommandError(CommandFault.DECLINED, "nothing has left; the ledger has your answer")
    if others:
        with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED):
            missing = approve_answer(folder, draft, who)
        _end_unless_approved(missing, output)


def _check_approver(folder: SiteFolder, draft: Draft, output: Output) -> None:
    """Keep what is to be approved; end the command if this account may not approve it."""
    with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED):
        is_first, reason = prepare_answer(folder, draft)
    if reason and is_first:
        output.say(f"Prepared; the ledger has it. Nothing has left: {reason}, who can leave --table out.")
        raise typer.Exit(NOTHING_YET)
    if reason:
        raise CommandError(CommandFault.REFUSED, reason)


def _end_unless_approved(missing: int, output: Output) -> None:
    """End the command if more have to approve."""
    if missing:
        output.say(f"Approved; the ledger has it. Nothing has left: {missing} more must approve.")
        raise typer.Exit(NOTHING_YET)


# ---------------------------------------------------------------- site commands

site = typer.Typer(no_args_is_help=True, help="What a site runs on its own table. Only 'serve' sends anything.")
log = typer.Typer(no_args_is_help=True, help="The ledger of a site: what was fitted, released and refused.")
site.add_typer(log, name="log")
site.command("answer", cls=PagedCommand)(answer_question)
site.command("show-answer")(show_answer)
site.command("map", cls=PagedCommand)(map_export)
site.command("rehearse")(rehearse_study)
site.command("withdraw", cls=PagedCommand)(withdraw_site)
site.command("mandate", cls=PagedCommand)(site_mandate)
site.command("serve", cls=PagedCommand)(serve_site)
site.command("status")(show_site_status)
site.command("pause", cls=PagedCommand)(pause_site)
site.command("resume", cls=PagedCommand)(resume_site)

Profile = Annotated[str, typer.Option(help=f"Limits to begin with: {', '.join(PROFILES)}.")]


@site.command("init", cls=PagedCommand)
def init_site(name: SiteName, profile: Profile = "hospital", where: Where = Path(), quiet: Quiet = False) -> None:
    """Make the folder of a site: policy, key, ledger."""
    if profile not in PROFILES:
        raise typer.BadParameter(f"--profile: expected one of {', '.join(PROFILES)}")
    with report_as(CommandFault.FOLDER):
        folder = SiteFolder.init(name, Policy.of_profile(profile).to_text(), where)
    output = Output(quiet=quiet)
    output.say(
        f"{folder.path} made. Read {folder.path / POLICY}: its limits decide what may leave, and they are yours."
    )
    if folder.public_key is None:
        output.say("Files will be unsigned: install consilience[secure], then run 'consilience site key'.")
    else:
        output.say(f"Send this public key to the coordinator, for the roster: {folder.public_key}")


@site.command(cls=PagedCommand)
def key(
    name: SiteName,
    where: Where = Path(),
    masks: Annotated[bool, typer.Option("--masks", help="Print the key for masked sums, with its signature.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Make another key, in place of one that was lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the public key of a site; make a key first if the site has none."""
    folder = folder_of(name, where)
    with report_as(CommandFault.FOLDER), report_missing_extra():
        public = folder.make_key(lost=True) if new else folder.public_key or folder.make_key()
        found = {"site": folder.name, "key": public}
        if masks:
            found["masks"] = public_mask_key(folder.name, SiteIdentity.load(folder.path / KEY))
    Output(as_json).data(found, found.get("masks", public))


@site.command(cls=PagedCommand)
def check(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    study: StudyPath,
    table: TablePath,
    mapping: MappingPath = None,
    share: Annotated[
        Path | None, typer.Option(help="Letter to write: counts with noise, for 'consilience study compare'.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who approves the letter; the user's name if not given.")] = None,
    no_input: NoInput = False,
    overwrite: Overwrite = False,
    where: Where = Path(),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Hold a table against a study: what does not fit, where, how often, and what to do. No value is shown.

    If the site has a folder, the rules of its policy on tables are applied too. With --share the site also writes a
    letter on its columns, after a person has approved it; without it nothing leaves.
    """
    wanted, output = study_of(study), Output(as_json, quiet)
    made = mapping_of(name, where, mapping)
    rows = mapped_table(table, wanted, made)
    found = examine_for_study(wanted, rows)
    refusal = policy_refusal(name, where, wanted, rows) if found.fits and wanted.way == "limits" else ""
    errors = sum(each.is_error for each in found.findings)
    _note_check(where / slug(name), wanted, rows, (study, table), found)
    lines = [f"{'error' if each.is_error else 'note'}: {each}" for each in found.findings]
    flow = [] if found.flow is None else found.flow.lines
    verdict = (
        f"The table of {name} fits: {found.used:,} of {found.rows:,} rows can be used."
        if found.fits
        else f"The table of {name} does not fit the study."
    )
    named = ("code", "column", "rows", "said", "remedy")
    findings = [{name: getattr(each, name) for name in named} | {"error": each.is_error} for each in found.findings]
    document: dict[str, Any] = {"fits": found.fits, "rows": found.rows, "used": found.used}
    document |= {"flow": flow, "findings": findings, "refusal": refusal}
    output.data(document, "\n".join([*lines, *(flow if wanted.cohort else ()), verdict]))
    if share is not None:
        share_letter((name, where), wanted, table, made, share, by, output, no_input=no_input, overwrite=overwrite)
    if not found.fits:
        raise CommandError(CommandFault.MISFIT, f"{errors} findings")
    if refusal:
        raise CommandError(CommandFault.REFUSED, refusal)


def _note_check(place: Path, study: Study, table: pa.Table, paths: tuple[Path, Path], found: Examination) -> None:
    """Keep what was found for the local page, if the site has a folder."""
    if place.exists():
        with report_as(CommandFault.FOLDER):
            folder = SiteFolder.open(place)
        findings, lines = [str(each) for each in found.findings], [] if found.flow is None else found.flow.lines
        with report_as(CommandFault.POLICY):
            entry = len(folder.entries)
            keep_reading(folder, study, table, paths, entry=entry, lines=lines, findings=findings, fits=found.fits)


def policy_refusal(name: str, where: Path, study: Study, table: pa.Table) -> str:
    """Return why a site's policy would release no fit to a fitting table; empty if it may, or without a folder."""
    if not (where / slug(name)).exists():
        return ""
    folder = folder_of(name, where)
    with report_as(CommandFault.POLICY):
        policy = Policy.from_text(folder.policy)
        check_people(table, policy.people.column)
        filled = few_filled(study, table, policy.stricter(study.minimum).site.min_rows)
        return filled or table_refusal(study_rows(study, table), study, policy)


@site.command(cls=PagedCommand)
def fit(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    study: StudyPath,
    table: TablePath,
    mapping: MappingPath = None,
    where: Where = Path(),
    other_people: Annotated[
        str, typer.Option(help="Why the rows are of other people than earlier ones, if rows cannot be compared.")
    ] = "",
    wave: Annotated[str | None, typer.Option(help="Wave of the study, such as 2026; it is in the file.")] = None,
    data_cut: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Day until which the data reach; it is in the file.")
    ] = None,
    replaces: Annotated[
        list[int] | None, typer.Option(help="Entry of the ledger whose release this one replaces, after a correction.")
    ] = None,
    leave_out_crowd: Annotated[
        bool,
        typer.Option("--leave-out-crowd", help="Leave out a random crowd with those of patients who withdrew."),
    ] = False,
    start: Annotated[Path | None, typer.Option(help="Model file that a study with noise names as its start.")] = None,
    by: Annotated[str | None, typer.Option(help="Who approves the charge of noise, for the ledger.")] = None,
    no_input: NoInput = False,
    quiet: Quiet = False,
) -> None:
    """Fit the site's own model under its policy, and keep it in the site's folder. Nothing leaves.

    In a study with noise the site sums its scores with noise, after a person has approved what it costs.
    """
    folder, wanted, output = folder_of(name, where), study_of(study), Output(quiet=quiet)
    made = mapping_of(name, where, mapping)
    rows = mapped_table(table, wanted, made, as_text=wanted.is_noisy_file)
    there = option_of(where)
    if wanted.is_noisy_file:
        if wave is not None or data_cut is not None:
            raise typer.BadParameter("--wave and --data-cut: a file with noise states neither")
        if leave_out_crowd or replaces:
            raise typer.BadParameter(
                "--leave-out-crowd and --replaces: noise hides who withdrew and what was corrected"
            )
        _sum_with_noise(folder, wanted, rows, (study, table, start, by, made), output, no_input=no_input)
        output.say(f"Kept in {folder.path}. Nothing has left. Look at it: consilience site preview {name}{there}")
        return
    until = None if data_cut is None else f"{data_cut:%Y-%m-%d}"
    stated = Statement(wave, until, leave_out_crowd, tuple(sorted(set(replaces or ()))))
    note = partial(keep_reading, folder, wanted, rows, (study, table), entry=len(folder.entries))
    with report_as(CommandFault.POLICY, refused=CommandFault.REFUSED), output.working(f"{folder.name} fits"):
        try:
            done = fit_at_site(folder, wanted, rows, other_people, mapping=made, stated=stated)
        except MisfitError as error:
            note(findings=str(error).splitlines()[1:], fits=False)
            findings = f"run 'consilience site check {name} {study} {table}' for the findings"
            raise CommandError(CommandFault.MISFIT, findings) from error
        except RefusedError:
            note(lines=flow_of(wanted, rows).lines)
            raise
        note(lines=flow_of(wanted, rows).lines)
    if done.released_by is not None:
        output.say(f"These rows were released for this study before (entry {done.released_by}): nothing was fitted.")
    else:
        output.say(
            f"Fitted and kept in {folder.path}. Nothing has left. Look at it: consilience site preview {name}{there}"
        )


def _sum_with_noise(
    folder: SiteFolder,
    study: Study,
    rows: pa.Table,
    said: tuple[Path, Path, Path | None, str | None, TableMapping | None],
    output: Output,
    *,
    no_input: bool,
) -> None:
    """Show what the sums of a site cost, ask for approval, and draw them."""
    study_path, table, start, by, made = said
    if start is None:
        raise CommandError(CommandFault.RUN, "the study starts from a public model: pass its file with --start")
    check_start_file(study, start)
    who = by or getpass.getuser()
    with report_as(CommandFault.POLICY, refused=CommandFault.REFUSED):
        entry = len(folder.entries)
        draft = draft_steps(folder, study, rows, model_of(start).mixture_, source=table, approved_by=who, mapping=made)
        keep_reading(folder, study, rows, (study_path, table), entry=entry, lines=private_rows(study, rows).told)
        allowed = Policy.from_text(folder.policy).release.allow_no_input
    if draft.is_new and no_input and not allowed:
        raise CommandError(CommandFault.REFUSED, f"the policy does not allow a charge {WITHOUT_A_PERSON}")
    Output(quiet=output.quiet and no_input).say("\n".join([WAYS[study.way], *draft.said]))
    if draft.is_new and not no_input and not is_confirmed("Spend this?"):
        folder.record("decline", {"study": study.identity, "declined_by": who[:200]})
        raise CommandError(CommandFault.DECLINED, "nothing was charged; the ledger has your answer")
    with report_as(CommandFault.POLICY, refused=CommandFault.REFUSED), output.working(f"{folder.name} sums its scores"):
        draft.fit()


@site.command(cls=PagedCommand)
def preview(
    name: SiteName,
    where: Where = Path(),
    numbers: Annotated[bool, typer.Option("--numbers", help="Print every number that would leave.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show field by field what would leave, every check, and an attack on it."""
    folder = folder_of(name, where)
    with report_as(CommandFault.RELEASE, refused=CommandFault.REFUSED), report_missing_extra():
        last = release.last_fit(folder)
        release.check_latest(folder, last)
        file = release.fit_file(folder, last)
    with report_as(CommandFault.FOLDER):
        folder.record("preview", release.fit_subject(folder, last))
    document = preview_document(last.report, last.entry, file)
    Output(as_json).data(document, text_of(last.report, last.entry, file, numbers=numbers))


@site.command("release", cls=PagedCommand)
def release_file(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write: all that leaves.")],
    replaces: Annotated[
        list[int] | None, typer.Option(help="Entry of the ledger that the fit replaces; needs --notice.")
    ] = None,
    notice: Annotated[
        list[Path] | None, typer.Option(help="Signed notice of the coordinator that the file of the entry is gone.")
    ] = None,
    by: Approver = None,
    no_input: NoInput = False,
    overwrite: Overwrite = False,
    where: Where = Path(),
    quiet: Quiet = False,
) -> None:
    """Show the preview, ask for approval, record it, and write the one file that leaves.

    Where the policy names approvers, the file is written when as many as it says have approved.
    """
    folder, output = folder_of(name, where), Output(quiet=quiet)
    check_free(out, overwrite=overwrite)
    who = by or getpass.getuser()
    with report_as(CommandFault.RELEASE, refused=CommandFault.REFUSED), report_missing_extra():
        last, policy = release.last_fit(folder), Policy.from_text(folder.policy)
        release.check_latest(folder, last)
        notices = retractions_of(folder, last, replaces or [], notice or [])
        waiting = release.still_replaced(folder, last)
        before = release.earlier_release(folder, last)
        if before is None:
            release.check_still_valid(folder, last)
    if before is None and not (policy.approval.apply and release.is_approved(folder, last)):
        if policy.approval.apply:
            with report_as(CommandFault.RELEASE, refused=CommandFault.REFUSED):
                release.check_approver(folder, last)
        if no_input and (policy.approval.apply or not policy.release.allow_no_input):
            raise CommandError(CommandFault.REFUSED, f"the policy does not allow a release {WITHOUT_A_PERSON}")
        ask_about_fit(folder, last, who, output, None if no_input else f"Release this as {out}?")
        if policy.approval.apply:
            approve_shown(folder, last, who, output)
    with report_as(CommandFault.RELEASE, refused=CommandFault.REFUSED), report_missing_extra():
        record_retractions(folder, waiting, notices)
        data = release.release_fit(folder, who, shown=last)
    write_bytes(out, data, overwrite=overwrite)
    if before is None:
        output.say(f"{out} written: send it. The ledger has the release.")
    else:
        output.say(f"{out} written: {_said_again(folder, before, data)}.")


def _said_again(folder: SiteFolder, before: ledger.Entry, data: bytes) -> str:
    """Say what a file is whose rows left before: the same bytes, or the same content signed with a new key."""
    if bytes_hash(data) == before.details["file"]:
        return f"the same bytes that entry {before.number} of the ledger released"
    now = folder.public_key
    return f"what entry {before.number} of the ledger released, signed with the new key {now}; the content is the same"


def ask_about_fit(folder: SiteFolder, last: release.LastFit, who: str, output: Output, question: str | None) -> None:
    """Show what would leave and what follows, and ask; without a question it is only shown."""
    with report_as(CommandFault.RELEASE), report_missing_extra():
        file = release.fit_file(folder, last)
    shown = "\n".join([text_of(last.report, last.entry, file), "", *final_lines(last.report)])
    Output(quiet=output.quiet and question is None).say(shown)  # a person who is asked has seen it
    if question is not None and not is_confirmed(question):
        release.record_decline(folder, last, who)
        raise CommandError(CommandFault.DECLINED, "nothing has left; the ledger has your answer")


def approve_shown(folder: SiteFolder, last: release.LastFit, who: str, output: Output) -> None:
    """Record an approval of a fit that was shown; end the command if the policy asks for more of them."""
    with report_as(CommandFault.RELEASE, refused=CommandFault.REFUSED):
        missing = release.approve_fit(folder, who, last)
    _end_unless_approved(missing, output)


@site.command("approve", cls=PagedCommand)
def approve_file(
    name: SiteName,
    question: Annotated[str, typer.Option(help="Beginning of the hash of a live run's question, instead.")] = "",
    by: Approver = None,
    where: Where = Path(),
    quiet: Quiet = False,
) -> None:
    """Show what would leave, and record that you approve it, where the policy names approvers. Nothing leaves."""
    folder, output, who = folder_of(name, where), Output(quiet=quiet), by or getpass.getuser()
    if question:
        approve_open_question(folder, question, who, output)
        return
    with report_as(CommandFault.RELEASE, refused=CommandFault.REFUSED):
        last = release.last_fit(folder)
        release.check_approver(folder, last)
    ask_about_fit(folder, last, who, output, "Approve that this leaves?")
    approve_shown(folder, last, who, output)
    output.say("Approved; the ledger has it. 'consilience site release' writes the file.")


@site.command(cls=PagedCommand)
def annex(
    name: SiteName,
    study: StudyPath,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write, .html or .md.")] = None,
    overwrite: Overwrite = False,
    where: Where = Path(),
) -> None:
    """Write the page that a privacy officer signs: purpose, what leaves and how often, limits, attacks, what is left.

    A browser prints the HTML file, or saves it as PDF.
    """
    if out is not None and out.suffix not in (".html", ".md"):
        raise typer.BadParameter(f"{out.name}: expected a name that ends in .html or .md")
    folder, wanted = folder_of(name, where), study_of(study)
    with report_as(CommandFault.POLICY):
        found = annex_of(folder, wanted)
    if out is None:
        Output().data({}, found.markdown)
    else:
        write(out, found.html if out.suffix == ".html" else found.markdown, overwrite=overwrite)


@site.command(cls=PagedCommand)
def budget(name: SiteName, where: Where = Path(), as_json: AsJson = False) -> None:
    """Show what answers with noise have spent, on what, what is left, and what left without noise."""
    folder = folder_of(name, where)
    with report_as(CommandFault.FOLDER):
        found = budget_document(folder, Policy.from_text(folder.policy).privacy)
    Output(as_json).data(found, budget_text(found))


@site.command("open")
def open_page(name: SiteName, where: Where = Path(), as_json: AsJson = False) -> None:
    """Write the site's local page and open it in a browser: what is asked, was read, would leave and has left.

    The page is one file in the folder of the site. It has no script, opens no connection, and approves nothing.
    """
    folder = folder_of(name, where)
    with report_as(CommandFault.FOLDER):
        path = write_page(folder, option_of(where))
    open_in_browser(path, as_json=as_json)


@log.command("show")
def log_show(name: SiteName, where: Where = Path(), as_json: AsJson = False) -> None:
    """List the entries of the ledger."""
    entries = folder_of(name, where).entries
    lines = [f"{each.number:>5}  {each.time}  {each.kind:<8} {_details(each)}" for each in entries]
    found = [{"number": each.number, "time": each.time, "kind": each.kind, "details": each.details} for each in entries]
    Output(as_json).data({"entries": found}, "\n".join(lines))


def _details(entry: ledger.Entry) -> str:
    """Return what an entry says, without lists of columns and hashes of what stays here or is in a file."""
    shown = [f"{key} {_short(value)}" for key, value in entry.details.items() if key not in HIDDEN]
    if "file" in entry.details:
        shown.append(f"file {str(entry.details['file']).removeprefix('sha256:')}")
    return ", ".join(shown)


HIDDEN = ("tags", "people", "crowd", "file", "secret", "columns", "content", "reply", "drafted", "notice")


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:23]}..." if text.startswith("sha256:") else text


@log.command("verify")
def log_verify(
    name: SiteName,
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILES...]", help="Files that left the site.")] = None,
    where: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Check the chain of the ledger, also against the files that left the site."""
    path = where / slug(name)
    verdict = ledger.verify(path / LEDGER) if (path / LEDGER).is_file() else None
    if verdict is not None and verdict.is_whole:
        sent = []
        for each in files or []:
            with report_as(CommandFault.SITE_FILE):
                sent.append(read_sent_file(read_text(each, "a site file")))
        verdict = release.verify_ledger(folder_of(name, where), sent)
    if verdict is None:
        raise CommandError(CommandFault.FOLDER, f"there is no ledger in {path}")
    releases = {str(each): _release_of(verdict, each) for each in files or []}
    lines = [f"{path}: {said or 'NOT in this ledger'}" for path, said in releases.items()]
    found = {"whole": verdict.is_whole, "entries": len(verdict.entries), "said": str(verdict), "files": releases}
    Output(as_json).data(found, "\n".join([str(verdict), *lines]))
    if not verdict.is_whole:
        raise CommandError(CommandFault.LEDGER, str(verdict))
    if not all(releases.values()):
        raise CommandError(
            CommandFault.LEDGER, "a file is of another site, was changed, or its entry was cut off the ledger"
        )


def _release_of(verdict: ledger.LedgerCheck, path: Path) -> str:
    """Return by which entry a file was released, to the byte; empty if by none."""
    named = bytes_hash(path.read_bytes())
    for entry in verdict.entries:
        if entry.kind in ("release", "signature") and entry.details.get("file") == named:
            how = "released" if entry.kind == "release" else "signed with a new key"
            who = entry.details.get("approved_by")
            size = f"{path.stat().st_size:,} bytes"
            return f"{how} in entry {entry.number}, {entry.time}, approved by {who}, {size}"
    return ""


@log.command("repair", cls=PagedCommand)
def log_repair(name: SiteName, where: Where = Path()) -> None:
    """Drop a last line that was not written to its end, as after a crash; nothing else is changed."""
    with report_as(CommandFault.LEDGER):
        found = ledger.repair(where / slug(name) / LEDGER)
    Output().say("the last line was not whole: it was dropped" if found else "the ledger is whole: nothing was changed")

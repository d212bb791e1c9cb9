"""The commands of a run: over a folder of files, or over files of one owner; and what is in such a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as, report_missing_extra
from consilience.cli.options import AsJson, MailPath, Overwrite, Quiet, ReportPath, StudyPath, TablesPath
from consilience.cli.output import Output, check_start_file, model_of, study_of
from consilience.cli.reporting import check_model, check_report, commands_again, describe_model, report_on, say_noise
from consilience.cli.run_page import COORDINATOR_KEY, known_key, rewrite_run_page
from consilience.cli.site_commands import NOTHING_YET
from consilience.cli.study_commands import read_sizes
from consilience.engines.dask import DaskCluster
from consilience.errors import AwaitedError, ConsilienceError, RoundStoppedError
from consilience.estimators.saving import model_text
from consilience.federation.federated_fit import FederatedOrders
from consilience.files.json_text import write_text
from consilience.kit.combination import run_over_files
from consilience.kit.folder import SiteIdentity
from consilience.kit.forecast import doubts_beforehand
from consilience.kit.letters import RUN, RunFile
from consilience.kit.mail_folder import RoundStatus, RunStatus, status_of
from consilience.kit.mail_run import advance_by_files, begin_by_files
from consilience.kit.mailbox import POLL, read_run
from consilience.kit.notices import coordinator_key
from consilience.kit.private_files import slug
from consilience.kit.roster import Roster
from consilience.kit.study import Study
from consilience.kit.study_model import method_of
from consilience.kit.versions import distinct_kits, say_kits
from consilience.model import Mixture
from consilience.runs import RunOptions
from consilience.runs.run import OnDrop

ENGINES = ("inprocess", "dask")
OwnPath = Annotated[Path | None, typer.Option("--own", help="Folder of the coordinator; DIR.coordinator by default.")]


@dataclass(frozen=True)
class Request:
    """What the options of ``consilience run`` ask for, for both kinds of runs."""

    study: Study
    start: Mixture | None
    on_drop: OnDrop
    output: Output


def run_command(  # noqa: PLR0917 - typer makes options of them
    study: StudyPath,
    mailbox: Annotated[Path | None, typer.Option(help="Folder of a run by files, which the sites see.")] = None,
    sites: Annotated[list[str] | None, typer.Option("--site", help="A site of the run; once for each.")] = None,
    roster: Annotated[Path | None, typer.Option(help="Roster with the sites' names and public keys.")] = None,
    own: OwnPath = None,
    key: Annotated[Path | None, typer.Option(help="Key that signs; coordinator.pem in --own by default.")] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Begin a run that nobody signs.")] = False,
    days: Annotated[float | None, typer.Option(help="Days that sites have for each answer.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Another end for the question that is open now.")] = None,
    wait: Annotated[float, typer.Option(help="Minutes to wait for answers before the command ends.")] = 0.0,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds from one look at the folder to the next.")] = POLL,
    data: Annotated[str | None, typer.Option(help="Files of one owner, such as 'shards/*.parquet'.")] = None,
    engine: Annotated[str, typer.Option(help=f"With --data: {' or '.join(ENGINES)}.")] = ENGINES[0],
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler; a local cluster if none.")] = None,
    start: Annotated[Path | None, typer.Option(help="Model file from which the run starts.")] = None,
    rows: Annotated[str, typer.Option("--rows", help="Rows of each site, if known: warns if it is too few.")] = "",
    wave: Annotated[str, typer.Option(help="Wave of the study, such as 2026: sites are told to answer with it.")] = "",
    on_drop: Annotated[str, typer.Option(help="If a site fails or is late: stop, or continue without it.")] = "stop",
    out: Annotated[Path, typer.Option("-o", "--out", help="Model file to write.")] = Path("model.json"),
    report: ReportPath = None,
    tables: TablesPath = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a study: by files in a folder (--mailbox), or over the files of one owner (--data).

    A run by files goes on as far as the answers in the folder allow, says whom it waits for, and ends with status 6;
    the same command goes on later.
    """
    if on_drop not in ("stop", "continue") or engine not in ENGINES:
        raise typer.BadParameter(f"--on-drop is stop or continue, --engine is {' or '.join(ENGINES)}")
    if (mailbox is None) == (data is None):
        raise typer.BadParameter("expected --mailbox DIR, or --data FILES")
    check_model(out, overwrite=overwrite)
    check_report(report, tables, overwrite=overwrite)
    wanted, begins = _checked(study), None if start is None else model_of(start).mixture_
    check_start_file(wanted, start)
    request = Request(wanted, begins, "continue" if on_drop == "continue" else "stop", Output(as_json, quiet))
    invited: dict[str, Any] = {}
    if mailbox is None:
        done = _over_files(request, str(data), engine, scheduler)
    else:
        private = own_folder(mailbox, own)
        with report_as(CommandFault.RUN), report_missing_extra():
            private.mkdir(parents=True, exist_ok=True, mode=0o700)
            identity = None if unsigned else coordinator_key(key or private / COORDINATOR_KEY)
            known = None if roster is None else Roster.read(roster)
            names = sites or [] if known is None else list(known.names)
            told = _begin(request, mailbox, private, names, known, identity=identity, wave=wave, rows=rows)
        invited = {"invited": tuple(names)} if names else {}
        ends = None if until is None else until.astimezone(UTC)
        waiting: dict[str, Any] = {"days": days, "until": ends, "patience": 60 * wait, "poll": poll}
        waiting |= {"identity": identity, "institutions": {} if known is None else known.institutions}
        try:
            done = _by_files(request, mailbox, private, told, **waiting)
        finally:
            rewrite_run_page(mailbox, private)
    with report_as(CommandFault.RUN):
        found = None if mailbox is None else status_of(mailbox, told, identity)
    kits = {} if found is None else found.kits
    of_wave = "" if mailbox is None else told.wave
    _write(done, out, request.output, kits, of_wave)
    where = ("--data", repr(data)) if mailbox is None else ("--mailbox", mailbox.name)
    stated = ("--wave", of_wave) if of_wave else ()
    again = commands_again("run", study.name, *where, *stated, "-o", out.name, "--report", "report.html")
    carried: dict[str, Any] = {"kits": kits, "sizes": None if found is None else found.sizes}
    report_on(done, wanted, report, request.output, model=out, tables=tables, commands=again, **carried, **invited)


def _checked(path: Path) -> Study:
    study = study_of(path)
    with report_as(CommandFault.STUDY):
        method_of(study)
    return study


def _begin(
    request: Request,
    mailbox: Path,
    own: Path,
    names: list[str],
    known: Roster | None,
    *,
    identity: SiteIdentity | None,
    wave: str,
    rows: str,
) -> RunFile:
    """Begin a run, or go on with it; say what is in doubt before it begins."""
    if names and not (mailbox / RUN).exists():
        sizes = read_sizes(rows) if rows else ()
        for each in doubts_beforehand(request.study, request.start, len(names), sizes):
            request.output.say(f"before it begins: {each}", style="yellow")
    keys, masks = ({}, {}) if known is None else (known.keys, known.masks)
    who: dict[str, Any] = {"sites": names, "keys": keys, "masks": masks, "identity": identity}
    return begin_by_files(request.study, mailbox, own, start=request.start, wave=wave, **who)


def _by_files(request: Request, mailbox: Path, own: Path, run: RunFile, **waiting: Any) -> FederatedOrders:
    """Take the run further; end the command with its own status if answers are awaited."""
    output = request.output

    def notice(name: str, why: str) -> None:
        output.say(f"not used: {name}: {why}", style="yellow")

    try:
        with _reported(), output.working(f"The run in {mailbox}"):
            on_drop = request.on_drop
            return advance_by_files(request.study, mailbox, own, run, on_drop=on_drop, notice=notice, **waiting)
    except AwaitedError as error:
        output.data({"state": "waiting", "sites": list(error.sites)}, f"The run is not finished: {error}.")
        output.say(f"Carry {mailbox} to them, or let it be synchronised; each runs 'consilience site answer'.")
        raise typer.Exit(NOTHING_YET) from error


def _over_files(request: Request, data: str, engine: str, scheduler: str | None) -> FederatedOrders:
    chosen: dict[str, Any] = {"start": request.start, "options": RunOptions(on_drop=request.on_drop)}
    with _reported(), request.output.working(f"The run over {data}"):
        if engine == "inprocess":
            return run_over_files(request.study, data, **chosen)
        with report_missing_extra(), DaskCluster(scheduler) as cluster:
            return run_over_files(request.study, data, cluster, **chosen)


@contextmanager
def _reported() -> Iterator[None]:
    """Report what ends a run; answers that are awaited are no error."""
    try:
        yield
    except AwaitedError:
        raise
    except RoundStoppedError as error:
        raise CommandError(CommandFault.SITES, str(error)) from error
    except ConsilienceError as error:
        raise CommandError(CommandFault.RUN, str(error)) from error


def _write(done: FederatedOrders, out: Path, output: Output, kits: Mapping[str, str], wave: str) -> None:
    """Write the model, and the models of the sites if the method has them; print the summary."""
    best, files = done.best, [out]
    with report_as(CommandFault.OUTPUT):
        names = bool(best.sites)  # of sums over sites alone, nothing is known of each
        write_text(out, model_text(best.model, site_names=names, kits=distinct_kits(kits)))
        for site, model in best.models.items():
            files.append(out.with_name(f"{out.stem}.{slug(site)}.json"))
            model.save(files[-1])  # it is of one site, which the file is named after
    found: dict[str, Any] = {
        "state": "finished",
        "files": [str(path) for path in files],
        "sites": [str(each) for each in best.sites],
    }
    found |= ({"kits": dict(kits)} if kits else {}) | ({"wave": wave} if wave else {})
    output.data(describe_model(best.model) | found, best.model.summary())
    for each in best.sites:
        output.say(str(each))
    say_noise(best, output)
    if differing := say_kits(kits):
        output.say(differing, style="yellow")
    output.say(f"{', '.join(map(str, files))} written.")


def own_folder(mailbox: Path, own: Path | None) -> Path:
    """Return the coordinator's own folder of a run."""
    return own or mailbox.with_name(f"{mailbox.name}.coordinator")


def status(mailbox: MailPath, own: OwnPath = None, as_json: AsJson = False) -> None:
    """Show the rounds of a run by files: who has answered, bytes, and what is awaited.

    The names of the sites that are awaited are known to the coordinator alone.
    """
    with report_as(CommandFault.RUN):
        private = own_folder(mailbox, own)
        found = status_of(mailbox, read_run(mailbox, private), known_key(private))
    document = {
        "run": found.run.identity,
        "study": found.run.study,
        "signer": found.run.signer,
        "number": found.run.number,
        "sites": list(found.run.sites),
        "rounds": [asdict(each) for each in found.rounds],
        "awaited": list(found.awaited),
        "missing": found.missing,
        "unused": found.unused,
        "finished": found.finished,
        "kits": {"coordinator": found.run.kit, "sites": found.kits},
    }
    Output(as_json).data(document, _text(found))


def _text(found: RunStatus) -> str:
    lines = [
        f"Run {found.run.identity[:15]}... of study {found.run.study[:15]}..., "
        + (f"sites: {', '.join(found.run.sites)}" if found.run.sites else f"{found.run.number} sites")
    ]
    lines += [_line(each) for each in found.rounds]
    lines += [f"not used: {name}: {why}" for name, why in found.unused.items()]
    if found.finished:
        return "\n".join([*lines, "The run is finished."])
    if not found.missing:
        return "\n".join([*lines, "No site is awaited: the coordinator runs 'consilience run' to go on."])
    due = found.rounds[-1].due
    named = ", ".join(found.awaited) or f"{found.missing} sites"
    return "\n".join([*lines, f"Awaited: {named}{f', until {due}' if due else ''}."])


LISTED = 24
"""Largest number of answers of a round whose files are listed."""


def _line(each: RoundStatus) -> str:
    files = each.files if len(each.files) <= LISTED else ()
    head = (
        f"round {each.number}: {len(each.answered)} of {each.asked} sites answered, {each.bytes_sent:,} bytes sent, "
        f"{each.bytes_received:,} received; {each.asks}"
    )
    return "\n".join([head, *(f"  {file.name}: {file.bytes:,} bytes, SHA-256 {file.sha256}" for file in files)])

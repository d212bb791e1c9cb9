"""The commands of a site in a live run: its mandate, the program that answers within it, and what people do."""

from __future__ import annotations

import getpass
import logging
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as, report_missing_extra
from consilience.cli.options import AsJson, Decider, NoInput, Overwrite, Quiet, SiteName, Where
from consilience.cli.output import Output, check_free, folder_of, is_confirmed, printable, study_of
from consilience.cli.site_page import rewrite_page
from consilience.couriers.letter_stores import LetterStore, store_at
from consilience.errors import InvalidInputError
from consilience.files.json_text import parse_json, read_text, replace_file
from consilience.kit.enrolment import Enrolment
from consilience.kit.folder import KEY, SiteFolder
from consilience.kit.ledger import read_time
from consilience.kit.letters import RunFile
from consilience.kit.mail_folder import MailFolder
from consilience.kit.mail_run import open_question
from consilience.kit.mandate import FILE, Mandate, Mode, approve_question, draft_mandate, keep_draft, sign_mandate
from consilience.kit.private_files import slug
from consilience.kit.serving import (
    ALARMS,
    ANSWERED,
    FINISHED,
    PAUSE,
    PLACE,
    STATE,
    TOLD,
    Serving,
    State,
    is_served,
    serve,
)

CERTIFICATE = "certificate.pem"
MISSING_APPROVALS = "{} more must sign: nothing is answered before."
StoreAddress = Annotated[str, typer.Option(help="Where the letters are, if not by HTTPS: s3://..., or a folder.")]
EnrolmentPath = Annotated[Path | None, typer.Option(help="File from the coordinator, for letters over HTTPS.")]
ProxyAddress = Annotated[str, typer.Option(help="HOST:PORT of a proxy; the one that the system states by default.")]
ProxyAuthority = Annotated[
    Path | None, typer.Option(help="Certificates of a proxy that reads the traffic, in PEM: uses the password.")
]
LookEvery = Annotated[float, typer.Option(min=0.01, help="Seconds from one look at the store to the next.")]
MostWait = Annotated[float, typer.Option(min=1, help="Longest wait in seconds after failures.")]
Once = Annotated[bool, typer.Option("--once", help="End when the run is finished.")]


def site_mandate(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    study: Annotated[Path | None, typer.Argument(metavar="STUDY", help="Study file, for a new draft.")] = None,
    coordinator: Annotated[str, typer.Option(help="Public key of the coordinator, ed25519:...")] = "",
    mode: Annotated[str, typer.Option(help=f"One of {', '.join(get_args(Mode))}.")] = "ask",
    days: Annotated[int, typer.Option(min=1, help="Days until the mandate ends.")] = 90,
    sign: Annotated[bool, typer.Option("--sign", help="Show the mandate as it is, and sign it.")] = False,
    by: Decider = None,
    no_input: NoInput = False,
    overwrite: Overwrite = False,
    where: Where = Path(),
    quiet: Quiet = False,
) -> None:
    """Draft the mandate of a site for a live run of a study; or, with --sign, show it and sign it."""
    folder, output = folder_of(name, where), Output(quiet=quiet)
    if sign:
        return _sign(folder, output, by or getpass.getuser(), no_input=no_input)
    if study is None or not coordinator or mode not in get_args(Mode):
        raise typer.BadParameter(f"a draft needs STUDY, --coordinator KEY, and a mode of {', '.join(get_args(Mode))}")
    check_free(folder.path / FILE, overwrite=overwrite)
    chosen: Mode = "mandate" if mode == "mandate" else "hold" if mode == "hold" else "ask"
    with report_as(CommandFault.FOLDER):
        path = keep_draft(folder, draft_mandate(study_of(study), coordinator, mode=chosen, days=days))
    output.say(f"{path} written: read it, change what is too wide, and sign it with 'consilience site mandate --sign'.")
    return None


def _sign(folder: SiteFolder, output: Output, who: str, *, no_input: bool) -> None:
    with report_as(CommandFault.FOLDER):
        mandate = Mandate.read(folder.path / FILE)
    typer.echo(printable(mandate.to_text()), err=True)
    if not no_input and not is_confirmed("Sign this mandate?"):
        raise CommandError(CommandFault.DECLINED, "the mandate is not signed")
    with report_as(CommandFault.FOLDER, refused=CommandFault.REFUSED):
        missing = sign_mandate(folder, mandate, who)
    output.say(MISSING_APPROVALS.format(missing) if missing else "Signed; the ledger has it.")


def approve_open_question(folder: SiteFolder, beginning: str, who: str, output: Output) -> None:
    """Show the open question of a live run, and record that people approve its answer."""
    mail = folder.path / PLACE / "mail"
    with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED):
        letter = open_question(MailFolder(mail), RunFile.read(mail), folder.name)
    if letter is None or len(beginning) < 8 or not letter.hash.removeprefix("sha256:").startswith(beginning):
        raise CommandError(CommandFault.QUESTION, "no open question begins so: 'consilience site status' names it")
    output.say(f"Round {letter.number}. Asked: {letter.disclosed}.")
    if not is_confirmed("Approve that this is answered?"):
        raise CommandError(CommandFault.DECLINED, "the question is not approved")
    with report_as(CommandFault.QUESTION, refused=CommandFault.REFUSED):
        missing = approve_question(folder, letter.hash, who)
    output.say(MISSING_APPROVALS.format(missing) if missing else "Approved; the ledger has it.")


def serve_site(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    store: StoreAddress = "",
    enrolment: EnrolmentPath = None,
    table: Annotated[Path | None, typer.Option(help="Table of the site; needed for the first answer.")] = None,
    proxy: ProxyAddress = "",
    proxy_authority: ProxyAuthority = None,
    poll: LookEvery = 10.0,
    most: MostWait = 300.0,
    once: Once = False,
    where: Where = Path(),
) -> None:
    """Answer a live run within the mandate that people have signed, for as long as the program runs."""
    folder = folder_of(name, where)
    log_to_stderr()

    shown = ""

    def seen(state: State) -> bool:
        nonlocal shown
        if state.word != shown or state.word == ANSWERED:
            rewrite_page(name, where)
        shown = state.word
        return once and state.word == FINISHED

    with report_as(CommandFault.FOLDER), report_missing_extra():
        access = LetterAccess(store, enrolment, proxy, proxy_authority)
        with closing(access.open(name, folder.path / PLACE, folder.path / KEY)) as found:
            serve(Serving(folder, found, table), poll=poll, most=most, until=seen)


def log_to_stderr() -> None:
    """Write a line for each change of a state to the standard error stream, with the time in UTC."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)sZ %(levelname)s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )  # fmt: skip


@dataclass(frozen=True)
class LetterAccess:
    """How a site, or a region, reaches its letters, as the options say."""

    store: str
    enrolment: Path | None
    proxy: str
    proxy_authority: Path | None

    def open(self, name: str, place: Path, key: Path) -> LetterStore:
        """Return the store; over HTTPS with the certificate of this key, which is kept in ``place``."""
        if (self.enrolment is None) == (not self.store):
            raise typer.BadParameter("expected --enrolment FILE, or --store with a folder or an object store")
        if self.enrolment is None:
            return store_at(self.store)
        known = Enrolment.read(self.enrolment)
        if known.site != slug(name):
            raise InvalidInputError(f"the enrolment is for {known.site}, and this is {name}")
        if self.proxy_authority is not None:
            read = read_text(self.proxy_authority, "certificates")
            return store_at(known.address, authority=read, password=known.password, proxy=self.proxy)
        certificate = place / CERTIFICATE
        place.mkdir(exist_ok=True, mode=0o700)
        replace_file(certificate, known.certificate.encode())
        access: dict[str, Any] = {"certificate": certificate, "key": key, "password": known.password}
        return store_at(known.address, authority=known.authority, proxy=self.proxy, **access)


def pause_site(name: SiteName, where: Where = Path(), quiet: Quiet = False) -> None:
    """Stop answering: the program goes on and says that it is paused."""
    place = folder_of(name, where).path / PLACE
    place.mkdir(exist_ok=True, mode=0o700)
    (place / PAUSE).touch(mode=0o600)
    Output(quiet=quiet).say(f"Nothing is answered until 'consilience site resume {name}'.")


def resume_site(name: SiteName, where: Where = Path(), quiet: Quiet = False) -> None:
    """Answer again after a pause."""
    (folder_of(name, where).path / PLACE / PAUSE).unlink(missing_ok=True)
    Output(quiet=quiet).say("Questions are answered again.")


def show_site_status(
    name: SiteName,
    stale: Annotated[
        float, typer.Option(min=1, help="Seconds of silence after which a program that runs counts as gone.")
    ] = (600.0 + TOLD),
    where: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Show where the site stands in its live run; status 1 if the program is gone, cannot work, or refuses."""
    folder = folder_of(name, where)
    path = folder.path / PLACE / STATE
    if not path.is_file():
        raise CommandError(CommandFault.FOLDER, "nothing serves this site yet: 'consilience site serve' does")
    with report_as(CommandFault.FOLDER):
        found = dict(parse_json(read_text(path, "a state"), STATE))
    silent = (datetime.now(UTC) - read_time(str(found["seen"]))).total_seconds()
    found["silent"] = round(silent)
    found["gone"] = found["state"] != FINISHED and (silent > stale or not is_served(folder))
    shown = State(str(found["state"]), {key: value for key, value in found.items() if key != "state"})
    Output(as_json).data(found, str(shown))
    if found["gone"] or found["state"] in ALARMS:
        raise typer.Exit(1)

"""The commands of a coordinator in a live run: enrol sites, print the server's configuration, carry letters, watch."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.catalogue import CommandFault, report_as, report_missing_extra
from consilience.cli.options import AsJson, MailPath, Quiet
from consilience.cli.output import Output, open_in_browser
from consilience.cli.run_commands import OwnPath, own_folder
from consilience.cli.run_page import COURIER, RELAY, known_key, rewrite_run_page, said_in, write_run_page
from consilience.couriers.letter_stores import store_at
from consilience.couriers.post import Post
from consilience.errors import ConsilienceError, EngineError
from consilience.files.json_text import replace_file
from consilience.kit.enrolment import ENROL, SERVER, enrol_sites, nginx_configuration
from consilience.kit.ledger import time_text
from consilience.kit.letters import RUN, RunFile
from consilience.kit.mail_folder import END, MailFolder
from consilience.kit.mail_watch import MailWatch, watch_run
from consilience.kit.mailbox import read_run
from consilience.kit.private_files import slug
from consilience.kit.roster import Roster

live = typer.Typer(no_args_is_help=True, help="What the coordinator of a live run does beside 'consilience run'.")
SHOWN = 10.0
"""Seconds after which the courier says again how it is."""
Programs = dict[str, dict[str, Any]]
"""What courier and region said of themselves, by their names; empty where there was none."""
MOST_WAIT = 300.0
"""Longest wait in seconds after failures."""


@live.command("enrol")
def enrol(  # noqa: PLR0917 - typer makes options of them
    mailbox: MailPath,
    roster: Annotated[Path, typer.Option(help="Roster with the sites' names and public keys.")],
    url: Annotated[str, typer.Option(help="https://HOST[:PORT] by which sites reach the server.")],
    passwords: Annotated[
        list[str] | None, typer.Option("--password", help="A site whose traffic a proxy reads; once for each.")
    ] = None,
    own: OwnPath = None,
    quiet: Quiet = False,
) -> None:
    """Sign the public keys of the roster: certificates of sites and of the server, and a file for each site."""
    private, output = own_folder(mailbox, own), Output(quiet=quiet)
    with report_as(CommandFault.ROSTER):
        known = Roster.read(roster)
    with report_as(CommandFault.RUN), report_missing_extra():
        found = enrol_sites(private, known, url, passwords or [])
    secret = [name for name, each in found.items() if each.password]
    output.say(f"{private / ENROL}: {', '.join(f'{name}.json' for name in found)}. Send each site its own.")
    if secret:
        output.say(f"A secret is in the file of {', '.join(secret)}: send it as you send passwords.", style="yellow")
    output.say(f"{private / SERVER}: what the server needs. If it runs already, let it read this: nginx -s reload")


@live.command("nginx")
def print_nginx(
    mailbox: MailPath,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the letters, on the server's own disk.")],
    listen: Annotated[str, typer.Option(help="[ADDRESS:]PORT of the server.")] = "8443",
    user: Annotated[str, typer.Option(help="User as whom nginx works if root starts it.")] = "",
    own: OwnPath = None,
) -> None:
    """Print the whole configuration of nginx: each site reads its own letters and writes its own answers."""
    with report_as(CommandFault.RUN):
        sys.stdout.write(nginx_configuration(own_folder(mailbox, own), store, listen, user))


# ---------------------------------------------------------------- post


@live.command("post")
def carry_letters(
    mailbox: MailPath,
    store: Annotated[str, typer.Argument(metavar="STORE", help="Folder that the server serves, or s3://...")],
    poll: Annotated[float | None, typer.Option(min=0.01, help="Seconds between looks; once if not given.")] = None,
    own: OwnPath = None,
    quiet: Quiet = False,
) -> None:
    """Carry letters between the folder of a run and a store; with --poll until the end of the run was carried."""
    private, output = own_folder(mailbox, own), Output(quiet=quiet)
    if poll is not None and not (mailbox / RUN).exists():
        output.say(f"{time_text()} waits for the run in {mailbox} to begin")
        while not (mailbox / RUN).exists():
            time.sleep(poll)
    with report_as(CommandFault.RUN):
        post = Post(mailbox, store_at(store), _folders_of(read_run(mailbox, private)))
        with closing(post.store):
            if poll is not None:
                return _carry_on(post, private, poll, output)
            _say_moved(output, post.step(), {}, post.refused)
            _tell(private, "works", "", post.refused)
            return rewrite_run_page(mailbox, private)


def _carry_on(post: Post, private: Path, poll: float, output: Output) -> None:
    """Carry letters until the end of the run was carried; after failures wait longer and longer."""
    wait, refused, told = poll, dict[str, str](), 0.0
    while True:
        is_over, reason = (post.mail / END).exists(), ""
        try:
            moved = post.step()
            _say_moved(output, moved, refused, post.refused)
            if is_over:
                return _tell(private, "finished", "", post.refused)
            wait = poll
        except ConsilienceError as error:
            reason, wait = str(error), min(MOST_WAIT, 2 * wait)
            output.say(f"{time_text()} cannot go on, and tries again in {wait:.0f} s: {reason}", style="yellow")
        if reason or post.refused != refused or time.monotonic() - told > SHOWN:
            _tell(private, "fails" if reason else "works", reason, post.refused)
            told = time.monotonic()
        refused = post.refused
        time.sleep(wait)


def _folders_of(run: RunFile) -> list[str]:
    """Return the names of the sites' folders in the store."""
    if run.former:
        raise EngineError("the run was begun before runs were signed: a live run has to be begun anew")
    if not run.sites:
        raise EngineError("the names of the sites are not in the coordinator's own folder: name it with --own")
    return [slug(name) for name in run.sites]


def _say_moved(output: Output, moved: tuple[int, int], before: dict[str, str], refused: dict[str, str]) -> None:
    if any(moved):
        output.say(f"{time_text()} sent {moved[0]}, took {moved[1]}")
    for name, why in refused.items():
        if before.get(name) != why:
            output.say(f"{time_text()} not taken: {name}: {why}", style="yellow")


def _tell(own: Path, state: str, reason: str, refused: dict[str, str]) -> None:
    """Write what the courier says of itself, for those who watch; a full disk does not end it."""
    said = {"state": state, "seen": time_text(), "reason": reason, "refused": refused}
    try:
        replace_file(own / COURIER, (json.dumps(said, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        Output().say(f"{COURIER} cannot be written: {error.strerror}", style="yellow")


# ---------------------------------------------------------------- watch


@live.command("watch")
def watch(
    mailbox: MailPath,
    poll: Annotated[float | None, typer.Option(min=0.01, help="Seconds between looks; once if not given.")] = None,
    own: OwnPath = None,
    as_json: AsJson = False,
) -> None:
    """Show who was asked, who waits since when, and what is refused and why; with --poll until the run is finished."""
    private, output, shown = own_folder(mailbox, own), Output(as_json), ""
    mail = MailFolder(mailbox)
    while True:
        with report_as(CommandFault.RUN), report_missing_extra():
            run = read_run(mailbox, private)
            found = watch_run(mail, run, known_key(private))
            programs = {"courier": said_in(private / COURIER), "region": said_in(private / RELAY)}
        is_over = (mailbox / END).exists()
        text = "\n".join(_lines(run, found, programs, is_over=is_over))
        if text != shown:
            rewrite_run_page(mailbox, private)
            output.data(_document(run, found, programs, is_over=is_over), text)
        shown = text
        if poll is None or is_over:
            return
        time.sleep(poll)


def _document(run: RunFile, found: MailWatch, programs: Programs, *, is_over: bool) -> dict[str, Any]:
    return {
        "run": run.identity,
        "finished": is_over,
        "sites": [asdict(each) for each in found.sites],
        "awaited": list(found.awaited),
        "refused": dict(found.refused),
        **programs,
    }


def _lines(run: RunFile, found: MailWatch, programs: Programs, *, is_over: bool) -> Iterator[str]:
    asked = [each for each in found.sites if each.number]
    yield f"Run {run.identity[:15]}..., {run.number} sites; {len(found.awaited)} awaited"
    for each in asked:
        said = f"answered {each.answered}" if each.answered else f"awaited{f', until {each.due}' if each.due else ''}"
        yield f"{each.site}: round {each.number}, asked {each.asked}, {said}"
    yield from (f"not used: {name}: {why}" for name, why in found.refused.items())
    yield from (f"not taken: {name}: {why}" for name, why in dict(programs["courier"].get("refused", {})).items())
    for name, told in programs.items():
        if told:
            reason = told.get("reason", "")
            yield f"{name}: {told.get('state')}{f': {reason}' if reason else ''}"
    if is_over:
        yield "The run is finished."
    elif asked and not found.awaited:
        yield "All answers are there: the sites wait for 'consilience run'."


# ---------------------------------------------------------------- page


@live.command("open")
def open_run_page(mailbox: MailPath, own: OwnPath = None, as_json: AsJson = False) -> None:
    """Write the coordinator's page of the run and open it in a browser: who has answered, and the next step.

    The page is one file in the coordinator's own folder. It has no script and opens no connection.
    """
    with report_as(CommandFault.RUN), report_missing_extra():
        path = write_run_page(mailbox, own_folder(mailbox, own))
    open_in_browser(path, as_json=as_json)

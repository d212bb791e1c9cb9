"""The command of a region in a live run: one site of the run above, and the coordinator of a run of its own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.catalogue import CommandFault, report_as, report_missing_extra
from consilience.cli.live_commands import (
    EnrolmentPath,
    LetterAccess,
    LookEvery,
    MostWait,
    Once,
    ProxyAddress,
    ProxyAuthority,
    StoreAddress,
    log_to_stderr,
)
from consilience.cli.options import MailPath
from consilience.cli.run_commands import OwnPath, own_folder
from consilience.cli.run_page import COORDINATOR_KEY
from consilience.errors import InvalidInputError
from consilience.kit.notices import coordinator_key
from consilience.kit.relay import Relay, RelayServing
from consilience.kit.roster import Roster
from consilience.kit.serving import FINISHED, serve

UPPER = "above"
"""Folder with the letters of the run above, in the region's own folder."""


def relay_run(  # noqa: PLR0917 - typer makes options of them
    name: Annotated[str, typer.Argument(metavar="REGION", help="Name of the region in the run above.")],
    mailbox: MailPath,
    roster: Annotated[Path, typer.Option(help="Roster with the names and public keys of the region's sites.")],
    coordinator: Annotated[str, typer.Option(help="Public key of the coordinator above, ed25519:...")],
    store: StoreAddress = "",
    enrolment: EnrolmentPath = None,
    proxy: ProxyAddress = "",
    proxy_authority: ProxyAuthority = None,
    poll: LookEvery = 10.0,
    most: MostWait = 300.0,
    once: Once = False,
    own: OwnPath = None,
) -> None:
    """Serve a run as a region: ask the region's sites what it is asked, and answer with their sum.

    Letters from above come by --enrolment or --store; those of the region's own run are carried by 'live post'.
    """
    private = own_folder(mailbox, own)
    log_to_stderr()
    with report_as(CommandFault.ROSTER):
        known = Roster.read(roster)
        if missing := [site for site in known.names if site not in known.keys]:
            raise InvalidInputError(f"the roster has no public key of {', '.join(missing)}")
    with report_as(CommandFault.RUN), report_missing_extra():
        private.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = private / COORDINATOR_KEY
        relay = Relay(name, private / UPPER, coordinator, mailbox, private, known.keys, coordinator_key(key))
        access = LetterAccess(store, enrolment, proxy, proxy_authority)
        with closing(access.open(name, private, key)) as found:
            serve(RelayServing(relay, found), poll=poll, most=most, until=lambda state: once and state.word == FINISHED)

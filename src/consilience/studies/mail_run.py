"""The coordinator's part of a run by files: begin it in a folder, and take it as far as the answers there allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from consilience.engines.mailbox import Mailbox, begun
from consilience.errors import InvalidInputError
from consilience.federation.federated_fit import FederatedOrders
from consilience.files.mail_folder import END, STUDY, write_whole
from consilience.files.mail_status import end_text
from consilience.files.run_file import RUN, RunFile
from consilience.files.study import Study
from consilience.messages.site_names import site_names
from consilience.model.mixture import Mixture
from consilience.runs.journal import Journal
from consilience.runs.run import OnDrop, RunOptions
from consilience.studies.combination import ran
from consilience.studies.mail import start_bytes, start_of
from consilience.studies.methods import method_of

JOURNAL = "run.journal"


def begin_by_files(
    study: Study,
    mailbox: Path,
    own: Path,
    *,
    sites: Sequence[str] = (),
    keys: Mapping[str, str] | None = None,
    start: Mixture | None = None,
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

    Raises
    ------
    EngineError
        If the folder is of another run or coordinator.
    InvalidInputError
        If the names of the sites are missing, or a key where the study requires signatures.
    """
    there = RunFile.read(mailbox) if (mailbox / RUN).exists() else None
    if there is None and not sites:
        raise InvalidInputError("a new run needs the names of its sites: pass a roster, or each name")
    names = tuple(sorted(site_names(sites))) if sites or there is None else there.sites
    known = dict(keys or {}) if sites or there is None else dict(there.keys)
    begins = there.start if there is not None and start is None else start_bytes(start)
    unsigned = [name for name in names if name not in known]
    if study.minimum.require_signatures and unsigned:
        raise InvalidInputError(f"the study requires signatures, and the roster has no key of {', '.join(unsigned)}")
    found = begun(mailbox, own, RunFile(study.identity, names, known, "", begins))
    if not (mailbox / STUDY).exists():
        write_whole(mailbox / STUDY, study.to_text())
    return found


def advanced_by_files(
    study: Study,
    mailbox: Path,
    own: Path,
    run: RunFile,
    *,
    days: float | None = None,
    until: datetime | None = None,
    patience: float | None = 0.0,
    on_drop: OnDrop = "stop",
    notice: Callable[[str, str], None] | None = None,
) -> FederatedOrders:
    """Take a run as far as the answers in its folder allow; return its result if it ends.

    Parameters
    ----------
    study : Study
    mailbox, own : Path
        As in :func:`begin_by_files`.
    run : RunFile
    days, until, patience, notice
        As in :class:`~consilience.engines.mailbox.Mailbox`.
    on_drop : {"stop", "continue"}

    Raises
    ------
    AwaitedError
        If answers are not there yet: the same call goes on later.
    RoundStoppedError
        If a site failed, or its time is over, and ``on_drop`` is ``"stop"``.
    """
    journal, method = Journal(own / JOURNAL, run.identity), method_of(study)
    box = Mailbox(
        mailbox,
        own,
        run,
        journal,
        with_totals=bool(getattr(method, "totals_only", False)),
        require_signatures=study.minimum.require_signatures,
        days=days,
        until=until,
        patience=patience,
        notice=notice,
    )
    done = ran(study, box, start=start_of(run), options=RunOptions(journal, on_drop=on_drop))
    write_whole(mailbox / END, end_text(run, len(done.best.record.rounds)))
    return done

"""A run in rounds at a site: rows held against earlier releases and runs, and what was asked kept in the ledger.

What a site was asked counts for all studies over the same rows, also if these come back in a later run. The state is
stored before a reply leaves, named by its hash, and every entry of the ledger names the state after it: a crash loses
no charge, and an older state cannot take the place of a newer one without a break in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from consilience.errors import RefusedError
from consilience.files.site_file import SiteFile
from consilience.fit import Expect
from consilience.kit import ledger, release
from consilience.kit.examination import UsedRows
from consilience.kit.folder import LEDGER, SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.rounds.asked import Asked
from consilience.kit.policy.rounds.guard import GuardedSite, Keep, MakeDialogue, Outcome, RoundsOf
from consilience.kit.site_fit import few_filled, question_of, validate_rows, wanted_of
from consilience.kit.study import Study
from consilience.messages import LocalFit, encode
from consilience.methods import Method, Task
from consilience.site import Site

ROUNDS = "rounds"
"""Folder of the states."""


@dataclass(frozen=True)
class RunPart:
    """One question of a run that comes in parts, each a process of its own.

    Parameters
    ----------
    run : str
        Identity of the run; empty for a run that is one process.
    number : int
        Number of the round.
    asked : str
        Identity of the question, by which its reply is found again.
    table : str
        Path of the table, for the next part.
    approved_by : str
        Who approves the answer.
    """

    run: str = ""
    number: int = 0
    asked: str = ""
    table: str = ""
    approved_by: str = ""


WHOLE = RunPart()


def begin_run(
    folder: SiteFolder, study: str, used: UsedRows, min_rows: int, run: Mapping[str, str], *, other_people: str = ""
) -> Asked:
    """Record that a run over some rows begins; return what was asked over them before.

    Parameters
    ----------
    folder : SiteFolder
    study : str
        Identity of the study, ``sha256:...``.
    used : UsedRows
    min_rows : int
        Smallest number of rows about which something may be said.
    run : mapping of str to str
        What the ledger says of the run: its method, and its identity if it has one.
    other_people : str
        Why the rows are those of other people than in earlier releases, where nobody can tell; recorded.

    Raises
    ------
    RefusedError
        If the rows differ from those of an earlier release or run by a few; it is recorded.
    """
    stated = other_people.strip()
    decision = release.decide_for_site(folder, study, used, min_rows, other_people=bool(stated))
    if decision.outcome == "refused":
        release.record_refusal(folder, study, decision.said)
        raise RefusedError(decision.said)
    asked = collect_asked(folder, used)
    named = {name: text[:1000] for name, text in run.items()}
    details = {**named, "state": _stored(folder, asked), **({"stated": [stated]} if stated else {})}
    release.record_release(folder, "run", study, used.tags, people=used.people_tags, details=details)
    return asked


def resume_run(folder: SiteFolder, run: str, used: UsedRows) -> Asked | None:
    """Return what was asked in a run so far; None if the site has not begun it.

    Raises
    ------
    RefusedError
        If the rows are not those with which the run began: it ends.
    """
    entries = [entry for entry in folder.entries if entry.details.get("run") == run and "state" in entry.details]
    if not entries:
        return None
    if entries[0].details.get("tags") != used.tags.hash:
        raise RefusedError(
            f"the rows are not those with which the run of entry {entries[0].number} of the ledger began: the run ends "
            "for this site. Use the table as it was"
        )
    return _state(folder, str(entries[-1].details["state"]))


def stored_reply(folder: SiteFolder, run: str, number: int, asked: str) -> bytes | None:
    """Return the reply to a question of a run that was answered before; None if it was not.

    Raises
    ------
    RefusedError
        If another question of the same round was answered.
    """
    for entry in folder.entries:
        details = entry.details
        if details.get("run") == run and details.get("number") == number and "reply" in details:
            if details.get("asked") != asked:
                raise RefusedError(
                    f"another question of round {number} was answered (entry {entry.number} of the ledger): this one "
                    "was changed, or is of another coordinator"
                )
            return release.read_kept_bytes(folder.path / ROUNDS, str(details["reply"]), release.MOST_BYTES, ".reply")
    return None


def table_of_run(folder: SiteFolder, run: str) -> str:
    """Return the path of the table with which a run began; empty if the site has not begun it."""
    paths = [entry.details.get("table") for entry in folder.entries if entry.details.get("run") == run]
    return str(paths[0] or "") if paths else ""


def collect_asked(folder: SiteFolder, used: UsedRows) -> Asked:
    """Return what was asked over some rows in earlier runs, and the fits to them that were released."""
    same = [entry for entry in folder.entries if entry.details.get("tags") == used.tags.hash]
    states = [str(entry.details["state"]) for entry in same if "state" in entry.details]
    asked = _state(folder, states[-1]).next_run() if states else Asked()
    fitted = [read_released_fit(folder, entry.number).model for entry in same if entry.kind == "release"]
    return asked.with_fits([encode(Expect(model.mixture, information=True)) for model in fitted if model is not None])


def read_released_fit(folder: SiteFolder, entry: int) -> LocalFit:
    """Return the fit in the file that an entry of the ledger released."""
    return SiteFile.from_text(release.read_release(folder, entry).decode()).fit


def record_into(folder: SiteFolder, study: str, used: UsedRows, part: RunPart = WHOLE) -> Keep:
    """Return a function that records every answer and refusal of a run in the ledger, with the state after it.

    Parameters
    ----------
    folder : SiteFolder
    study : str
        Identity of the study, ``sha256:...``.
    used : UsedRows
    part : Part
        The question, by which its reply is found again in a run that comes in parts.
    """
    named = {name: value for name, value in vars(part).items() if name != "table"} if part.run else {}

    def keep(outcome: Outcome) -> None:
        state, refusal = outcome.asked, outcome.refusal
        details = {"study": study, "tags": used.tags.hash, **named, "round": state.rounds}
        details["state"] = _stored(folder, state)
        if part.run:
            details["reply"] = release.keep_bytes(folder.path / ROUNDS, outcome.reply, ".reply")
        if refusal is not None:
            details |= {"round": state.rounds + 1, "rule": refusal.rule, "reason": refusal.reason}
        ledger.append(folder.path / LEDGER, "answer" if refusal is None else "refusal", details)

    return keep


def _state(folder: SiteFolder, named: str) -> Asked:
    return Asked.from_text(release.read_kept_bytes(folder.path / ROUNDS, named, release.MOST_BYTES).decode())


def _stored(folder: SiteFolder, asked: Asked) -> str:
    """Store a state and return its hash."""
    path = folder.path / ROUNDS
    path.mkdir(mode=0o700, exist_ok=True)
    return release.keep_bytes(path, asked.to_text().encode())


def find_released_fit(folder: SiteFolder, study: str, used: UsedRows) -> LocalFit | None:
    """Return the fit that was released for a study over exactly these rows; None if there is none."""
    entry = release.release_entry(folder, study, used.tags.hash)
    return None if entry is None else read_released_fit(folder, entry.number)


# ---------------------------------------------------------------- site run


def open_guarded_site(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    method: Method,
    task: Task,
    *,
    part: RunPart = WHOLE,
    other_people: str = "",
) -> GuardedSite:
    """Begin a run over a table of a site, or go on with it; return the site, which answers through its guard.

    The rows are compared with those of all earlier releases and runs of the site. What was asked over them before, in
    any study, and fits to them that were released count in the leverage. The question for the site's own fit is
    answered by the fit that was released for the study.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    method : Method
        The method of the run. If it asks for totals only, the site checks each question by replay.
    task : Task
        The study's, with the public start of the run if it has one.
    part : Part
        The question of a run that comes in parts; by default a whole run begins.
    other_people : str
        Why the rows are those of other people than in earlier releases, where the rows cannot be compared; recorded.

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If the rows differ from those of an earlier release or run by a few; the refusal is recorded in the ledger.
    """
    rows, policy = validate_rows(study, table), Policy.from_text(folder.policy).stricter(study.minimum)
    used = UsedRows.of(table, wanted_of(study).read, folder.secret, policy.people.column)
    if said := few_filled(study, table, policy.site.min_rows):
        raise RefusedError(said)
    before = resume_run(folder, part.run, used) if part.run else None
    if before is None:
        named = {"method": repr(method), "run": part.run, "table": part.table}
        named = {name: text for name, text in named.items() if text}
        before = begin_run(folder, study.identity, used, policy.site.min_rows, named, other_people=other_people)
    if before.refusals >= policy.rounds.max_refusals:
        raise RefusedError("too many questions over these rows were refused: nothing is answered over them any more")
    rules = RoundsOf(
        policy, study, question_of(study), replay_of(method, task), find_released_fit(folder, study.identity, used)
    )
    site = Site(folder.name, rows, key=folder.secret)
    site = site.by_client() if method.by_client else site
    return GuardedSite(site, rules, before, record_into(folder, study.identity, used, part))


def replay_of(method: Method, task: Task) -> MakeDialogue | None:
    """Return what begins the dialogue of a method that asks for totals only; None for others, which have no replay."""
    return (lambda: method.dialogue(task)) if getattr(method, "totals_only", False) else None

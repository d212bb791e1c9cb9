"""A run in rounds at a site: rows held against earlier releases and runs, and what was asked kept in the ledger.

What a site was asked counts for all studies over the same rows, also if these come back in a later run. The state is
stored before a reply leaves, named by its hash, and every entry of the ledger names the state after it: a crash loses
no charge, and an older state cannot take the place of a newer one without a break in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consilience.errors import RefusedError
from consilience.files.site_file import SiteFile
from consilience.fit.climb import Expect
from consilience.messages.questions import LocalFit
from consilience.messages.table import encode
from consilience.site import ledger
from consilience.site.approval import record_refusal
from consilience.site.folder import LEDGER, SiteFolder
from consilience.site.policy.rounds.asked import Asked
from consilience.site.policy.rounds.guard import Outcome
from consilience.site.policy.rounds.guarded_site import Keep
from consilience.site.releases import MOST_BYTES, decided_for, kept, kept_bytes, record, release_of, stored
from consilience.site.used_rows import UsedRows

ROUNDS = "rounds"
"""Folder of the states."""


@dataclass(frozen=True)
class Part:
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


WHOLE = Part()


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

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> folder = SiteFolder.init("north", "", tempfile.mkdtemp())
    >>> used = UsedRows(pa.table({"age": list(range(100))}), ("age",), folder.secret)
    >>> begin_run(folder, "sha256:a", used, 10, {"method": "FederatedEM()"}).rounds
    0
    >>> [entry.kind for entry in folder.entries]
    ['init', 'run']
    """
    stated = other_people.strip()
    decision = decided_for(folder, study, used, min_rows, other_people=bool(stated))
    if decision.outcome == "refused":
        record_refusal(folder, study, decision.said)
        raise RefusedError(decision.said)
    asked = asked_before(folder, used)
    named = {name: text[:1000] for name, text in run.items()}
    details = {**named, "state": _stored(folder, asked), **({"stated": [stated]} if stated else {})}
    record(folder, "run", study, used.tags, details=details)
    return asked


def resumed_run(folder: SiteFolder, run: str, used: UsedRows) -> Asked | None:
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
            return kept_bytes(folder.path / ROUNDS, str(details["reply"]), MOST_BYTES, ".reply")
    return None


def table_of_run(folder: SiteFolder, run: str) -> str:
    """Return the path of the table with which a run began; empty if the site has not begun it."""
    paths = [entry.details.get("table") for entry in folder.entries if entry.details.get("run") == run]
    return str(paths[0] or "") if paths else ""


def asked_before(folder: SiteFolder, used: UsedRows) -> Asked:
    """Return what was asked over some rows in earlier runs, and the fits to them that were released."""
    same = [entry for entry in folder.entries if entry.details.get("tags") == used.tags.hash]
    states = [str(entry.details["state"]) for entry in same if "state" in entry.details]
    asked = Asked()
    if states:
        asked = _state(folder, states[-1]).next_run()
    fits = [_encoded(released_fit(folder, entry.number)) for entry in same if entry.kind == "release"]
    return asked.with_fits([fit for fit in fits if fit is not None])


def released_fit(folder: SiteFolder, entry: int) -> LocalFit:
    """Return the fit in the file that an entry of the ledger released."""
    return SiteFile.from_text(stored(folder, entry).decode()).fit


def recorded_in(folder: SiteFolder, study: str, used: UsedRows, part: Part = WHOLE) -> Keep:
    """Return a function that records every answer and refusal of a run in the ledger, with the state after it.

    Parameters
    ----------
    folder : SiteFolder
    study : str
        Identity of the study, ``sha256:...``.
    used : UsedRows
    part : Part
        The question, by which its reply is found again in a run that comes in parts.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> folder = SiteFolder.init("north", "", tempfile.mkdtemp())
    >>> used = UsedRows(pa.table({"age": list(range(100))}), ("age",), folder.secret)
    >>> from consilience.site.policy.rounds.refusal import RefusedQuestionError
    >>> keep = recorded_in(folder, "sha256:a", used)
    >>> refusal = RefusedQuestionError("max_leverage", "the answers rest on single rows")
    >>> keep(Outcome(b"", Asked().refused(), refusal))
    >>> folder.entries[-1].kind, folder.entries[-1].details["rule"], asked_before(folder, used).refusals
    ('refusal', 'max_leverage', 1)
    """
    named = {name: value for name, value in vars(part).items() if name != "table"} if part.run else {}

    def keep(outcome: Outcome) -> None:
        state, refusal = outcome.asked, outcome.refusal
        details = {
            "study": study,
            "tags": used.tags.hash,
            **named,
            "round": state.rounds,
            "state": _stored(folder, state),
        }
        if part.run:
            details["reply"] = kept(folder.path / ROUNDS, outcome.reply, ".reply")
        if refusal is not None:
            details |= {"round": state.rounds + 1, "rule": refusal.rule, "reason": refusal.reason}
        ledger.append(folder.path / LEDGER, "answer" if refusal is None else "refusal", details)

    return keep


def _state(folder: SiteFolder, named: str) -> Asked:
    return Asked.from_text(kept_bytes(folder.path / ROUNDS, named, MOST_BYTES).decode())


def _stored(folder: SiteFolder, asked: Asked) -> str:
    """Store a state and return its hash."""
    path = folder.path / ROUNDS
    path.mkdir(mode=0o700, exist_ok=True)
    return kept(path, asked.to_text().encode())


def _encoded(fit: LocalFit) -> bytes | None:
    return None if fit.model is None else encode(Expect(fit.model.mixture, information=True))


def released_for(folder: SiteFolder, study: str, used: UsedRows) -> LocalFit | None:
    """Return the fit that was released for a study over exactly these rows; None if there is none."""
    entry = release_of(folder, study, used.tags.hash)
    return None if entry is None else released_fit(folder, entry.number)

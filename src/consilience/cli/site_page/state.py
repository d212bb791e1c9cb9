"""What the local page of a site is made of, read from the folder of the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience.cli.site_page.live_run import LiveState
from consilience.errors import RefusedError
from consilience.kit import ledger, release
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.release import LastFit
from consilience.kit.spending import budget_document
from consilience.kit.study import Study
from consilience.kit.study_notes import StudyNotes, notes_of


@dataclass(frozen=True, eq=False)
class SiteState:
    """All that the page is made of, read from the folder of a site.

    Parameters
    ----------
    name : str
    there : str
        Option by which commands find the folder; empty in the folder above it.
    time : str
    entries : tuple of Entry
    policy : Policy
    key : str or None
    studies : mapping of str to (Study, StudyNotes)
        By identity.
    last : LastFit or None
    released : int or None
        Entry by which the rows of the last fit were released for its study before.
    invalid : str
        Why the last fit may not be released any more; empty if it may.
    replaced : list of int
        Entries that the last fit replaces and that were not retracted yet.
    budget : mapping
    sizes : mapping of int to int
        Bytes of the file that each release wrote, by its entry.
    live : LiveState or None
        The live run of the site; None without a mandate.
    """

    name: str
    there: str
    time: str
    entries: tuple[ledger.Entry, ...]
    policy: Policy
    key: str | None
    studies: Mapping[str, tuple[Study, StudyNotes]]
    last: LastFit | None
    released: int | None
    invalid: str
    replaced: Sequence[int]
    budget: Mapping[str, Any]
    sizes: Mapping[int, int]
    live: LiveState | None = None

    @classmethod
    def read(cls, folder: SiteFolder, there: str = "") -> SiteState:
        """Read the folder of a site."""
        entries, policy = folder.entries, Policy.from_text(folder.policy)
        last = release.last_fit(folder) if any(entry.kind == "fit" for entry in entries) else None
        studies = {name: (Study.from_text(notes.study), notes) for name, notes in notes_of(folder).items()}
        live = LiveState.read(folder)
        if live is not None and live.study is not None:
            studies.setdefault(live.study.identity, (live.study, StudyNotes(study=live.study.to_text())))
        sizes = {e.number: len(release.read_release(folder, e.number)) for e in entries if e.kind == "release"}
        before, invalid, replaced = None, "", list[int]()
        if last is not None:
            before, replaced = release.earlier_release(folder, last), release.still_replaced(folder, last)
            invalid = "" if before else _why_invalid(folder, last)
        released = None if before is None else before.number
        return cls(
            folder.name,
            there,
            ledger.time_text(),
            entries,
            policy,
            folder.public_key,
            studies,
            last,
            released,
            invalid,
            replaced,
            budget_document(folder, policy.privacy),
            sizes,
            live,
        )

    def study_of(self, entry: ledger.Entry) -> str:
        """Return the identity of the study of an entry; empty if it has none."""
        fit = entry.details.get("fit")
        if "study" not in entry.details and type(fit) is int and 0 < fit <= len(self.entries):
            return str(self.entries[fit - 1].details.get("study", ""))
        return str(entry.details.get("study", ""))

    def name_of(self, study: str) -> str:
        """Return the name of a study, as far as it is known here."""
        if study in self.studies:
            return self.studies[study][0].name
        if self.last is not None and self.last.report.file.study == study:
            return self.last.report.study_name
        return f"{study[:15]}…" if study else ""


def _why_invalid(folder: SiteFolder, last: LastFit) -> str:
    try:
        release.check_latest(folder, last)
        release.check_still_valid(folder, last)
    except RefusedError as error:
        return str(error)
    return ""

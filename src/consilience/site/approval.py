"""From a fit to a release: the last fit of a site, whether it may still leave, and who approved it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from consilience.errors import InvalidInputError, RefusedError
from consilience.site import ledger
from consilience.site.fit_report import FitReport
from consilience.site.folder import LEDGER, SiteFolder
from consilience.site.policy import Policy
from consilience.site.releases import MOST_BYTES, keep_tags, kept, kept_bytes, kept_tags, record, release_of, stored
from consilience.site.row_tags import RowTags
from consilience.site.sealing import sealed

LONGEST_REASON = 4_000


@dataclass(frozen=True, eq=False)
class LastFit:
    """The last fit of a site, and its entry in the ledger."""

    report: FitReport
    entry: ledger.Entry


def keep_fit(folder: SiteFolder, report: FitReport, tags: RowTags, now: datetime | None = None) -> ledger.Entry:
    """Store a fit in the site's folder and record it; it is the one that :func:`released` releases.

    Parameters
    ----------
    folder : SiteFolder
    report : FitReport
    tags : RowTags
        Tags of the rows used.
    now : datetime, optional
    """
    details = {
        "study": report.file.study,
        "rows": tags.n,
        "tags": keep_tags(folder, tags),
        "fit": kept(folder.path / "fits", report.to_text().encode()),
        **({"stated": list(report.notes)} if report.notes else {}),
    }
    return ledger.append(folder.path / LEDGER, "fit", details, now=now)


def keep_again(folder: SiteFolder, number: int) -> ledger.Entry:
    """Make the fit that a release came from the last one again, and record it."""
    entries = folder.entries
    fit = entries[number - 1].details.get("fit")
    if type(fit) is not int or not 0 < fit < number or entries[fit - 1].kind != "fit":
        raise InvalidInputError(f"entry {number} of the ledger does not say which fit it released")
    return ledger.append(folder.path / LEDGER, "fit", entries[fit - 1].details)


def record_refusal(folder: SiteFolder, study: str, reason: str, now: datetime | None = None) -> ledger.Entry:
    """Record that nothing may leave for a study, and why; the reason stays at the site."""
    details = {"study": study, "reason": reason[:LONGEST_REASON]}
    return ledger.append(folder.path / LEDGER, "refusal", details, now=now)


def record_decline(folder: SiteFolder, last: LastFit, who: str) -> ledger.Entry:
    """Record that a person looked at a fit and did not approve it."""
    return ledger.append(folder.path / LEDGER, "decline", {"fit": last.entry.number, "declined_by": who[:200]})


def last_fit(folder: SiteFolder) -> LastFit:
    """Return the last fit of a site; raise an error if there is none, or if its file was changed."""
    entries = [entry for entry in folder.entries if entry.kind == "fit"]
    if not entries:
        raise InvalidInputError("there is no fit yet: run 'consilience site fit'")
    data = kept_bytes(folder.path / "fits", str(entries[-1].details.get("fit")), MOST_BYTES)
    return LastFit(FitReport.from_text(data.decode()), entries[-1])


def earlier_release(folder: SiteFolder, last: LastFit) -> ledger.Entry | None:
    """Return the entry by which the same rows were released for the same study; None if there is none."""
    return release_of(folder, last.entry.details["study"], last.entry.details["tags"])


def check_latest(folder: SiteFolder, last: LastFit) -> None:
    """Raise an error if a fit was tried later and refused: people may take the one before it for that one."""
    later = folder.entries[last.entry.number :]
    refused = [each.number for each in later if each.kind == "refusal" and "state" not in each.details]  # not of rounds
    if refused:
        raise RefusedError(
            f"a later fit was refused (entry {refused[-1]} of the ledger), and this is the one before it: fit again "
            "with the table that you want to release"
        )


def check_still_valid(folder: SiteFolder, last: LastFit) -> None:
    """Raise an error if the fit was decided on other rules, or before another release or run."""
    policy, later = Policy.from_text(folder.policy), folder.entries[last.entry.number :]
    if policy.identity != last.report.file.evidence.get("policy"):
        raise RefusedError("the policy was changed after the fit: fit again, so that the new limits are applied")
    if any(entry.kind in ("release", "run") for entry in later):
        raise RefusedError(
            "something else was released after the fit: fit again, so that the rows are compared with it too"
        )


def released(folder: SiteFolder, approved_by: str, now: datetime | None = None) -> bytes:
    """Seal and record the last fit and return the bytes that leave; the same bytes if these rows left before.

    Parameters
    ----------
    folder : SiteFolder
    approved_by : str
        Who approved, for the ledger; the name stays at the site.
    now : datetime, optional
    """
    last = last_fit(folder)
    check_latest(folder, last)
    if (earlier := earlier_release(folder, last)) is not None:
        return stored(folder, earlier.number)
    check_still_valid(folder, last)
    head = folder.entries[-1].hash
    data = sealed(folder, last.report.file, now).to_text().encode()
    details = {"approved_by": approved_by[:200], "fit": last.entry.number}
    tags = kept_tags(folder, str(last.entry.details["tags"]))
    record(folder, "release", last.report.file.study, tags, data, details=details, head=head, now=now)
    return data

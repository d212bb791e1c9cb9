"""A site in words: how it was used, and why not as a whole."""

from __future__ import annotations

from consilience.aggregate import SiteEvidence
from consilience.fit.survey import SiteReport
from consilience.methods.per_site.shared_fit import SiteShare
from consilience.methods.site_reports import WORSE
from consilience.report.subject import Subject

NOT_SHOWN_ELSEWHERE = "its data follow patterns that no other site shows"
LEFT = ("set aside", "no model", "empty", "dropped", "no answer")
"""Statuses of sites of which nothing was used."""
IN_PART = ("used in part", "on its own", "shared in part")


def site_status(site: SiteReport) -> str:
    """Return the status of a site, such as ``"used"`` or ``"set aside"``."""
    return str(getattr(site, "status", "used"))


def is_left_out(subject: Subject, site: SiteReport) -> bool:
    """Whether nothing of a site is in the result."""
    return site.name in subject.dropped or site_status(site) in LEFT


def site_reason(subject: Subject, site: SiteReport) -> str:
    """Return why a site was left out, wholly or in part, with what is suspect of its columns; empty if it was not."""
    if site.name in subject.dropped:
        return f"it did not take part to the end ({subject.dropped[site.name].rstrip('.')})"
    said = _in_words(site)
    columns = [] if subject.result is None else columns_in_doubt(subject, site.name)
    return "; ".join([said, *columns]) if said and columns else said


def columns_in_doubt(subject: Subject, name: str) -> list[str]:
    """Return what is suspect about the columns of a site: units, mostly."""
    found = () if subject.result is None else subject.result.fit.survey.suspicions.get(name, ())
    return [each for each in found if each.endswith("?") or "units" in each]


def is_explained_worse(site: SiteReport) -> bool:
    """Whether the result explains the rows of a site worse than its own model does, by more than chance."""
    return any(WORSE in each for each in site.remarks)


def _in_words(site: SiteReport) -> str:
    if isinstance(site, SiteEvidence):
        return _of_evidence(site)
    if isinstance(site, SiteShare):
        keeps = "its own model explains its rows better than the shared one, and it keeps it"
        return {"no answer": "it sent no answer", "on its own": keeps}.get(site.status, "; ".join(site.reasons))
    if site_status(site) == "set aside":
        return "its data do not follow the pattern of the other sites"
    return "it has no rows" if site_status(site) == "empty" else "; ".join(site.reasons)


def _of_evidence(site: SiteEvidence) -> str:
    if site.copy_of is not None:
        return f"its model is the same as that of {site.copy_of}, so that one of them is a copy"
    if site.status == "no model":
        return "it has too few rows for a model of its own"
    if site.status == "set aside":
        return NOT_SHOWN_ELSEWHERE
    if not all(site.experts):
        return "a part of its rows follows a pattern that no other site shows; the other part was used"
    return "" if site.gate else "which of its rows follow which pattern is different from the other sites"

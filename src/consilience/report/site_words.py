"""A site in words: how it was used, and why not as a whole."""

from __future__ import annotations

from consilience.methods.site_reports import WORSE
from consilience.report.run_evidence import SiteAccount
from consilience.report.subject import Subject

LEFT = ("set aside", "no model", "empty", "dropped", "no answer")
"""Statuses of sites of which nothing was used."""
IN_PART = ("used in part", "on its own", "shared in part")


def is_left_out(subject: Subject, site: SiteAccount) -> bool:
    """Whether nothing of a site is in the result."""
    return site.name in subject.dropped or site.status in LEFT


def site_reason(subject: Subject, site: SiteAccount) -> str:
    """Return why a site was left out, wholly or in part, with what is suspect of its columns; empty if it was not."""
    if site.name in subject.dropped:
        return f"it did not take part to the end ({subject.dropped[site.name].rstrip('.')})"
    columns = columns_in_doubt(site)
    return "; ".join([site.why, *columns]) if site.why and columns else site.why


def columns_in_doubt(site: SiteAccount) -> list[str]:
    """Return what is suspect about the columns of a site: units, mostly."""
    return [each for each in site.suspicions if each.endswith("?") or "units" in each]


def is_explained_worse(site: SiteAccount) -> bool:
    """Whether the result explains the rows of a site worse than its own model does, by more than chance."""
    return any(WORSE in each for each in site.remarks)

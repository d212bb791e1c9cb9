"""What is known about each site besides the fit: its rows, its columns, and how well it agrees with the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class SiteInfluence:
    """The largest change of a coefficient without a site, or without all sites of its institution.

    Parameters
    ----------
    change : float
        In standard errors, with its sign.
    of : str
        The coefficient.

    Examples
    --------
    >>> print(SiteInfluence(-2.34, "age of expert 1"))
    without it age of expert 1 would change by 2.3 standard errors
    """

    change: float
    of: str

    def __str__(self) -> str:
        return f"without it {self.of} would change by {abs(self.change):.1f} standard errors"


class SiteReport(Protocol):
    """Evidence about one site: its name, why it was not used as a whole, and what else a reader should know."""

    @property
    def name(self) -> str:
        """Name of the site."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not all of it was used; empty where all was."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else a reader should know of it."""

    @property
    def influence(self) -> SiteInfluence | None:
        """The coefficient that would change most without it; None if it is not known."""


Report = TypeVar("Report", bound=SiteReport)


@dataclass(frozen=True)
class SurveyedSite:
    """Report on a site of which only sums are known.

    Parameters
    ----------
    name : str
    weight : float
        Total weight of its rows; NaN if it has not sent it.
    reasons : tuple of str
        Reasons why it was not used as a whole.
    suspicions : tuple of str
        Reasons to think that its data are wrong; they were used nevertheless.
    unlike : str
        Why it is unlike a majority of the sites, which the result does not explain together with it; empty if it is
        not.
    question : str
        What the site is to be asked, which raises no suspicion; empty if there is nothing.
    notes : tuple of str
        Other remarks on the site.
    left : str
        Why it left the run; empty if it did not.
    influence : SiteInfluence or None
        The coefficient that would change most without it.
    """

    name: str
    weight: float
    reasons: tuple[str, ...] = ()
    suspicions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: str = ""
    unlike: str = ""
    influence: SiteInfluence | None = None
    question: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why it left the run, suspicions, the question to it and notes."""
        return (*filter(None, (self.left, *self.suspicions, self.question)), *self.notes)

    @property
    def status(self) -> str:
        """``"used"``, ``"suspect"``, ``"set aside"``, ``"empty"`` or ``"dropped"``."""
        if self.left:
            return "dropped"
        if self.reasons:
            return "set aside" if self.weight > 0 else "empty"
        return "suspect" if self.suspicions else "used"

    def __str__(self) -> str:
        said = "; ".join((*self.reasons, *self.remarks))
        return f"{self.name}: {self.status}" + (f": {said}" if said else "")


@dataclass(frozen=True)
class Survey:
    """Reports on all sites that answered, and doubts that concern no single site."""

    sites: tuple[SurveyedSite, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def suspicions(self) -> dict[str, tuple[str, ...]]:
        """Return the sites whose data may be wrong, and why."""
        return {site.name: site.suspicions for site in self.sites if site.suspicions}

    @property
    def questions(self) -> dict[str, str]:
        """Return the sites that are to be asked something, and what."""
        return {site.name: site.question for site in self.sites if site.question}

    def with_suspicions(self, found: Mapping[str, Iterable[str]], doubts: Sequence[str] = ()) -> Survey:
        """Return the survey with further suspicions about sites, and further doubts."""
        sites = (replace(s, suspicions=(*s.suspicions, *found.get(s.name, ()))) for s in self.sites)
        return Survey(tuple(sites), (*self.doubts, *doubts))

    @property
    def named(self) -> dict[str, str]:
        """Return the sites that are unlike a majority of the others, and in what way."""
        return {site.name: site.unlike for site in self.sites if site.unlike}

    def with_unlike(self, found: Mapping[str, str]) -> Survey:
        """Return the survey with sites that are unlike a majority of the others."""
        return replace(self, sites=tuple(replace(s, unlike=found.get(s.name, s.unlike)) for s in self.sites))

    def with_reasons(self, found: Mapping[str, str]) -> Survey:
        """Return the survey with sites that were set aside, and why."""
        sites = (replace(s, reasons=(*s.reasons, found[s.name])) if s.name in found else s for s in self.sites)
        return replace(self, sites=tuple(sites))

    def with_notes(self, found: Mapping[str, Iterable[str]]) -> Survey:
        """Return the survey with further remarks on sites."""
        return replace(self, sites=tuple(replace(s, notes=(*s.notes, *found.get(s.name, ()))) for s in self.sites))

    def with_dropped(self, dropped: Mapping[str, str]) -> Survey:
        """Return the survey with the sites that left the run, and why."""
        known = {site.name: site for site in self.sites}
        known |= {name: known.get(name) or SurveyedSite(name, float("nan")) for name in dropped}
        return replace(self, sites=tuple(replace(s, left=dropped.get(s.name, "")) for s in known.values()))

    def added_to(self, reports: Sequence[Report]) -> tuple[Report, ...]:
        """Return a method's own reports, with the remarks of this survey."""
        said = {site.name: site.remarks for site in self.sites}
        return tuple(
            replace(report, remarks=(*report.remarks, *said[report.name])) if said.get(report.name) else report  # type: ignore[type-var]  # reports are dataclasses
            for report in reports
        )

"""What a report is about: a fitted model, alone or with the run over sites that it comes from, and its study."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from consilience._version import __version__
from consilience.errors import InvalidInputError
from consilience.fitted import protocols
from consilience.fitted.protocols import FederatedComparison, FederatedResult, FittedMixture
from consilience.model import Mixture
from consilience.numerics.arrays import IntArray
from consilience.plot.drawing import estimator_of
from consilience.report.run_evidence import OrdersCompared, RunEvidence, SiteAccount
from consilience.report.wording import Words

Result = FittedMixture | FederatedResult | FederatedComparison
"""What a report is on: a fitted estimator, or the result of ``Federation.fit`` or ``Federation.select_order``."""
UNREFINED = "without a round of refinement"
"""Part of the reason for which one exchange of files has no such intervals."""


@dataclass(frozen=True)
class SentFile:
    """A file that a site sent, as it is on disk.

    Parameters
    ----------
    site, name : str
    size : int
        In bytes.
    digest : str
        SHA-256 of its bytes, as ``sha256sum`` prints it.
    numbers : int
        Number of numbers in it.
    policy, released, kit : str
        Profile of the site's policy, day of the fit and version of the library, where the file states them.
    mixture : Mixture or None
        The site's own model.

    Examples
    --------
    >>> from consilience.report import SentFile
    >>> SentFile("north", "north.json", 13_432, "0" * 64, 250).size
    13432
    """

    site: str
    name: str
    size: int
    digest: str
    numbers: int
    policy: str = ""
    released: str = ""
    mixture: Mixture | None = None
    kit: str = ""


@dataclass(frozen=True)
class Made:
    """When a result was made, and with what: the day as people write it, and versions of software."""

    day: str
    version: str
    python: str
    system: str

    @classmethod
    def here(cls) -> Made:
        """Return today, in UTC, with what is installed here."""
        now = datetime.now(UTC)
        return cls(f"{now.day} {now:%B %Y}", __version__, platform.python_version(), platform.system())


@dataclass(frozen=True, eq=False)
class Subject:
    """A fit, and what else is known of it.

    Parameters
    ----------
    model : estimator
        The fitted estimator.
    evidence : RunEvidence or None
        What is known of the run that the model is of; None for a model of one machine, or from a file without it.
    orders : OrdersCompared or None
        The comparison that the number of experts was chosen by.
    X, y : array or frame, optional
        Rows for pictures; a report has no single row.
    words : Words
        The words of the study.
    made : Made
        When the result was made, and with what; today and here by default.
    study : str
        Name of the study; empty without one.
    files : tuple of SentFile
        The files of the sites.
    invited : tuple of str or None
        Sites of the roster; None if there is none.
    withdrawn : mapping of str to str
        Day on which each site withdrew that did.
    flow : tuple of tuple of str
        A table of rows by site from those read to those used, with its header first.
    characteristics : tuple of tuple of str
        Table 1 by site, with its header first.
    governance : mapping of str to str
        What people agreed to; an empty value is shown as not stated.
    commands : tuple of str
        Commands that give the same result again.
    origin : mapping of str to str
        Further lines of the provenance, such as the identity of the study.
    """

    model: FittedMixture
    evidence: RunEvidence | None = None
    orders: OrdersCompared | None = None
    X: Any = None
    y: Any = None
    words: Words = field(default_factory=Words)
    made: Made = field(default_factory=Made.here)
    study: str = ""
    files: tuple[SentFile, ...] = ()
    invited: tuple[str, ...] | None = None
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    flow: tuple[tuple[str, ...], ...] = ()
    characteristics: tuple[tuple[str, ...], ...] = ()
    governance: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, *, orders: FederatedComparison | OrdersCompared | None = None, **known: Any) -> Subject:
        """Return the subject of a fitted estimator, a federated fit, or a comparison of orders."""
        if protocols.is_federated_comparison(result):
            if orders is not None:
                raise InvalidInputError("orders: the result is a comparison of orders already")
            return cls(result.best.model, RunEvidence.of(result.best), OrdersCompared.of(result), **known)
        compared = orders if orders is None or isinstance(orders, OrdersCompared) else OrdersCompared.of(orders)
        if protocols.is_federated_result(result):
            return cls(result.model, RunEvidence.of(result), compared, **known)
        return cls(estimator_of(result), known.pop("evidence", None), compared, **known)

    @property
    def sites(self) -> list[SiteAccount]:
        """What is known of each site; empty for a model of one machine."""
        return [] if self.evidence is None else self.evidence.sites

    @property
    def is_combined(self) -> bool:
        """Whether the fit comes from models of sites that were combined."""
        return self.evidence is not None and self.evidence.between is not None

    @property
    def one_regression(self) -> float:
        """Log-likelihood of one regression for all rows, by the answers of sites; NaN if it is not known."""
        return float("nan") if self.evidence is None else self.evidence.one_regression

    @property
    def privacy(self) -> str:
        """What a fit with noise may have disclosed, as far as it is known; empty for a fit without noise."""
        if self.evidence is not None:
            return "" if self.evidence.noise is None else self.evidence.noise.guarantee
        stored = str(getattr(self.model, "provenance_", {}).get("privacy", ""))
        return stored or "how much is not known" * (self.model.inference_.kind == "private")

    @property
    def is_noise_by_file(self) -> bool:
        """Whether each site sent one file with noise."""
        return self.evidence is not None and self.evidence.noise is not None and self.evidence.noise.by_file

    @property
    def dropped(self) -> Mapping[str, str]:
        """Sites that left the run, and why."""
        return {} if self.evidence is None else self.evidence.dropped

    @property
    def absent(self) -> tuple[str, ...]:
        """Sites of the roster of which nothing came, and those that withdrew."""
        known = self.heard | {file.site for file in self.files}
        return tuple(name for name in dict.fromkeys([*(self.invited or ()), *self.withdrawn]) if name not in known)

    def why_absent(self, name: str) -> str:
        """Return why nothing of an absent site is in the result."""
        return f"it withdrew on {self.withdrawn[name]}" if name in self.withdrawn else "it sent nothing"

    @property
    def heard(self) -> set[str]:
        """Sites that were asked, that are known one by one, or that left the run."""
        asked = () if self.evidence is None else self.evidence.asked
        return {*asked, *(site.name for site in self.sites), *self.dropped}

    @property
    def is_from_files(self) -> bool:
        """Whether the model was combined from one answer of each site, without a further exchange."""
        return any(UNREFINED in why for why in self.model.inference_.withheld.values())

    @property
    def plan(self) -> Mapping[str, IntArray]:
        """The combined expert of each expert of a site; nothing where the result was refined from one site's model."""
        plan = {} if self.evidence is None else self.evidence.plan
        return {name: np.asarray(labels, dtype=np.int64) for name, labels in plan.items()}

    @property
    def rows_by_site(self) -> dict[str, float]:
        """Number of rows that each site used, where it is known."""
        return {site.name: site.rows for site in self.sites if np.isfinite(site.rows)}

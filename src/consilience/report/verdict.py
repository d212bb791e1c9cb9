"""Verdict on a result: whether it can be used, and what is in doubt, in sentences for a reader without statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from consilience.aggregate import SiteEvidence
from consilience.fit.survey import SiteReport
from consilience.fitted.protocols import FederatedComparison, FittedMixture, is_needless, join_words, noun
from consilience.fitted.site_influence import unit_influences
from consilience.fitted.summaries import format_count
from consilience.methods.per_site.shared_fit import SiteShare
from consilience.methods.site_reports import WORSE
from consilience.report.subject import Result, Subject

NAMED = 5
"""Maximum number of sites that a sentence names."""
DIFFERENT = 0.01
"""P-value of Cochran's Q below which sites differ in a coefficient."""
SHARP = 8.0
"""Change of the log odds of two experts, per standard deviation of the covariates, from which a gate is sharp."""
SMALL = 20.0
"""Rows of a site per parameter of the mixture below which the site is small."""


class Use(IntEnum):
    """Whether a result can be used.

    Examples
    --------
    >>> print(Use.CARE)
    This result can be used with care.
    """

    YES = 0
    CARE = 1
    NO = 2

    def __str__(self) -> str:
        return ("This result can be used.", "This result can be used with care.", "Do not use this result yet.")[self]


@dataclass(frozen=True)
class Point:
    """One thing in doubt: how grave it is, and a sentence."""

    use: Use
    text: str


@dataclass(frozen=True)
class ReportVerdict:
    """Whether a result can be used, and why not.

    Parameters
    ----------
    points : tuple of Point
        What is in doubt, the gravest first.
    about : str
        Number of sites, rows and experts.
    left_out : str
        Which sites were left out, and why; or that none was.

    Examples
    --------
    >>> print(ReportVerdict((Point(Use.CARE, "one site has few rows"),), "3 sites", "no site was left out"))
    This result can be used with care.
    3 sites
    no site was left out
    - one site has few rows
    """

    points: tuple[Point, ...]
    about: str
    left_out: str

    @property
    def use(self) -> Use:
        """Whether the result can be used."""
        return max((point.use for point in self.points), default=Use.YES)

    def __str__(self) -> str:
        return "\n".join([str(self.use), self.about, self.left_out, *(f"- {point.text}" for point in self.points)])


def verdict(result: Result, orders: FederatedComparison | None = None) -> ReportVerdict:
    """Judge a fitted estimator, a result of ``Federation.fit``, or a comparison of orders.

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> print(verdict(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)))
    This result can be used.
    2 experts, from 2,000 rows or groups.
    All rows were at one place.
    """
    return judge(Subject.of(result, orders=orders) if orders is not None else Subject.of(result))


def judge(subject: Subject) -> ReportVerdict:
    """Return the verdict on a subject."""
    checks = (_doubts, _end, _number_of_experts, _starts, _sites, _suspicions, _influential, _own_experts)
    later = (_differences, _sharp_gate, _withheld, _confounded_effects)
    points = [point for check in (*checks, *later) for point in check(subject)]
    model = subject.model
    K, name = model.mixture_.K, noun(model)
    privacy = subject.privacy
    labels = f"{format_count(model.n_labels_)} rows or groups"
    labels = labels if not privacy else f"about {model.n_labels_:,.0f} rows, by sums with noise ({privacy})"
    about = f"{K} {name}{'s' if K > 1 else ''}, from {labels}"
    about += f" at {_count(len(_used_sites(subject)), 'site')}." if subject.sites else "."
    return ReportVerdict(tuple(sorted(points, key=lambda point: -point.use)), about, _left_out(subject))


# ---------------------------------------------------------------------- sites


def _used_sites(subject: Subject) -> list[SiteReport]:
    return [site for site in subject.sites if not is_left_out(subject, site)]


def _left_out(subject: Subject) -> str:
    """Say which sites were left out, and why."""
    asked = () if subject.result is None else subject.result.record.sites
    if not subject.sites and not asked:
        return _places(subject)
    if not subject.sites and not subject.dropped:
        return f"{_count(len(asked), 'site')} were asked for sums, and none was left out: nothing is known of each."
    left = [site for site in subject.sites if is_left_out(subject, site)]
    known = {site.name for site in left}
    gone = [f"{name} ({why.rstrip('.')})" for name, why in subject.dropped.items() if name not in known]
    said = [*(f"{site.name}: {site_reason(subject, site)}" for site in left), *gone]
    if not said:
        return "No site was left out."
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    total = len(subject.sites) + len(gone)
    return f"{len(said)} of {total} sites {_was(len(said))} left out. {'; '.join(said[:NAMED]).rstrip('.?')}{more}."


def _places(subject: Subject) -> str:
    """Say where the rows of a model were that comes without its run."""
    sites = getattr(subject.model, "provenance_", {}).get("n_sites")
    if not (sites or subject.privacy):
        return "All rows were at one place."
    return f"The rows were at {sites or 'several'} sites; a model alone does not say whether one was left out."


def _sites(subject: Subject) -> Iterator[Point]:
    left = [site.name for site in subject.sites if is_left_out(subject, site)]
    left += [name for name in subject.dropped if name not in left]
    if left:
        total = len({*(site.name for site in subject.sites), *left})
        grave = Use.NO if 2 * len(left) >= total else Use.CARE
        yield Point(grave, f"The result says nothing about {_names(left)}: {_were(len(left))} left out.")
    partly = [site for site in subject.sites if site_status(site) in IN_PART and not is_left_out(subject, site)]
    for site in partly[:NAMED]:
        yield Point(Use.CARE, f"{site.name} was used in part: {site_reason(subject, site)}.")
    if len(partly) > NAMED:
        yield Point(Use.CARE, f"{len(partly) - NAMED} more sites were used in part.")
    worse = [site.name for site in _used_sites(subject) if is_explained_worse(site)]
    if worse:
        yield Point(
            Use.CARE,
            f"The own model of {_names(worse)} explains the rows there better than the result does, by more than "
            "chance: the result need not hold there.",
        )


def _suspicions(subject: Subject) -> Iterator[Point]:
    """Name sites whose data look wrong, or which outweigh the others, and which were used nevertheless."""
    if subject.result is None:
        return
    survey = subject.result.fit.survey
    for site in _used_sites(subject):
        columns = columns_in_doubt(subject, site.name)
        if columns:
            what = "; ".join(columns).rstrip(".?")
            text = f"The data of {site.name} may be wrong, and were used as they are: {what}. Ask the site."
            yield Point(Use.NO, text)
        others = [each for each in survey.suspicions.get(site.name, ()) if each not in columns]
        others += filter(None, [survey.questions.get(site.name, "")])
        if others:
            yield Point(Use.CARE, f"{site.name} was used, though {'; '.join(others)}.")


def _influential(subject: Subject) -> Iterator[Point]:
    """Name institutions on which a coefficient depends."""
    found = [] if subject.result is None else unit_influences(subject.model, subject.result.fit)
    for each in found:
        if each.large:
            yield Point(Use.CARE, f"The result depends on one site: {each}.")


def _own_experts(subject: Subject) -> Iterator[Point]:
    """Name experts that rest on the rows of one site only."""
    combination = subject.combination
    if combination is None or len(combination.plan) < 3 or (subject.rivals and subject.rivals.from_site):
        return
    for k in range(subject.model.mixture_.K):
        having = [name for name, labels in combination.plan.items() if np.any(labels == k)]
        if len(having) == 1:
            yield Point(
                Use.CARE,
                f"{noun(subject.model).capitalize()} {k} was found at one site only, {having[0]}: it may be a property "
                "of that site, or an error in its data.",
            )


def _differences(subject: Subject) -> Iterator[Point]:
    """Say whether sites differ in the coefficients."""
    combination = subject.combination
    if combination is None:
        return
    found = combination.heterogeneity
    known = np.isfinite(found.Q) & np.isfinite(found.I2)
    different = known & (found.p_value < DIFFERENT)
    if different.any():
        share = f"{np.max(found.I2[different]):.0%}".replace("%", " %")
        yield Point(
            Use.CARE,
            f"The sites differ in {int(different.sum())} of {int(known.sum())} effects, by more than chance (up to "
            f"{share} of the variation): the result is an average over sites, and need not hold at each of them.",
        )


# ---------------------------------------------------------------------- the fit


def _doubts(subject: Subject) -> Iterator[Point]:
    said = subject.model.doubts_ if subject.result is None else subject.result.fit.doubts
    for doubt in said:
        yield Point(Use.NO, f"{doubt[0].upper()}{doubt[1:]}.")


def _end(subject: Subject) -> Iterator[Point]:
    model = subject.model
    if not (model.converged_ or model.stop_reason_.by_choice):
        yield Point(Use.NO, f"The computation was not finished ({model.stop_reason_}).")
    if model.degeneracy_:
        yield Point(Use.NO, f"The fit is degenerate: {model.degeneracy_}.")


def _number_of_experts(subject: Subject) -> Iterator[Point]:
    """Say whether fewer experts describe the rows as well."""
    model, K = subject.model, subject.model.mixture_.K
    if is_needless(model):
        yield Point(
            Use.NO, f"One {noun(model)} alone describes the rows as well: the data do not show that there are {K}."
        )
    orders = subject.orders
    if orders is not None and orders.best_order != K:
        yield Point(
            Use.NO,
            f"The comparison prefers {_count(orders.best_order, noun(model))} to {K} ({orders.criterion.upper()}): the "
            f"data do not show that there are {K}.",
        )


def _starts(subject: Subject) -> Iterator[Point]:
    model = subject.model
    if not model.starts_agree_ and model.starts_.count > 1:
        yield Point(
            Use.CARE,
            f"Searches from different starting points ended at different results ({model.starts_}): another result may "
            "describe the rows as well. Raise n_init.",
        )


def _sharp_gate(subject: Subject) -> Iterator[Point]:
    """Say where experts take over from each other within a small range, and sites are small."""
    model = subject.model
    known = (getattr(site, "weight", np.nan) for site in _used_sites(subject))
    weights = [weight for weight in known if np.isfinite(weight)]
    if not weights or not model.mixture_.gate.reads_covariates or model.mixture_.K == 1:
        return
    median = float(np.median(weights))
    if median < SMALL * model.n_parameters_ and steepness(model) > SHARP:
        yield Point(
            Use.CARE,
            f"The {noun(model)}s take over from each other within a small range of the columns (a sharp gate), and the "
            f"sites are small (half of them have {format_count(round(median))} rows or fewer): where the border is, is "
            "uncertain.",
        )


def steepness(model: FittedMixture) -> float:
    """Return the largest change of the log odds of two experts along one standard deviation of all covariates."""
    design, gate_design = model.coordinates_
    slopes = model.mixture_.in_coordinates(design, gate_design).gate.read()[:, int(gate_design.intercept) :]
    return float(max(np.linalg.norm(a - b) for a in slopes for b in slopes))


def _withheld(subject: Subject) -> Iterator[Point]:
    model = subject.model
    parts = {
        "experts": "of the effects",
        "gate": f"of which rows belong to which {noun(model)}",
        "shapes": "of the scatter",
    }
    by_reason: dict[str, list[str]] = {}
    for part, reason in model.inference_.withheld.items():
        if model.mixture_.K > 1 or part != "gate":
            by_reason.setdefault(reason, []).append(parts.get(part, f"of {part}"))
    for reason, what in by_reason.items():
        yield Point(Use.CARE, f"There are no intervals {' and '.join(what)}: {reason}.")


def _confounded_effects(subject: Subject) -> Iterator[Point]:
    if subject.model.unidentified_:
        yield Point(
            Use.CARE,
            f"The data cannot tell some effects apart: {'; '.join(subject.model.unidentified_)}. They are shown as 0.",
        )


# ---------------------------------------------------------------------- phrases


def _names(names: list[str]) -> str:
    shown = names if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"]
    return join_words(shown)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _were(n: int) -> str:
    return "it was" if n == 1 else "they were"


# ---------------------------------------------------------------------- a site in words


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

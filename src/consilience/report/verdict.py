"""Verdict on a result: whether it can be used, and what is in doubt, in sentences for a reader without statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from consilience.estimators.effects import rows_per_coefficient
from consilience.estimators.table import unit
from consilience.estimators.text import count
from consilience.fit.criteria import bic
from consilience.report.site_words import (
    IN_PART,
    columns_in_doubt,
    is_explained_worse,
    is_left_out,
    reason_of,
    status_of,
)
from consilience.report.subject import Subject

NAMED = 5
"""Maximum number of sites that a sentence names."""
LEAST_ROWS = 5.0
"""Rows per coefficient of an expert below which a result is not to be used."""
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
class Verdict:
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
    >>> print(Verdict((Point(Use.CARE, "one site has few rows"),), "3 sites", "no site was left out"))
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


def verdict(result: Any, orders: Any = None) -> Verdict:
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
    return judged(Subject.of(result, orders=orders) if orders is not None else Subject.of(result))


def judged(subject: Subject) -> Verdict:
    """Return the verdict on a subject."""
    checks = (_doubts, _end, _rows, _number_of_experts, _starts, _sites, _suspicions, _own_experts, _differences)
    points = [point for check in (*checks, _sharp_gate, _withheld, _unidentified) for point in check(subject)]
    model = subject.model
    K, name = model.mixture_.K, unit(model)
    about = f"{K} {name}{'s' if K > 1 else ''}, from {count(model.n_labels_)} rows or groups"
    about += f" at {_count(len(_used(subject)), 'site')}." if subject.sites else "."
    return Verdict(tuple(sorted(points, key=lambda point: -point.use)), about, _left_out(subject))


# ---------------------------------------------------------------------- sites


def _used(subject: Subject) -> list[Any]:
    return [site for site in subject.sites if not is_left_out(subject, site)]


def _left_out(subject: Subject) -> str:
    """Say which sites were left out, and why."""
    if not subject.sites:
        return "All rows were at one place."
    left = [site for site in subject.sites if is_left_out(subject, site)]
    known = {site.name for site in left}
    gone = [f"{name} ({why.rstrip('.')})" for name, why in subject.dropped.items() if name not in known]
    said = [*(f"{site.name}: {reason_of(subject, site)}" for site in left), *gone]
    if not said:
        return "No site was left out."
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    total = len(subject.sites) + len(gone)
    return f"{len(said)} of {total} sites {_was(len(said))} left out. {'; '.join(said[:NAMED]).rstrip('.?')}{more}."


def _sites(subject: Subject) -> Iterator[Point]:
    left = [site.name for site in subject.sites if is_left_out(subject, site)]
    left += [name for name in subject.dropped if name not in left]
    if left:
        total = len({*(site.name for site in subject.sites), *left})
        grave = Use.NO if 2 * len(left) >= total else Use.CARE
        yield Point(grave, f"The result says nothing about {_names(left)}: {_were(len(left))} left out.")
    partly = [site for site in subject.sites if status_of(site) in IN_PART and not is_left_out(subject, site)]
    for site in partly[:NAMED]:
        yield Point(Use.CARE, f"{site.name} was used in part: {reason_of(subject, site)}.")
    if len(partly) > NAMED:
        yield Point(Use.CARE, f"{len(partly) - NAMED} more sites were used in part.")
    worse = [site.name for site in _used(subject) if is_explained_worse(site)]
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
    found = subject.result.fit.survey.suspicions
    for site in _used(subject):
        columns = columns_in_doubt(subject, site.name)
        if columns:
            what = "; ".join(columns).rstrip(".?")
            text = f"The data of {site.name} may be wrong, and were used as they are: {what}. Ask the site."
            yield Point(Use.NO, text)
        others = [each for each in found.get(site.name, ()) if each not in columns]
        if others:
            yield Point(Use.CARE, f"{site.name} was used, though {'; '.join(others)}.")


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
                f"{unit(subject.model).capitalize()} {k} was found at one site only, {having[0]}: it may be a property "
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
    said = subject.model.doubts if subject.result is None else subject.result.fit.doubts
    for doubt in said:
        yield Point(Use.NO, f"{doubt[0].upper()}{doubt[1:]}.")


def _end(subject: Subject) -> Iterator[Point]:
    model = subject.model
    if not (model.converged_ or model.stop_reason_.by_choice):
        yield Point(Use.NO, f"The computation was not finished ({model.stop_reason_}).")
    if model.degeneracy:
        yield Point(Use.NO, f"The fit is degenerate: {model.degeneracy}.")


def _rows(subject: Subject) -> Iterator[Point]:
    model = subject.model
    rows = rows_per_coefficient(model)
    if model.mixture_.K > 1 and rows.min() < LEAST_ROWS:
        yield Point(
            Use.NO,
            f"There are too few rows for {model.mixture_.K} {unit(model)}s: the smallest has {rows.min():.1f} rows for "
            f"each of its coefficients, and needs at least {LEAST_ROWS:.0f}. Use fewer {unit(model)}s or columns.",
        )


def _number_of_experts(subject: Subject) -> Iterator[Point]:
    """Say whether fewer experts describe the rows as well."""
    model, K = subject.model, subject.model.mixture_.K
    own = bic(model.log_likelihood_, model.n_parameters_, model.n_labels_)
    if K > 1 and model.single_bic is not None and model.single_bic <= own:
        yield Point(
            Use.NO, f"One {unit(model)} alone describes the rows as well: the data do not show that there are {K}."
        )
    orders = subject.orders
    if orders is not None and orders.best_order != K:
        yield Point(
            Use.NO,
            f"The comparison prefers {_count(orders.best_order, unit(model))} to {K} ({orders.criterion.upper()}): the "
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
    weights = [site.weight for site in _used(subject) if np.isfinite(getattr(site, "weight", np.nan))]
    if not weights or not model.mixture_.gate.reads_covariates or model.mixture_.K == 1:
        return
    median = float(np.median(weights))
    if median < SMALL * model.n_parameters_ and steepness(model) > SHARP:
        yield Point(
            Use.CARE,
            f"The {unit(model)}s take over from each other within a small range of the columns (a sharp gate), and the "
            f"sites are small (half of them have {count(round(median))} rows or fewer): where the border is, is "
            "uncertain.",
        )


def steepness(model: Any) -> float:
    """Return the largest change of the log odds of two experts along one standard deviation of all covariates."""
    design, gate_design = model.coordinates
    slopes = model.mixture_.in_coordinates(design, gate_design).gate.read()[:, int(gate_design.intercept) :]
    return float(max(np.linalg.norm(a - b) for a in slopes for b in slopes))


def _withheld(subject: Subject) -> Iterator[Point]:
    model = subject.model
    parts = {
        "experts": "of the effects",
        "gate": f"of which rows belong to which {unit(model)}",
        "shapes": "of the scatter",
    }
    by_reason: dict[str, list[str]] = {}
    for part, reason in model.inference_.withheld.items():
        if model.mixture_.K > 1 or part != "gate":
            by_reason.setdefault(reason, []).append(parts.get(part, f"of {part}"))
    for reason, what in by_reason.items():
        yield Point(Use.CARE, f"There are no intervals {' and '.join(what)}: {reason}.")


def _unidentified(subject: Subject) -> Iterator[Point]:
    if subject.model.unidentified_:
        yield Point(
            Use.CARE,
            f"The data cannot tell some effects apart: {'; '.join(subject.model.unidentified_)}. They are shown as 0.",
        )


# ---------------------------------------------------------------------- phrases


def _names(names: list[str]) -> str:
    shown = names if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _were(n: int) -> str:
    return "it was" if n == 1 else "they were"

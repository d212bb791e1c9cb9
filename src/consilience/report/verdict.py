"""Verdict on a result: whether it can be used, and what is in doubt, in sentences for a reader without statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from consilience.fit import bic
from consilience.fit.inference import part_in_words
from consilience.fitted.protocols import FederatedComparison, FittedMixture, is_needless, join_words, terms_read
from consilience.fitted.summaries import format_count
from consilience.report.kinds import kinds_of, name_experts
from consilience.report.run_evidence import LargestChange, SiteAccount
from consilience.report.scale import write_minus
from consilience.report.site_words import (
    IN_PART,
    columns_in_doubt,
    is_explained_worse,
    is_left_out,
    site_reason,
)
from consilience.report.subject import UNREFINED, Result, Subject

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
    >>> from consilience.report import Use
    >>> print(Use.CARE)
    This result can be used with care.
    """

    YES = 0
    CARE = 1
    NO = 2

    def __str__(self) -> str:
        return ("This result can be used.", "This result can be used with care.", "Do not use this result yet.")[self]


class VerdictPart(IntEnum):
    """What a doubt is about."""

    DATA = 0
    MODEL = 1


@dataclass(frozen=True)
class Point:
    """One thing in doubt: how grave it is, a sentence, and whether it is about the data or about the model."""

    use: Use
    text: str
    part: VerdictPart = VerdictPart.MODEL


@dataclass(frozen=True)
class Box:
    """One of the three parts of a verdict.

    Parameters
    ----------
    title, tag : str
    use : Use
    sentences : tuple of str
    decides : bool
        Whether it decides if the result can be used; what was not computed does not.
    """

    title: str
    tag: str
    use: Use
    sentences: tuple[str, ...]
    decides: bool = True


@dataclass(frozen=True)
class ReportVerdict:
    """Whether a result can be used, why not, and what this way of working does not compute.

    Parameters
    ----------
    points : tuple of Point
        What is in doubt, the gravest first.
    about : str
        How many kinds, rows and sites.
    used : str
        Which sites were left out, and why; or that none was.
    facts : tuple of (VerdictPart, str)
        What was looked at, and is in no doubt.
    not_computed : tuple of str
        What the way of working does not compute, which is no doubt.

    Examples
    --------
    >>> from consilience.report import ReportVerdict, Use
    >>> from consilience.report.verdict import Point
    >>> print(ReportVerdict((Point(Use.CARE, "One site has few rows."),), "Two kinds.", "3 of 3 sites were used."))
    This result can be used with care.
    Two kinds.
    3 of 3 sites were used.
    - One site has few rows.
    """

    points: tuple[Point, ...]
    about: str
    used: str
    facts: tuple[tuple[VerdictPart, str], ...] = ()
    not_computed: tuple[str, ...] = ()

    @property
    def use(self) -> Use:
        """Whether the result can be used."""
        return max((point.use for point in self.points), default=Use.YES)

    @property
    def parts(self) -> tuple[Box, ...]:
        """The doubts about the data, those about the model, and what was not computed."""
        missing = len(self.not_computed)
        tag = f"{missing} {'thing' if missing == 1 else 'things'}, no doubt" if missing else "Nothing is missing"
        way = Box(
            "Not computed this way", tag, Use.YES, self.not_computed or ("All that this report knows of.",), False
        )
        return self._box("The data", VerdictPart.DATA, (self.used,)), self._box("The model", VerdictPart.MODEL, ()), way

    def _box(self, title: str, part: VerdictPart, first: tuple[str, ...]) -> Box:
        points = [point for point in self.points if point.part is part]
        tag = f"{len(points)} {'doubt' if len(points) == 1 else 'doubts'}" if points else "No doubt found"
        said = (*first, *(point.text for point in points), *(text for of, text in self.facts if of is part))
        return Box(title, tag, max((point.use for point in points), default=Use.YES), said)

    def __str__(self) -> str:
        more = [f"Not computed this way: {' '.join(self.not_computed)}"] if self.not_computed else []
        return "\n".join([str(self.use), self.about, self.used, *(f"- {point.text}" for point in self.points), *more])


def verdict(result: Result, orders: FederatedComparison | None = None, **known: Any) -> ReportVerdict:
    """Judge a fitted estimator, a result of ``Federation.fit``, or a comparison of orders.

    Parameters
    ----------
    result : fitted estimator, FederatedFit or FederatedOrders
    orders : FederatedOrders, optional
        The comparison that a single result is from.
    **known
        Further fields of :class:`~consilience.report.subject.Subject`.

    Examples
    --------
    >>> from consilience.report import verdict
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> print(verdict(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)))
    This result can be used.
    There are two kinds of rows, among 2,000 rows.
    All rows were at one place, or nothing is known of single sites.
    Not computed this way: Intervals of predictions for single patterns of the covariates.
    """
    return judge(Subject.of(result, orders=orders, **known))


def judge(subject: Subject) -> ReportVerdict:
    """Return the verdict on a subject."""
    checks = (_doubts, _end, _number_of_experts, _starts, _sites, _suspicions, _influential, _own_experts)
    later = (_differences, _sharp_gate, _withheld, _confounded_effects)
    points = [point for check in (*checks, *later) for point in check(subject)]
    plain = [replace(point, text=in_study_words(subject, point.text)) for point in points]
    return ReportVerdict(
        tuple(sorted(plain, key=lambda point: -point.use)),
        _about(subject),
        in_study_words(subject, _left_out(subject)),
        tuple(_facts(subject, points)),
        tuple(_not_computed(subject)),
    )


ADVICE = re.compile(
    r"\s*[;:,(]\s*(?:or )?(?:use|try|see|raise|fit)\b"
    r"[^;.]*(?:OneShot|FederatedEM|SharedCentre|ClusteredClients|PrivateScoring|FedGrEM|n_init|select_order)"
    r"[^;.]*|\s*Raise n_init|\s*\([^()]*(?:OneShot|FederatedEM|SharedCentre)(?:\([^()]*\))?[^()]*\)",
)
"""Advice in the words of the library, which says nothing to a reader without it."""


def without_advice(text: str) -> str:
    """Return a sentence without advice that names settings of the library.

    Examples
    --------
    >>> without_advice("It explains the rows of no site: try FederatedEM.")
    'It explains the rows of no site.'
    >>> without_advice("it has other shares (FederatedEM(per_site='gate') gives it a gate of its own)")
    'it has other shares'
    """
    return ADVICE.sub("", text)


def end_sentence(text: str) -> str:
    """Return a text with its mark at the end: a question keeps its own.

    Examples
    --------
    >>> end_sentence("Is it in mg/l?"), end_sentence("It is in mg/l")
    ('Is it in mg/l?', 'It is in mg/l.')
    """
    return text if text.endswith("?") else f"{text.rstrip('.')}."


LONG_NUMBER = re.compile(r"(?<![\w.,−-])(-?\d{5,})((?:\.\d+)?)(?!\w)")
"""A number with five digits or more before its point; in a sentence of the library it has no separators."""
OWN_WORDS = re.compile(r"\b(an expert|experts|expert|(?<!apart from the )rows|row|sites|site)\b")
"""Words of the library for which a study has its own; cells that were sorted "apart from the rows" are of a table."""


def in_study_words(subject: Subject, text: str) -> str:
    """Return a sentence of the library in the words of the study, without advice on settings of the library."""
    words, text = subject.words, without_advice(name_experts(text, kinds_of(subject.model, subject.words)))
    text = text.replace("a round of refinement finds out", f"a second exchange with the {words.sites[1]} finds out")
    own = {"an expert": "a kind", "expert": "kind", "experts": "kinds", "row": words.rows[0], "rows": words.rows[1]}
    own |= {"site": words.sites[0], "sites": words.sites[1]}
    labels = {column.name: words.label(column.name) for column in subject.model.columns_.columns}
    names = {*subject.heard, *subject.absent, *(file.site for file in subject.files)}  # of sites: as they are
    kept = "|".join(re.escape(each) for each in sorted({*names, *labels}, key=len, reverse=True))
    found = re.compile(rf"(?<!\w)(?:{kept})(?!\w)|{OWN_WORDS.pattern}" if kept else OWN_WORDS.pattern)
    said = found.sub(lambda part: labels.get(part[0], part[0] if part[0] in names else own.get(part[0], part[0])), text)
    return LONG_NUMBER.sub(lambda number: write_minus(f"{int(number[1]):,}{number[2]}"), said)


def _about(subject: Subject) -> str:
    model, words = subject.model, subject.words
    K, n, privacy = model.mixture_.K, model.n_labels_, subject.privacy
    rows = words.count_rows(n) if not privacy else f"about {words.count_rows(n)}, by sums with noise ({privacy})"
    at = f" at {words.count_sites(len(_used_sites(subject)))}" if subject.sites else ""
    if K == 1:
        return f"One model describes all {rows}{at}."
    several = words.rows[1]
    return f"There are {count_word(K)} kinds of {several}, among {rows}{at}."


def count_word(n: int) -> str:
    """Return a small number as a word."""
    return ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")[n] if n < 10 else str(n)


# ---------------------------------------------------------------------- sites


def _used_sites(subject: Subject) -> list[SiteAccount]:
    return [site for site in subject.sites if not is_left_out(subject, site)]


def _left_out(subject: Subject) -> str:
    """Say which sites were left out, and why."""
    asked, words = () if subject.evidence is None else subject.evidence.asked, subject.words
    if not subject.sites and not asked:
        return _places(subject)
    if not subject.sites and not subject.dropped:
        n = words.count_sites(len(asked))
        if not subject.is_noise_by_file:
            return f"{n} were asked for sums, and none was left out: nothing is known of each."
        none = "" if subject.absent else ", and none was left out"
        silent = "".join(f" {name}: {subject.why_absent(name)}." for name in subject.absent)
        return f"{n} sent a file with noise{none}: nothing is known of each.{silent}{_invitation(subject)}"
    left = [site for site in subject.sites if is_left_out(subject, site)]
    known = {site.name for site in left}
    gone = [f"{name} ({why.rstrip('.')})" for name, why in subject.dropped.items() if name not in known]
    said = [*(f"{site.name}: {site_reason(subject, site)}" for site in left), *gone]
    said += [f"{name}: {subject.why_absent(name)}" for name in subject.absent]
    total = len(subject.heard) + len(subject.absent)
    if not said:
        return f"{total} of {words.count_sites(total)} {_was(total)} used.{_invitation(subject)}"
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    first = f"{len(said)} of {words.count_sites(total)} {_was(len(said))} left out."
    return f"{first} {end_sentence('; '.join(said[:NAMED]) + more)}{_invitation(subject)}"


def _invitation(subject: Subject) -> str:
    """Say that nobody knows who was invited, where files came without a roster."""
    if not subject.files or subject.invited is not None:
        return ""
    return f" No list of invited {subject.words.sites[1]} was given: one that sent nothing would not be named here."


def _places(subject: Subject) -> str:
    """Say where the rows of a model were that comes without its run."""
    places, words = getattr(subject.model, "provenance_", {}).get("n_sites"), subject.words
    if not (places or subject.privacy):
        return f"All {words.rows[1]} were at one place, or nothing is known of single {words.sites[1]}."
    at = words.count_sites(places) if places else f"several {words.sites[1]}"
    return f"The {words.rows[1]} were at {at}; a model alone does not say whether one was left out."


def _sites(subject: Subject) -> Iterator[Point]:
    left = [site.name for site in subject.sites if is_left_out(subject, site)]
    left += [name for name in subject.dropped if name not in left]
    left += subject.absent
    if left:
        total = len({*(site.name for site in subject.sites), *left})
        grave = Use.NO if 2 * len(left) >= total and len(left) > len(subject.absent) else Use.CARE
        text = f"The result says nothing about {_names(left)}: {_were(len(left))} left out."
        yield Point(grave, text, VerdictPart.DATA)
    partly = [site for site in subject.sites if site.status in IN_PART and not is_left_out(subject, site)]
    for site in partly[:NAMED]:
        yield Point(Use.CARE, f"{site.name} was used in part: {site_reason(subject, site)}.", VerdictPart.DATA)
    if len(partly) > NAMED:
        yield Point(Use.CARE, f"{len(partly) - NAMED} more sites were used in part.", VerdictPart.DATA)
    worse = [site.name for site in _used_sites(subject) if is_explained_worse(site)]
    if worse:
        yield Point(
            Use.CARE,
            f"The own model of {_names(worse)} explains the rows there better than the result does, by more than "
            "chance: the result need not hold there.",
        )


def _suspicions(subject: Subject) -> Iterator[Point]:
    """Name sites whose data look wrong, or which outweigh the others, and which were used nevertheless."""
    for site in _used_sites(subject):
        columns = columns_in_doubt(site)
        if columns:
            said = f"The data of {site.name} may be wrong, and were used as they are: {'; '.join(columns)}"
            text = f"{end_sentence(said)} Ask the site."
            yield Point(Use.NO, text, VerdictPart.DATA)
        others = [each for each in site.suspicions if each not in columns]
        others += filter(None, [site.question])
        if others:
            said = f"{site.name} was used, though {'; '.join(others)}"
            yield Point(Use.CARE, end_sentence(said), VerdictPart.DATA)


def _influences(subject: Subject) -> list[LargestChange]:
    return [] if subject.evidence is None else subject.evidence.influences


def _influential(subject: Subject) -> Iterator[Point]:
    """Name institutions on which a coefficient depends."""
    large = [each for each in _influences(subject) if each.large]
    if large:
        many = subject.words.count_sites(len(large)) if len(large) > 1 else f"one {subject.words.sites[0]}"
        first, *others = (f"without {each.unit}" for each in large[:NAMED])
        sizes = [f"by {abs(each.change):.1f}" for each in large]
        said = [f"{first} an effect within one kind would change {sizes[0]} standard errors"]
        said += [f"{other} {size}" for other, size in zip(others, sizes[1:], strict=False)]
        more = [f"and {len(large) - NAMED} more"] if len(large) > NAMED else []
        yield Point(Use.CARE, f"The result depends on {many}: {', '.join([*said, *more])}.")


def _own_experts(subject: Subject) -> Iterator[Point]:
    """Name kinds that rest on the rows of one site only."""
    if len(subject.plan) < 3:
        return
    for kind in kinds_of(subject.model, subject.words):
        having = [name for name, labels in subject.plan.items() if np.any(labels == kind.expert)]
        if len(having) == 1:
            yield Point(
                Use.CARE,
                f"{kind.title} was found at one site only, {having[0]}: it may be a property of that site, or an error "
                "in its data.",
            )


def _differences(subject: Subject) -> Iterator[Point]:
    """Say whether sites differ in the coefficients."""
    found = None if subject.evidence is None else subject.evidence.between
    if found is None:
        return
    known = np.isfinite(found.Q) & np.isfinite(found.I2)
    different = known & (found.p_value < DIFFERENT)
    if different.any():
        share, sites = f"{np.max(found.I2[different]):.0%}".replace("%", " %"), subject.words.sites[1]
        yield Point(
            Use.CARE,
            f"The {sites} differ in {int(different.sum())} of {int(known.sum())} coefficients, by more than chance "
            f"(up to {share} of the variation): the result is an average over {sites}, and need not hold at each of "
            "them.",
        )


# ---------------------------------------------------------------------- the fit


def _doubts(subject: Subject) -> Iterator[Point]:
    said = subject.model.doubts_ if subject.evidence is None else subject.evidence.doubts
    for doubt in said:
        yield Point(Use.NO, f"{doubt[0].upper()}{doubt[1:]}.")


def _end(subject: Subject) -> Iterator[Point]:
    model = subject.model
    if not (model.converged_ or model.stop_reason_.by_choice):
        yield Point(Use.NO, f"The computation was not finished ({model.stop_reason_}).")
    if model.degeneracy_:
        yield Point(Use.NO, f"The fit is degenerate: {model.degeneracy_}.")


def _number_of_experts(subject: Subject) -> Iterator[Point]:
    """Say whether fewer kinds describe the rows as well."""
    model, K, rows = subject.model, subject.model.mixture_.K, subject.words.rows[1]
    if is_needless(model):
        yield Point(
            Use.NO, f"One model alone describes the {rows} as well: the data do not show that there are {K} kinds."
        )
    orders = subject.orders
    if orders is not None and orders.best != K:
        yield Point(
            Use.NO,
            f"The comparison prefers {orders.best} {'kind' if orders.best == 1 else 'kinds'} to {K} "
            f"({orders.criterion.upper()}): the data do not show that there are {K}.",
        )


def _starts(subject: Subject) -> Iterator[Point]:
    model = subject.model
    if not model.starts_agree_ and model.starts_.count > 1:
        yield Point(
            Use.CARE,
            f"Searches from different starting points ended at different results ({model.starts_}): another result may "
            f"describe the {subject.words.rows[1]} as well.",
        )


def _sharp_gate(subject: Subject) -> Iterator[Point]:
    """Say where kinds take over from each other within a small range, and sites are small."""
    model = subject.model
    weights = [site.rows for site in _used_sites(subject) if np.isfinite(site.rows)]
    if not weights or not model.mixture_.gate.reads_covariates or model.mixture_.K == 1:
        return
    median = float(np.median(weights))
    if median < SMALL * model.n_parameters_ and steepness(model) > SHARP:
        yield Point(
            Use.CARE,
            "The kinds take over from each other within a small range of the columns, and the sites are small (half of "
            f"them have {format_count(round(median))} rows or fewer): where the border is, is uncertain.",
        )


def steepness(model: FittedMixture) -> float:
    """Return the largest change of the log odds of two experts along one standard deviation of all covariates."""
    design, gate_design = model.coordinates_
    slopes = model.mixture_.in_coordinates(design, gate_design).gate.read()[:, int(gate_design.intercept) :]
    return float(max(np.linalg.norm(a - b) for a in slopes for b in slopes))


PARTS = {"experts": "of the effects", "gate": "of who belongs to which kind", "shapes": "of the scatter"}


def _withheld(subject: Subject) -> Iterator[Point]:
    """Say which intervals a fault of the fit forbids; those that need a further exchange are no doubt."""
    by_reason: dict[str, list[str]] = {}
    for part, reason in subject.model.inference_.withheld.items():
        if (subject.model.mixture_.K > 1 or part != "gate") and UNREFINED not in reason:
            by_reason.setdefault(reason, []).append(PARTS.get(part, f"of {part_in_words(part)}"))
    for reason, what in by_reason.items():
        yield Point(Use.CARE, f"There are no intervals {' and '.join(what)}: {reason}.")


def _not_computed(subject: Subject) -> Iterator[str]:
    """Say what the way of working does not give, and what would."""
    model, words = subject.model, subject.words
    K = model.mixture_.K
    lacking = [part for part, reason in model.inference_.withheld.items() if UNREFINED in reason]
    what = [PARTS[part] for part in ("gate", "shapes") if part in lacking and (K > 1 or part != "gate")]
    if what:
        yield f"Intervals {' and '.join(what)}: they need a second exchange with the {words.sites[1]}."
    if not model.mixture_.experts.classes and model.mixture_.design.d:
        yield "Intervals of predictions for single patterns of the covariates."
    if K > 1 and subject.orders is None and model.single_bic_ is None and not np.isfinite(subject.one_regression):
        yield "Whether one model for all would do as well."
    if subject.evidence is not None and subject.X is None:
        yield f"How well predictions agree with real values at each of the {words.sites[1]}."


def _confounded_effects(subject: Subject) -> Iterator[Point]:
    if subject.model.unidentified_:
        yield Point(
            Use.CARE,
            f"The data cannot tell some effects apart: {'; '.join(subject.model.unidentified_)}. They are shown as 0.",
        )


def _facts(subject: Subject, points: list[Point]) -> Iterator[tuple[VerdictPart, str]]:
    """Say what was looked at and is in no doubt."""
    words, model = subject.words, subject.model
    if len(_used_sites(subject)) > 1 and not any(
        point.part is VerdictPart.DATA and point.use is Use.NO for point in points
    ):
        yield VerdictPart.DATA, f"Nothing was found that looks like a wrong unit at one of the {words.sites[1]}."
    found = one_model_bic(subject)
    if model.mixture_.K > 1 and found is not None and found > own_bic(model):
        own = write_minus(f"{own_bic(model):,.0f} against {found:,.0f}")
        K = count_word(model.mixture_.K).capitalize()
        yield VerdictPart.MODEL, f"{K} kinds describe the {words.rows[1]} better than one model for all: BIC {own}."
    units = _influences(subject)
    if units and not any(each.large for each in units):
        yield VerdictPart.MODEL, f"No single {words.sites[0]} decides the result."
    differ = any("by more than chance (up to" in point.text for point in points)
    if subject.is_combined and not differ and len(_used_sites(subject)) > 1:
        yield VerdictPart.MODEL, f"The {words.sites[1]} agree in the effects as far as chance allows."
    if model.converged_:
        yield VerdictPart.MODEL, "The computation has converged."


def own_bic(model: FittedMixture) -> float:
    """Return the BIC of the model."""
    return float(bic(model.log_likelihood_, model.n_parameters_, model.n_labels_))


def one_model_bic(subject: Subject) -> float | None:
    """Return the BIC of one model for all rows, from the rows or by algebra from the files; None if it is not known."""
    model = subject.model
    if model.single_bic_ is not None:
        return model.single_bic_
    value = subject.one_regression
    if not np.isfinite(value) or model.mixture_.K == 1:
        return None
    per_expert = model.inference_.estimates
    free = len(terms_read(model)[1]) * per_expert.experts.shape[1] + per_expert.log_shapes.shape[1]
    return float(bic(value, free, model.n_labels_))


# ---------------------------------------------------------------------- phrases


def _names(names: list[str]) -> str:
    shown = names if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"]
    return join_words(shown)


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _were(n: int) -> str:
    return "it was" if n == 1 else "they were"

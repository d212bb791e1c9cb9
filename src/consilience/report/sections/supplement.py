"""The supplement: all parameters, every effect at every site, how kinds were matched, and items of checklists."""

from __future__ import annotations

from math import isfinite

import numpy as np

from consilience.fitted.protocols import expert_term_names, parameter_table, response_names, term_names
from consilience.report.findings import Findings
from consilience.report.page import Facts, Note, Section, Table
from consilience.report.scale import round_to, write_minus
from consilience.report.sections.found import percent
from consilience.report.sections.sources import interval_of, p_value
from consilience.report.wording import with_article

ROWS = 1000
"""Maximum number of rows of a table on the page."""


def parameter_section(findings: Findings) -> Section:
    """Return all parameters on the scale of the software."""
    model = findings.subject.model
    table, several = parameter_table(model, 0.95), len(response_names(model)) > 1
    names = {kind.expert: kind.title for kind in findings.kinds}
    terms = dict(zip(term_names(model), expert_term_names(model), strict=True))
    rows: list[tuple[str, ...]] = []
    for i, part in enumerate(table["part"]):
        if model.mixture_.K == 1 and part == model.mixture_.gate.part:
            continue
        of = (table["response"][i],) if several else ()
        figures = (_format(table[name][i]) for name in ("estimate", "std_error", "lower", "upper"))
        term = terms[table["term"][i]] if part == "expert" else table["term"][i] or "—"
        rows.append((names[table["expert"][i]], part.replace("_", " "), *of, term, *figures))
    named = ("estimate", "standard error", "lower", "upper")
    header = ("kind", "part", *(("response",) if several else ()), "term", *named)
    numbers = tuple(range(len(header) - len(named), len(header)))
    note = (
        "On the scale of the software, for terms as the study transforms and scales them; “expert” is the model of the "
        "response within a kind."
    )
    found = Table("All parameters with 95 % intervals.", header, tuple(rows), numbers, note, "parameters", True)
    return Section("Supplement: all numbers", "supplement", (found, _expert_numbers(findings)), True)


def _format(value: float) -> str:
    return write_minus(f"{value:.4g}") if isfinite(value) else "—"


def _expert_numbers(findings: Findings) -> Note:
    listed = ", ".join(f"{kind.name} {kind.expert + 1}" for kind in findings.kinds)
    return Note(f"Numbers of the kinds in summaries and in tables of predictions, from 1: {listed}.")


def supplement_section(findings: Findings) -> Section:
    """Return every effect at every site, which kinds of sites were matched, and how the computation ended."""
    blocks = [each for each in (_site_effects(findings), _heterogeneity(findings), _plan(findings)) if each is not None]
    return Section(
        f"Supplement: {findings.words.sites[1]} and computation",
        "computation",
        (*blocks, _convergence(findings)),
        True,
    )


def _site_effects(findings: Findings) -> Table | None:
    rows: list[tuple[str, ...]] = []
    for each in findings.effects:
        if each.sites:
            rows.append((each.whole_title,))
            digits = findings.scale.digits(each.all[0])  # those of the forest
            for site in each.sites:
                weight = percent(site.weight) if isfinite(site.weight) else "—"
                rows.append((site.name, findings.scale.interval(*site.interval, digits), weight))
            rows.append(("all", findings.scale.interval(*each.all), ""))
    if not rows:
        return None
    header = (findings.words.sites[0], f"{findings.scale.heading} (95 % interval)", "weight")
    caption = f"Every effect at every {findings.words.sites[0]}."
    large = len(rows) > ROWS
    return Table(caption, header, tuple(rows), (1, 2), key="effects-by-site", long=True, is_file_only=large)


def _heterogeneity(findings: Findings) -> Table | None:
    rows: list[tuple[str, ...]] = []
    for each in findings.effects:
        found = each.agreement
        if found is not None:
            ends = [findings.scale.number(end) for end in found.next_site]
            further = f"{ends[0]} to {ends[1]}" if isfinite(found.next_site[0]) else "—"
            between = percent(found.I2), interval_of(found.I2_interval) or "—", round_to(found.tau), p_value(found.p)
            rows.append((each.whole_title, *between, further))
    if not rows:
        return None
    site = findings.words.sites[0]
    header = ("effect", "I²", "95 % interval", "τ", "p", f"further {site}")
    note = (
        f"τ: standard deviation between {findings.words.sites[1]} on the scale of the software, for the step; p of "
        f"Cochran’s Q; the last column is a 95 % prediction interval ({findings.scale.heading})."
    )
    caption = f"Differences between {findings.words.sites[1]}."
    return Table(caption, header, tuple(rows), (1, 2, 3, 4, 5), note, "heterogeneity", len(rows) > 24)


def _plan(findings: Findings) -> Table | None:
    """Return which kind of a site became which kind of the result."""
    plan = findings.subject.plan
    if not plan or len(findings.kinds) == 1:
        return None
    rows: list[tuple[str, ...]] = []
    for name, labels in sorted(plan.items()):
        cells = (", ".join(str(j + 1) for j in np.flatnonzero(labels == kind.expert)) for kind in findings.kinds)
        rows.append((name, *cells, ", ".join(str(j + 1) for j in np.flatnonzero(labels < 0))))
    header = (findings.words.sites[0], *(kind.title for kind in findings.kinds), "not used")
    note = f"Numbers in the file of each {findings.words.sites[0]}, which has its own order, counted from 1."
    caption = f"Which component of {with_article(findings.words.sites[0])} became which kind."
    return Table(caption, header, tuple(rows), (), note, "matching", len(rows) > 24)


def _convergence(findings: Findings) -> Facts:
    model = findings.subject.model
    one = findings.subject.is_from_files
    known = np.isfinite(model.log_likelihood_)
    likelihood = write_minus(f"{model.log_likelihood_:,.3f}") if known else "not known: sums with noise do not tell it"
    return Facts((
        ("end", "combined in one exchange of files" if one else str(model.stop_reason_)),
        ("iterations", f"{model.n_iter_}"),
        ("log-likelihood", f"{likelihood}{' (estimated from the files)' if one and known else ''}"),
        ("parameters", f"{model.n_parameters_}"),
        ("searches", str(model.starts_)),
        ("standard errors", f"{model.inference_.kind}"),
    ))  # fmt: skip


# ---------------------------------------------------------------------- checklists


def checklist_section(findings: Findings) -> Section | None:
    """Return where the items of STROBE and TRIPOD are answered, or that they are missing."""
    subject = findings.subject
    if subject.evidence is None:
        return None
    here = {True: "here", False: "missing"}
    rows = (
        ("STROBE 5; TRIPOD 4b: setting and dates", "head", here[bool(findings.words.period)]),
        ("STROBE 6; TRIPOD 5: who was eligible", "study file", here[bool(subject.flow)]),
        ("STROBE 7, 8; TRIPOD 6, 7: variables and units", "effects, study file", "here"),
        ("STROBE 12a; TRIPOD 10: methods", "methods and results", "here"),
        ("STROBE 12c; TRIPOD 9: missing values", "rows, study file", here[bool(subject.flow)]),
        ("STROBE 12e: sensitivity", "do the sites agree", here[any(each.without for each in findings.effects)]),
        ("STROBE 13; TRIPOD 13a: flow", "rows", "here" if subject.flow else "in part: rows that were used"),
        ("STROBE 14; TRIPOD 13b: characteristics", "rows", here[bool(subject.characteristics)]),
        ("STROBE 16; TRIPOD 15a: estimates with precision", "effects, supplement", "here"),
        ("STROBE 17: other analyses", "number of kinds", here[subject.orders is not None]),
        ("TRIPOD 10d, 16: performance", "does the model describe the rows", here[subject.X is not None]),
        ("STROBE 19; TRIPOD 18: limitations", "what this report cannot say", "here"),
        ("STROBE 22; TRIPOD 22: funding", "authors", "to be written by the authors"),
    )
    table = Table("Items of STROBE and TRIPOD.", ("item", "where", "state"), rows, (), "", "checklist")
    return Section("Supplement: checklists", "checklists", (table,), True)

"""The rows and sites that a result comes from, and whether the sites agree."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from consilience.fitted.protocols import join_words
from consilience.report import svg
from consilience.report.findings import Findings
from consilience.report.kind_effects import KindEffect
from consilience.report.page import Block, Figure, FlowChart, Note, Panel, Section, Table
from consilience.report.run_evidence import OwnShares, SiteAccount
from consilience.report.scale import capitalise
from consilience.report.sections.found import percent
from consilience.report.site_words import is_left_out, site_reason
from consilience.report.subject import Subject
from consilience.report.verdict import in_study_words

CHARACTERISTICS = "Mean (standard deviation) or number (per cent). SMD: standardised difference from the others."
SITES_DRAWN = 40
"""Maximum number of sites in a forest; the supplement has all of them."""
COLUMNS = 7
"""Maximum number of sites with a column of their own."""
FORESTS = 8
"""Maximum number of effects with a forest: those that are shown in a kind, or differ most between sites."""


# ---------------------------------------------------------------------- rows and sites


def site_section(findings: Findings) -> Section | None:
    """Return how many rows of which sites were used, and what kind of rows they are."""
    subject, words = findings.subject, findings.words
    if subject.evidence is None and not subject.characteristics:
        return None
    blocks: list[Block] = [_flow(subject)]
    caption = f"{words.rows[1].capitalize()} by {words.sites[0]}"
    if subject.flow:
        blocks.append(_plain_table(f"{caption}, from those read to those used.", subject.flow, "flow"))
    if subject.characteristics:
        blocks.append(_plain_table(f"{caption}.", subject.characteristics, "characteristics", CHARACTERISTICS))
    if subject.sites:
        blocks.append(_site_table(findings))
    return Section(f"{words.rows[1].capitalize()} and {words.sites[1]}", "rows", tuple(blocks))


def _plain_table(caption: str, rows: tuple[tuple[str, ...], ...], key: str, note: str = "") -> Table:
    """Return a table from a plain list of rows, its header first."""
    head, *body = rows
    head = (head[0] or "characteristic", *head[1:])
    return Table(caption, tuple(head), tuple(map(tuple, body)), tuple(range(1, len(head))), note, key)


def _flow(subject: Subject) -> FlowChart:
    words, used = subject.words, [site for site in subject.sites if not is_left_out(subject, site)]
    steps = []
    if subject.invited is not None:
        steps.append((words.count_sites(len(subject.invited)), "invited"))
    sent = len(subject.files) or len(subject.sites) or len(subject.evidence.asked if subject.evidence else ())
    silent = [name for name in subject.absent if name not in subject.withdrawn]
    absent = f"; nothing came from {join_words(silent)}" if silent else ""
    gone = [name for name in subject.absent if name in subject.withdrawn]
    absent += f"; {join_words(gone)} withdrew" if gone else ""
    steps.append((words.count_sites(sent), f"{'sent a file' if subject.files else 'answered'}{absent}"))
    if subject.sites:
        left = len(subject.sites) - len(used)
        steps.append((words.count_sites(len(used)), "used" + (f"; {left} left out" if left else "; none was left out")))
    about = "about " if subject.privacy else ""
    steps.append((f"{about}{words.count_rows(subject.model.n_labels_)}", "used"))
    return FlowChart(tuple(steps))


def _site_table(findings: Findings) -> Table:
    """Return how each site was used, and what is to be known of it."""
    subject = findings.subject
    rows_of, words = subject.rows_by_site, subject.words
    total = sum(rows_of.values())
    rows: list[tuple[str, ...]] = []
    for site in subject.sites:
        n = rows_of.get(site.name, float("nan"))
        counts = (f"{n:,.0f}", percent(n / total)) if isfinite(n) and total else ("—", "—")
        rows.append((site.name, *counts, site.status, _remarks(findings, site)))
    rows += [(name, "—", "—", "absent", subject.why_absent(name)) for name in subject.absent]
    header: tuple[str, ...] = (words.sites[0], words.rows[1], "share", "status", "what is to be known")
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table(f"How each {words.sites[0]} was used.", header, tuple(rows), (1, 2), key="sites", long=len(rows) > 24)


def _remarks(findings: Findings, site: SiteAccount) -> str:
    """Return the reasons and remarks on a site; those on its influence are told in the section on agreement."""
    said = [site_reason(findings.subject, site), *site.reasons, *site.remarks]
    text = "; ".join(dict.fromkeys(each for each in said if each))
    return in_study_words(findings.subject, text)


# ---------------------------------------------------------------------- agreement


def agreement_section(findings: Findings) -> Section | None:
    """Return every effect at every site as forests, what a further site may show, and the result without each site."""
    subject, words = findings.subject, findings.words
    drawn = [each for each in findings.effects if each.sites]
    shares = None if subject.evidence is None else subject.evidence.shares
    if not drawn and shares is None and not any(each.without for each in findings.effects):
        return None
    blocks: list[Block] = list(_words_on_agreement(findings))
    if shares is not None:
        blocks.append(_share_table(findings, shares))
    if drawn and len(drawn[0].sites) <= SITES_DRAWN:
        blocks += [_forests(findings, drawn), Note(_marks(findings, drawn))]
    elif drawn:
        blocks.append(
            f"{words.count_sites(len(drawn[0].sites))} are too many to draw: the supplement has their numbers."
        )
    blocks += _without_sites(findings)
    return Section(f"Do the {words.sites[1]} agree?", "agree", tuple(blocks))


def _marks(findings: Findings, drawn: list[KindEffect]) -> str:
    """Say what the marks of the forests are."""
    site = findings.words.sites[0]
    known = [each.agreement for each in drawn if each.agreement is not None]
    area = "area by weight, which is the share of the information on this effect"
    said = [f"Squares: single {findings.words.sites[1]}, {area}. Diamond: all."]
    if any(isfinite(each.next_site[0]) for each in known):
        said.append(f"Bar “next”: where the effect at a further {site} would lie (95 % prediction interval).")
    if known:
        said.append("I²: share of the variation beyond chance (95 % interval); p of Cochran’s Q.")
    return " ".join(said)


def _words_on_agreement(findings: Findings) -> list[str]:
    known = [each for each in findings.effects if each.agreement is not None]
    if not known:
        return []
    words = findings.words
    worst = max(known, key=lambda each: each.agreement.I2 if each.agreement else 0.0)
    found = worst.agreement
    assert found is not None  # noqa: S101 - of those that are known
    if found.I2 == 0:
        return [
            f"In no effect do the {words.sites[1]} differ by more than chance would make them (I² is 0 % throughout)."
        ]
    of = f"{worst.step}{_within(findings, worst)}"
    figures = f"I² {percent(found.I2)}{_interval_of(found.I2_interval)}, p {p_value(found.p)}"
    said = f"They differ most in the effect of {of}: {figures}."
    if isfinite(found.next_site[0]):
        digits = findings.scale.digits(worst.all[0])
        ends = [findings.scale.number(end, digits) for end in found.next_site]
        said += (
            f" At a further {words.sites[0]} it would lie between {ends[0]} and {ends[1]} ({findings.scale.heading})."
        )
    return [said]


def _within(findings: Findings, effect: KindEffect) -> str:
    return f" among {effect.kind.name}" if len(findings.kinds) > 1 else ""


def interval_of(ends: tuple[float, float]) -> str:
    """Return the ends of an interval of a share; empty if they are not known."""
    return f"{percent(ends[0]).removesuffix(' %')} to {percent(ends[1])}" if isfinite(ends[0]) else ""


def _interval_of(ends: tuple[float, float]) -> str:
    said = interval_of(ends)
    return f" ({said})" if said else ""


def p_value(p: float) -> str:
    """Return a p-value as people write it.

    Examples
    --------
    >>> p_value(0.0001), p_value(0.034)
    ('< 0.001', '0.03')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.01 else f"{p:.2f}"


def _forests(findings: Findings, drawn: list[KindEffect]) -> Figure:
    """Draw the forests of each step, the kinds beside each other on one axis."""
    groups = []
    steps = [step for step in findings.steps if any(each.step is step for each in drawn)]
    chosen = sorted(steps, key=lambda step: -_interest(drawn, step))[:FORESTS]
    for response in findings.responses:
        for step in (each for each in steps if each in chosen):
            own = [each for each in findings.effects_of(step, response) if each.sites]
            if own:
                axis = svg.forest_axis(own)
                panels = tuple(_forest_panel(findings, each, axis) for each in own)
                groups.append((f"{f'{response}: ' if response else ''}{capitalise(step.label)}: {step.words}", panels))
    if len(findings.kinds) == 1:  # one panel of each step: they stand beside each other
        groups = [("", tuple(replace(panel, title=title, colour=-1) for title, (panel,) in groups))]
    more = (
        f" Of {len(steps)} effects those {FORESTS} that are surest or differ most are drawn."
        if len(steps) > len(chosen)
        else ""
    )
    scale = {"percent": "Change in per cent", "difference": "Difference", "ratio": "Ratio", "odds": "Odds ratio"}
    unit = f" in {findings.scale.unit}" if findings.scale.kind == "difference" and findings.scale.unit else ""
    note = f"{scale[findings.scale.kind]}{unit}; the grey line is no difference.{more}"
    return Figure(f"Effects at every {findings.words.sites[0]}.", note, tuple(groups))


def _interest(drawn: list[KindEffect], step: object) -> float:
    own = [each for each in drawn if each.step is step]
    return max((each.agreement.I2 if each.agreement else 0.0) + 2 * each.is_shown for each in own)


def _forest_panel(findings: Findings, effect: KindEffect, axis: tuple[float, float]) -> Panel:
    i = findings.kinds.index(effect.kind)
    picture = svg.forest(effect, findings.scale, f"{effect.kind.title}, {effect.step}", i=i, axis=axis)
    found, below = effect.agreement, ""
    if found is not None:
        below = f"I² {percent(found.I2)}{_interval_of(found.I2_interval)}, p {p_value(found.p)}"
    return Panel(effect.kind.title, picture, i, below)


def _without_sites(findings: Findings) -> list[Block]:
    """Return the effects without each site in turn, and the largest change in words."""
    own = [each for each in findings.effects if each.without]
    units = list(dict.fromkeys(unit for each in own for unit in each.without))
    if not own or len(units) < 2:
        return []
    words, scale = findings.words, findings.scale
    changes = [
        (abs(value - each.all[0]) / each.error, unit, each, value)
        for each in own
        for unit, value in each.without.items()
        if each.error > 0
    ]
    blocks: list[Block] = []
    if changes:
        size, unit, each, value = max(changes, key=lambda change: change[0])
        digits = max(scale.digits(each.all[0]), scale.digits(value))
        story = "never changes an effect by more than two standard errors"
        if size > 2:
            large = findings.subject.evidence is not None and any(e.large for e in findings.subject.evidence.influences)
            story = (
                "matters" if large else f"changes no effect by more than the usual differences between {words.sites[1]}"
            )
        blocks.append(
            f"Leaving out one {words.sites[0]} {story}. The largest change is without {unit}, in the effect of "
            f"{each.step}{_within(findings, each)}: {scale.number(value, digits)} in place of "
            f"{scale.number(each.all[0], digits)} ({scale.heading}), {size:.1f} standard errors."
        )
    table = _table_without(findings, own, units)
    return [*blocks, table] if len(units) <= COLUMNS else [*blocks, _largest_changes(findings, own), table]


def _largest_changes(findings: Findings, own: list[KindEffect]) -> Table:
    """Return for each effect the site without which it changes most."""
    scale, rows = findings.scale, []
    for each in own:
        unit, value = max(each.without.items(), key=lambda item: abs(item[1] - each.all[0]))
        digits = min(scale.digits(each.all[0]) + 1, 4)
        before, then = scale.number(each.all[0], digits), scale.number(value, digits)
        rows.append((f"{each.title}{_within(findings, each)}", before, unit, then))
    site = findings.words.sites[0]
    header = ("effect", "all", "changes most without", "then")
    note = f"{scale.heading}.".capitalize()
    return Table(
        f"The {site} without which each effect changes most.", header, tuple(rows), (1, 3), note, "largest-changes"
    )


def _table_without(findings: Findings, own: list[KindEffect], units: list[str]) -> Table:
    scale = findings.scale
    rows: list[tuple[str, ...]] = []
    for kind in findings.kinds:
        if len(findings.kinds) > 1:
            rows.append((kind.title,))
        for each in own:
            if each.kind is kind:
                values = [each.without.get(unit, np.nan) for unit in units]
                digits = min(scale.digits(each.all[0]) + 1, 4)
                cells = (scale.number(v, digits) if isfinite(v) else "—" for v in (each.all[0], *values))
                rows.append((each.title, *cells))
    header = ("effect", "all", *(f"without {unit}" for unit in units))
    site = findings.words.sites[0]
    return Table(
        f"The result without each {site} in turn.",
        header,
        tuple(rows),
        tuple(range(1, len(header))),
        f"{scale.heading}.".capitalize(),
        "without-sites",
        len(rows) > 24,
        len(units) > COLUMNS,
    )


def _share_table(findings: Findings, shares: OwnShares) -> Table:
    """Return the share of each kind at each site, where each site has a gate of its own."""
    names = {kind.expert: kind.title for kind in findings.kinds}
    rows = tuple(
        (
            each.site,
            names[each.expert],
            percent(each.share),
            f"{percent(each.lower)} to {percent(each.upper)}" if isfinite(each.lower) else "—",
        )
        for each in shares.rows
    )
    header = (findings.words.sites[0], "kind", "share", "95 % interval")
    note = f"The kinds are common to all; {shares.test}."
    return Table(
        f"Share of each kind at each {findings.words.sites[0]}.",
        header,
        rows,
        (2, 3),
        note,
        "shares-by-site",
        len(rows) > 24,
    )

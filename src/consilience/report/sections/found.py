"""What was found: the kinds, who belongs to each, what goes with the response within each, and what to expect."""

from __future__ import annotations

import numpy as np

from consilience.columns import Column
from consilience.fitted.protocols import FittedMixture, join_words, shared_places
from consilience.report import svg
from consilience.report.findings import Findings
from consilience.report.kind_effects import KindEffect, change_in_units
from consilience.report.kinds import RowKind, spread_sentence
from consilience.report.page import Block, Card, Cards, Figure, Note, Panel, Section, Table
from consilience.report.scale import (
    UNDO,
    ChangeScale,
    capitalise,
    in_numbers,
    is_binary,
    round_to,
    spread_text,
    term_spreads,
)
from consilience.report.typical import (
    Prediction,
    encode_rows,
    grid_of,
    has_quantiles,
    kind_densities,
    moving_columns,
    name_row,
)
from consilience.report.wording import Back, with_article

ON_CARDS = 6
"""Maximum number of effects on the card of a kind: the strongest."""
MIDDLE = 1.2816
"""Standard deviations around the mean within which four of five values of a normal distribution lie."""
ON_PAGE = 9
"""Maximum number of typical rows with a picture."""
SITES_DRAWN = 30
"""Maximum number of sites with a line of their own."""
NAMES_OF_COLOURS = ("blue", "orange", "green", "purple", "ochre", "grey")


def percent(share: float) -> str:
    """Return a share as per cent; small ones with a decimal."""
    return f"{100 * share:.0f} %" if not 0 < share < 0.0095 and not 0.9905 < share < 1 else f"{100 * share:.1f} %"


# ---------------------------------------------------------------------- the answer


def found_section(findings: Findings) -> Section:
    """Return the kinds, each with its prediction, its share and its effects."""
    words, kinds = findings.words, findings.kinds
    cards = Cards(tuple(_card(findings, i, kind) for i, kind in enumerate(kinds)))
    blocks: list[Block] = [cards]
    if np.isfinite([kind.typical[0] for kind in kinds]).all():
        what = "the median within the kind" if words.response.back != "none" else "the prediction of the model"
        said = f"“Typical” is {what}, for {average_row(findings)}."
        if findings.subject.model.mixture_.experts.classes:
            said = f"The chance is that of {average_row(findings)}."
        blocks.append(Note(f"{said}{_no_labels(findings)}"))
    elif len(kinds) > 1:
        blocks.append(Note(_no_labels(findings).strip()))
    return Section("What was found", "found", tuple(blocks))


def _no_labels(findings: Findings) -> str:
    one = findings.words.rows[0]
    return f" A single {one} is not labelled: it has a chance of each kind." if len(findings.kinds) > 1 else ""


def holds_for(findings: Findings) -> str:
    """Say which rows the result is about: where about four of five of them lie in the columns of numbers."""
    words, model = findings.words, findings.subject.model
    spreads, place, said = term_spreads(model), int(model.mixture_.design.intercept), []
    for column in model.columns_.columns if model.mixture_.design.d else ():
        rule, (mean, deviation) = column.rule, spreads[place]
        place += len(column.terms)
        if column.is_category or not np.isfinite(deviation) or is_binary(mean, deviation):
            continue
        ends = rule.original(mean + deviation * np.array([-MIDDLE, MIDDLE])).tolist()
        low = ends[0] if rule.low is None else max(ends[0], rule.low)
        high = ends[1] if rule.high is None else min(ends[1], rule.high)
        unit = words.column(column.name).unit or rule.unit
        said.append(f"{words.label(column.name)} {spread_text(low, high)}{f' {unit}' if unit else ''}")
    if not said:
        return ""
    more = f" and {len(said) - 6} more columns" if len(said) > 6 else ""
    return f"{words.rows[1].capitalize()} like these; about 4 of 5 have {join_words(said[:6])}{more}."


def average_row(findings: Findings) -> str:
    """Return the row at the mean of the covariates in words."""
    words, model = findings.words, findings.subject.model
    spreads, place, said = term_spreads(model), int(model.mixture_.design.intercept), []
    for column in model.columns_.columns:
        rule = column.rule
        if not column.is_category and np.isfinite(spreads[place][0]) and rule.transform == "none":
            mean = rule.centre + rule.scale * spreads[place][0]
            unit = words.column(column.name).unit or rule.unit
            said.append(f"{words.label(column.name)} {round_to(mean)}{f' {unit}' if unit else ''}")
        place += len(column.terms)
    mixed = any(column.is_category for column in model.columns_.columns)
    more = " and the mix of categories of all" if mixed else ""
    listed = f": {', '.join(said[:6])}" if said else ""
    return f"an average {words.rows[0]} (the mean of each column{listed}{more})"


def _card(findings: Findings, i: int, kind: RowKind) -> Card:
    words, model = findings.words, findings.subject.model
    value, low, high = kind.typical
    several, big, said = words.rows[1], "", ""
    share = f"{percent(kind.share)} of all {several}." if len(findings.kinds) > 1 else ""
    if np.isfinite(value):
        is_class = bool(model.mixture_.experts.classes)
        shown = [percent(v) if is_class else round_to(v) for v in (value, low, high)]
        unit = f" {words.response.unit}" if words.response.unit and not is_class else ""
        big = f"{shown[0]}{unit}"
        known = np.isfinite(low) and np.isfinite(high)
        interval = f"95 % interval {shown[1]} to {shown[2]}" if known else "no interval"
        what = f"typical {findings.response}" if not is_class else f"chance of {findings.response}"
        said = f"{what} of an average {words.rows[0]} ({interval}){'; ' if share else '.'}"
    listed = _strongest(findings, kind)
    text = f"{said}{share} {spread_sentence(model, words, kind)}".strip()
    return Card(kind.title, big, text[:1].upper() + text[1:], tuple(listed), i)


def _strongest(findings: Findings, kind: RowKind) -> list[str]:
    """Return the effects within a kind in words, those that are shown first, the strongest first."""
    own = [each for each in findings.effects if each.kind is kind and np.isfinite(each.all[0])]
    kept = sorted(own, key=lambda each: (not each.is_shown, -_sureness(each)))[:ON_CARDS]
    chosen = [each for each in own if each in kept]
    more = [f"and {len(own) - len(chosen)} more: see below"] if len(own) > len(chosen) else []
    return [f"{each.title}: {findings.scale.sentence(*each.all)}" for each in chosen] + more


def _sureness(effect: KindEffect) -> float:
    """Return the size of an effect in half-widths of its interval; its size where it has none."""
    estimate, low, high = effect.all
    return abs(estimate) / (high - low) if np.isfinite(high - low) and high > low else abs(estimate)


# ---------------------------------------------------------------------- who belongs where


def member_section(findings: Findings) -> Section | None:
    """Return how the chance of each kind goes with the covariates, with each site's own model as a thin line."""
    model, words, kinds = findings.subject.model, findings.words, findings.kinds
    if len(kinds) == 1:
        return None
    if not model.mixture_.gate.reads_covariates:
        shares = join_words([f"{percent(kind.share)} for {kind.name}" for kind in kinds])
        said = f"Every {words.rows[0]} has the same chance of each kind, whatever its columns: {shares}."
        return Section("Who belongs where", "members", (said,))
    if not moving_columns(model):
        return None
    blocks: list[Block] = [*_said_of_chances(findings), _gate_figure(findings)]
    thin = f" Thin lines are the models of single {words.sites[1]}: they show how much these vary."
    known = "The supplement has the coefficients with their intervals."
    if "gate" in model.inference_.withheld:
        known = "No interval is drawn, because none was computed."
    return Section("Who belongs where", "members", (*blocks, Note(f"{known}{thin * _site_lines(findings)}")))


def _said_of_chances(findings: Findings) -> list[str]:
    """Say the chance of the last kind at a middle and at a high typical row."""
    found = findings.predictions
    if len(found) < 2:
        return []
    kind, low, high = findings.kinds[-1], found[0], found[-1]
    chances = f"{low.name}: {percent(low.chances[-1])}; {high.name}: {percent(high.chances[-1])}"
    return [f"Chance that {findings.words.a_row} is one of the {kind.name}. {capitalise(chances)}."]


def _gate_figure(findings: Findings) -> Figure:
    """Draw the chances along the column that moves them most, at three values of the next one."""
    model, words = findings.subject.model, findings.words
    along, *others = moving_columns(model)
    ends = grid_of(model, along, 2.0)
    x = np.linspace(ends[0], ends[-1], 41)
    values: list[dict[str, float]] = [{others[0].name: v} for v in grid_of(model, others[0])] if others else [{}]
    panels = tuple(_gate_panel(findings, along, x, fixed) for fixed in values)
    unit = words.column(along.name).unit or along.rule.unit
    two = len(findings.kinds) == 2
    which = f"{words.a_row} is one of the {findings.kinds[-1].name}" if two else f"{words.a_row} is of each kind"
    where = f"{words.label(along.name)}{f' in {unit}' if unit else ''}"
    mixed = any(column.is_category for column in model.columns_.columns)
    note = f"along {where}; other columns at their means{', categories at their reference' * mixed}."
    if not two:
        note += f" Colours: {join_words([kind.name for kind in findings.kinds])}, as in section 1."
    return Figure(f"Chance in per cent that {which},", note, (("", panels),), 3)


def _gate_panel(findings: Findings, along: Column, x: np.ndarray, fixed: dict[str, float]) -> Panel:
    model, kinds, words = findings.subject.model, findings.kinds, findings.words
    X = encode_rows(model, [{**fixed, along.name: float(v)} for v in x])
    shown = kinds[-1:] if len(kinds) == 2 else kinds
    first = len(kinds) - len(shown)
    chances = model.mixture_.gate_weights(X)
    thin = [(values, "thin") for values in _site_chances(findings, X, shown[-1].expert)] if len(shown) == 1 else []
    lines = [(chances[:, kind.expert], f"c{svg.colour(first + i)}") for i, kind in enumerate(shown)]
    dots = _typical_chances(model, along, fixed, shown[0].expert, str(svg.colour(first))) if len(shown) == 1 else []
    title = name_row(model, words, fixed) if fixed else ""
    ends = f"{percent(lines[0][0][0])} at {in_numbers(x[0])}, {percent(lines[0][0][-1])} at {in_numbers(x[-1])}"
    alt = f"Chance of {shown[0].name} along {words.label(along.name)}{f' at {title}' if title else ''}: {ends}"
    drawn = svg.curves(list(x), [*thin, *lines], dots, alt)  # type: ignore[list-item]
    return Panel(capitalise(title), drawn)


def _typical_chances(
    model: FittedMixture, along: Column, fixed: dict[str, float], k: int, css: str
) -> list[tuple[float, float, str]]:
    """Return the chance of a kind at typical values of a column, those of the table of predictions."""
    values = grid_of(model, along)
    chances = model.mixture_.gate_weights(encode_rows(model, [{**fixed, along.name: v} for v in values]))[:, k]
    return [(v, float(chance), css) for v, chance in zip(values, chances, strict=True)]


def _site_lines(findings: Findings) -> bool:
    own = [file for file in findings.subject.files if file.mixture is not None and file.site in findings.subject.plan]
    return len(findings.kinds) == 2 and 0 < len(own) <= SITES_DRAWN


def _site_chances(findings: Findings, X: np.ndarray, k: int) -> list[np.ndarray]:
    """Return the chance of a kind by the model of each site that has it."""
    if not _site_lines(findings):
        return []
    plan, found = findings.subject.plan, []
    for file in findings.subject.files:
        labels = plan.get(file.site)
        if file.mixture is not None and labels is not None and np.any(labels == k) and not np.any(labels < 0):
            found.append(file.mixture.gate_weights(X)[:, labels == k].sum(axis=1))
    return found


# ---------------------------------------------------------------------- effects


def effect_section(findings: Findings) -> Section | None:
    """Return the effects within each kind in words, one row each."""
    if not findings.steps:
        return None
    kinds, counted, shared = findings.kinds, 0, shared_places(findings.subject.model)
    rows: list[tuple[str, ...]] = []
    for response in findings.responses:
        if response:
            rows.append((response,))
        for step in findings.steps:
            own = findings.effects_of(step, response)
            title = f"{step.title} (alike in all kinds)" if step.place in shared else step.title
            rows.append((title, *(findings.scale.sentence(*each.all) for each in own)))
            counted += sum(bool(np.isfinite(each.all[1])) for each in own[: 1 if step.place in shared else None])
    what = findings.response
    note = f"Change compared with an otherwise equal {findings.words.rows[0]}, 95 % interval."
    if shared:
        note += " Effects that are alike in all kinds were set to be so before the fit; that they are is no finding."
    header = ("effect", *(kind.title for kind in kinds))
    caption = f"What goes with {what}{', within each kind' if len(kinds) > 1 else ''}."
    table = Table(caption, header, tuple(rows), (), note, "effects", len(rows) > 24)
    chance = (
        " Each interval is for one statement by itself: of 20 such intervals about one misses the truth by chance, and "
        f"this table has {counted}."
    )
    small = Note(f"“Goes with” is not “causes”.{chance if counted > 1 else ''}")
    return Section(f"What goes with {what}", "effects", (table, small, *_effects_in_units(findings)))


def _effects_in_units(findings: Findings) -> list[Block]:
    """Return the effects on the typical response in its unit, where the model has them as ratios."""
    model, words, response = findings.subject.model, findings.words, findings.words.response
    scale = ChangeScale("difference", response.unit, response.less or "lower", response.more or "higher")
    rows = []
    for step in findings.steps:
        own = [change_in_units(model, words, kind, step, findings.steps) for kind in findings.kinds]
        if np.isfinite([each[0] for each in own]).all():
            rows.append((step.title, *(scale.sentence(*each) for each in own)))
    if not rows:
        return []
    row = words.rows[0]
    note = (
        f"From {with_article(f'average {row}')} to one that differs by the step alone, of a category from its "
        "reference; 95 % interval."
    )
    header = ("effect", *(kind.title for kind in findings.kinds))
    title = f"The same for the typical {findings.response}, in {response.unit}."
    return [Table(title, header, tuple(rows), (), note, "effects-in-units", len(rows) > 24)]


# ---------------------------------------------------------------------- predictions


def prediction_section(findings: Findings) -> Section | None:
    """Return what to expect for typical rows."""
    found, words = findings.predictions, findings.words
    if not found:
        return None
    unit = f" in {words.response.unit}" if words.response.unit else ""
    table, blocks = _prediction_table(findings, unit), []
    figure = _density_figure(findings, unit) if len(found) <= ON_PAGE else None
    if figure is not None:
        blocks.append(figure)
    stated = "that the study names" if words.typical else "that the data suggest: low, middle and high values"
    rest = "Columns that are not named are at their mean, categories at their reference."
    small = (
        f"Rows {stated}. {rest} This is for groups of such {words.rows[1]}, no forecast for one, and has no interval."
    )
    return Section(f"What to expect{unit}", "expect", (*blocks, table, Note(small)))


def _prediction_table(findings: Findings, unit: str) -> Table:
    model, words, kinds = findings.subject.model, findings.words, findings.kinds
    shown = kinds[-1:] if len(kinds) == 2 else kinds if len(kinds) > 1 else ()
    chances = tuple(f"chance of {kind.name}" for kind in shown)
    if has_quantiles(model):
        expected: tuple[str, ...] = (f"half are below{unit}", f"9 of 10 are below{unit}")
    else:
        expected = (
            f"chance of {findings.response}" if model.mixture_.experts.classes else f"mean {findings.response}",
        )
    rows = tuple(_prediction_row(findings, each, len(chances)) for each in findings.predictions)
    header = (words.rows[0], *chances, *expected)
    caption = f"{capitalise(findings.response)} of typical {words.rows[1]}."
    return Table(caption, header, rows, tuple(range(1, len(header))), key="predictions")


def _prediction_row(findings: Findings, each: Prediction, chances: int) -> tuple[str, ...]:
    classes = findings.subject.model.mixture_.experts.classes
    expected = (percent(v) if classes else round_to(v) for v in each.expected)
    return (capitalise(each.name), *(percent(p) for p in each.chances[len(each.chances) - chances :]), *expected)


def _density_figure(findings: Findings, unit: str) -> Figure | None:
    """Draw the response of each typical row: one area for each kind."""
    model, words, kinds = findings.subject.model, findings.words, findings.kinds
    if not has_quantiles(model):
        return None
    X = encode_rows(model, [each.values for each in findings.predictions])
    low, high = (model.mixture_.quantile(X, p) for p in (0.003, 0.997))
    x = np.linspace(low.min(), high.max(), 91)
    layers = [kind_densities(model, kinds, each.values, x) for each in findings.predictions]
    drawn = [layer for layer in layers if layer is not None]
    if len(drawn) < len(layers):
        return None
    top = max(float(layer.max()) for layer in drawn)
    ticks = _ticks(float(x[0]), float(x[-1]), words.response.back)
    panels = []
    for each, layer, row in zip(findings.predictions, drawn, X, strict=True):
        half, most = (round_to(v) for v in each.expected)
        below = f"half are below {half}, 9 of 10 below {most}"
        alt = f"{findings.response} of {each.name}: {below}{unit}"
        median = float(model.mixture_.quantile(row[None], 0.5)[0])
        picture = svg.densities(list(x), [list(v) for v in layer], median, ticks=ticks, alt=alt, top=1.05 * top)
        panels.append(Panel(capitalise(each.name), picture, -1, below))
    names = "; ".join(f"{NAMES_OF_COLOURS[svg.colour(i)]}: {kind.name}" for i, kind in enumerate(kinds))
    note = "The line is the median."
    if len(kinds) > 1:
        note = f"{capitalise(names)}. Areas are their chances, the line is the median."
    note += " The axis is logarithmic." if words.response.back == "exp" else ""
    caption = f"{capitalise(findings.response)}{unit} of typical {words.rows[1]}."
    return Figure(caption, note, (("", tuple(panels)),), 3)


def _ticks(low: float, high: float, back: Back) -> list[tuple[float, str]]:
    if back == "exp":
        return [(float(np.log(v)), in_numbers(v)) for v in svg.log_ticks(float(np.exp(low)), float(np.exp(high)))]
    return [(v, in_numbers(round(float(UNDO[back](np.asarray(v))), 10))) for v in svg.nice_values(low, high, 5)]

"""Pictures as SVG, written by hand: marks have classes, so that they have the colours of the page, also in the dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, inf, isfinite, log10

from consilience.report.kind_effects import KindEffect, SiteEffect
from consilience.report.scale import ChangeScale, in_numbers, nearest_round

WIDTH = 350
"""Width of a panel in its own units: about that of a phone, so that texts are readable there."""
LINE = 17
COLOURS = 6
"""Number of colours of kinds."""


def colour(i: int) -> int:
    """Return the number of the colour of the kind at this place."""
    return i % COLOURS


def draw_picture(height: float, marks: Iterable[str], alt: str, width: float = WIDTH) -> str:
    """Return a picture from its marks, with a text for those who do not see it."""
    label = escape(alt, quote=True)
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{label}">{"".join(marks)}</svg>'


def line(x1: float, y1: float, x2: float, y2: float, css: str = "l") -> str:
    """Return a line."""
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, said: str, css: str = "", anchor: str = "start") -> str:
    """Return a text; ``anchor`` is "start", "middle" or "end"."""
    own = f' class="{css}"' if css else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{own} x="{x:.1f}" y="{y:.1f}"{place}>{escape(said)}</text>'


def curve(points: Iterable[tuple[float, float]], css: str) -> str:
    """Return a line through points."""
    return f'<polyline class="{css}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def area(points: Iterable[tuple[float, float]], css: str) -> str:
    """Return a filled area."""
    return f'<polygon class="{css}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` on a line from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value; of one outside, the nearest end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)


def nice_values(low: float, high: float, most: int = 4) -> list[float]:
    """Return round values between two numbers.

    Examples
    --------
    >>> nice_values(-0.3, 2.2)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    if not high > low:
        return [low]
    step = nearest_round((high - low) / most)
    while floor(high / step) - ceil(low / step) + 1 > most + 1:
        step = nearest_round(2.1 * step)
    return [i * step for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


# ---------------------------------------------------------------------- forests

WEIGHTS = 42
"""Width of the column of weights."""
LETTER = 6.1
"""Usual width of a letter."""
LONGEST = 15
"""Maximum number of letters of a name in a picture."""


def forest(effect: KindEffect, scale: ChangeScale, title: str, *, i: int, axis: tuple[float, float]) -> str:
    """Draw an effect at each site, in all of them and in a further one, with numbers and weights.

    Parameters
    ----------
    effect : KindEffect
    scale : ChangeScale
    title : str
        What is drawn, for those who do not see it.
    i : int
        Place of the kind, for its colour.
    axis : (float, float)
        Ends of the axis, as changes of the linear predictor.
    """
    names = [_short(site.name) for site in effect.sites]
    digits = scale.digits(effect.all[0])
    said = [_numbers(scale, each, digits) for each in (*(site.interval for site in effect.sites), effect.all)]
    left = min(100.0, 6.4 * max(map(len, [*names, "next"]))) + 8
    at = Axis(*axis, left, max(WIDTH - WEIGHTS - LETTER * max(map(len, [*said, _heading(scale)])) - 6, left + 60))
    marks = [text(WIDTH - WEIGHTS, 11, _heading(scale), "s", "end"), text(WIDTH, 11, "weight", "s", "end")]
    y = 2.0 * LINE - 6
    top = y - LINE + 6
    for name, site, numbers in zip(names, effect.sites, said, strict=False):
        css = "" if isfinite(site.interval[0]) else "s"
        marks += [text(0, y, name), *_site_marks(site, at, y, i), text(WIDTH - WEIGHTS, y, numbers, css, "end")]
        marks += [text(WIDTH, y, f"{100 * site.weight:.0f} %", "", "end")] if isfinite(site.weight) else []
        y += LINE
    marks += [line(0, y - 11, WIDTH, y - 11), text(0, y + 3, "all", "h")]
    marks += [*_diamond(effect.all, at, y - 1, i), text(WIDTH - WEIGHTS, y + 3, said[-1], "h", "end")]
    y += LINE + 3
    found = effect.agreement
    if found is not None and isfinite(found.next_site[0]):
        low, high = found.next_site
        marks += [
            text(0, y, "next", "s"),
            f'<path class="next k{colour(i)}" d="M{at(low):.1f} {y - 4}H{at(high):.1f}"/>',
        ]
        ends = " to ".join(scale.number(end, digits).removeprefix("+") for end in (low, high))
        marks += [text(WIDTH - WEIGHTS, y, ends, "s", "end")]
        y += LINE
    if at.low <= 0 <= at.high:
        marks.insert(0, line(at(0), top, at(0), y - 6, "r"))  # no effect, down to the axis
    marks += _ticks(scale, at, y - 6)
    return draw_picture(y + 12, marks, _forest_alt(effect, scale, title))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _heading(scale: ChangeScale) -> str:
    return f"{scale.heading} (95 % CI)"


def _site_marks(site: SiteEffect, at: Axis, y: float, i: int) -> list[str]:
    estimate, low, high = site.interval
    if not isfinite(estimate):
        return []
    size = 4 + 9 * (site.weight if isfinite(site.weight) else 0.1) ** 0.5
    x = at(estimate)
    bar = [line(at(low), y - 4, at(high), y - 4, f"k{colour(i)}")] if isfinite(low) else []
    square = f'<rect class="f{colour(i)}" x="{x - size / 2:.1f}" y="{y - 4 - size / 2:.1f}" '
    return [*bar, f'{square}width="{size:.1f}" height="{size:.1f}"/>']


def _numbers(scale: ChangeScale, interval: tuple[float, float, float], digits: int) -> str:
    """Return an estimate with its interval in numbers."""
    if not isfinite(interval[0]):
        return "no estimate"
    said = scale.number(interval[0], digits)
    if not isfinite(interval[1]):
        return said
    low, high = (scale.number(end, digits).removeprefix("+") for end in interval[1:])
    return f"{said} ({low} to {high})"


def _diamond(interval: tuple[float, float, float], at: Axis, y: float, i: int) -> list[str]:
    b, low, high = interval
    if not isfinite(low):
        return [f'<circle class="f{colour(i)}" cx="{at(b):.1f}" cy="{y:.1f}" r="4"/>']
    left, right = min(at(low), at(b) - 3), max(at(high), at(b) + 3)
    return [area([(left, y), (at(b), y - 5), (right, y), (at(b), y + 5)], f"f{colour(i)}")]


def _ticks(scale: ChangeScale, at: Axis, y: float) -> list[str]:
    marks = [line(at.start, y, at.end, y, "r")]
    low, high = scale.value(at.low), scale.value(at.high)
    ratios = scale.kind in ("ratio", "odds") and low > 0 and high > 4 * low
    ends: list[tuple[float, float]] = []
    values = log_ticks(low, high, 4) if ratios else nice_values(low, high, 3)
    for value in sorted(values, key=lambda each: abs(scale.predictor(each)) if _is_possible(scale, each) else inf):
        if not _is_possible(scale, value):
            continue
        x, sign = at(scale.predictor(value)), "+" if value > 0 and scale.kind in ("percent", "difference") else ""
        said = sign + in_numbers(round(value, 10))
        half = LETTER * len(said) / 2 + 5  # numbers beside each other must not read as one
        if all(x + half < a or x - half > b for a, b in ends):  # no effect first, then what has room beside it
            ends.append((x - half, x + half))
            marks += [line(x, y, x, y + 4, "r"), text(x, y + 16, said, "s", "middle")]
    return marks


def _is_possible(scale: ChangeScale, value: float) -> bool:
    return value > 0 if scale.kind in ("ratio", "odds") else scale.kind != "percent" or value > -100


def _forest_alt(effect: KindEffect, scale: ChangeScale, title: str) -> str:
    return f"{title}: {scale.interval(*effect.all)} in all, {len(effect.sites)} sites drawn with their intervals"


def forest_axis(effects: Sequence[KindEffect]) -> tuple[float, float]:
    """Return the ends of the axis that several forests share; intervals that are very long are cut."""
    estimates = [site.interval[0] for each in effects for site in each.sites if isfinite(site.interval[0])]
    inner = [v for each in effects for v in each.all if isfinite(v)]
    further = [v for each in effects if each.agreement for v in each.agreement.next_site if isfinite(v)]
    low, high = min([0.0, *estimates, *inner]), max([0.0, *estimates, *inner])
    room = max(high - low, 1e-9)
    ends = further + [v for each in effects for site in each.sites for v in site.interval[1:] if isfinite(v)]
    low, high = max(min([low, *ends]), low - room / 2), min(max([high, *ends]), high + room / 2)
    return low - 0.03 * room, high + 0.03 * room


# ---------------------------------------------------------------------- curves and densities


def curves(
    x: Sequence[float], lines: Sequence[tuple[Sequence[float], str]], dots: Sequence[tuple[float, float, str]], alt: str
) -> str:
    """Draw percentages along a covariate.

    Parameters
    ----------
    x : sequence of float
    lines : sequence of (values, class)
        From 0 to 1, for each x.
    dots : sequence of (x, value, class)
        Bullets with their value in per cent beside them.
    alt : str
    """
    height = 150.0
    across, up = Axis(min(x), max(x), 30, WIDTH - 12), Axis(0, 1, height - 22, 10)
    marks = [part for p in (0, 0.25, 0.5, 0.75, 1) for part in _level(p, up)]
    marks += [text(across(v), height - 5, in_numbers(v), "s", "middle") for v in nice_values(min(x), max(x), 4)]
    for values, css in lines:
        marks.append(curve(((across(a), up(v)) for a, v in zip(x, values, strict=True)), css))
    falls = len(dots) > 1 and dots[-1][1] < dots[0][1]
    for a, v, css in dots:  # a number stands above its line: to the left where it rises, to the right where it falls
        marks += [f'<circle class="f{css}" cx="{across(a):.1f}" cy="{up(v):.1f}" r="3.2"/>']
        side = "end" if across(a) > (WIDTH - 45 if falls else 80) else "start"
        x_text, y_text = across(a) + (-3 if side == "end" else 3), up(v) - (16 if falls and side == "end" else 8)
        marks += [text(x_text, y_text, f"{100 * v:.0f} %", f"t{css}", side)]
    return draw_picture(height, marks, alt)


def _level(p: float, up: Axis) -> list[str]:
    return [line(30, up(p), WIDTH - 12, up(p)), text(24, up(p) + 4, f"{100 * p:.0f}", "s", "end")]


def densities(
    x: Sequence[float],
    layers: Sequence[Sequence[float]],
    median: float,
    *,
    ticks: Sequence[tuple[float, str]],
    alt: str,
    top: float,
) -> str:
    """Draw the density of each kind along an axis, with the median as a line.

    Parameters
    ----------
    x : sequence of float
        Places on the axis.
    layers : sequence of sequences of float
        Density of each kind there, times its chance.
    median : float
        On the axis.
    ticks : sequence of (float, str)
    alt : str
    top : float
        Density at the top of the picture, the same in pictures beside each other.
    """
    height, base = 112.0, 92.0
    across, up = Axis(x[0], x[-1], 6, WIDTH - 6), Axis(0, top, base, 6)
    marks = []
    for i, layer in enumerate(layers):
        points = [(across(a), up(v)) for a, v in zip(x, layer, strict=True)]
        marks.append(area([(across(x[0]), base), *points, (across(x[-1]), base)], f"d{colour(i)}"))
    marks += [line(6, base, WIDTH - 6, base, "r"), line(across(median), 4, across(median), base, "ink")]
    for place, said in ticks:
        marks += [
            line(across(place), base, across(place), base + 4, "r"),
            text(across(place), base + 17, said, "s", "middle"),
        ]
    return draw_picture(height, marks, alt)


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two positive numbers.

    Examples
    --------
    >>> log_ticks(1.2, 45.0)
    [2.0, 5.0, 10.0, 20.0]
    """
    found = [m * 10.0**e for e in range(floor(log10(low)) - 1, ceil(log10(high)) + 1) for m in (1, 2, 5)]
    inside = [v for v in found if low <= v <= high]
    return inside if len(inside) <= most else [v for v in inside if log10(v).is_integer()] or inside[::3]


# ---------------------------------------------------------------- small pictures in tables

SMALL = 160
"""Width of a picture in a cell of a table, in its own units."""


def histogram(heights: Sequence[float], alt: str) -> str:
    """Draw bars beside each other, as high as their numbers.

    Examples
    --------
    >>> histogram([1, 2], "two bars").count("<rect")
    2
    """
    width, top = SMALL / max(len(heights), 1), max([*heights, 1])
    bars = (
        f'<rect class="f0" x="{i * width + 0.5:.1f}" y="{28 - 26 * n / top:.1f}" width="{width - 1:.1f}" '
        f'height="{26 * n / top:.1f}"/>'
        for i, n in enumerate(heights)
    )
    return draw_picture(30, [*bars, line(0, 28.5, SMALL, 28.5, "r")], alt, SMALL)


def limit_bar(share: float, alt: str) -> str:
    """Draw a part of a limit as a bar, and the limit as a line; what is more than the limit ends at the edge.

    Examples
    --------
    >>> limit_bar(0.5, "half of the limit").count("<rect")
    2
    """
    end = 0.9 * SMALL
    long = min(share * end, SMALL) if share <= 0 else min(max(share * end, 1.5), SMALL)
    css = "f0" if share <= 1 else "f1"
    marks = [
        f'<rect class="bg" x="0" y="3" width="{end:.1f}" height="8"/>',
        f'<rect class="{css}" x="0" y="3" width="{max(long, 0.0):.1f}" height="8"/>',
        line(end, 0, end, 14, "ink"),
    ]
    return draw_picture(14, marks, alt, SMALL)

"""The parts of a report as values, which are then written as HTML or Markdown: tables, pictures and sections."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Table:
    """A table with a caption; the first column names the rows.

    Parameters
    ----------
    caption : str
    header : tuple of str
    rows : tuple of tuple of str
    numbers : tuple of int
        Columns of numbers, which are aligned to the right.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture as inline SVG, with a text for those who do not see it, and its numbers.

    Parameters
    ----------
    svg : str
    alt : str
        What the picture shows.
    numbers : Table or None
        The same numbers; None if a table of the section has them.
    """

    svg: str
    alt: str
    numbers: Table | None = None


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Parameters
    ----------
    title : str
    paragraphs : tuple of str
    items : tuple of Table or Picture
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[Table | Picture, ...] = ()


def number(value: float | None, digits: int = 4) -> str:
    """Format a number with some significant digits; a dash if it is not known.

    Examples
    --------
    >>> number(1234.5678), number(float("nan")), number(0.00012345)
    ('1,235', '—', '0.0001234')
    """
    if value is None or not np.isfinite(value):
        return "—"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """Format a fraction as a percentage; a dash if it is not known.

    Examples
    --------
    >>> percent(0.123), percent(None)
    ('12 %', '—')
    """
    return "—" if value is None or not np.isfinite(value) else f"{100 * value:.0f} %"


BANDS = (10, 50, 100, 500, 1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000)


def band(rows: float) -> str:
    """Return the band of a number of rows, so that a report does not state the exact number of a site.

    Examples
    --------
    >>> band(7), band(640), band(2e6), band(float("nan"))
    ('fewer than 10', '500 to 999', '1,000,000 or more', '—')
    """
    if not np.isfinite(rows):
        return "—"
    at = int(np.searchsorted(BANDS, rows, side="right"))
    if at == 0:
        return f"fewer than {BANDS[0]}"
    return f"{BANDS[-1]:,} or more" if at == len(BANDS) else f"{BANDS[at - 1]:,} to {BANDS[at] - 1:,}"

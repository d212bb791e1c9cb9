"""Other maxima beside the best one on many rows: split-and-merge moves on larger samples, climbed on all rows.

A search on a sample sees the maxima of the sample. On many rows two maxima can differ by some units of log-likelihood,
which is less than a unit on the sample, and the better one need not be a maximum there. A move leads from the best end
to one near it on another, larger sample, and a few steps on all rows tell which of the two is higher. Each move has a
sample of its own, since the maxima differ between samples.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from consilience.fit.climb import Ascent, StopReason
from consilience.fit.criteria import label_count, log_likelihood
from consilience.fit.specification import Specification, is_degenerate
from consilience.fit.starts import MOVED, SAMPLE, UNIT, End, Progress, Search, propose_moves, search_on_sample
from consilience.model import ColumnSummary, Mixture, Penalty, Rows

MOST_LABELS_CLIMBED = 1_000_000
"""Number of labels up to which the best few ends are climbed on all rows; above, one pass compares two of them.

Maxima that differ by a few units on all rows cannot be told apart on a sample, nor before they are climbed.
"""
LARGER_SAMPLE = 4 * SAMPLE
"""Maximum number of rows on which a move from the best end on all rows is climbed."""
PATIENCE = 12
"""Number of fruitless moves after which the search ends."""
EASY = 3
"""Passes with the information that a climb on all rows takes from the end on the sample, if the two are near."""
NEAR = 100.0
"""Log-likelihood on the larger sample by which the end of a move may be lower and still be climbed on all rows."""

Reach = Callable[[Mixture, float], Ascent]
"""Climbs on all rows from a mixture, given the penalised log-likelihood of the best end that is known."""


def has_neighbours(best: Ascent, rows: Rows) -> bool:
    """Whether other maxima may be near: of many rows, the climb on all of them took more than a few Newton steps.

    The maximum of a sample is as far from that of all rows as its standard errors say, and Newton's method takes two or
    three steps. If it takes more, the likelihood is far from quadratic between them.
    """
    return SAMPLE < label_count(rows) <= MOST_LABELS_CLIMBED and best.informed_passes > EASY


def climb_neighbours(
    best: Ascent,
    rows: Rows,
    specification: Specification,
    summary: ColumnSummary,
    rng: np.random.Generator,
    *,
    reach: Reach,
    progress: Progress | None = None,
) -> list[Ascent]:
    """Return the ends on all rows of moves from the best end, and from each better one that is found.

    Moves end when ``PATIENCE`` of them in a row led to no better end.

    Parameters
    ----------
    best : Ascent
        The best end on all rows.
    rows, specification, summary, rng
        As in :func:`~consilience.fit.starts.search`.
    reach : callable
    progress : callable or None
    """
    penalty, reached, fruitless = specification.penalty(summary), list[Ascent](), 0
    while fruitless < PATIENCE:
        at = search_on_sample(rows, specification, summary, rng, size=LARGER_SAMPLE, progress=progress)
        end = moved_end(best.mixture, fruitless, at)
        fruitless += 1
        if end is None or end.degenerate or end.ascent.stop is StopReason.OUTDONE:
            continue
        reached.append(reach(end.ascent.mixture, best.penalised))
        if is_better(reached[-1], best, penalty):
            best, fruitless = reached[-1], 0
    return reached


def moved_end(
    mixture: Mixture,
    number: int,
    at: Search,
) -> End | None:
    """Return the end on a sample of the move of this number from a mixture, or None if there is none."""
    moves = propose_moves(mixture, at.ground, np.random.default_rng(at.seed))
    resp = next(islice(moves, number, None), None)
    if resp is None:
        return None
    here = log_likelihood(mixture, at.ground.rows) - mixture.ridge(at.penalty)
    return at.finished((MOVED, resp, here - NEAR))


def is_better(one: Ascent, other: Ascent, penalty: Penalty) -> bool:
    """Whether an end on all rows is more than a unit above another one, and not degenerate."""
    return one.penalised > other.penalised + UNIT and not is_degenerate(one, penalty)

"""How far out responses are under a mixture, counted in classes: what calibrates its intervals.

The tail probability of a response is ``t = 2 min(F(y | x), 1 - F(y- | x))``: it is at least ``a`` where the response is
between the quantiles ``a / 2`` and ``1 - a / 2`` of the mixture. Counts of rows in classes of ``t`` add over sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from consilience.errors import InvalidInputError
from consilience.model.families.registry import gaussian
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.model.statistics import Additive
from consilience.numerics.arrays import Array

EDGES: Array = np.concatenate([10.0 ** (np.arange(-900, -99) / 100), np.arange(101, 1001) / 1000])
"""Lower edges of the classes of tail probabilities, from 1e-9 to 1; below the first is a class of its own.

They are a hundredth of a decade wide below 0.1, and 0.001 above it, where the rows of a model that is too wide are.
"""


@dataclass(frozen=True, eq=False)
class TailCounts(Additive):
    """Weight of rows in each class of their tail probability; the first class is below all edges.

    Parameters
    ----------
    counts : (len(EDGES) + 1,) array

    Examples
    --------
    >>> one = TailCounts(np.ones(len(EDGES) + 1))
    >>> (one + one).rows
    3404.0
    """

    counts: Array

    @property
    def rows(self) -> float:
        """Total weight of the rows."""
        return float(self.counts.sum())

    @property
    def above(self) -> Array:
        """Weight of rows whose tail probability is at least each edge, ``(len(EDGES),)``."""
        return np.asarray(self.counts[:0:-1].cumsum()[::-1])

    def coverage(self, tail: float) -> float:
        """Return the share of rows between the quantiles ``tail / 2`` and ``1 - tail / 2``, up to part of a class."""
        inside = float(np.interp(np.log10(tail), np.log10(EDGES), self.above))
        return inside / self.rows if self.rows > 0 else float("nan")

    def tail(self, level: float) -> float:
        """Return the largest edge with at least ``level (n + 1)`` of ``n`` rows above it.

        If a new row is as likely to be anywhere in the order of tail probabilities as these rows, its tail probability
        is at least this edge with probability ``level`` (split conformal prediction).
        """
        enough = np.flatnonzero(self.above >= level * (self.rows + 1) - 1e-9)
        if not len(enough):
            raise InvalidInputError(
                f"level={level:g}: {self.rows:,.10g} rows cannot calibrate it. Pass at least "
                f"{np.ceil(level / (1 - level) - 1e-9):,.0f}; if there are as many, too many of them are far "
                "outside of the model: fit a family with longer tails"
            )
        return float(EDGES[enough[-1]])


def predictive_cdf(mixture: Mixture, rows: Rows, response: int, y: Array) -> Array:
    """Compute ``F(y_i | x_i) = Σ_k π_k(x_i) F_k(y_i | x_i)`` of one response, ``(n,)``."""
    pi, panel = mixture.gate_weights(rows.X).T, mixture.design.panel(rows.X)
    if mixture.experts.q == 1:
        each = mixture.experts.cdf(panel, y, rows.exposure)
    else:
        experts = gaussian(mixture.experts)  # the only family with several responses
        each = ndtr((y - experts.mean(panel)[:, response]) / np.sqrt(experts.variances[:, response, None]))
    return np.asarray(np.sum(pi * each, axis=0))


def count_tails(mixture: Mixture, rows: Rows) -> TailCounts:
    """Count rows without groups, of one ordered response, in the classes of their tail probability.

    Examples
    --------
    >>> from consilience.model.families.registry import mixture_of_regressions
    >>> normal = mixture_of_regressions(np.ones(1), np.zeros((1, 1)), 1.0)
    >>> found = count_tails(normal, Rows(np.empty((3, 0)), np.array([[0.0], [1.0], [40.0]])))
    >>> found.counts[[0, -1]], found.coverage(0.1)
    (array([1., 1.]), 0.6666666666666666)
    """
    total = np.zeros(len(EDGES) + 1)
    for piece in rows.pieces(mixture.block_size()):
        part = rows.take(np.arange(rows.n)[piece.index])
        y = part.Y[:, 0]
        below = predictive_cdf(mixture, part, 0, y)
        before = predictive_cdf(mixture, part, 0, y - 1) if mixture.experts.discrete else below
        tail = 2 * np.minimum(below, 1 - before)
        total += np.bincount(np.searchsorted(EDGES, tail, side="right"), part.weight, minlength=len(total))
    return TailCounts(total)

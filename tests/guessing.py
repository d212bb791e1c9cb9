"""What guesses show of ε: a lower bound from how often an attack is right with and without a row."""

from __future__ import annotations

import numpy as np
from scipy.stats import beta

Array = np.ndarray


def lower_bound(with_it: Array, without: Array, delta: float) -> float:
    """ε that an attack shows with 95 % confidence; the threshold is chosen on one half, and judged on the other."""
    h = len(with_it) // 2
    grid = np.quantile(np.r_[with_it[:h], without[:h]], np.linspace(0.02, 0.995, 80))
    bounds = [shown(with_it[:h], without[:h], t, delta) for t in grid]
    return shown(with_it[h:], without[h:], grid[int(np.argmax(bounds))], delta)


def shown(with_it: Array, without: Array, threshold: float, delta: float) -> float:
    """ε that the attack with a threshold shows, by the intervals of Clopper and Pearson."""
    n = len(with_it)
    hits, alarms = int((with_it > threshold).sum()), int((without > threshold).sum())
    low = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, alarms + 1, n - alarms) if alarms < n else 1.0
    return float(np.log(max((low - delta) / high, 1e-9)))


def area(with_it: Array, without: Array) -> float:
    """Area under the curve: how often a statistic is larger with the row than without it."""
    return float(np.mean(with_it[:, None] > without[None, :]))

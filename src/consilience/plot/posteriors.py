"""Rootogram of the responsibilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators.table import unit
from consilience.numerics.arrays import Array
from consilience.plot.library import bare, pyplot
from consilience.plot.marks import mark
from consilience.plot.subject import estimator_of, expert_label

BINS = 20
NEGLIGIBLE = 1e-4
"""Responsibilities below this are not counted: nearly all rows have one for most experts."""


def posteriors(model: Any, X: Any, y: Any = None, *, ax: Any = None, **metadata: Any) -> Any:
    """Draw a rootogram of the responsibilities of each expert: a histogram with counts on a square root scale.

    A peak at 1 and few counts in the middle mean that the expert is well separated from the others. Responsibilities
    below 0.0001 are not counted, as in R's flexmix. With ``groups``, a group counts once.

    Parameters
    ----------
    model : fitted estimator, or FederatedFit
    X : (n, d) array or frame
    y : (n,) or (n, q) array or frame
        Omit it for a Gaussian mixture.
    ax : sequence of K Axes, optional
        Where to draw, one for each expert; a new figure by default.
    **metadata
        ``groups``, ``exposure``, ``trials``, as in ``fit``.

    Returns
    -------
    (K,) array of Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, plot
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (300, 1)), rng.normal(4, 1, (100, 1))])
    >>> panels = plot.posteriors(GaussianMixture(2, random_state=0).fit(X), X)
    >>> panels.shape, panels[0].get_title()
    ((2,), 'component 0')
    """
    estimator = estimator_of(model)
    K = estimator.mixture_.K
    resp = estimator.mixture_.responsibilities(estimator.rows(X, y, **metadata))
    panels = _panels(K) if ax is None else np.ravel(np.asarray(ax, dtype=object))
    if len(panels) != K:
        raise InvalidInputError(f"ax has {len(panels)} Axes: expected {K}, one for each {unit(estimator)}")
    edges, across = np.linspace(0, 1, BINS + 1), _across(K)
    counts = [np.histogram(each[each >= NEGLIGIBLE], edges)[0] for each in resp.T]
    for k, panel in enumerate(panels):
        panel.bar(edges[:-1], counts[k], 1 / BINS, align="edge", color=mark(k).colour, edgecolor="white", lw=0.5)
        panel.set_yscale("function", functions=(_root, np.square))
        panel.set_title(expert_label(estimator, k), fontsize="medium")
        panel.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        panel.set(xlim=(0, 1), ylim=(0, 1.05 * np.max(counts)))
        if k + across >= K:
            panel.set_xlabel("responsibility")
        if k % across == 0:
            panel.set_ylabel("groups" if metadata.get("groups") is not None else "rows")
        bare(panel)
    return panels


def _across(K: int) -> int:
    """Return the number of panels side by side."""
    return 2 if K == 4 else min(K, 3)


def _panels(K: int) -> Any:
    """Return K panels of a new figure, with a common vertical axis."""
    across = _across(K)
    down = -(-K // across)
    figure, grid = pyplot().subplots(
        down, across, sharey=True, squeeze=False, figsize=(2.4 * max(across, 2), 0.6 + 2.0 * down), layout="constrained"
    )
    for unused in grid.ravel()[K:]:
        figure.delaxes(unused)
    return grid.ravel()[:K]


def _root(counts: Array) -> Array:
    found: Array = np.sqrt(np.maximum(counts, 0.0))
    return found

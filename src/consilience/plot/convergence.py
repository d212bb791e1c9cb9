"""Trace of the log-likelihood."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.federation.federated_fit import FederatedFit
from consilience.plot.library import axes_of, legend
from consilience.plot.subject import estimator_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def convergence(model: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the penalised log-likelihood at each iteration over all rows, and where the starts ended.

    The search for starting points climbs to the end on a sample of the rows, so that few iterations over all rows
    remain. The ends of all starts, scaled to all rows, are dashes on the right. The vertical axis spans at least one
    unit of log-likelihood: smaller differences have no weight as evidence. The line is broken where a site left a
    federated fit, because the likelihood is then one of fewer rows.

    Parameters
    ----------
    model : fitted estimator, or FederatedFit
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor, plot
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> plot.convergence(model).get_ylabel()
    'penalised log-likelihood'
    """
    estimator = estimator_of(model)
    ax = axes_of(ax)
    starts = model.fit.ascent.segments if isinstance(model, FederatedFit) else (0,)
    places = np.arange(len(estimator.trace_))
    for part in np.split(places, starts[1:]):
        ax.plot(part, estimator.trace_[part], color="black", lw=1.2, marker="o", ms=4)
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    ends = estimator.starts_.values
    if len(ends) > 1:
        ax.plot(
            np.full(len(ends), len(places) - 0.5), ends, "_", color="0.45", ms=14, label=f"ends of {len(ends)} starts"
        )
        legend(ax)
    low, high = ax.get_ylim()
    if high - low < 1:
        ax.set_ylim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)
    ax.set_xlabel("iteration\n" + fill(f"{estimator.stop_reason_}", 64))
    ax.set_ylabel("penalised log-likelihood")
    return ax

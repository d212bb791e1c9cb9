"""Criteria for the number of experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators import OrderSelection
from consilience.estimators.table import unit
from consilience.federation import FederatedOrders
from consilience.numerics.arrays import Array
from consilience.plot.library import axes_of, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES: dict[str, tuple[str, str, Any, str]] = {
    "aic": ("AIC", "0.65", (0, (1, 1)), "^"),
    "bic": ("BIC", "black", "-", "o"),
    "icl": ("ICL", "0.4", (0, (5, 1.5)), "s"),
    "cv": ("cross-validation ± SE", "0.25", (0, (5, 1.5, 1, 1.5)), "D"),
}
"""Label, colour, line style and marker of each criterion."""


def orders(selection: OrderSelection | FederatedOrders, *, ax: Axes | None = None) -> Axes:
    """Draw the criteria by the number of experts; a ring marks the number that each criterion prefers.

    All criteria are on the scale of ``-2 log-likelihood``, smaller is better. The mean held-out log density ``m`` of
    cross-validation is drawn as ``-2 n m`` with its standard error, for ``n`` rows or groups; it prefers the smallest
    number of experts within one standard error of the best. An open marker is a fit that did not converge or whose
    starts do not agree.

    Parameters
    ----------
    selection : OrderSelection or FederatedOrders
        Result of ``select_order`` or of ``Federation.select_order``.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, plot, select_order
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (200, 1))])
    >>> selection = select_order(GaussianMixture(random_state=0), X, orders=[1, 2, 3])
    >>> plot.orders(selection).get_legend_handles_labels()[1]
    ['AIC', 'BIC', 'ICL']
    """
    if not isinstance(selection, OrderSelection | FederatedOrders):
        raise InvalidInputError(
            f"selection is a {type(selection).__name__}: expected the result of select_order or Federation.select_order"
        )
    models = (
        selection.estimators if isinstance(selection, OrderSelection) else [fitted.model for fitted in selection.fits]
    )
    orders_ = np.array(selection.orders)
    doubtful = np.array([not (model.converged_ and model.starts_agree_) for model in models])
    ax = axes_of(ax)
    for name, values, error, preferred in _criteria(selection):
        label, colour, line, marker = STYLES[name]
        by = np.argsort(orders_)
        ax.errorbar(orders_[by], values[by], yerr=None if error is None else error[by], color=colour, linestyle=line,
                    lw=1.4, marker=marker, ms=5, capsize=2.5, label=label)  # fmt: skip
        ax.plot(orders_[doubtful], values[doubtful], linestyle="", color=colour, marker=marker, ms=5, mfc="white")
        ax.plot(preferred, values[list(orders_).index(preferred)], "o", color="black", ms=12, mfc="none", mew=1.1)
    ax.set_xticks(sorted(selection.orders))
    open_ = "\nopen marker: not converged, or the starts do not agree" if doubtful.any() else ""
    ax.set_xlabel(f"number of {unit(models[0])}s (ring: preferred by the criterion){open_}")
    ax.set_ylabel("criterion, smaller is better")
    legend(ax)
    return ax


def _criteria(selection: OrderSelection | FederatedOrders) -> Iterator[tuple[str, Array, Array | None, int]]:
    """Yield name, values, standard errors and preferred order of each criterion."""
    if isinstance(selection, FederatedOrders):
        for name in ("aic", "bic"):
            values = np.array([float(getattr(fitted, name)) for fitted in selection.fits])
            yield name, values, None, selection.orders[int(values.argmin())]
        return
    for name in ("aic", "bic", "icl"):
        yield name, np.array(selection.scores[name]), None, selection.preferred(name)
    if "cv" in selection.scores:
        n = 2 * selection.estimators[0].n_labels_
        mean, error = np.array(selection.scores["cv"]), np.array(selection.scores["cv_std_error"])
        yield "cv", -n * mean, n * error, selection.preferred("cv")

"""Which expert of a site became which combined expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.federation.federated_fit import FederatedFit
from consilience.methods import CombinedFit
from consilience.plot.library import axes_of
from consilience.plot.marks import GREY, mark
from consilience.plot.subject import estimator_of, expert_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def transport(result: FederatedFit, *, ax: Axes | None = None) -> Axes:
    """Draw the transport plan of a one-shot fit: a matrix with sites in rows and combined experts in columns.

    A cell holds the numbers of the site's own experts (0 has the most rows) that were combined into the expert of its
    column. The last column has those that were not used; an empty cell means that the site has no such expert.

    Parameters
    ----------
    result : FederatedFit
        Result of :class:`~consilience.OneShot`.
    ax : Axes, optional
        Where to draw; a new figure by default, as high as the number of sites needs.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from consilience import Federation, MixtureOfExpertsRegressor, OneShot, plot
    >>> from consilience.datasets import soft
    >>> data = soft(6000, n_experts=2, n_features=3, random_state=0)
    >>> sites = Federation({name: (data.X[i::3], data.y[i::3]) for i, name in enumerate(["north", "south", "east"])})
    >>> result = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=OneShot(refine=0))
    >>> [label.get_text() for label in plot.transport(result).get_xticklabels()]
    ['expert 0', 'expert 1']
    """
    fit = _combined(result)
    estimator = estimator_of(result)
    K, names = estimator.mixture_.K, [site.name for site in result.sites]
    plan = {name: fit.combination.plan.get(name) for name in names}
    unused = any(labels is None or np.any(labels < 0) for labels in plan.values())
    columns = [expert_label(estimator, k) for k in range(K)] + ["not used"] * unused
    ax = axes_of(ax, max(1.8, 1.0 + 0.28 * len(names)))
    for m, labels in enumerate(plan.values()):
        if labels is None:
            _cell(ax, K, m, "no model", GREY)
            continue
        for k in np.unique(labels):
            own = ", ".join(map(str, np.flatnonzero(labels == k)))
            _cell(ax, K if k < 0 else int(k), m, own, GREY if k < 0 else mark(int(k)).colour)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(names) - 0.5, -0.5), ylabel="site")
    ax.set_xlabel("combined expert\ncells: experts of the site that were combined into it, 0 has the most rows")
    ax.spines[:].set_visible(False)
    return ax


def _combined(result: Any) -> Any:
    """Return the fit of a one-shot result."""
    fit = result.fit if isinstance(result, FederatedFit) else None
    if not isinstance(fit, CombinedFit):
        got = "the result of another method" if fit is not None else f"a {type(result).__name__}"
        raise InvalidInputError(f"result is {got}: expected the result of Federation.fit with method=OneShot(...)")
    if fit.rivals.from_site:
        raise InvalidInputError(
            f"the result was refined from the model of site {fit.rivals.best_site}, not from the combined mixture: the "
            "experts of the sites have no counterparts in it"
        )
    return fit


def _cell(ax: Axes, column: int, row: int, text: str, colour: str) -> None:
    """Draw a cell in the colour of its expert, with white text."""
    ax.fill([column - 0.46, column + 0.46, column + 0.46, column - 0.46],
            [row - 0.42, row - 0.42, row + 0.42, row + 0.42], color=colour, lw=0)  # fmt: skip
    ax.text(column, row, text, ha="center", va="center", color="white", fontsize="small", fontweight="bold")

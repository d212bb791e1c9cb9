"""How much each site borrowed from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from consilience.errors import InvalidInputError
from consilience.federation.federated_fit import FederatedFit
from consilience.methods import SharedFit
from consilience.plot.library import axes_of, legend
from consilience.plot.marks import mark
from consilience.plot.subject import estimator_of, expert_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sharing(result: FederatedFit, *, ax: Axes | None = None) -> Axes:
    """Draw the shrinkage of each site's experts towards the centre, from 0 (its own fit) to 1 (the centre's).

    An open marker is an expert that does not define the centre: it is far from those of the other sites and hardly
    shrunk, or the site has too few of its rows and borrows all. A cross is the shrinkage of the slopes of a softmax
    gate.

    Parameters
    ----------
    result : FederatedFit
        Result of :class:`~consilience.SharedCentre` or :class:`~consilience.FedGrEM`.
    ax : Axes, optional
        Where to draw; a new figure by default, as high as the number of sites needs.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture, SharedCentre, plot
    >>> rng = np.random.default_rng(0)
    >>> def rows(shift):
    ...     return np.r_[rng.normal(0 + shift, 1, (60, 2)), rng.normal(6 + shift, 1, (40, 2))]
    >>> sites = Federation({name: (rows(shift),) for name, shift in zip("abcd", (0.0, 0.1, -0.1, 0.05))})
    >>> result = sites.fit(GaussianMixture(2, random_state=0), method=SharedCentre())
    >>> [label.get_text() for label in plot.sharing(result).get_yticklabels()]
    ['a', 'b', 'c', 'd']
    """
    fit = result.fit if isinstance(result, FederatedFit) else None
    if not isinstance(fit, SharedFit):
        got = "the result of another method" if fit is not None else f"a {type(result).__name__}"
        raise InvalidInputError(f"result is {got}: expected the result of Federation.fit with method=SharedCentre(...)")
    estimator, found = estimator_of(result), fit.sites
    K = estimator.mixture_.K
    ax = axes_of(ax, max(2.0, 1.1 + 0.26 * len(found)))
    for m, site in enumerate(found):
        ax.axhline(m, color="0.92", lw=0.8, zorder=0)
        if not len(site.shrinkage):
            ax.text(0.5, m, "no answer", ha="center", va="center", color="0.45", fontsize="small")
    for k in range(K):
        own = [(site.shrinkage[k], m + 0.5 * ((k + 0.5) / K - 0.5), site.kept[k])
               for m, site in enumerate(found) if len(site.shrinkage)]  # fmt: skip
        _draw(ax, own, k, expert_label(estimator, k))
    gate = np.array([site.gate_shrinkage for site in found])
    if np.isfinite(gate).any():
        ax.plot(gate, np.arange(len(found)), "x", color="0.3", ms=5, label="gate")
    ax.set_yticks(range(len(found)), [site.name for site in found])
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(-0.03, 1.03), ylim=(len(found) - 0.5, -0.5))
    ax.set_xlabel("shrinkage: 0 keeps the site's own fit, 1 takes the centre's\nopen marker: not part of the centre")
    legend(ax)
    return ax


def _draw(ax: Axes, own: list[tuple[float, float, bool]], k: int, label: str) -> None:
    colour, marker, _ = mark(k)
    for kept in (True, False):
        x = [(s, y) for s, y, use in own if bool(use) == kept]
        first = label if kept == any(use for *_, use in own) else None
        ax.plot([s for s, _ in x], [y for _, y in x], marker, color=colour, ms=6, label=first,
                mfc=colour if kept else "white", clip_on=False)  # fmt: skip

"""Forest plot of one coefficient over the sites of a federation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from consilience.errors import InvalidInputError
from consilience.estimators.table import places_read, responses, terms
from consilience.estimators.validation import check_level
from consilience.federation.federated_fit import FederatedFit
from consilience.methods import CombinedFit
from consilience.numerics.arrays import Array
from consilience.plot.library import axes_of
from consilience.plot.marks import mark
from consilience.plot.subject import estimator_of, expert_label, listed, place, withheld_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Forest(NamedTuple):
    """Estimates and variances of one coefficient at the sites, NaN where there is none; and what else is to be said."""

    names: list[str]
    estimates: Array
    variances: Array
    remark: str


def sites(
    result: FederatedFit,
    term: str | int,
    expert: int = 0,
    *,
    response: str | int | None = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw one coefficient of one expert at each site and in the joint model, as a forest plot.

    After :class:`~consilience.OneShot`, each site has the estimate of its own fit, as the combination used it, with an
    interval from its sampling error; the area of a square is proportional to its precision. I² is the fraction of the
    variation over sites that sampling does not explain, and τ² the variance between sites. After
    :class:`~consilience.SharedCentre` or :class:`~consilience.FedGrEM`, each site has its shrunk estimate, without an
    interval, and the last line is the centre.

    A site without an estimate keeps its line: its experts were set aside, or have too few rows.

    Parameters
    ----------
    result : FederatedFit
    term : str or int
        Name or number of the coefficient.
    expert : int
    response : str or int, optional
        Name or number of one of several responses; by default the only one.
    level : float
        Confidence level of the intervals.
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
    >>> ax = plot.sites(result, "x1", expert=0)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['north', 'south', 'east', 'all sites']
    """
    estimator = _federated(result)
    check_level(level)
    k, c, t = _chosen(estimator, expert, response, term)
    forest = forest_of(result, k, c, t)
    M = len(forest.names)
    ax = axes_of(ax, max(2.0, 1.1 + 0.26 * (M + 1)))
    _draw(ax, forest, level, mark(k).colour)
    estimate, lower, upper = (
        part.experts[k, c, t] for part in (estimator.inference_.estimates, *estimator.inference_.interval(level))
    )
    ax.axhline(M - 0.5, color="0.85", lw=0.8)
    ax.axvline(estimate, color="0.6", lw=0.8, linestyle=(0, (4, 3)), zorder=0)
    _diamond(ax, (lower, estimate, upper), M, mark(k).colour)
    ax.set_yticks(range(M + 1), [*forest.names, "all sites" if isinstance(result.fit, CombinedFit) else "centre"])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(M + 0.6, -0.6)
    of = "" if len(responses(estimator)) == 1 else f" on {responses(estimator)[c]}"
    label = f"{terms(estimator)[t]}{of}, {expert_label(estimator, k)}"
    ax.set_xlabel(label + forest.remark + withheld_note(estimator, "experts"))
    return ax


def forest_of(result: FederatedFit, k: int, c: int, t: int) -> Forest:
    """Return what a forest plot shows of term ``t`` of response ``c`` of expert ``k``."""
    return _combined(result, k, c, t) if isinstance(result.fit, CombinedFit) else _per_site(result, k, c, t)


def _federated(result: Any) -> Any:
    if not isinstance(result, FederatedFit):
        raise InvalidInputError(f"result is a {type(result).__name__}: expected the result of Federation.fit")
    if not isinstance(result.fit, CombinedFit) and not result.models:
        raise InvalidInputError(
            "the method of this fit gets no estimates of single sites: use OneShot, SharedCentre or FedGrEM"
        )
    return estimator_of(result)


def _chosen(estimator: Any, expert: int, response: str | int | None, term: str | int) -> tuple[int, int, int]:
    """Return the numbers of the expert, the response and the term."""
    K, outputs = estimator.mixture_.K, responses(estimator)
    if expert not in range(K):
        raise InvalidInputError(f"expert={expert!r}: expected a number from 0 to {K - 1}")
    c = 0 if response is None and len(outputs) == 1 else place(response, outputs, "response")
    t, (_, read) = place(term, terms(estimator), "term"), places_read(estimator)
    if t not in read:
        known = listed([terms(estimator)[i] for i in read])
        raise InvalidInputError(f"term={term!r}: the experts do not read it; expected one of {known}")
    return int(expert), c, t


def _combined(result: FederatedFit, k: int, c: int, t: int) -> Forest:
    """Return the estimates of the sites that were combined, with their heterogeneity."""
    fit: Any = result.fit
    if fit.rivals.from_site:
        raise InvalidInputError(
            f"the result was refined from the model of site {fit.rivals.best_site}, not from the combined mixture: the "
            "experts of the sites have no counterparts in it"
        )
    found, experts = fit.combination.coefficients, result.model.mixture_.experts
    if experts.coefficient_map().shape != (experts.channels, experts.channels):
        raise InvalidInputError(
            f"{len(result.model.classes_)} classes: the estimates of sites are known as contrasts of classes only, for "
            "which there is no forest plot; two classes have one"
        )
    sign, at = experts.coefficient_map()[c, c], c * result.model.mixture_.design.p + t
    names = [site.name for site in result.sites]
    place_of = {name: m for m, name in enumerate(found.sites)}
    known = [place_of.get(name) for name in names]
    estimates, variances = (
        np.array([np.nan if m is None else values[k, m, at] for m in known])
        for values in (sign * found.estimates, found.variances)
    )
    I2, tau2 = fit.combination.heterogeneity.I2[k, at], fit.combination.heterogeneity.tau2[k, at]
    remark = f"\nI² = {I2:.0%}, τ² = {tau2:.2g}".replace("%", " %") if np.isfinite(I2) else ""
    return Forest(names, estimates, variances, remark)


def _per_site(result: FederatedFit, k: int, c: int, t: int) -> Forest:
    """Return the shrunk estimates of the sites."""
    names = [site.name for site in result.sites]
    own = [
        result.models[name].inference_.estimates.experts[k, c, t] if name in result.models else np.nan for name in names
    ]
    remark = "\nestimates of sites are shrunk towards the centre,\nand have no intervals"
    return Forest(names, np.array(own), np.full(len(names), np.nan), remark)


def _draw(ax: Axes, forest: Forest, level: float, colour: str) -> None:
    """Draw squares with bars, open squares without, and a remark for a site without an estimate."""
    y, b, v = np.arange(len(forest.names)), forest.estimates, forest.variances
    known = np.isfinite(v)
    reach = ndtri(0.5 + level / 2) * np.sqrt(v)
    ax.hlines(y[known], (b - reach)[known], (b + reach)[known], color=colour, lw=1.2)
    precision = 1 / v[known]
    area = 12 + 90 * precision / precision.max(initial=0.0) if known.any() else precision
    ax.scatter(b[known], y[known], s=area, marker="s", color=colour, linewidths=0, zorder=3)
    point = np.isfinite(b) & ~known
    ax.scatter(b[point], y[point], s=30, marker="s", facecolors="white", edgecolors=colour, zorder=3)
    for m in np.flatnonzero(~np.isfinite(b)):
        ax.annotate("no estimate", (0.5, m), xycoords=("axes fraction", "data"), ha="center", va="center",
                    color="0.45", fontsize="small", bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip


def _diamond(ax: Axes, bounds: tuple[float, float, float], y: int, colour: str) -> None:
    """Draw the joint estimate as a diamond as wide as its interval, or an open one if that is withheld."""
    lower, estimate, upper = bounds
    if np.isfinite(lower) and np.isfinite(upper):
        ax.fill([lower, estimate, upper, estimate], [y, y - 0.25, y, y + 0.25], color=colour, lw=0)
    else:
        ax.plot(estimate, y, "D", color=colour, mfc="white", ms=7)

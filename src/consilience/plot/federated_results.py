"""Pictures of a federated result: a coefficient over sites, the transport plan, and what sites share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import ndtri

from consilience.errors import InvalidInputError
from consilience.fitted import protocols
from consilience.fitted.protocols import (
    FederatedResult,
    FittedMixture,
    expert_label,
    response_names,
    term_names,
    terms_read,
)
from consilience.methods import CombinedFit, OwnGatesFit, SharedFit
from consilience.methods.own_gates import share_intervals
from consilience.numerics.arrays import Array
from consilience.plot import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


F = TypeVar("F")


class Forest(NamedTuple):
    """Estimates and variances of one coefficient at the sites, NaN where there is none; and what else is to be said."""

    names: list[str]
    estimates: Array
    variances: Array
    remark: str


def sites(
    result: FederatedResult,
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
    estimator = _estimator_over_sites(result)
    protocols.check_level(level)
    k, c, t = _choose_coefficient(estimator, expert, response, term)
    forest = site_forest(result, k, c, t)
    M = len(forest.names)
    ax = drawing.prepare_axes(ax, max(2.0, 1.1 + 0.26 * (M + 1)))
    _draw_forest(ax, forest, level, drawing.mark(k).colour)
    estimate, lower, upper = (
        part.experts[k, c, t] for part in (estimator.inference_.estimates, *estimator.inference_.interval(level))
    )
    ax.axhline(M - 0.5, color="0.85", lw=0.8)
    ax.axvline(estimate, color="0.6", lw=0.8, linestyle=(0, (4, 3)), zorder=0)
    _diamond(ax, (lower, estimate, upper), M, drawing.mark(k).colour)
    ax.set_yticks(range(M + 1), [*forest.names, "all sites" if isinstance(result.fit, CombinedFit) else "centre"])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(M + 0.6, -0.6)
    of = "" if len(response_names(estimator)) == 1 else f" on {response_names(estimator)[c]}"
    label = f"{term_names(estimator)[t]}{of}, {expert_label(estimator, k)}"
    ax.set_xlabel(label + forest.remark + drawing.withheld_note(estimator, "experts"))
    return ax


def site_forest(result: FederatedResult, k: int, c: int, t: int) -> Forest:
    """Return what a forest plot shows of term ``t`` of response ``c`` of expert ``k``."""
    return _combined_forest(result, k, c, t) if isinstance(result.fit, CombinedFit) else _shrunk_forest(result, k, c, t)


def _estimator_over_sites(result: FederatedResult) -> FittedMixture:
    if not protocols.is_federated_result(result):
        raise InvalidInputError(f"result is a {type(result).__name__}: expected the result of Federation.fit")
    if not isinstance(result.fit, CombinedFit) and not result.models:
        raise InvalidInputError(
            "the method of this fit gets no estimates of single sites: use OneShot, SharedCentre or FedGrEM"
        )
    return drawing.estimator_of(result)


def _choose_coefficient(
    estimator: FittedMixture, expert: int, response: str | int | None, term: str | int
) -> tuple[int, int, int]:
    """Return the numbers of the expert, the response and the term."""
    K, outputs = estimator.mixture_.K, response_names(estimator)
    if expert not in range(K):
        raise InvalidInputError(f"expert={expert!r}: expected a number from 0 to {K - 1}")
    c = 0 if response is None and len(outputs) == 1 else drawing.find_place(response, outputs, "response")
    t, (_, read) = drawing.find_place(term, term_names(estimator), "term"), terms_read(estimator)
    if t not in read:
        known = drawing.list_names([term_names(estimator)[i] for i in read])
        raise InvalidInputError(f"term={term!r}: the experts do not read it; expected one of {known}")
    return int(expert), c, t


def _combined_forest(result: FederatedResult, k: int, c: int, t: int) -> Forest:
    """Return the estimates of the sites that were combined, with their heterogeneity."""
    fit: Any = result.fit
    _check_combined(fit)
    found, experts = fit.combination.coefficients, result.model.mixture_.experts
    if experts.coefficient_map().shape != (experts.channels, experts.channels):
        raise InvalidInputError(
            f"{len(result.model.classes_)} classes: the estimates of sites are known as contrasts of classes only, for "
            "which there is no forest plot; two classes have one"
        )
    sign, at = experts.coefficient_map()[c, c], c * result.model.mixture_.design.p + t
    names = [site.name for site in result.fit.evidence()]
    place_of = {name: m for m, name in enumerate(found.sites)}
    known = [place_of.get(name) for name in names]
    estimates, variances = (
        np.array([np.nan if m is None else values[k, m, at] for m in known])
        for values in (sign * found.estimates, found.variances)
    )
    I2, tau2 = fit.combination.heterogeneity.I2[k, at], fit.combination.heterogeneity.tau2[k, at]
    remark = f"\nI² = {I2:.0%}, τ² = {tau2:.2g}".replace("%", " %") if np.isfinite(I2) else ""
    return Forest(names, estimates, variances, remark)


def _shrunk_forest(result: FederatedResult, k: int, c: int, t: int) -> Forest:
    """Return the shrunk estimates of the sites."""
    names = [site.name for site in result.fit.evidence()]
    found = {name: model.inference_.estimates.experts for name, model in result.models.items()}
    own = [found[name][k, c, t] if name in found and k < len(found[name]) else np.nan for name in names]
    remark = "\nestimates of sites are shrunk towards the centre,\nand have no intervals"
    return Forest(names, np.array(own), np.full(len(names), np.nan), remark)


def _draw_forest(ax: Axes, forest: Forest, level: float, colour: str) -> None:
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


# ---------------------------------------------------------------------- the transport plan


def transport(result: FederatedResult, *, ax: Axes | None = None) -> Axes:
    """Draw the transport plan of a one-shot fit: a matrix with sites in rows and combined experts in columns.

    A cell holds the numbers of the site's own experts, from 1 with the most rows, that were combined into the expert of
    its column. The last column has those that were not used; an empty cell means that the site has no such expert.

    Parameters
    ----------
    result : FederatedFit
        Result of :class:`~consilience.OneShot`.
    ax
        As in :func:`sites`.

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
    ['expert 1', 'expert 2']
    """
    fit = _fit_of(result, CombinedFit, "OneShot")
    _check_combined(fit)
    estimator = drawing.estimator_of(result)
    K, names = estimator.mixture_.K, [site.name for site in result.fit.evidence()]
    plan = {name: fit.combination.plan.get(name) for name in names}
    unused = any(labels is None or np.any(labels < 0) for labels in plan.values())
    columns = [expert_label(estimator, k) for k in range(K)] + ["not used"] * unused
    ax = drawing.prepare_axes(ax, max(1.8, 1.0 + 0.28 * len(names)))
    for m, labels in enumerate(plan.values()):
        if labels is None:
            _cell(ax, K, m, "no model", drawing.GREY)
            continue
        for k in np.unique(labels):
            own = ", ".join(map(str, np.flatnonzero(labels == k) + 1))
            _cell(ax, K if k < 0 else int(k), m, own, drawing.GREY if k < 0 else drawing.mark(int(k)).colour)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(names) - 0.5, -0.5), ylabel="site")
    ax.set_xlabel("combined expert\ncells: experts of the site that were combined into it, 1 has the most rows")
    ax.spines[:].set_visible(False)
    return ax


def _fit_of(result: FederatedResult, kind: type[F], method: str) -> F:
    """Return the fit of a result if it is of this kind."""
    fit = result.fit if protocols.is_federated_result(result) else None
    if not isinstance(fit, kind):
        got = "the result of another method" if fit is not None else f"a {type(result).__name__}"
        raise InvalidInputError(f"result is {got}: expected the result of Federation.fit with method={method}(...)")
    return fit


def _check_combined(fit: CombinedFit) -> None:
    """Raise an error if the experts of the result are not those of the sites, combined."""
    if fit.rivals.from_site:
        raise InvalidInputError(
            f"the result was refined from the model of site {fit.rivals.best_site}, not from the combined mixture: the "
            "experts of the sites have no counterparts in it"
        )


def _cell(ax: Axes, column: int, row: int, text: str, colour: str) -> None:
    """Draw a cell in the colour of its expert, with white text."""
    ax.fill([column - 0.46, column + 0.46, column + 0.46, column - 0.46],
            [row - 0.42, row - 0.42, row + 0.42, row + 0.42], color=colour, lw=0)  # fmt: skip
    ax.text(column, row, text, ha="center", va="center", color="white", fontsize="small", fontweight="bold")


# ---------------------------------------------------------------------- shrinkage


def sharing(result: FederatedResult, *, ax: Axes | None = None) -> Axes:
    """Draw the shrinkage of each site's experts towards the centre, from 0 (its own fit) to 1 (the centre's).

    An open marker is an expert that does not define the centre: it is far from those of the other sites and hardly
    shrunk, or the site has too few of its rows and borrows all. A cross is the shrinkage of the slopes of a softmax
    gate.

    Parameters
    ----------
    result : FederatedFit
        Result of :class:`~consilience.SharedCentre` or :class:`~consilience.FedGrEM`.
    ax
        As in :func:`sites`.

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
    fit = _fit_of(result, SharedFit, "SharedCentre")
    estimator, found = drawing.estimator_of(result), fit.sites
    K = estimator.mixture_.K
    ax = drawing.prepare_axes(ax, max(2.0, 1.1 + 0.26 * len(found)))
    for m, site in enumerate(found):
        ax.axhline(m, color="0.92", lw=0.8, zorder=0)
        if not len(site.shrinkage):
            ax.text(0.5, m, "no answer", ha="center", va="center", color="0.45", fontsize="small")
    for k in range(K):
        own = [(site.shrinkage[k], m + 0.5 * ((k + 0.5) / K - 0.5), site.kept[k])
               for m, site in enumerate(found) if len(site.shrinkage)]  # fmt: skip
        _draw_shrinkage(ax, own, k, expert_label(estimator, k))
    gate = np.array([site.gate_shrinkage for site in found])
    if np.isfinite(gate).any():
        ax.plot(gate, np.arange(len(found)), "x", color="0.3", ms=5, label="gate")
    ax.set_yticks(range(len(found)), [site.name for site in found])
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(-0.03, 1.03), ylim=(len(found) - 0.5, -0.5))
    ax.set_xlabel("shrinkage: 0 keeps the site's own fit, 1 takes the centre's\nopen marker: not part of the centre")
    drawing.add_legend(ax)
    return ax


def shares(result: FederatedResult, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw the share of each expert at each site with its interval, for a fit with a gate of each site.

    Parameters
    ----------
    result : FederatedFit
        Result of :class:`~consilience.FederatedEM` with ``per_site="gate"`` or ``"shares"``.
    level : float
        Confidence level of the intervals.
    ax
        As in :func:`sites`.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import FederatedEM, Federation, GaussianMixture, plot
    >>> rng = np.random.default_rng(0)
    >>> def rows(first):
    ...     return np.r_[rng.normal(0, 1, (first, 1)), rng.normal(6, 1, (100 - first, 1))]
    >>> sites = Federation({"north": (rows(50),), "south": (rows(90),)})
    >>> result = sites.fit(GaussianMixture(2, random_state=0), method=FederatedEM(per_site="shares"))
    >>> [label.get_text() for label in plot.shares(result).get_yticklabels()]
    ['north', 'south']
    """
    protocols.check_level(level)
    fit = result.fit if protocols.is_federated_result(result) else None
    if not isinstance(fit, OwnGatesFit):
        got = "the result of another method" if fit is not None else f"a {type(result).__name__}"
        raise InvalidInputError(f'result is {got}: expected that of Federation.fit with FederatedEM(per_site="gate")')
    estimator, found = drawing.estimator_of(result), [share_intervals(each, level) for each in fit.fits.values()]
    K = estimator.mixture_.K
    ax = drawing.prepare_axes(ax, max(2.0, 1.1 + 0.26 * len(found)))
    for k in range(K):
        colour, marker, _ = drawing.mark(k)
        at = np.arange(len(found)) + 0.5 * ((k + 0.5) / K - 0.5)
        share, lower, upper = np.array([each[k] for each in found]).T
        ax.hlines(at, lower, upper, color=colour, lw=1.5)
        ax.plot(share, at, marker, color=colour, ms=5, label=expert_label(estimator, k))
    ax.set_yticks(range(len(found)), list(fit.fits))
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(found) - 0.5, -0.5))
    ax.set_xlabel(f"share of the rows of a site, with {100 * level:g} % interval")
    drawing.add_legend(ax)
    return ax


def _draw_shrinkage(ax: Axes, own: list[tuple[float, float, bool]], k: int, label: str) -> None:
    colour, marker, _ = drawing.mark(k)
    for kept in (True, False):
        x = [(s, y) for s, y, use in own if bool(use) == kept]
        first = label if kept == any(use for *_, use in own) else None
        ax.plot([s for s, _ in x], [y for _, y in x], marker, color=colour, ms=6, label=first,
                mfc=colour if kept else "white", clip_on=False)  # fmt: skip

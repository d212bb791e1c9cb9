"""Local fits of all sites with aligned labels: the start of methods that fit one model per site.

Quantities that all sites share (coordinates, variance floor, labels) are medians, which no single site can move far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.aggregate import cap_weights, consistent_labels, coordinate_median, geometric_median
from consilience.errors import InvalidInputError
from consilience.fit.specification import check_fittable, check_start
from consilience.messages import Dialogue, Each, FitSite, LocalFit
from consilience.model import ColumnSummary, Mixture
from consilience.model.summary import TINY
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class LocalFits:
    """Local fits of the sites, in common coordinates and labels.

    Parameters
    ----------
    mixtures : mapping of str to Mixture
        Fits of the sites with enough rows for one.
    weights : mapping of str to float
        Total weight of the rows (or number of groups) of all sites that answered.
    log_likelihoods : mapping of str to float
        Log-likelihoods of the local fits.
    summary : ColumnSummary
        Robust summary of a typical site's columns.
    summaries : mapping of str to ColumnSummary
        Summary of each site that answered.

    Examples
    --------
    >>> from consilience.methods import LocalFits
    >>> from consilience.model import ColumnSummary
    >>> LocalFits({}, {"north": 90.0}, {}, ColumnSummary.unit(1, 1), {}).weights
    {'north': 90.0}
    """

    mixtures: Mapping[str, Mixture]
    weights: Mapping[str, float]
    log_likelihoods: Mapping[str, float]
    summary: ColumnSummary
    summaries: Mapping[str, ColumnSummary]


def local_fits(question: FitSite, sites: tuple[str, ...] | None = None) -> Dialogue[LocalFits]:
    """Ask sites for their own fits; return them in common coordinates and labels.

    Parameters
    ----------
    question : FitSite
        As :meth:`Task.fit_site <consilience.Task.fit_site>` returns it.
    sites : tuple of str or None
        Sites that are asked; None for all.

    Examples
    --------
    >>> from consilience.methods import local_fits
    >>> from consilience import Task
    >>> from consilience.fit import Specification
    >>> question = Task([Specification(K=2)], d=1, q=1).fit_site(describe=False)
    >>> type(next(local_fits(question))).__name__
    'Each'
    """
    specification, (d, q) = question.specification, question.columns or (0, 1)
    if question.start is not None:
        check_start(question.start, specification.blank(ColumnSummary.unit(d, q)))
    fits: Mapping[str, LocalFit] = yield Each(question, sites)
    summary = typical([fit.summary for fit in fits.values()])
    check_fittable(specification, summary)
    blank = specification.blank(summary)
    models = {site: fit.model for site, fit in fits.items() if fit.model is not None}
    if not models:
        raise InvalidInputError("no site has enough rows for a fit of its own: use FederatedEM")
    found = [model.mixture.in_coordinates_of(blank) for model in models.values()]
    weights = {site: fit.summary.weight if fit.model is None else fit.model.weight for site, fit in fits.items()}
    values = {site: model.log_likelihood for site, model in models.items()}
    summaries = {site: fit.summary for site, fit in fits.items()}
    return LocalFits(dict(zip(models, relabel(found), strict=True)), weights, values, summary, summaries)


def relabel(mixtures: Sequence[Mixture]) -> list[Mixture]:
    """Permute experts to common labels, by coefficients in units of their spread over all experts."""
    points = np.array([mixture.coefficients for mixture in mixtures]) / units(mixtures)
    permutations = consistent_labels(points).permutations
    return [mixture.permuted(permutation) for mixture, permutation in zip(mixtures, permutations, strict=True)]


def units(mixtures: Sequence[Mixture]) -> Array:
    """Compute the median absolute deviation of each coefficient over all experts of all mixtures, ``(f,)``."""
    points = np.array([mixture.coefficients for mixture in mixtures])
    spread = np.median(np.abs(points - np.median(points, axis=(0, 1))), axis=(0, 1))
    return np.where(spread > 0, spread, 1.0)


def typical(summaries: Sequence[ColumnSummary]) -> ColumnSummary:
    """Summarise the columns of a typical site: medians over sites of means, and of second moments about these."""
    weight = float(cap_weights(np.array([summary.weight for summary in summaries])).sum())
    with np.errstate(over="ignore", invalid="ignore"):  # check_fittable names the columns that overflow
        x_mean = coordinate_median(np.array([summary.x_mean for summary in summaries]))
        y_mean = coordinate_median(np.array([summary.y_mean for summary in summaries]))
        squares = [summary.x_variance + (summary.x_mean - x_mean) ** 2 for summary in summaries]
        gaps = [summary.y_mean - y_mean for summary in summaries]
        products = [summary.y_covariance + np.outer(gap, gap) for summary, gap in zip(summaries, gaps, strict=True)]
        x_products = weight * _typical_products(summaries, np.sqrt(coordinate_median(np.array(squares))))
        y_products = weight * geometric_median(np.array(products).reshape(len(products), -1))
    return ColumnSummary(weight, x_mean, x_products, y_mean, y_products.reshape(products[0].shape))


def _typical_products(summaries: Sequence[ColumnSummary], spread: Array) -> Array:
    """Return the covariance of the covariates with standard deviations ``spread (d,)`` and a typical correlation."""
    d = len(spread)
    units = [np.where(summary.x_variance > 0, np.sqrt(summary.x_variance), 1.0) for summary in summaries]
    found = [
        summary.x_products / max(summary.weight, TINY) / np.outer(unit, unit)
        for summary, unit in zip(summaries, units, strict=True)
    ]
    correlation = geometric_median(np.array(found).reshape(len(found), -1)).reshape(d, d) if d else np.empty((0, 0))
    own = np.sqrt(np.diagonal(correlation))
    typical = correlation / np.outer(np.where(own > 0, own, 1.0), np.where(own > 0, own, 1.0))
    np.fill_diagonal(typical, 1.0)
    return np.asarray(np.outer(spread, spread) * typical)

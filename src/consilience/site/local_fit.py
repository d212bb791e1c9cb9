"""A site's own fit, and its summary as one answer."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from consilience.aggregate import CovariateSummary, SiteModel, covariate_summary
from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, Specification, StopReason, bic, climb, drive
from consilience.fit.criteria import label_count
from consilience.fit.fitting import rank_ascents
from consilience.fit.inference import inverse_information
from consilience.fit.specification import check_fittable, check_start, is_degenerate
from consilience.fit.starts import search
from consilience.messages import FitSite, LocalFit
from consilience.model import ColumnSummary, Design, Mixture, Penalty, Rows, Statistics, expect
from consilience.model.information import coefficient_slice, is_informable, ridge
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array, kronecker, pack, unpack
from consilience.numerics.linalg import is_semidefinite, solve_symmetric
from consilience.numerics.threads import one_blas_thread
from consilience.site.site import Site

DESCRIBED_ROWS = 20_000
"""Maximum number of rows used to describe the distribution of the covariates."""


def local_fit(question: FitSite, site: Site) -> LocalFit:
    """Fit the site's mixture with the least BIC over orders; none if labels do not outnumber parameters."""
    summary = reduce(add, (column_summary(rows) for rows in site.chunks()))
    rng = np.random.default_rng(question.seed)
    found: list[tuple[tuple[bool, float], int, Ascent, Specification]] = []
    with one_blas_thread():
        for K in question.orders:
            specification = question.specification.with_order(K)
            ascent = _ascent(question, specification, summary, site, rng)
            if ascent is not None:
                found.append((_merit(ascent, specification.penalty(summary)), len(found), ascent, specification))
        if not found:
            return LocalFit(summary, None, None)
        _, _, ascent, specification = min(found)
        model = _site_model(ascent, specification, summary, site, rng, describe=question.describe)
    return LocalFit(summary, model, StopReason[ascent.stop.name])


def _merit(ascent: Ascent, penalty: Penalty) -> tuple[bool, float]:
    """Return the sort key of an order: degenerate fits, likely spurious, come last, then BIC."""
    statistics = ascent.statistics
    value = bic(statistics.log_likelihood, ascent.mixture.parameter_count, statistics.weight)
    return is_degenerate(ascent, penalty), value


def _ascent(
    question: FitSite, specification: Specification, summary: ColumnSummary, site: Site, rng: np.random.Generator
) -> Ascent | None:
    """Fit one order on all rows of the site."""

    def respond(asked: Expect) -> Statistics:
        return _pass(asked.mixture, site, information=asked.information)

    try:
        check_fittable(specification, summary)
        blank, penalty = specification.blank(summary), specification.penalty(summary)
        if sum(label_count(rows) for rows in site.chunks()) <= blank.parameter_count:
            return None
        if question.start is None or question.start.K != specification.K:
            sample = site.sample(rng)
            starts = search(sample, specification, summary, rng, n_init=question.n_init).contenders
        else:
            check_start(question.start, blank)
            starts = (question.start.in_coordinates_of(blank),)
        climbs = [climb(each, penalty, tol=question.tol, max_iter=question.max_iter) for each in starts]
        ascent = rank_ascents([drive(steps, respond) for steps in climbs], penalty)[0]
    except (InvalidInputError, np.linalg.LinAlgError):
        return None
    if ascent.statistics.information is None and is_informable(ascent.mixture):
        return replace(ascent, statistics=respond(Expect(ascent.mixture, information=True)))
    return ascent


def _pass(mixture: Mixture, site: Site, *, information: bool = False) -> Statistics:
    return reduce(add, (expect(mixture, rows, information=information) for rows in site.chunks()))


def _site_model(
    ascent: Ascent,
    specification: Specification,
    summary: ColumnSummary,
    site: Site,
    rng: np.random.Generator,
    *,
    describe: bool,
) -> SiteModel:
    """Build the answer in raw coordinates, experts by decreasing weight."""
    mixture, statistics = ascent.mixture, ascent.statistics
    labels = statistics.gate.plain[: mixture.K]
    order = np.argsort(-labels, kind="stable")
    second = np.empty((0, 0))
    if specification.has_moments:
        F = mixture.design.from_raw()
        second = pack(F.T @ unpack(statistics.experts.second) @ F)[order]
    precision = _precision(mixture, statistics, specification.penalty(summary))
    return SiteModel(
        mixture.permuted(order).raw(),
        statistics.weight,
        labels[order],
        statistics.experts.plain[: mixture.K][order],
        second,
        statistics.log_likelihood,
        precision[order] if len(precision) else precision,
        _described(site, rng) if describe and specification.needs_covariates and mixture.design.d else None,
        _mean_exposure(site),
    )


def _precision(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Array:
    """Compute the inverse covariance of each expert's free coefficients (marginal), ``(K, f (f + 1) / 2)``.

    It is that of the rows, without the expert's own ridge: a sum over sites would count the ridge once for each.
    """
    inverse = inverse_information(mixture, statistics, penalty)
    if inverse is None:
        return np.empty((0, 0))
    at = coefficient_slice(mixture)
    f = (at.stop - at.start) // mixture.K
    blocks, of_ridge = (part[at, at].reshape(mixture.K, f, mixture.K, f) for part in (inverse, ridge(mixture, penalty)))
    F = kronecker(np.eye(f // mixture.design.p), mixture.design.from_raw())
    own = np.array([solve_symmetric(blocks[k, :, k], np.eye(f))[0] - of_ridge[k, :, k] for k in range(mixture.K)])
    if not is_semidefinite(own):  # the rows alone do not determine the expert
        return np.empty((0, 0))
    return np.array([pack(F.T @ block @ F) for block in own])


def _described(site: Site, rng: np.random.Generator) -> CovariateSummary:
    """Summarise the distribution of the covariates that the gate reads: of rows, or of group means."""
    X, weight = gate_covariates(site.sample(rng, DESCRIBED_ROWS))
    return covariate_summary(X, weight, rng)


def gate_covariates(rows: Rows) -> tuple[Array, Array]:
    """Return the covariates that a softmax gate reads, with weights: rows ``(n, d)``, or group means ``(G, d)``."""
    if rows.groups is None:
        return rows.X, np.ones(rows.n) if rows.weight is None else rows.weight
    raw = Design.raw(rows.X.shape[1], intercept=False)
    means = [(block.groups.panel.T, block.groups.present) for block in rows.blocks(raw, rows.n) if block.groups]
    return np.concatenate([panel for panel, _ in means]), np.concatenate([present for _, present in means])


def _mean_exposure(site: Site) -> float:
    total = weight = 0.0
    for rows in site.chunks():
        w = np.ones(rows.n) if rows.weight is None else rows.weight
        total += float(w.sum() if rows.exposure is None else w @ rows.exposure)
        weight += float(w.sum())
    return total / weight if weight > 0 else 1.0

"""Rounding of a site's file: no number has more digits than a hundredth of its standard error, or than a few rows move.

Sums over rows that are exact to sixteen digits disclose columns of 0/1 by lattice reduction, although no rule on counts
is broken. Numbers are rounded to multiples of 1, 2 or 5 times a power of ten that is at least

    τ = max(1/100, 2 / √n)

standard errors, where one row moves a number by about 1 / √n standard errors. Coefficients that are correlated are
rounded one after the other: each takes up what the rounding of those before it did to the fit (the nearest-plane method
of L. Babai, Combinatorica 6, 1986), so that nearly collinear columns, and columns far from zero, lose no more than
others. Matrices of moments are rounded as what they are made of: regressions of each column on those before it, and the
squares that are left. So they stay positive semidefinite. The number of rows is stated as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.aggregate import CovariateSummary, SiteModel
from consilience.kit.policy.rules import complete_precision, flattened_experts
from consilience.messages import LocalFit
from consilience.model import ColumnSummary, Mixture
from consilience.numerics.arrays import Array, kronecker, pack, unpack
from consilience.numerics.linalg import cholesky_or_none, symmetrise

FRACTION = 0.01
"""Smallest unit in standard errors."""
FEW = 2.0
"""Rows that move no number by more than about a unit."""
LEAST_SHARE = 1e-6
"""Share of a value that is rounded to none: such a value remains possible."""
LEFT = 1e-13
"""Least part of a column's square that is left by those before it."""


def unit_at_least(step: float) -> float:
    """Return the least 1, 2 or 5 times a power of ten that is no smaller than ``step``.

    Examples
    --------
    >>> unit_at_least(0.013), unit_at_least(3.0), unit_at_least(0.0)
    (0.02, 5.0, 0.0)
    """
    if not 0 < step < np.inf:
        return 0.0
    power = 10.0 ** np.floor(np.log10(step))
    found = next((times * power for times in (1.0, 2.0, 5.0, 10.0) if times * power >= step * (1 - 1e-9)), 10.0 * power)
    return float(f"{found:.0e}")


def round_number(value: float, step: float) -> float:
    """Return the multiple of ``unit_at_least(step)`` next to a number; the number itself without a step.

    Examples
    --------
    >>> round_number(0.12345, 0.013), round_number(1234.5, 3.0)
    (0.12, 1235.0)
    """
    unit = unit_at_least(step)
    return float(f"{float(np.rint(value / unit)) * unit:.12g}") if unit else float(value)


def errors_in(n: float) -> float:
    """Return τ, the unit in standard errors for numbers that rest on n rows."""
    return float(max(FRACTION, FEW / np.sqrt(max(n, 1.0))))


def round_correlated(values: Array, precision: Array, tau: float) -> Array:
    """Round numbers ``(f,)`` with an inverse covariance ``(f, f)`` to about τ standard errors each; zeros stay.

    With ``precision = Rᵀ R`` the last number is rounded first, to a unit of ``τ / R_jj``, and the others move to where
    they are best given it.

    Examples
    --------
    >>> far = np.array([[1.0, 1000.0], [1000.0, 1000001.0]])  # an intercept, and the slope of a column at 1000
    >>> a, b = round_correlated(np.array([-2999.97531, 3.0]), 400 * far, 0.1).tolist()
    >>> round(a + 1000 * b, 4), b
    (0.025, 3.0)
    """
    kept = np.flatnonzero(values)
    lower = cholesky_or_none(precision[np.ix_(kept, kept)])
    found, R = (
        values.copy(),
        np.diag(np.sqrt(np.maximum(np.diagonal(precision)[kept], 0))) if lower is None else lower.T,
    )
    for j in range(len(kept))[::-1]:
        if R[j, j] > 0:
            moved = R[j, j + 1 :] @ (values - found)[kept[j + 1 :]] / R[j, j]
            found[kept[j]] = round_number(values[kept[j]] + moved, tau / R[j, j])
    return found


def round_moments(moments: Array, n: float) -> Array:
    """Round a positive semidefinite matrix ``(p, p)`` of sums over n rows.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(50, 2, 400)
    >>> M = np.array([[400.0, x.sum()], [x.sum(), x @ x]])
    >>> M.round(2).tolist() != round_moments(M, 400).tolist(), bool(np.allclose(M, round_moments(M, 400), rtol=0.001))
    (True, True)
    """
    p, tau = len(moments), errors_in(n)
    B, D = np.eye(p), np.zeros(p)
    found = np.zeros((p, p))
    for i in range(p):
        before, cross = moments[:i, :i], moments[:i, i]
        b: Array = np.asarray(np.linalg.lstsq(before, cross, rcond=1e-14)[0], dtype=np.float64) if i else np.empty(0)
        own = max(float(moments[i, i] - cross @ b), LEFT * float(moments[i, i]))
        if own > 0:
            b = round_correlated(b, found[:i, :i] * n / own, tau)
            D[i] = round_number(own, tau * np.sqrt(2.0) * own / np.sqrt(n))
        B[i, :i] = -b
        L = np.linalg.inv(B[: i + 1, : i + 1])
        found[: i + 1, : i + 1] = (L * D[: i + 1]) @ L.T
    return symmetrise(found)


def round_counts(counts: Array, total: float) -> Array:
    """Round counts ``(K,)`` whose sum is known; the largest takes what is left."""
    shares = counts / max(total, 1.0)
    steps = errors_in(total) * np.sqrt(total * shares * (1 - shares))
    found = np.array([round_number(c, step) for c, step in zip(counts, steps, strict=True)])
    largest = int(np.argmax(counts))
    found[largest] += total - found.sum()
    return found if found[largest] > 0 else counts


# ---------------------------------------------------------------- the parts of a file


def round_fit(fit: LocalFit) -> LocalFit:
    """Round all that a site's file says of its rows, but for their number."""
    summary = round_summary(fit.summary)
    return replace(fit, summary=summary, model=None if fit.model is None else round_model(fit.model, summary))


def round_summary(summary: ColumnSummary) -> ColumnSummary:
    """Round the means and products of columns."""
    n = summary.weight
    x, xx = _centred(round_moments(_with_means(n, summary.x_mean, summary.x_products), n))
    y, yy = _centred(round_moments(_with_means(n, summary.y_mean, summary.y_products), n))
    return ColumnSummary(n, x, xx, y, yy)


def _with_means(n: float, mean: Array, products: Array) -> Array:
    """Return ``Σ (1, x)(1, x)ᵀ`` of n rows."""
    first = np.concatenate([[1.0], mean])
    return n * np.outer(first, first) + np.pad(products, ((1, 0), (1, 0)))


def _centred(moments: Array) -> tuple[Array, Array]:
    """Return means and centred products."""
    mean = moments[0, 1:] / moments[0, 0]
    return mean, symmetrise(moments[1:, 1:] - moments[0, 0] * np.outer(mean, mean))


def round_model(model: SiteModel, summary: ColumnSummary) -> SiteModel:
    """Round a site's model; ``summary`` is already rounded."""
    labels, mass = round_counts(model.label_counts, model.weight), round_counts(model.mass, summary.weight)
    second = model.second
    if len(second):
        second = pack(np.array([round_moments(S, max(n, 1.0)) for S, n in zip(unpack(second), mass, strict=True)]))
    found = replace(model, label_counts=labels, mass=mass, second=second, mixture=_round_shapes(model.mixture, mass))
    found = replace(found, precision=_round_precision(model, found))
    covariates = None if model.covariates is None else round_covariates(model.covariates, summary.weight)
    step = errors_in(model.weight) * np.sqrt(model.weight / 2)
    exposure = round_number(model.exposure, errors_in(model.weight) * model.exposure / np.sqrt(model.weight))
    return replace(
        found,
        mixture=_round_coefficients(found, summary),
        covariates=covariates,
        log_likelihood=round_number(model.log_likelihood, step),
        exposure=model.exposure if model.exposure == 1 else exposure,
    )


def _round_shapes(mixture: Mixture, mass: Array) -> Mixture:
    """Round the shapes of experts, in relation to their size."""
    values = mixture.experts.shape_values()
    steps = [errors_in(n) * np.sqrt(2.0 / max(n, 1.0)) for n in mass]
    found = [[round_number(v, step * abs(v)) for v in row] for row, step in zip(values, steps, strict=True)]
    return replace(mixture, experts=mixture.experts.with_shape_values(np.reshape(found, values.shape)))


def _round_precision(model: SiteModel, found: SiteModel) -> Array:
    """Round the precision of the coefficients: the fraction of that for known labels, where that is known.

    It has eigenvalues between 0 and 1, and keeps them; one that was flattened stays so.
    """
    if not len(model.precision):
        return model.precision
    own, mass, flat = unpack(model.precision), np.maximum(found.mass, 1.0), flattened_experts(model)
    known, rounds = complete_precision(model), complete_precision(found)
    if known is None or rounds is None:
        return pack(np.array([round_moments(J, n) for J, n in zip(own, mass, strict=True)]))
    parts = zip(own, known, rounds, mass, flat, strict=True)
    return pack(np.array([_round_fraction(J, C, R, n, flat=bool(f)) for J, C, R, n, f in parts]))


def _round_fraction(J: Array, known: Array, rounds: Array, n: float, *, flat: bool) -> Array:
    """Return ``L F Lᵀ`` with ``rounds = L Lᵀ`` and F, the rounded fraction of J in ``known``.

    Columns that the experts do not read have zeros in all three, and are left out.
    """
    read = np.diagonal(known) > 0
    if not read.all():
        own, found = np.ix_(read, read), np.zeros_like(J)
        found[own] = _round_fraction(J[own], known[own], rounds[own], n, flat=flat)
        return found
    before, L = cholesky_or_none(known), cholesky_or_none(rounds)
    if before is None or L is None:
        return round_moments(J, n)
    half = np.linalg.solve(before, J)
    fraction = symmetrise(np.linalg.solve(before, half.T))
    step = errors_in(n) / np.sqrt(n)
    if flat:
        return round_number(float(np.trace(fraction)) / len(fraction), step) * rounds
    F = np.array([[round_number(value, step) for value in row] for row in fraction])
    values, vectors = np.linalg.eigh(F)
    return symmetrise(L @ ((vectors * np.clip(values, 0.0, 1.0)) @ vectors.T) @ L.T)


def _round_coefficients(model: SiteModel, summary: ColumnSummary) -> Mixture:
    """Round the coefficients of gate and experts; moments, precision and shapes are already rounded."""
    mixture, K, n = model.mixture, model.mixture.K, model.weight
    moments = _with_means(1.0, summary.x_mean, summary.x_products / max(summary.weight, 1.0))
    moments = moments if mixture.design.intercept else moments[1:, 1:]
    contrasts, metrics = mixture.gate.contrasts(), _metrics(model, moments)
    pi = np.clip(model.label_counts / max(n, 1.0), 1 / max(n, 2.0), 1 - 1 / max(n, 2.0))
    read = moments if contrasts.shape[-1] == len(moments) else np.eye(contrasts.shape[-1])
    gate = [round_correlated(row, n * p * (1 - p) * read, errors_in(n)) for row, p in zip(contrasts, pi, strict=False)]
    own = mixture.experts.free_coefficients().reshape(K, -1)
    experts = [round_correlated(row, P, errors_in(mass)) for row, P, mass in zip(own, metrics, model.mass, strict=True)]
    shapes = mixture.experts.shape_values().ravel()
    vector = np.concatenate([np.ravel(gate), np.ravel(experts), shapes])
    return mixture.with_vector(vector).with_vector(vector)  # the second time, differences are exact


def _metrics(model: SiteModel, moments: Array) -> Array:
    """Return the information on the coefficients of each expert, ``(K, f, f)``, as far as the file states it."""
    complete = complete_precision(model)
    if complete is not None:
        return complete
    if len(model.precision):
        return unpack(model.precision)
    f = len(model.mixture.experts.free_coefficients()) // model.mixture.K
    return np.array([n * kronecker(np.eye(f // len(moments)), moments) for n in model.mass])


def round_covariates(summary: CovariateSummary, n: float) -> CovariateSummary:
    """Round the summary of the covariates of n rows: classes, their means and covariances, and shares of values."""
    total = float(summary.weights.sum())
    rows = round_counts(summary.weights * n / total, n)
    parts = zip(rows, summary.means, unpack(summary.covariances), strict=True)
    moments = [_centred(round_moments(_with_means(w, mean, w * S), w)) for w, mean, S in parts]
    return CovariateSummary(
        rows * total / n,
        np.array([mean for mean, _ in moments]).reshape(summary.means.shape),
        np.array([pack(S / w) for (_, S), w in zip(moments, rows, strict=True)]).reshape(summary.covariances.shape),
        summary.levels,
        tuple(_round_shares(each, rows) for each in summary.shares),
    )


def _round_shares(shares: Array, weights: Array) -> Array:
    """Round shares of values in each class; they sum to one."""
    if not shares.size:
        return shares
    found = []
    for row, w in zip(shares, weights, strict=True):
        kept = np.array([round_number(p, errors_in(w) * np.sqrt(max(p * (1 - p), 0.0) / w)) for p in row])
        kept = np.where((kept <= 0) & (row > 0), LEAST_SHARE, kept)
        found.append(kept / kept.sum())
    return np.array(found)

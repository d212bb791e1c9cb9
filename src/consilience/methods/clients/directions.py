"""Subspace that the regressions of clients span, from sums over pairs of a client's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from consilience.fit.checks import check_fittable
from consilience.fit.climb import Expect
from consilience.fit.specification import Specification
from consilience.messages.dialogue import Dialogue, Each, Total
from consilience.messages.questions import Answers, Pairs, Several, Summarise
from consilience.model.clients.pairs import PairSums
from consilience.model.design import Design
from consilience.model.families.regressions import standard_regression
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, unpack
from consilience.numerics.linalg import whitening
from consilience.numerics.subspace import leading, orthonormal

FAR_OFF = 3.0
"""Distance of a mean from 0, in standard deviations, above which columns are centred before pairs are requested."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Subspace of the regressions of clients.

    Parameters
    ----------
    summaries : mapping of str to ColumnSummary
        Summary of each site.
    summary : ColumnSummary
        Summary of all sites.
    design : Design
    theta : (p,) array
        Coefficients at which residuals are computed.
    basis : (p, f) array
        Basis of the subspace; covariates have unit variance in its directions.
    values : array
        Eigenvalues of the pair sums, by decreasing absolute value.
    """

    summaries: Mapping[str, ColumnSummary]
    summary: ColumnSummary
    design: Design
    theta: Array
    basis: Array
    values: Array

    @property
    def spread(self) -> Array:
        """Return mean squares over clients of the coefficients in each direction, ``(f,)``, bounded below."""
        sizes = np.abs(self.values)
        return np.asarray(np.maximum(sizes[: self.basis.shape[1]], 1e-3 * sizes.max() + np.finfo(float).tiny))


def directions(
    specification: Specification, d: int, K: int, iterations: int, rng: np.random.Generator
) -> Dialogue[Directions]:
    """Estimate the ``K`` directions in which clients differ most, from one sum of ``p²`` numbers or by iteration.

    Parameters
    ----------
    specification : Specification
        Model to fit; it states whether there is an intercept.
    d, K : int
        Numbers of covariates and directions.
    iterations : int
        Number of rounds of orthogonal iteration, with ``p K`` numbers each; 0 for the sum.
    rng : numpy.random.Generator
        Generator of the basis from which the iteration starts.
    """
    raw = Design.raw(d, specification.intercept)
    theta = np.zeros(raw.p)
    question = Several((Summarise(d, 1), *_about(raw, theta, whole=not iterations)))
    each: Mapping[str, Answers] = yield Each(question)
    summaries = {site: found.items[0] for site, found in each.items()}
    summary, *sums = reduce(add, each.values()).items
    check_fittable(specification, summary)
    design, at = specification.designs(summary)[0], raw
    if _is_far_off(summary, specification.intercept):
        at, theta = design, centre(summary, design)
        answers: Answers = yield Total(Several(_about(design, theta, whole=not iterations)))
        sums = list(answers.items)
    back = at.from_raw() @ design.to_raw()  # sums in the coordinates of the design: units do not matter
    theta = design.from_raw() @ at.to_raw() @ theta
    Sxx = back.T @ unpack(sums[0].experts.second)[0] @ back
    W = whitening(Sxx / float(sums[0].experts.plain[0]))
    if iterations:
        start = orthonormal(rng.standard_normal((W.shape[1], min(K, W.shape[1]))))
        values, U = yield from iterated(Pairs(design, theta), W, start, iterations)
    else:
        values, U = spanned(replace(sums[1], product=back.T @ sums[1].product @ back), W, K)
    return Directions(summaries, summary, design, theta, W @ U, values)


def _about(design: Design, theta: Array, *, whole: bool) -> tuple[Expect | Pairs, ...]:
    """Return the questions whose answers determine the subspace."""
    return (Expect(standard_regression(design)), *((Pairs(design, theta),) if whole else ()))


def _is_far_off(summary: ColumnSummary, intercept: bool) -> bool:
    """Whether the means would dominate sums about 0; without an intercept, 0 is the common point of the experts."""
    means = np.concatenate([summary.x_mean, summary.y_mean])
    variances = np.concatenate([summary.x_variance, np.diagonal(summary.y_covariance)])
    return intercept and bool(np.any(means**2 > FAR_OFF**2 * variances))


def centre(summary: ColumnSummary, design: Design) -> Array:
    """Return the coefficients ``(p,)`` of the mean response, in which only the intercept is not 0."""
    theta = np.zeros(design.p)
    if design.intercept:
        theta[0] = summary.y_mean[0]
    return theta


def spanned(sums: PairSums, W: Array, K: int) -> tuple[Array, Array]:
    """Compute the whitened eigenvalues of the pair sums, by decreasing absolute value, and the first K eigenvectors."""
    values, vectors = leading(W.T @ sums.product @ W / max(sums.pairs, 1.0), W.shape[1])
    return values, vectors[:, :K]


def iterated(pairs: Pairs, W: Array, U: Array, rounds: int) -> Dialogue[tuple[Array, Array]]:
    """Compute the same by orthogonal iteration from a basis ``U``: ``U ← orth(Wᵀ Y W U)``, one round each."""
    values = np.zeros(U.shape[1])
    for _ in range(rounds):
        sums: PairSums = yield Total(replace(pairs, basis=W @ U))
        product = W.T @ sums.product / max(sums.pairs, 1.0)
        values = np.asarray(np.linalg.eigvalsh(U.T @ product)[::-1])
        U = orthonormal(product)
    return values, U

"""Parametric bootstrap: refit to data simulated from the fitted mixture."""

from __future__ import annotations

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit.fitting import Fit, fit_mixture
from consilience.fit.inference import Inference
from consilience.fit.parameters import parameters
from consilience.fit.specification import Specification
from consilience.model.alignment import alignment
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import IntArray


def simulate(mixture: Mixture, rows: Rows, rng: np.random.Generator) -> Rows:
    """Draw responses from ``mixture`` for the covariates, exposures and groups of ``rows``."""
    labels = None if rows.groups is None else _group_labels(mixture, rows, rng)[rows.groups.codes]
    Y, _ = mixture.sample(rows.X, rng, labels, rows.exposure)
    return Rows(rows.X, Y, rows.weight, rows.exposure, rows.groups)


def _group_labels(mixture: Mixture, rows: Rows, rng: np.random.Generator) -> IntArray:
    pi = np.concatenate([np.broadcast_to(at.pi, at.tau.shape).T for _, at in mixture.posteriors(rows)])  # (G, K)
    below = np.cumsum(pi, axis=1) < rng.random((len(pi), 1))
    labels: IntArray = np.minimum(below.sum(axis=1), mixture.K - 1)
    return labels


def bootstrap(
    fit: Fit, rows: Rows, specification: Specification, *, rng: np.random.Generator, draws: int = 50
) -> Inference:
    """Estimate the covariance of the estimates from ``draws`` data sets simulated from the fit.

    Each refit starts at the estimates; its experts are matched to them by optimal assignment.

    Examples
    --------
    >>> from consilience.fit import Specification, fit_mixture
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((400, 0)), rng.normal(size=(400, 1)))
    >>> one = Specification(K=1, gate="constant")
    >>> fit = fit_mixture(rows, one, rng=rng)
    >>> se = bootstrap(fit, rows, one, rng=rng).standard_errors().experts
    >>> bool(0.03 < se[0, 0, 0] < 0.07)  # 1 / sqrt(400) = 0.05
    True
    """
    if rows.weight is not None and not np.all(rows.weight == 1.0):
        raise InvalidInputError("the parametric bootstrap takes no weights: repeat rows instead of weighting them")
    reference = fit.ascent.mixture.permuted(fit.permutation)
    drawn = []
    for _ in range(draws):
        again = fit_mixture(simulate(fit.mixture, rows, rng), specification, rng=rng, start=fit.mixture)
        drawn.append(parameters(again.mixture.permuted(alignment(again.mixture, reference))).flat())
    return Inference(parameters(fit.mixture), np.atleast_2d(np.cov(np.array(drawn).T)), "bootstrap", np.nan)

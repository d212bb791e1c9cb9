"""Parametric bootstrap: refit to data simulated from the fitted mixture."""

from __future__ import annotations

import warnings

import numpy as np

from consilience.errors import DegenerateFitWarning, InvalidInputError
from consilience.fit.checks import on_floor
from consilience.fit.fitting import Fit, fit_mixture
from consilience.fit.inference import Inference, infer
from consilience.fit.parameters import identified, parameters
from consilience.fit.specification import Specification
from consilience.model.alignment import matching
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import IntArray

DOUBTFUL_SHARE = 0.05
"""Largest share of refits with unclear labels or an expert at its floor, for which standard errors are shown."""


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

    Each refit starts at the estimates. Its experts are matched to those of the fit by their responsibilities on
    ``rows``. Standard errors are withheld where :func:`infer` withholds them, and if more than 5 % of the refits have
    experts that cannot be matched clearly or an expert at the floor of its shape.

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
    check_unweighted(rows)
    reference = fit.mixture.responsibilities(rows)
    drawn, unclear, at_floor = [], 0, 0
    for _ in range(draws):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateFitWarning)  # counted below
            again = fit_mixture(simulate(fit.mixture, rows, rng), specification, rng=rng, start=fit.mixture)
        matched = matching(again.mixture, reference, rows)
        drawn.append(parameters(again.mixture.permuted(matched.permutation)).flat())
        unclear += not matched.clear
        at_floor += on_floor(again.ascent.mixture, again.penalty)
    withheld = _withheld(fit, rows)
    if max(unclear, at_floor) > DOUBTFUL_SHARE * draws:
        reason = (
            f"of {draws} refits, {unclear} have experts without a clear match and {at_floor} an expert at its floor"
        )
        withheld |= dict.fromkeys(("gate", "experts"), reason)
    covariance = np.atleast_2d(np.cov(np.array(drawn).T))
    known = identified(fit.ascent.mixture)
    return Inference(parameters(fit.mixture), covariance, "bootstrap", np.nan, withheld, identified=known)


def check_unweighted(rows: Rows) -> None:
    """Raise an error if rows have weights: data cannot be simulated for a part of a row."""
    if rows.weight is not None and not np.all(rows.weight == 1.0):
        raise InvalidInputError("the parametric bootstrap takes no weights: repeat rows instead of weighting them")


def _withheld(fit: Fit, rows: Rows) -> dict[str, str]:
    """Return the reasons for which :func:`infer` withholds; none if there are too many parameters to ask it."""
    return dict(infer(fit, rows).withheld) if is_informable(fit.ascent.mixture) else {}

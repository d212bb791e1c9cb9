"""Mean responses of each expert, with standard errors by the delta method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.fit.inference import Inference
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array

LARGEST_ROUNDING = 0.01
"""Maximum rounding error of a variance, as a fraction of it: beyond, the standard error is NaN."""


def expert_means(mixture: Mixture, X: Array) -> Array:
    """Compute the mean response or class probabilities of each expert, ``E[y | x_i, k]``, ``(n, K, m)``.

    Examples
    --------
    >>> from consilience.model import mixture_of_regressions
    >>> mixture = mixture_of_regressions(np.ones(2) / 2, np.array([[0.0, 1.0], [5.0, -1.0]]), 1.0)
    >>> expert_means(mixture, np.array([[3.0]]))[:, :, 0]
    array([[3., 2.]])
    """
    return np.concatenate([mixture.experts.mean(panel).transpose(2, 0, 1) for panel in _panels(mixture, X)])


def mean_errors(mixture: Mixture, inference: Inference, X: Array) -> Array:
    """Compute the standard errors of :func:`expert_means`, ``(n, K, m)``; NaN where those of the experts are withheld.

    A mean response ``μ(η)`` of linear predictors ``η = B x̃`` has the variance ``μ'(η) Cov(B x̃) μ'(η)ᵀ``.

    Parameters
    ----------
    mixture : Mixture
        In the coordinates of the reported coefficients, as ``Fit.mixture``.
    inference : Inference
    X : (n, d) array

    Examples
    --------
    >>> from consilience.fit import Specification, fit_mixture, infer
    >>> from consilience.model import Rows
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((400, 0)), rng.normal(size=(400, 1)))
    >>> fit = fit_mixture(rows, Specification(K=1, gate="constant"), rng=rng)
    >>> inference = infer(fit, rows)
    >>> float(mean_errors(fit.mixture, inference, np.empty((1, 0))).squeeze().round(3))
    0.05
    """
    parts = []
    for panel in _panels(mixture, X):
        slopes = mixture.experts.mean_slopes(panel)  # (K, m, c, n)
        variance = np.einsum("kmcn,kcdn,kmdn->nkm", slopes, predictor_covariance(inference, panel), slopes)
        parts.append(np.sqrt(np.maximum(variance, 0.0)))
    return np.concatenate(parts)


def predictor_covariance(inference: Inference, panel: Array) -> Array:
    """Compute the covariance of each expert's linear predictors at a panel ``(p, n)``, ``(K, c, c, n)``.

    It is NaN where the intervals of the experts are withheld, and where rounding makes up more than 1 % of a variance:
    far from the origin, in standard deviations of the covariates, large terms cancel.

    Examples
    --------
    >>> from consilience.fit.parameters import Parameters
    >>> estimates = Parameters(np.zeros((1, 1)), np.zeros((1, 1, 2)), np.zeros((1, 0)))
    >>> inference = Inference(estimates, np.diag([0.0, 1.0, 4.0]), "observed", 0.0)
    >>> predictor_covariance(inference, np.array([[1.0], [3.0]])).ravel()
    array([37.])
    """
    K, c, p = inference.estimates.experts.shape
    if "experts" in inference.withheld:
        return np.full((K, c, c, panel.shape[1]), np.nan)
    first = inference.estimates.gate.size
    own = [slice(first + k * c * p, first + (k + 1) * c * p) for k in range(K)]
    blocks = np.array([inference.covariance[at, at] for at in own]).reshape(K, c, p, c, p)
    covariance: Array = np.einsum("pn,kcpdq,qn->kcdn", panel, blocks, panel, optimize=True)
    size = np.einsum("pn,kcpcq,qn->kcn", np.abs(panel), np.abs(blocks), np.abs(panel), optimize=True)
    variance = np.einsum("kccn->kcn", covariance)
    lost = (np.finfo(float).eps * size > LARGEST_ROUNDING * variance) & (size > 0)
    return np.where((lost[:, :, None] | lost[:, None]), np.nan, covariance)


def _panels(mixture: Mixture, X: Array) -> Iterator[Array]:
    size = mixture.block_size()
    return (mixture.design.panel(X[start : start + size]) for start in range(0, max(len(X), 1), size))

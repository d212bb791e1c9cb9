"""Pointwise confidence bands of the experts' mean responses."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

from consilience.fit.degrees import quantile
from consilience.fit.expert_means import expert_means, predictor_covariance
from consilience.model import Mixture
from consilience.numerics.arrays import Array


def means_of(estimator: Any, X: Array, response: int) -> Array:
    """Compute ``E[y | x, k]`` of one response, or the probability of one class, ``(K, n)``, at rows ``X (n, d)``."""
    return expert_means(estimator.mixture_, X)[:, :, response].T


def expert_bands(estimator: Any, X: Array, response: int, level: float) -> tuple[Array, Array] | None:
    """Compute pointwise confidence bounds of :func:`means_of`, ``(K, n)`` each; None if they are withheld.

    The interval of the linear predictor, ``η_k(x) ± q se(η_k(x))`` with ``se² = x̃ᵀ Cov(b_k) x̃``, is mapped to the mean;
    ``q`` is Student's quantile of the least degrees of freedom of the expert's coefficients. Of a class, it is the
    interval of the log odds against all other classes, by the delta method.
    """
    panel, means = estimator.mixture_.design.panel(X), means_of(estimator, X, response)
    reach = _reach(estimator, panel, response, level)
    if not np.all(np.isfinite(reach)):
        return None
    if estimator.mixture_.experts.classes:
        odds = logit(means)
        return expit(odds - reach), expit(odds + reach)
    lower, upper = (_moved_means(estimator.mixture_, panel, response, sign * reach) for sign in (-1, 1))
    return lower, upper


def _reach(estimator: Any, panel: Array, response: int, level: float) -> Array:
    """Compute the half-width of the interval of each expert's predictor, ``(K, n)``; NaN where it is withheld."""
    inference = estimator.inference_
    gradient = _predictor_gradient(estimator.mixture_, panel, response)
    variance = np.einsum("kcn,kcdn,kdn->kn", gradient, predictor_covariance(inference, panel), gradient)
    degrees = inference.degrees_of_freedom().experts.min(axis=(1, 2))
    return np.asarray(quantile(level, degrees)[:, None] * np.sqrt(np.maximum(variance, 0.0)))


def _predictor_gradient(mixture: Mixture, panel: Array, response: int) -> Array:
    """Return the derivative of the predictor by the reported linear predictors of each expert, ``(K, c, n)``.

    Of a class it is that of its log odds against all others: 1 for the class, ``-p_e / (1 - p)`` for another one.
    """
    experts, n = mixture.experts, panel.shape[1]
    if not experts.classes:
        return np.tile(np.eye(experts.channels)[response][:, None], (mixture.K, 1, n))
    probability = experts.mean(panel)  # (K, C, n)
    if probability.shape[1] == 2:  # reported as log odds of the second class; the sign has no influence
        return np.ones((mixture.K, 1, n))
    others = -probability / (1 - probability[:, [response]])
    others[:, response] = 1.0
    return np.asarray(others)


def _moved_means(mixture: Mixture, panel: Array, response: int, shift: Array) -> Array:
    """Compute the mean of one response where the predictors are moved by ``shift (K, n)``.

    A copy of each expert for each row gets coefficients ``b + shift x̃ / |x̃|²``, which gives ``η + shift``.
    """
    p, n = panel.shape
    at = np.arange(n)
    square = np.sum(panel**2, axis=0)
    direction = (panel / np.where(square > 0, square, 1.0)).T  # (n, p); a row of zeros has predictor 0 for certain
    found = np.empty_like(shift)
    for k, own in enumerate(shift):
        copies = mixture.experts.permuted(np.full(n, k))
        change = np.zeros((n, copies.channels, p))
        change[:, response] = own[:, None] * direction
        found[k] = copies.moved(change.ravel(), np.zeros(copies.shape_parameters)).mean(panel)[at, response, at]
    return found

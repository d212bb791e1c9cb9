"""Pointwise confidence bands of the experts' mean responses."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

from consilience.fit.degrees import quantile
from consilience.model import Mixture
from consilience.numerics.arrays import Array


def expert_means(estimator: Any, X: Array, response: int) -> Array:
    """Compute ``E[y | x, k]`` of one response, or the probability of one class, ``(K, n)``, at rows ``X (n, d)``."""
    mixture: Mixture = estimator.mixture_
    return np.asarray(mixture.experts.mean(mixture.design.panel(X))[:, response])


def expert_bands(estimator: Any, X: Array, response: int, level: float) -> tuple[Array, Array] | None:
    """Compute pointwise confidence bounds of :func:`expert_means`, ``(K, n)`` each; None if they are withheld.

    The interval of the linear predictor, ``η_k(x) ± q se(η_k(x))`` with ``se² = x̃ᵀ Cov(b_k) x̃``, is mapped to the mean;
    ``q`` is Student's quantile of the least degrees of freedom of the expert's coefficients. Of a class, it is the
    interval of the log odds against all other classes, by the delta method.
    """
    if "experts" in estimator.inference_.withheld:
        return None
    panel, means = estimator.mixture_.design.panel(X), expert_means(estimator, X, response)
    reach = np.array([_reach(estimator, k, panel, response, level) for k in range(len(means))])
    if not np.all(np.isfinite(reach)):
        return None
    if estimator.mixture_.experts.classes:
        odds = logit(means)
        return expit(odds - reach), expit(odds + reach)
    lower, upper = (_moved_means(estimator.mixture_, panel, response, sign * reach) for sign in (-1, 1))
    return lower, upper


def _reach(estimator: Any, k: int, panel: Array, response: int, level: float) -> Array:
    """Compute the half-width of the interval of expert ``k``'s predictor, ``(n,)``."""
    inference = estimator.inference_
    _, c, p = inference.estimates.experts.shape
    first = inference.estimates.gate.size + k * c * p
    covariance = inference.covariance[first : first + c * p, first : first + c * p]
    gradient = _predictor_gradient(estimator.mixture_, k, panel, response)  # (c, n)
    v = (gradient[:, None] * panel).reshape(c * p, -1)
    variance = np.einsum("in,in->n", v, covariance @ v)
    degrees = inference.degrees_of_freedom().experts[k].min()
    return np.asarray(quantile(level, degrees) * np.sqrt(np.maximum(variance, 0.0)))


def _predictor_gradient(mixture: Mixture, k: int, panel: Array, response: int) -> Array:
    """Return the derivative of the predictor by the reported linear predictors of expert ``k``, ``(c, n)``.

    Of a class it is that of its log odds against all others: 1 for the class, ``-p_e / (1 - p)`` for another one.
    """
    experts, n = mixture.experts, panel.shape[1]
    if not experts.classes:
        return np.repeat(np.eye(experts.channels)[response][:, None], n, axis=1)
    probability = experts.mean(panel)[k]  # (C, n)
    if len(probability) == 2:  # reported as log odds of the second class; the sign has no influence
        return np.ones((1, n))
    others = -probability / (1 - probability[response])
    others[response] = 1.0
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

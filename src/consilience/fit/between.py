"""Differences between sites as part of the standard errors: random effects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.fit.inference import Between, Inference
from consilience.fit.parameters import Parameters
from consilience.numerics.arrays import Array


def widened(inference: Inference, I2: Parameters, tau2: Parameters, variance: Parameters, df: Parameters) -> Inference:
    """Return standard errors that include the variance between sites, with I² and τ² of each parameter.

    ``variance`` is what differences between sites add to that of each estimate, zero where they are not significant,
    estimated with ``df`` degrees of freedom. Those of the sum are Satterthwaite's,
    ``(v + u)² / (v² / ν + u² / df)`` for a sampling variance ``v`` with ``ν`` degrees of freedom.

    Examples
    --------
    >>> one = Parameters(np.zeros((1, 1)), np.ones((1, 1, 1)), np.zeros((1, 0)))
    >>> sampling = Inference(one, np.diag([0.0, 1.0]), "summed", np.nan)
    >>> wide = widened(sampling, one, one, one.like(np.array([0.0, 3.0])), one.like(np.array([4.0, 4.0])))
    >>> wide.standard_errors().experts.item(), wide.degrees.round(1)
    (2.0, array([inf, 7.1]))
    """
    v, u = np.diagonal(inference.covariance), np.nan_to_num(variance.flat())
    nu, few = inference.degrees_of_freedom().flat(), np.maximum(np.nan_to_num(df.flat()), 1.0)
    slack = np.nan_to_num(v) ** 2 / nu + u**2 / few
    total = np.nan_to_num(v) + u
    degrees = np.where(u > 0, total**2 / np.where(slack > 0, slack, 1.0), nu)
    covariance: Array = inference.covariance + np.diag(u)
    return replace(inference, covariance=covariance, degrees=degrees, between=Between(I2, tau2))

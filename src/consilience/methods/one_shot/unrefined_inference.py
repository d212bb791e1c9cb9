"""Standard errors of combined experts, with the differences between sites."""

from __future__ import annotations

import numpy as np

from consilience.aggregate.combine.combination import Combination
from consilience.fit.between import widened
from consilience.fit.fitting import Fit
from consilience.fit.inference import Inference, of_coefficients
from consilience.fit.parameters import Parameters
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import solve_symmetric

REFINE = "use OneShot(refine=1) or more"


def summed_inference(fit: Fit, precision: Array) -> Inference:
    """Compute standard errors of the experts' coefficients from their precision ``(K, f, f)``."""
    withheld = {"gate": f"without a round of refinement the gate has no standard errors: {REFINE}"}
    if not precision.any(axis=(1, 2)).all():
        withheld["experts"] = (
            "most of what informs an expert comes from sites with too few rows per coefficient, or that sent no "
            f"precision: {REFINE}"
        )
    elif fit.mixture.experts.shapes:
        withheld["shapes"] = f"without a round of refinement the shapes have no standard errors: {REFINE}"
    solved = [solve_symmetric(own, np.eye(len(own)))[0] for own in precision]
    return of_coefficients(fit, np.array(solved), "summed", withheld)


def with_sites(inference: Inference, combination: Combination) -> Inference:
    """Return standard errors of the experts with the variance between sites; experts are in the order of the estimates.

    The gate's heterogeneity is computed from summaries of the covariates: it is shown, and not part of standard errors.
    """
    at = inference.estimates
    I2, tau2, variance, df = (_reported(at, combination, name) for name in ("I2", "tau2", "between_variance", "df"))
    of_experts = Parameters(np.zeros_like(at.gate), variance.experts, variance.log_shapes)
    return widened(inference, I2, tau2, of_experts, df)


def _reported(at: Parameters, combination: Combination, name: str) -> Parameters:
    """Return one quantity of the heterogeneity in the places of the reported parameters; NaN where it is not known."""
    gate, experts = np.full_like(at.gate, np.nan), np.full_like(at.experts, np.nan)
    shapes = np.full_like(at.log_shapes, np.nan)
    mixture = combination.mixture
    if mixture.design.intercept or not mixture.gate.reads_covariates:
        gate[:, 0] = getattr(combination.gate_heterogeneity, name)[:, 0]
    coefficients = getattr(combination.heterogeneity, name)
    if coefficients.size == experts.size:  # symmetric coding of classes has more coefficients than free contrasts
        experts = coefficients.reshape(experts.shape)
    of_shapes = getattr(combination.shape_heterogeneity, name)
    if of_shapes.shape == shapes.shape:
        shapes = of_shapes
    return Parameters(gate, experts, shapes)

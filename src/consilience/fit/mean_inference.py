"""The mean of a mixture over rows, its derivative in the reported parameters, and errors by the delta method."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from consilience.fit.inference import LARGEST_ROUNDING, Inference, expert_part, part_in_words
from consilience.model import Mixture
from consilience.numerics.arrays import Array, IntArray, Mask


class Averages(NamedTuple):
    """Weighted sums of the mean over rows ``(G, m)``, and their derivative in the reported parameters ``(G, m, D)``."""

    values: Array
    gradient: Array

    def less(self, other: Averages, size: float = 1.0) -> Averages:
        """Return the difference to others, divided by ``size``."""
        return Averages((self.values - other.values) / size, (self.gradient - other.gradient) / size)


def mean_over_rows(mixture: Mixture, X: Array, weights: Array) -> Averages:
    """Compute ``Σ_i w_gi E[y | x_i]`` with its derivative.

    The mean is ``Σ_k π_k μ_k``. A gate coefficient ``α_k`` changes it by ``π_k (μ_k - Σ_l π_l μ_l) x̃``, the
    probability of a constant gate by ``μ_k``, and an expert's linear predictor by ``π_k ∂μ_k / ∂η``.

    Parameters
    ----------
    mixture : Mixture
        In the coordinates of the reported coefficients, as ``Fit.mixture``.
    X : (n, d) array
    weights : (G, n) array

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(50, n_features=2, random_state=0)
    >>> found = mean_over_rows(data.truth, data.X, np.full((1, 50), 1 / 50))
    >>> found.values.shape, found.gradient.shape, bool(np.isclose(found.values[0, 0], data.truth.mean(data.X).mean()))
    ((1, 1), (1, 1, 28), True)
    """
    gate, experts, first = mixture.gate, mixture.experts, 0
    values, gradient = np.zeros(()), np.zeros(())
    for panel, read in mixture.panels(X):
        n = panel.shape[1]
        w = weights[:, first : first + n]
        pi = np.broadcast_to(gate.evaluate(read)[1], (mixture.K, n))
        each = experts.mean(panel)  # (K, m, n)
        mean = np.einsum("kn,kmn->mn", pi, each)
        of_gate = (
            _sums("gn,kn,kmn,pn->gmkp", w, pi, each - mean, read)
            if gate.reads_covariates
            else _sums("gn,kmn->gmk", w, each)
        )
        of_experts = _sums("gn,kn,kmcn,pn->gmkcp", w, pi, experts.mean_slopes(panel), panel)
        of_shapes = _sums("gn,kn,kmsn->gmks", w, pi, experts.mean_shape_slopes(panel))
        parts = [part.reshape(*part.shape[:2], -1) for part in (of_gate, of_experts, of_shapes)]
        values, gradient = values + w @ mean.T, gradient + np.concatenate(parts, axis=2)
        first += n
    return Averages(values, gradient)


def _sums(indices: str, *factors: Array) -> Array:
    return np.asarray(np.einsum(indices, *factors, optimize=True))


class DeltaErrors(NamedTuple):
    """Standard errors ``(R,)``, their degrees of freedom, and the reason why each is withheld, empty if it is not."""

    se: Array
    degrees: Array
    withheld: list[str]


def delta_errors(inference: Inference, gradient: Array) -> DeltaErrors:
    """Compute the errors of functions of the reported parameters from their derivative ``(R, D)``.

    An error is withheld if the intervals of a part that the function depends on are, and missing if rounding makes up
    more than 1 % of its variance. Degrees of freedom are Satterthwaite's over gate and experts.
    """
    parts, hidden = parameter_parts(inference), hidden_parameters(inference)
    known = np.isfinite(inference.deviations())  # the others are fixed: not identified, or shapes at a bound
    J, V = np.where(known, gradient, 0.0), np.where(np.isfinite(inference.covariance), inference.covariance, 0.0)
    variance, size = _quadratic(J, V), _quadratic(np.abs(J), np.abs(V))
    silent = np.any(gradient[:, hidden] != 0, axis=1)
    sure = (variance > 0) & (np.finfo(float).eps * size <= LARGEST_ROUNDING * variance) & ~silent
    each = np.array([_quadratic(J[:, parts == k], V[np.ix_(parts == k, parts == k)]) for k in np.unique(parts)])
    degrees = inference.degrees_of_freedom().flat()
    least = np.array([degrees[parts == k].min() for k in np.unique(parts)])
    total, slack = each.sum(axis=0), np.sum(each**2 / least[:, None], axis=0)
    return DeltaErrors(
        np.where(sure, np.sqrt(np.maximum(variance, 0.0)), np.nan),
        np.divide(total**2, slack, out=np.full(len(J), np.inf), where=slack > 0),
        [reasons_of_parts(inference, parts[hidden & (row != 0)]) for row in gradient],
    )


def parameter_parts(inference: Inference) -> IntArray:
    """Return the expert of each reported parameter, ``(D,)``; -1 for the gate."""
    estimates = inference.estimates
    K = len(estimates.experts)
    own = [np.repeat(np.arange(K), part.size // K) for part in (estimates.experts, estimates.log_shapes)]
    return np.concatenate([np.full(estimates.gate.size, -1), *own])


def hidden_parameters(inference: Inference) -> Mask:
    """Mask of the identified parameters whose errors are withheld, ``(D,)``."""
    estimates, known = inference.estimates, np.isfinite(inference.deviations())
    shown = estimates.like(known)
    of_shapes = np.full(estimates.log_shapes.shape, "shapes" not in inference.withheld)
    of_gate = shown.gate if "gate" not in inference.withheld else np.zeros(estimates.gate.shape, dtype=bool)
    of_experts = shown.experts.copy()
    for k in range(len(of_experts)):
        if not inference.shows_expert(k):
            of_experts[k], of_shapes[k] = False, False
    free = np.ones(len(known), dtype=bool) if inference.identified is None else np.isfinite(inference.identified.flat())
    return np.asarray(free & ~np.concatenate([part.ravel() for part in (of_gate, of_experts, of_shapes)]))


def _quadratic(J: Array, V: Array) -> Array:
    return np.asarray(np.einsum("rd,de,re->r", J, V, J, optimize=True))


def reasons_of_parts(inference: Inference, parts: IntArray) -> str:
    """Return why experts ``parts``, -1 for the gate, have no intervals; empty for none."""
    found = {}
    for k in np.unique(parts):
        own = ["gate"] if k < 0 else ["experts", expert_part(int(k)), "shapes"]
        name = next((name for name in own if name in inference.withheld), own[0])
        found[part_in_words(name)] = inference.withheld.get(name, "its covariance is not known")
    return "; ".join(f"{name}: {reason}" for name, reason in found.items())

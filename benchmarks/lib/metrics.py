"""Metrics of a mixture: errors against the truth, predictions, clusters, density, and transport to another mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from consilience.errors import InvalidInputError
from consilience.fit.parameters import parameters
from consilience.model.mixture import Mixture, alignment
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, IntArray, kronecker

# ---------------------------------------------------------------- parameters


@dataclass(frozen=True)
class ParameterErrors:
    """Mean squared errors of the reported parameters, in raw coordinates.

    Parameters
    ----------
    gate : float
        Error of softmax coefficients that sum to zero over experts, or of the probabilities of a constant gate.
    experts : float
        Error of coefficients; for classes those that sum to zero over classes, or log odds for two classes.
    log_shapes : float
        Error of logarithms of shapes, such as variances; nan for families without.
    all : float
        Error over all of these numbers together.
    """

    gate: float
    experts: float
    log_shapes: float
    all: float


def parameter_errors(mixture: Mixture, truth: Mixture) -> ParameterErrors:
    """Compute mean squared errors of a mixture's parameters, with experts matched to those of the truth.

    Parameters
    ----------
    mixture, truth : Mixture
        Mixtures with equal numbers of experts, the same family and design, and the same type of gate.

    Raises
    ------
    InvalidInputError
        If the mixtures are not comparable.
    """
    _check_comparable(mixture, truth)
    truth = truth.raw()
    ours, theirs = parameters(mixture.raw().permuted(alignment(mixture, truth))), parameters(truth)
    gate = np.square(_centred(ours.gate, truth) - _centred(theirs.gate, truth)).ravel()
    experts = np.square(ours.experts - theirs.experts).ravel()
    log_shapes = np.square(ours.log_shapes - theirs.log_shapes).ravel()
    together = np.concatenate([gate, experts, log_shapes])
    return ParameterErrors(_mean(gate), _mean(experts), _mean(log_shapes), _mean(together))


def _check_comparable(mixture: Mixture, truth: Mixture) -> None:
    ours, theirs = _kind(mixture), _kind(truth)
    if ours != theirs:
        raise InvalidInputError(f"got {ours}; the truth has {theirs}; compare mixtures of one kind")


def _kind(mixture: Mixture) -> str:
    """Describe the properties that comparable mixtures share."""
    experts, design = mixture.experts, mixture.design
    predictors = f"{experts.channels} linear predictors of {design.p} coefficients (intercept: {design.intercept})"
    return f"{mixture.K} {experts.family} experts with {predictors} and a {mixture.gate.kind} gate"


def _centred(gate: Array, truth: Mixture) -> Array:
    """Centre gate coefficients to sum to zero over experts; return probabilities unchanged."""
    return gate - gate.mean(axis=0) if truth.gate.reads_covariates else gate


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")


# ---------------------------------------------------------------- predictions


def relative_prediction_error(mixture: Mixture, X: Array, Y: Array) -> float:
    """Compute the relative squared error ``Σ (y - ŷ)² / Σ y²`` with ``ŷ = E[y | x]``.

    Parameters
    ----------
    mixture : Mixture
    X : (n, d) array
    Y : (n, q) or (n,) array
        Real responses, or counts at exposure 1.

    Raises
    ------
    InvalidInputError
        If responses and predictions differ in shape, or responses are class codes.
    """
    predicted, observed = mixture.mean(X), Y.reshape(len(X), -1)
    if predicted.shape != observed.shape:
        raise InvalidInputError(
            f"Y: got {observed.shape[1]} columns, the mixture predicts {predicted.shape[1]}; "
            "the relative error is defined for real responses and counts, not for class codes"
        )
    return float(np.sum((observed - predicted) ** 2) / np.sum(observed**2))


# ---------------------------------------------------------------- clusters


def cluster_labels(mixture: Mixture, rows: Rows) -> IntArray:
    """Return the most probable expert of each row ``(n,)``, or group ``(G,)``, given its response."""
    labels: IntArray = mixture.responsibilities(rows).argmax(axis=1)
    return labels


# ---------------------------------------------------------------- density


def mean_log_likelihood(mixture: Mixture, rows: Rows) -> float:
    """Compute ``Σ w log p(y | x) / Σ w`` over rows; over groups the mean of each group's log density.

    Groups with positive weight count equally, as in the likelihood; row weights enter the density of their group. The
    result is nan if all weights are zero.
    """
    total = weight = 0.0
    for _, at in mixture.posteriors(rows):
        total += float(np.sum(at.log_density * at.mass))
        weight += float(np.sum(np.broadcast_to(at.mass, at.log_density.shape)))
    return total / weight if weight > 0 else float("nan")


def deficit_ratio(method: float, pooled: float, truth: float) -> float:
    """Compute the ratio of losses to the pooled fit, ``1 + (ll_pooled - ll_method) / (ll_truth - ll_pooled)``.

    1 is as good as the pooled fit, less is better; nan if the pooled fit is not below the truth, which needs more test
    rows.

    Parameters
    ----------
    method, pooled, truth : float
        Mean log-likelihoods (:func:`mean_log_likelihood`) on the same test rows.
    """
    loss = truth - pooled
    return 1 + (pooled - method) / loss if loss > 0 else float("nan")


# ---------------------------------------------------------------- transport
#
# The distance is the cost of moving one gate's mass to the other's experts, averaged over x. Exact transport has both
# gates as margins: at each x the mass π_k(x) is moved to experts with masses ρ_l(x). Relaxed transport has only the
# first margin, and each expert is assigned to the nearest one. The two differ by orders of magnitude for sharp gates.

NEGLIGIBLE = 1e-7
"""Tolerance of the linear program, below which probabilities count as zero."""


def relaxed_transport(mixture: Mixture, reference: Mixture, X: Array) -> float:
    """Compute ``E_x Σ_k π_k(x) min_l KL(f_k ‖ g_l)(x)`` over the rows of ``X (n, d)``, with only the first margin."""
    share, _, cost = _at(mixture, reference, X)
    return float(np.mean(np.sum(share * cost.min(axis=1), axis=0)))


def exact_transport(mixture: Mixture, reference: Mixture, X: Array) -> float:
    """Compute ``E_x min_P Σ_kl P_kl KL(f_k ‖ g_l)(x)`` with both gates as margins, by a linear program for each row."""
    share, target, cost = _at(mixture, reference, X)
    points = zip(share.T, target.T, cost.transpose(2, 0, 1), strict=True)
    return float(np.mean([exact_cost(a, b, c) for a, b, c in points]))


def exact_cost(share: Array, target: Array, cost: Array) -> float:
    """Compute ``min Σ_kl P_kl c_kl`` over ``P ≥ 0`` with margins ``share (K,)`` and ``target (L,)``."""
    K, L = cost.shape
    margins = np.vstack([kronecker(np.eye(K), np.ones((1, L))), kronecker(np.ones((1, K)), np.eye(L))])
    total, (share, target) = share.sum(), (np.where(m < NEGLIGIBLE * m.sum(), 0.0, m) for m in (share, target))
    even = np.concatenate([share / share.sum(), target / target.sum()])  # rounding must not make it infeasible
    done = linprog(cost.ravel(), A_eq=margins[:-1], b_eq=even[:-1])
    plan = np.asarray(done.x, dtype=np.float64)
    return float(total * (cost.ravel() @ plan))


def _at(mixture: Mixture, reference: Mixture, X: Array) -> tuple[Array, Array, Array]:
    """Return both gates ``(K, n)`` and ``(L, n)`` and the costs ``(K, L, n)``, in the coordinates of the first."""
    panel = mixture.design.panel(X)
    other = reference.in_coordinates_of(mixture)
    return mixture.gate_weights(X).T, reference.gate_weights(X).T, mixture.experts.divergence(other.experts, panel)

"""Metrics of a mixture: parameter errors against the truth, predictions, clusters and density on test data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from consilience.errors import InvalidInputError
from consilience.fit.parameters import parameters
from consilience.model.alignment import alignment
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, IntArray

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

    Examples
    --------
    >>> ParameterErrors(gate=0.1, experts=0.2, log_shapes=float("nan"), all=0.15).experts
    0.2
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

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> truth = soft(10, random_state=0).truth
    >>> shifted = Mixture(truth.design, truth.gate, truth.experts.moved(np.full(84, 0.1), np.zeros(4)))
    >>> errors = parameter_errors(shifted.permuted(np.array([2, 0, 3, 1])), truth)
    >>> round(errors.gate, 9), round(errors.experts, 9), round(errors.log_shapes, 9), round(errors.all, 5)
    (0.0, 0.01, 0.0, 0.00488)
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

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(1000, random_state=0)
    >>> relative_prediction_error(data.truth, data.X, data.truth.mean(data.X))
    0.0
    >>> 0 < relative_prediction_error(data.truth, data.X, data.y) < 1
    True
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
    """Return the most probable expert of each row ``(n,)``, or group ``(G,)``, given its response; ties to the first.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(1000, random_state=0)
    >>> labels = cluster_labels(data.truth, Rows(data.X, data.y[:, None]))
    >>> bool(adjusted_rand_index(labels, data.labels) > 0.8)
    True
    """
    labels: IntArray = mixture.responsibilities(rows).argmax(axis=1)
    return labels


def adjusted_rand_index(a: ArrayLike, b: ArrayLike) -> float:
    """Compute the adjusted Rand index of two labelings: 1 for equal partitions, 0 on average for random ones.

    ``(Σ_ij C(n_ij) - E) / (½ (A + B) - E)`` where ``C(n) = n (n - 1) / 2``, ``n_ij`` counts those labelled i and j,
    ``A = Σ_i C(n_i.)``, ``B = Σ_j C(n_.j)`` and ``E = A B / C(n)``.

    Parameters
    ----------
    a, b : (n,) arrays
        Labels of any type.

    References
    ----------
    L. Hubert and P. Arabie, Comparing partitions, Journal of Classification 2 (1985), 193-218.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], ["b", "b", "a", "a"])
    1.0
    >>> adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1])
    -0.5
    """
    one, two = (np.unique(np.asarray(labels), return_inverse=True)[1].ravel() for labels in (a, b))
    if len(one) != len(two):
        raise InvalidInputError(f"got {len(one)} and {len(two)} labels; expected equally many")
    both = one * (two.max(initial=0) + 1) + two
    together, A, B = (_pairs(np.unique(labels, return_counts=True)[1]) for labels in (both, one, two))
    pairs = _pairs(np.array([len(one)]))
    largest = (A + B) * pairs - 2 * A * B  # whole numbers: no rounding before the last division
    return 1.0 if largest == 0 else 2 * (together * pairs - A * B) / largest


def _pairs(counts: IntArray) -> int:
    """Compute ``Σ n (n - 1) / 2``."""
    return int(np.sum(counts * (counts - 1) // 2))


# ---------------------------------------------------------------- density


def mean_log_likelihood(mixture: Mixture, rows: Rows) -> float:
    """Compute ``Σ w log p(y | x) / Σ w`` over rows; over groups the mean of each group's log density.

    Groups with positive weight count equally, as in the likelihood; row weights enter the density of their group. The
    result is nan if all weights are zero.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(B=np.zeros((1, 1, 1)), covariance=np.ones((1, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    >>> rows = Rows(np.empty((2, 0)), np.array([[0.0], [2.0]]), weight=np.array([3.0, 1.0]))
    >>> round(mean_log_likelihood(mixture, rows), 3)  # -0.919 - ½ · ¼ · 2²
    -1.419
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

    Examples
    --------
    >>> deficit_ratio(method=-1.75, pooled=-1.5, truth=-1.0)
    1.5
    """
    loss = truth - pooled
    return 1 + (pooled - method) / loss if loss > 0 else float("nan")

"""Parameters as people read them: raw coordinates, all experts alike, log variances; and their derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from consilience.model.families.covariance import basis
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.gates import ConstantGate, SoftmaxGate
from consilience.model.information import coefficient_slice, gate_slice, shape_slice
from consilience.model.mixture import Mixture
from consilience.model.multinomial import centred
from consilience.numerics.arrays import Array, IntArray, kronecker


@dataclass(frozen=True, eq=False)
class Parameters:
    """One number per parameter a person reads: estimates, standard errors, or bounds of intervals.

    Parameters
    ----------
    gate : (K, p) array
        Softmax coefficients, summing to zero over experts; ``(K, 1)`` probabilities for a constant gate.
    experts : (K, c, p) array
        Coefficients per response; per class (``c = C``, summing to zero), or log odds (``c = 1``) for two classes.
    log_variances : (K, q) array
        Of Gaussian experts; ``q = 0`` for others.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> read = parameters(soft(10, random_state=0).truth)
    >>> read.gate.shape, read.experts.shape, read.log_variances.shape, read.flat().shape
    ((4, 21), (4, 1, 21), (4, 1), (172,))
    """

    gate: Array
    experts: Array
    log_variances: Array

    def flat(self) -> Array:
        """All numbers in one array: gate, experts, log variances."""
        return np.concatenate([self.gate.ravel(), self.experts.ravel(), self.log_variances.ravel()])

    def like(self, flat: Array) -> Parameters:
        """Another set of numbers in the same shapes."""
        cuts = np.cumsum([self.gate.size, self.experts.size])
        gate, experts, log_variances = np.split(flat, cuts)
        return Parameters(
            gate.reshape(self.gate.shape),
            experts.reshape(self.experts.shape),
            log_variances.reshape(self.log_variances.shape),
        )


def parameters(mixture: Mixture) -> Parameters:
    """The parameters of a mixture, in raw coordinates."""
    raw = mixture.raw()
    gate = raw.gate.alpha if isinstance(raw.gate, SoftmaxGate) else raw.gate.probabilities[:, None]
    experts = raw.experts
    if isinstance(experts, GaussianExperts):
        return Parameters(gate, experts.B, np.log(experts.variances))
    free = experts.free_coefficients().reshape(raw.K, experts.channels, -1)
    return Parameters(
        gate, np.einsum("cf,kfp->kcp", _class_map(experts.channels, experts.family), free), np.empty((raw.K, 0))
    )


def _class_map(channels: int, family: str) -> Array:
    """From contrasts against the last class to what is read: log odds for two classes, else centred coefficients."""
    if family != "categorical":
        return np.eye(channels)
    return -np.eye(1) if channels == 1 else centred(np.eye(channels))


def jacobian(mixture: Mixture, order: IntArray) -> Array:
    """Derivative of the read parameters of ``mixture.permuted(order)`` by the free parameters of ``mixture``.

    Returns
    -------
    (D, P) array
    """
    T, K = mixture.design.to_raw(), mixture.K
    if isinstance(mixture.gate, ConstantGate):
        pi = mixture.gate.probabilities
        gate = (np.diag(pi) - np.outer(pi, pi))[:, :-1]
    else:
        gate = kronecker(centred(np.eye(K - 1)) if K > 1 else np.zeros((1, 0)), T)
    per_class = _class_map(mixture.experts.channels, mixture.experts.family)
    experts = kronecker(np.eye(K), kronecker(per_class, T))
    shapes = _log_variance_map(mixture)
    D = np.zeros((len(gate) + len(experts) + len(shapes), mixture.parameter_count))
    stacked = block_diag(gate, experts, shapes)
    columns = np.concatenate(
        [np.arange(s.start, s.stop) for s in (gate_slice(mixture), coefficient_slice(mixture), shape_slice(mixture))]
    )
    D[:, columns] = stacked
    sizes = (len(gate), len(experts), len(shapes))
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rows = [o + np.arange(size).reshape(K, -1)[order].ravel() for o, size in zip(offsets, sizes, strict=True)]
    permuted: Array = D[np.concatenate(rows)]
    return permuted


def _log_variance_map(mixture: Mixture) -> Array:
    """``∂ log Σ_k,jj / ∂ shapes``, ``(K q, shape_parameters)``."""
    experts = mixture.experts
    if not isinstance(experts, GaussianExperts):
        return np.zeros((0, 0))
    L, _ = experts.factors
    moves = np.einsum("kja,bac,kjc->kjb", L, basis(experts.structure, experts.q), L)  # (K, q, m)
    relative = moves / experts.variances[:, :, None]
    return np.asarray(block_diag(*relative) @ experts.tie(), dtype=np.float64)

"""Reported parameters (raw coordinates, symmetric coding, log shapes) and their derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from consilience.model import Mixture
from consilience.model.information import coefficient_slice, gate_slice, shape_slice
from consilience.numerics.arrays import Array, IntArray, kronecker


@dataclass(frozen=True, eq=False)
class Parameters:
    """One number per reported parameter: estimates, standard errors, or interval bounds.

    Parameters
    ----------
    gate : (K, p) array
        Softmax coefficients, summing to zero over experts; ``(K, 1)`` probabilities for a constant gate.
    experts : (K, c, p) array
        Coefficients per response; per class (``c = C``, summing to zero), or log odds (``c = 1``) for two classes.
    log_shapes : (K, s) array
        Logarithms of the family's shapes, such as variances; ``s = 0`` for families without.

    Examples
    --------
    >>> from consilience.fit.parameters import parameters
    >>> from consilience.datasets import soft
    >>> read = parameters(soft(10, random_state=0).truth)
    >>> read.gate.shape, read.experts.shape, read.log_shapes.shape, read.flat().shape
    ((4, 21), (4, 1, 21), (4, 1), (172,))
    """

    gate: Array
    experts: Array
    log_shapes: Array

    def flat(self) -> Array:
        """Return all numbers in one array: gate, experts, log shapes."""
        return np.concatenate([self.gate.ravel(), self.experts.ravel(), self.log_shapes.ravel()])

    def like(self, flat: Array) -> Parameters:
        """Return other numbers in the same shapes."""
        cuts = np.cumsum([self.gate.size, self.experts.size])
        gate, experts, log_shapes = np.split(flat, cuts)
        return Parameters(
            gate.reshape(self.gate.shape),
            experts.reshape(self.experts.shape),
            log_shapes.reshape(self.log_shapes.shape),
        )


def parameters(mixture: Mixture) -> Parameters:
    """Return the parameters of a mixture, in raw coordinates."""
    raw = mixture.raw()
    free = raw.experts.free_coefficients().reshape(raw.K, raw.experts.channels, -1)
    read = np.einsum("cf,kfp->kcp", raw.experts.coefficient_map(), free)
    return Parameters(raw.gate.read(), read, raw.experts.log_shapes())


def identification_mask(mixture: Mixture) -> Parameters:
    """Return 1 for each reported parameter, and NaN for coefficients of covariates that the design does not read."""
    reported = parameters(mixture)
    ones = reported.like(np.ones(len(reported.flat())))
    ones.experts[:, :, [j + mixture.design.intercept for j in mixture.design.unread]] = np.nan
    if mixture.gate.reads_covariates:
        ones.gate[:, [j + mixture.reads.intercept for j in mixture.reads.unread]] = np.nan
    return ones


def jacobian(mixture: Mixture, permutation: IntArray) -> Array:
    """Compute the derivative of the reported parameters of ``mixture.permuted(permutation)`` by those of ``mixture``.

    Returns
    -------
    (D, P) array
    """
    return _jacobian(mixture, permutation, mixture.reads.to_raw(), mixture.design.to_raw())


def coded_jacobian(mixture: Mixture, permutation: IntArray) -> Array:
    """Compute the derivative of the parameters as reported, but on the design of ``mixture``, ``(D', P)``."""
    return _jacobian(mixture, permutation, np.eye(mixture.reads.p), np.eye(mixture.design.p))


def to_raw(mixture: Mixture, coded: Array) -> Array:
    """Return rows ``(D', ·)`` for parameters on the design of ``mixture`` as rows ``(D, ·)`` for the reported ones."""
    K, c, p = mixture.K, len(mixture.experts.coefficient_map()), mixture.design.p
    width = mixture.reads.p if mixture.gate.reads_covariates else 1
    T_gate = mixture.reads.to_raw() if mixture.gate.reads_covariates else np.eye(1)
    gate, experts, shapes = np.split(coded, np.cumsum([K * width, K * c * p]))
    parts = [
        T @ part.reshape(number, T.shape[1], coded.shape[1])
        for number, T, part in ((K, T_gate, gate), (K * c, mixture.design.to_raw(), experts))
    ]
    P = coded.shape[1]
    return np.concatenate([*(part.reshape(part.shape[0] * part.shape[1], P) for part in parts), shapes])


def _jacobian(mixture: Mixture, permutation: IntArray, T_gate: Array, T: Array) -> Array:
    """Compute the derivative of the parameters in the reported coding after maps of the coefficients."""
    K = mixture.K
    gate = mixture.gate.read_jacobian(T_gate)
    experts = kronecker(np.eye(K), kronecker(mixture.experts.coefficient_map(), T))
    shapes = mixture.experts.log_shapes_jacobian()
    D = np.zeros((len(gate) + len(experts) + len(shapes), mixture.parameter_count))
    places = (gate_slice(mixture), coefficient_slice(mixture), shape_slice(mixture))
    columns = np.concatenate([np.arange(each.start, each.stop) for each in places])
    D[:, columns] = block_diag(gate, experts, shapes)
    sizes = (len(gate), len(experts), len(shapes))
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rows = [o + np.arange(size).reshape(K, -1)[permutation].ravel() for o, size in zip(offsets, sizes, strict=True)]
    return np.asarray(D[np.concatenate(rows)])

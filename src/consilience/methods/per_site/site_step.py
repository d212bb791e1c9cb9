"""A site's M-step and its covariance, from its statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.aggregate.robust.estimate import Estimate
from consilience.fit.inference import inverse_information, reasons
from consilience.model.alignment import alignment
from consilience.model.information import coefficient_slice, complete_information, gate_slice
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import solve_symmetric

UNKNOWN_LABELS = 1.25
"""Factor for unknown labels on the complete-data covariance, if the observed information cannot be used."""


def estimated(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Estimate:
    """Compute a site's M-step and the covariance of its coefficients, from its statistics at ``stand``.

    Permuted expert labels are matched back to those of ``stand``.
    """
    statistics = _in_labels_asked(stand, statistics, penalty)
    inverse = inverse_information(stand, statistics, penalty)
    return Estimate(
        _stepped(stand, statistics, penalty),
        statistics.gate.plain[: stand.K],
        _covariances(stand, statistics, inverse),
        _slopes(stand, statistics, penalty, inverse),
    )


def _in_labels_asked(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Statistics:
    """Permute the statistics to the labels of the question, if the gate is constant."""
    if stand.gate.reads_covariates:
        return statistics
    permutation = alignment(stand.maximise(statistics, penalty), stand)
    if np.array_equal(permutation, np.arange(stand.K)):
        return statistics
    moments = stand.experts.relabelled(statistics.experts, permutation)
    if moments is None:
        return statistics
    return replace(statistics, experts=moments, gate=replace(statistics.gate, plain=statistics.gate.plain[permutation]))


def _stepped(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Mixture:
    """Compute the site's M-step, with variances of the residuals at ``stand``.

    Residuals at the new coefficients would be too small, because these are fitted to the rows and shrunk afterwards.
    """
    own = stand.maximise(statistics, penalty)
    shapes = stand.experts.shapes_at(statistics.experts, penalty)
    return replace(own, experts=own.experts.with_shape_values(shapes))


def _covariances(stand: Mixture, statistics: Statistics, inverse: Array | None) -> Array:
    """Compute the covariances of coefficients ``(K, f, f)``, from the observed or the complete-data information."""
    at, K = coefficient_slice(stand), stand.K
    f = (at.stop - at.start) // K
    if inverse is None:
        complete = complete_information(stand, statistics)[at, at].reshape(K, f, K, f)
        return np.array([UNKNOWN_LABELS * solve_symmetric(complete[k, :, k], np.eye(f))[0] for k in range(K)])
    own = inverse[at, at].reshape(K, f, K, f)
    return np.array([own[k, :, k] for k in range(K)])


def _slopes(stand: Mixture, statistics: Statistics, penalty: Penalty, inverse: Array | None) -> Array | None:
    """Return the covariance of the gate's free slopes, or None if its intervals would be withheld."""
    if inverse is None or not stand.gate.reads_covariates or stand.K == 1:
        return None
    if "gate" in reasons(stand, statistics, penalty, inverse, 0.0):
        return None
    gate, p, first = gate_slice(stand), stand.design.p, int(stand.design.intercept)
    places = np.arange(gate.start, gate.stop).reshape(stand.K - 1, p)[:, first:].ravel()
    return np.asarray(inverse[np.ix_(places, places)])

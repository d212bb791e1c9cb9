"""One site's step from where it stood, and how sure it is: what its answer to a question about its mixture says."""

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
"""What not knowing the labels adds to the variance of coefficients, where the observed information is of no use."""


def estimated(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Estimate:
    """One site's step from where it stood, with the covariance of its coefficients.

    A site that calls its experts otherwise than it was asked is understood: labels are those nearest to where it stood.
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
    """The statistics under the labels of the question, where constant gates let them be exchanged."""
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
    """The site's own M-step, but variances of residuals from where it stood.

    Residuals from its own step would be too small: coefficients that are then drawn back were fitted to them.
    """
    own = stand.maximise(statistics, penalty)
    shapes = stand.experts.shapes_at(statistics.experts, penalty)
    return replace(own, experts=own.experts.with_shape_values(shapes))


def _covariances(stand: Mixture, statistics: Statistics, inverse: Array | None) -> Array:
    """Of each expert's coefficients ``(K, f, f)``: from the observed information, else of known labels, made wider."""
    at, K = coefficient_slice(stand), stand.K
    f = (at.stop - at.start) // K
    if inverse is None:
        complete = complete_information(stand, statistics)[at, at].reshape(K, f, K, f)
        return np.array([UNKNOWN_LABELS * solve_symmetric(complete[k, :, k], np.eye(f))[0] for k in range(K)])
    own = inverse[at, at].reshape(K, f, K, f)
    return np.array([own[k, :, k] for k in range(K)])


def _slopes(stand: Mixture, statistics: Statistics, penalty: Penalty, inverse: Array | None) -> Array | None:
    """Covariance of the gate's free slopes, or None where intervals would be withheld."""
    if inverse is None or not stand.gate.reads_covariates or stand.K == 1:
        return None
    if "gate" in reasons(stand, statistics, penalty, inverse, 0.0):
        return None
    gate, p, first = gate_slice(stand), stand.design.p, int(stand.design.intercept)
    places = np.arange(gate.start, gate.stop).reshape(stand.K - 1, p)[:, first:].ravel()
    return np.asarray(inverse[np.ix_(places, places)])

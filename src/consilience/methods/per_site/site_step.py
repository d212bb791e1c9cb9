"""A site's M-step and its covariance, from its statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.robust.estimate import Estimate
from consilience.fit.inference import inverse_information
from consilience.model.alignment import alignment
from consilience.model.information import (
    coefficient_slice,
    complete_information,
    free_parameters,
    gate_slice,
    ridge,
    score,
)
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.linalg import inverse_bounded

UNKNOWN_LABELS = 1.25
"""Factor for unknown labels on the complete-data covariance, if the observed information cannot be used."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """Inverse observed information of a site at one of its mixtures, for this pass and for later ones without it."""

    inverse: Array  # (P, P)
    label_counts: Array  # (K,)


def curvature(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Curvature | None:
    """Return the inverse of the observed information, or None if the statistics have none that is positive definite."""
    inverse = inverse_information(stand, statistics, penalty)
    return None if inverse is None else Curvature(inverse, statistics.gate.plain[: stand.K])


def estimated(stand: Mixture, statistics: Statistics, penalty: Penalty, known: Curvature | None) -> Estimate:
    """Compute a site's M-step and the covariance of its coefficients, from its statistics at ``stand``.

    Permuted expert labels are matched back to those of ``stand``. ``known`` is the curvature of this pass, or of an
    earlier one, whose covariances are rescaled to the present numbers of rows.
    """
    asked = statistics
    statistics = _in_labels_asked(stand, statistics, penalty)
    labels = statistics.gate.plain[: stand.K]
    step, complete = _stepped(stand, statistics, penalty), _complete(stand, statistics)
    if known is None:
        covariance, lost = _bounded(complete)
        slopes = _slopes_information(stand, statistics, penalty)
        of_slopes = None if slopes is None else UNKNOWN_LABELS * inverse_bounded(slopes)[0]
        return Estimate(step, labels, UNKNOWN_LABELS * covariance, of_slopes, None, complete, lost, None, slopes)
    at, K = coefficient_slice(stand), stand.K
    f = (at.stop - at.start) // K
    own = known.inverse[at, at].reshape(K, f, K, f)
    times = np.maximum(known.label_counts, 1.0) / np.maximum(labels, 1.0)
    covariance, lost = _bounded(np.array([np.linalg.inv(own[k, :, k]) for k in range(K)]))
    direction = np.zeros(stand.parameter_count)
    if statistics is asked:
        gradient = score(stand, statistics) - ridge(stand, penalty) @ free_parameters(stand)
        direction = known.inverse @ gradient
    places = _slope_places(stand)
    return Estimate(
        step,
        labels,
        times[:, None, None] * covariance,
        known.inverse[np.ix_(places, places)] if len(places) else None,
        stand.coefficients + direction[at].reshape(K, -1) if statistics is asked else None,
        complete,
        lost,
        free_parameters(stand)[places] + direction[places] if len(places) else None,
        _slopes_information(stand, statistics, penalty),
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


def _complete(stand: Mixture, statistics: Statistics) -> Array:
    """Return the complete-data information of each expert's coefficients, ``(K, f, f)``."""
    at, K = coefficient_slice(stand), stand.K
    complete = complete_information(stand, statistics)[at, at].reshape(K, -1, K, (at.stop - at.start) // K)
    return np.array([complete[k, :, k] for k in range(K)])


def _bounded(information: Array) -> tuple[Array, int]:
    """Invert ``(K, f, f)``; return also the number of directions that the rows do not determine."""
    found = [inverse_bounded(own) for own in information]
    return np.array([inverse for inverse, _ in found]), sum(lost for _, lost in found)


def _slope_places(stand: Mixture) -> IntArray:
    """Return the positions of the gate's free slopes among the free parameters."""
    if not stand.gate.reads_covariates or stand.K == 1:
        return np.zeros(0, dtype=np.intp)
    gate, p, first = gate_slice(stand), stand.reads.p, int(stand.design.intercept)
    return np.arange(gate.start, gate.stop).reshape(stand.K - 1, p)[:, first:].ravel()


def _slopes_information(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Array | None:
    """Return the complete-data information of the gate's free slopes, its intercepts estimated."""
    places, gate = _slope_places(stand), gate_slice(stand)
    if not len(places):
        return None
    complete = (complete_information(stand, statistics) + ridge(stand, penalty))[gate, gate]
    at = places - gate.start
    rest = np.setdiff1d(np.arange(gate.stop - gate.start), at)
    found: Array = complete[np.ix_(at, at)]
    if len(rest):
        across = complete[np.ix_(rest, at)]
        found = found - across.T @ inverse_bounded(complete[np.ix_(rest, rest)])[0] @ across
    return found

"""Match the experts of two mixtures: labels are arbitrary, so mixtures are aligned before they are compared."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from consilience.model.mixture import Mixture
from consilience.numerics.arrays import IntArray


def alignment(mixture: Mixture, reference: Mixture) -> IntArray:
    """Return the order for which ``mixture.permuted(permutation)`` is closest to ``reference``, by optimal assignment.

    Distance: squared difference of expert coefficients in the coordinates of the reference's design.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(B=np.array([[[0.0]], [[5.0]]]), covariance=np.ones((2, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.3, 0.7])), experts)
    >>> alignment(mixture.permuted(np.array([1, 0])), mixture)
    array([1, 0])
    """
    ours, theirs = mixture.in_coordinates(reference.design).coefficients, reference.coefficients
    cost = np.sum((ours[:, None] - theirs) ** 2, axis=2)
    ours_at, theirs_at = linear_sum_assignment(cost)
    permutation: IntArray = ours_at[np.argsort(theirs_at)]
    return permutation

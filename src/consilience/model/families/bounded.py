"""Shape parameters between two bounds: experts at a bound keep their shape until the score leads back inside.

A likelihood may increase up to a limit of its family: Student's t up to the normal distribution, the negative binomial
up to the Poisson. The shape then ends at its bound. There its score and its information are those of a parameter that
does not move, so that Newton steps and standard errors of the other parameters are those of the limiting family.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import polygamma

from consilience.numerics.arrays import Array, Mask


@dataclass(frozen=True)
class Bounds:
    """Bounds of a positive shape, whose logarithm is the free parameter.

    Parameters
    ----------
    least, most : float
    longest : float
        Largest change of the logarithm in one Newton step, so that no step jumps over a maximum to a bound.

    Examples
    --------
    >>> bounds = Bounds(2.0, 100.0, longest=1.0)
    >>> bounds.moved(np.array([10.0, 90.0]), np.array([0.0, 5.0]))
    array([ 10., 100.])
    >>> bounds.reached(np.array([10.0, 100.0]))
    array([False,  True])
    """

    least: float
    most: float
    longest: float

    def clipped(self, shape: Array) -> Array:
        """Return the shapes within their bounds."""
        return np.clip(shape, self.least, self.most)

    def moved(self, shape: Array, change: Array) -> Array:
        """Add ``change`` to the logarithms, no more than ``longest``, within the bounds."""
        return self.clipped(shape * np.exp(np.clip(change, -self.longest, self.longest)))

    def reached(self, shape: Array) -> Mask:
        """Mask of the shapes at a bound."""
        at: Mask = (shape <= self.least) | (shape >= self.most)
        return at

    def inward(self, shape: Array, score: Array) -> Array:
        """Return the scores ``(K,)`` of the log shapes; 0 at a bound beyond which the likelihood still increases."""
        outward = ((shape <= self.least) & (score < 0)) | ((shape >= self.most) & (score > 0))
        return np.where(outward, 0.0, score)

    def held(self, shape: Array, J: Array, information: Array) -> Array:
        """Return ``J (K, f, f)`` with ``information (K,)`` on the last parameter of experts at a bound."""
        at = self.reached(shape)
        J[at, -1, :] = J[at, :, -1] = 0.0
        J[at, -1, -1] = information[at]
        return J


def latent_information(k: Array) -> Array:
    """Compute the information on ``log k`` of one draw from a Gamma distribution with shape ``k`` and mean 1.

    Examples
    --------
    >>> latent_information(np.array([1e4])).round(3)
    array([0.5])
    """
    information: Array = k**2 * polygamma(1, k) - k
    return information

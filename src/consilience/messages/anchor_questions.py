"""Questions of moment descent: sizes of clients, steps of a few of them, and local steps of all."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array


@dataclass(frozen=True)
class Sizes:
    """Asks how many rows each client has: ``ClientSizes``.

    Examples
    --------
    >>> Sizes().disclosed
    'for each client its number of rows'
    """

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        return "for each client its number of rows"


@dataclass(frozen=True, eq=False)
class Anchors:
    """Asks some clients of a site in which direction their coefficients lie, and how far: ``AnchorSteps``.

    Parameters
    ----------
    design : Design
    places : tuple of int, (A,)
        Of the anchors, in the order of the site's clients.
    theta : (A, p) array
        Coefficients from which each takes its residuals.
    basis : (A, p, f) array
        The subspace in which each looks.

    Examples
    --------
    >>> import numpy as np
    >>> Anchors(Design.raw(2), (4,), np.zeros((1, 3)), np.eye(3)[None, :, :2]).basis.shape
    (1, 3, 2)
    """

    design: Design
    places: tuple[int, ...]
    theta: Array
    basis: Array

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        A, _, f = self.basis.shape
        return f"for each of {A} clients {f} numbers, the mean of residuals times x in {f} directions"


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Asks clients to pick a regression and to improve it on their own rows: ``ClusterSums``.

    Parameters
    ----------
    mixture : Mixture
        The regressions of all clusters; shares and variances are for the log-likelihood alone.
    steps : int
        Gradient steps of each client.
    rate : float
        Their length.
    prox : bool
        One proximal step in their place.

    Examples
    --------
    >>> from consilience.datasets import clients
    >>> LocalSteps(clients([5], n_features=2, random_state=0).truth, steps=5, rate=0.1).prox
    False
    """

    mixture: Mixture
    steps: int
    rate: float
    prox: bool = False

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        return (
            f"for each of {self.mixture.K} clusters the sum over its clients of how far their coefficients moved, "
            "their number, rows and squared residuals; the log-likelihood"
        )

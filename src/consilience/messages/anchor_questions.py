"""Questions of moment descent: sizes of clients, steps of anchor clients, and local steps of all clients."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array


@dataclass(frozen=True)
class Sizes:
    """Ask for the number of rows of each client: ``ClientSizes``.

    Examples
    --------
    >>> Sizes().disclosed
    'the number of rows of each client'
    """

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return "the number of rows of each client"


@dataclass(frozen=True, eq=False)
class Anchors:
    """Ask some clients of a site for a step towards their coefficients, within a subspace: ``AnchorSteps``.

    Parameters
    ----------
    design : Design
    places : tuple of int, (A,)
        Indices of the anchors among the site's clients.
    theta : (A, p) array
        Coefficients at which each anchor computes its residuals.
    basis : (A, p, f) array
        Basis of the subspace of each anchor's step.

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
        """Return a description of what an answer discloses."""
        A, _, f = self.basis.shape
        return f"for each of {A} clients, {f} numbers: an estimate of the mean of residual times x in {f} directions"


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Ask each client to select a regression and to update it on its own rows: ``ClusterSums``.

    Parameters
    ----------
    mixture : Mixture
        The regressions of all clusters; weights and variances are used for the log-likelihood only.
    steps : int
        Number of gradient steps of each client.
    rate : float
        Step length.
    prox : bool
        Whether to take one proximal step instead of gradient steps.

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
        """Return a description of what an answer discloses."""
        return (
            f"for each of {self.mixture.K} clusters, sums over its clients of the changes of their coefficients and of "
            "their squared residuals, and the numbers of clients and rows; the log-likelihood"
        )

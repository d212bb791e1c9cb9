"""Questions about clients: groups of rows with one label, a site that has no groups being one client."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.model.design import Design
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Pairs:
    """Asks for products of residual vectors of pairs of rows of one client, over all clients: a ``PairSums``.

    Parameters
    ----------
    design : Design
    theta : (p,) array
        Coefficients from which residuals are taken.
    basis : (p, K) array or None
        With a basis, the sum times the basis: ``p K`` numbers in place of ``p²``.

    Examples
    --------
    >>> import numpy as np
    >>> Pairs(Design.raw(2), np.zeros(3)).basis is None
    True
    """

    design: Design
    theta: Array
    basis: Array | None = None

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        times = "" if self.basis is None else f", times a basis of {self.basis.shape[1]} directions"
        return f"a sum over clients of products of residuals times x over pairs of a client's rows{times}"


@dataclass(frozen=True, eq=False)
class Clients:
    """Asks for the moments of each client, in all coefficients or in the directions of a basis: ``ClientMoments``.

    Parameters
    ----------
    design : Design
    theta : (p,) array
        Coefficients from which residuals are taken.
    basis : (p, f) array or None

    Examples
    --------
    >>> import numpy as np
    >>> Clients(Design.raw(2), np.zeros(3), np.eye(3)[:, :1]).basis.shape
    (3, 1)
    """

    design: Design
    theta: Array
    basis: Array | None = None

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        f = self.design.p if self.basis is None else self.basis.shape[1]
        of = "covariates" if self.basis is None else "combinations of covariates"
        return (
            f"for each client its number of rows, the sum of squared residuals, and the second moments of {f} {of} "
            "with each other and with residuals"
        )

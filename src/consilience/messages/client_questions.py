"""Questions about clients: groups of rows with one label. A site without groups is one client."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.model.design import Design
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Pairs:
    """Ask for the sum over clients of products of residual vectors of pairs of rows: ``PairSums``.

    Parameters
    ----------
    design : Design
    theta : (p,) array
        Coefficients at which residuals are computed.
    basis : (p, K) array or None
        If given, the answer is the sum times the basis: ``p K`` numbers instead of ``p²``.

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
        """Return a description of what an answer discloses."""
        times = "" if self.basis is None else f", times a basis of {self.basis.shape[1]} directions"
        return f"the sum over clients and pairs of a client's rows of products of residual times x{times}"


@dataclass(frozen=True, eq=False)
class Clients:
    """Ask for the moments of each client, in all coefficients or in the directions of a basis: ``ClientMoments``.

    Parameters
    ----------
    design : Design
    theta : (p,) array
        Coefficients at which residuals are computed.
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
        """Return a description of what an answer discloses."""
        f = self.design.p if self.basis is None else self.basis.shape[1]
        of = "covariates" if self.basis is None else "combinations of covariates"
        return (
            f"for each client, its number of rows, the sum of squared residuals, and the second moments of {f} {of} "
            "with each other and with residuals"
        )

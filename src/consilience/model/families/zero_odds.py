"""Counts with zeros of another kind: log-linear regressions whose experts share the odds of such a zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from consilience.model.families.base import Bounds, MessageFields, Options
from consilience.model.families.glm import CountExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array

ODDS = Bounds(1e-6, 1e6, longest=2.0)
"""Range of the odds of a zero of the other kind: at the most every count is 0."""


@dataclass(frozen=True, eq=False)
class ZeroOddsExperts(CountExperts):
    """Poisson experts with odds ``ω`` of a zero of another kind, the same for all experts.

    The free shape is ``log ω``, kept between ``log 1e-6`` and ``log 1e6``; ``π = ω / (1 + ω)`` is the share of such
    zeros. Which expert one of them belongs to is not identified, hence one share for all.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate of the Poisson counts, intercept first.
    omega : (K,) array
        Odds ``ω``, positive and all equal.
    """

    omega: Array

    message_fields: ClassVar[MessageFields] = {"B": (2,), "omega": (1,)}

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts with rate 1 and one zero of the other kind in five."""
        return cls(np.zeros((K, p)), np.full(K, 0.25))

    @property
    def shapes(self) -> int:
        """Number of shapes per expert: one."""
        return 1

    @property
    def shape_parameters(self) -> int:
        """One: the log odds of all experts."""
        return 1

    def tie(self) -> Array:
        """Return the matrix ``(K, 1)`` from the common log odds to those of each expert."""
        return np.ones((self.K, 1))

    @property
    def ties_shapes(self) -> bool:
        """Whether all experts share one shape: always."""
        return True

    @property
    def share(self) -> Array:
        """Probability ``π`` of a zero of the other kind, ``(K,)``."""
        return self.omega / (1 + self.omega)

    @property
    def counts(self) -> PoissonExperts:
        """The Poisson counts with the same rates."""
        return PoissonExperts(self.B)

    def invalid(self) -> str:
        """Return the reason why coefficients and odds are not valid; empty if they are."""
        inside = np.array_equal(self.omega, ODDS.clipped(self.omega))
        return super().invalid() or ("" if inside else f"the {self.shape_name} are out of range")

    def with_share(self, share: float) -> Self:
        """Return the experts with the odds of this share of zeros."""
        return replace(self, omega=np.full(self.K, ODDS.clipped(np.array(share / max(1 - share, 1e-9)))))

    # ------------------------------------------------------------------ derivatives

    def inward_score(self, each: Array) -> Array:
        """Return the scores ``(K, 1)`` of the log odds: 0 if their sum leads out of the bounds."""
        inward = ODDS.inward(self.omega, np.full(self.K, each.sum())) != 0
        return np.where(inward, each, 0.0)[:, None]

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the coefficients and ``shapes`` to the log odds."""
        B = self.B + coefficients.reshape(self.B.shape)
        return replace(self, B=B, omega=ODDS.moved(self.omega, shapes.ravel()))

    # ------------------------------------------------------------------ reported parameters

    def log_shapes(self) -> Array:
        """Return log odds, ``(K, 1)``."""
        return np.log(self.omega)[:, None]

    def log_shapes_jacobian(self) -> Array:
        """Return 1; NaN for odds at a bound, which have no standard error."""
        return np.where(ODDS.reached(self.omega), np.nan, 1.0)[:, None]

    def mean_shape_slopes(self, panel: Array) -> Array:
        """Compute the derivative of the mean ``(1 - π) m`` in ``log ω``, ``-π`` times the mean, ``(K, 1, 1, n)``."""
        return np.asarray(-self.share[:, None, None, None] * self.mean(panel)[:, :, None])

    def attributes(self) -> dict[str, Array]:
        """Return the shares of zeros of the other kind, ``(K,)``."""
        return {"zero_shares_": self.share}

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return log odds ``(K, 1)``."""
        return self.log_shapes()

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these log odds."""
        return replace(self, omega=ODDS.clipped(np.exp(np.clip(values[:, 0], -50, 50))))

"""Which mixture to fit: the fixed problem, apart from the moving parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from consilience.fit.summary import ColumnSummary
from consilience.model.families import covariance as cov
from consilience.model.families.base import Experts
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.covariance import Structure
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.gates import ConstantGate, Gate, SoftmaxGate
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array

Family = Literal["gaussian", "categorical", "poisson"]
GateKind = Literal["softmax", "constant"]


@dataclass(frozen=True)
class Specification:
    """The mixture to fit and its penalties.

    Parameters
    ----------
    K : int
        Number of experts.
    family : {"gaussian", "categorical", "poisson"}
    gate : {"softmax", "constant"}
    structure : {"full", "diag", "spherical", "tied"}
        Covariance structure of Gaussian experts.
    n_classes : int
        Classes of categorical experts.
    intercept : bool
    gate_ridge, expert_ridge : float
        Total ridges on slopes, in standardised coordinates.
    reg_covar : float
        Variance floor as a fraction of the responses' covariance.

    Examples
    --------
    >>> Specification(K=3).family
    'gaussian'
    """

    K: int
    family: Family = "gaussian"
    gate: GateKind = "softmax"
    structure: Structure = "full"
    n_classes: int = 2
    intercept: bool = True
    gate_ridge: float = 1e-3
    expert_ridge: float = 1e-3
    reg_covar: float = 1e-6

    def with_order(self, K: int) -> Specification:
        """The same problem with another number of experts."""
        return replace(self, K=K)

    def penalty(self, summary: ColumnSummary) -> Penalty:
        """Ridges and variance floor for data with this summary."""
        floor = summary.floor(self.reg_covar) if self.family == "gaussian" else np.zeros((1, 1))
        return Penalty(self.gate_ridge, self.expert_ridge, floor)

    @property
    def needs_covariates(self) -> bool:
        """Whether fits are combined on points of the covariates: a gate reads them, or experts have no moments."""
        return self.gate == "softmax" or self.family != "gaussian"

    def blank(self, summary: ColumnSummary, rate: float = 1.0) -> Mixture:
        """A mixture of K equal experts on standardised covariates: the place from which labels make a start."""
        design = summary.design(self.intercept)
        gate: Gate = ConstantGate(np.full(self.K, 1 / self.K))
        if self.gate == "softmax":
            gate = SoftmaxGate(np.zeros((self.K, design.p)))
        return Mixture(design, gate, self._blank_experts(summary, design.p, rate))

    def _blank_experts(self, summary: ColumnSummary, p: int, rate: float) -> Experts:
        if self.family == "categorical":
            return CategoricalExperts(np.zeros((self.K, self.n_classes, p)))
        if self.family == "poisson":
            B = np.zeros((self.K, p))
            B[:, 0] = np.log(rate) if self.intercept else 0.0
            return PoissonExperts(B)
        B = np.zeros((self.K, len(summary.y_mean), p))
        if self.intercept:
            B[:, :, 0] = summary.y_mean
        return GaussianExperts(B, self._blank_covariance(summary), self.structure)

    def _blank_covariance(self, summary: ColumnSummary) -> Array:
        return cov.stored(np.tile(summary.y_covariance + summary.floor(1e-6), (self.K, 1, 1)), self.structure)


def response_features(rows: Rows, specification: Specification) -> Array:
    """Responses as real numbers ``(n, ·)`` for clustering and least squares: standardised, one-hot, or log rates."""
    if specification.family == "categorical":
        one_hot: Array = (np.arange(specification.n_classes) == rows.Y).astype(np.float64)
        return one_hot
    if specification.family == "poisson":
        exposure = 1.0 if rows.exposure is None else rows.exposure[:, None]
        log_rate: Array = np.log((rows.Y + 0.5) / exposure)
        return log_rate
    spread = rows.Y.std(axis=0)
    scaled: Array = (rows.Y - rows.Y.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled

"""The mixture of experts as an immutable value: a gate and experts on one design; responsibilities, alignment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from consilience.model.design import Design
from consilience.model.families.base import Experts
from consilience.model.gates import Gate
from consilience.model.kernels import block_rows
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Penalty, Statistics, StatisticsLayout
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.solvers import bisect


@dataclass(frozen=True, eq=False)
class Posterior:
    """Responsibilities of a block of n rows with m labels: ``m = n``, or the number of groups."""

    at: Any  # the experts' Evaluated
    gate_panel: Array  # (p, m)   what the gate reads
    pi: Array  # (K, m) or (K, 1)
    tau: Array  # (K, m)          P(label = k | data)
    log_density: Array  # (m,)    log p(y | x) of each label's data
    mass: Array | float  # (m,)   weight of each label
    row_tau: Array  # (K, n)      responsibility of each row times its case weight


def posterior(gate: Gate, experts: Experts, block: Block, given: Array | None = None) -> Posterior:
    """Compute responsibilities ``τ_k ∝ π_k Π_{i in label} f_k(y_i | x_i)^{w_i}``, or use those ``given (K, m)``."""
    with np.errstate(over="ignore"):  # a response too far from every expert has density 0, log density -inf
        at = experts.evaluate(block)
    if block.groups is not None:
        return _group_posterior(gate, at, block, given)
    log_pi, pi = gate.evaluate(block.gate_panel, block.kernel)
    log_density, tau = block.kernel.log_sum_exp(log_pi + at.log_density)
    if given is not None:
        tau = given
    mass = 1.0 if block.weight is None else block.weight
    row_tau = tau if block.weight is None else tau * block.weight
    return Posterior(at, block.gate_panel, pi, tau, log_density, mass, row_tau)


def _group_posterior(gate: Gate, at: Any, block: Block, given: Array | None) -> Posterior:
    groups = block.groups
    assert groups is not None  # noqa: S101 - for the type checker: the caller has looked
    log_pi, pi = gate.evaluate(groups.panel, block.kernel)
    rows = at.log_density if block.weight is None else at.log_density * block.weight
    log_density, tau = block.kernel.log_sum_exp(log_pi + np.add.reduceat(rows, groups.starts, axis=1))
    if given is not None:
        tau = given
    row_tau = np.repeat(tau, groups.sizes, axis=1)
    if block.weight is not None:
        row_tau *= block.weight
    return Posterior(at, groups.panel, pi, tau, log_density * groups.present, groups.present, row_tau)


# ---------------------------------------------------------------- mixture


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixture of experts ``p(y | x) = Σ_k π_k(x) f_k(y | x)`` with a gate ``π`` and K experts ``f``, immutable.

    Methods take raw covariates ``X (n, d)``, whatever the coordinates of the coefficients, and process them in blocks.

    Parameters
    ----------
    design : Design
        Coordinates of the coefficients.
    gate : Gate
    experts : Experts
        Of one family.
    gate_design : Design or None
        Coordinates of the gate's coefficients, if it reads other covariates than the experts.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Design, Mixture, Rows
    >>> from consilience.model import ConstantGate, GaussianExperts
    >>> mixture = Mixture(
    ...     Design.raw(1),
    ...     ConstantGate(np.array([0.5, 0.5])),
    ...     GaussianExperts(B=np.array([[[0.0, 1.0]], [[0.0, -1.0]]]), covariance=np.ones((2, 1, 1))),
    ... )
    >>> X, Y = np.array([[0.0], [2.0]]), np.array([[0.0], [2.0]])
    >>> mixture.responsibilities(Rows(X, Y)).round(3)
    array([[0.5, 0.5],
           [1. , 0. ]])
    >>> mixture.log_density(Rows(X, Y)).round(3)
    array([-0.919, -1.612])
    """

    design: Design
    gate: Gate
    experts: Experts
    gate_design: Design | None = None

    @property
    def reads(self) -> Design:
        """Coordinates of the gate's coefficients."""
        return self.design if self.gate_design is None else self.gate_design

    @property
    def K(self) -> int:
        """Number of experts."""
        return self.experts.K

    @property
    def parameter_count(self) -> int:
        """Number of free parameters of gate and experts."""
        return self.gate.parameter_count + self.experts.parameter_count

    @property
    def coefficients(self) -> Array:
        """Return the free coefficients of each expert, ``(K, f)``."""
        return self.experts.free_coefficients().reshape(self.K, -1)

    # ------------------------------------------------------------------ evaluation on data

    def block_size(self, *, information: bool = False) -> int:
        """Return the number of rows per block of a pass."""
        p = self.design.p
        gate, experts = self.gate.layout(self.reads.p), self.experts.layout(p)
        weights = 2 * (gate.g + gate.h + experts.g + experts.h) + 6 * self.K
        return block_rows(p, weights + 4 * self.parameter_count * information)

    def posteriors(self, rows: Rows) -> Iterator[tuple[Block, Posterior]]:
        """Yield blocks of ``rows`` with their responsibilities."""
        for block in rows.blocks(self.design, self.block_size(), self.gate_design):
            yield block, posterior(self.gate, self.experts, block)

    def log_density(self, rows: Rows) -> Array:
        """Compute ``log p(y_i | x_i)`` of each row ``(n,)``, or of each group ``(G,)``."""
        return _joined([at.log_density for _, at in self.posteriors(rows)], ())

    def responsibilities(self, rows: Rows) -> Array:
        """Compute ``P(label = k | data)`` of each row ``(n, K)``, or of each group ``(G, K)``."""
        return _joined([at.tau.T for _, at in self.posteriors(rows)], (self.K,))

    def panels(self, X: Array) -> Iterator[tuple[Array, Array]]:
        """Yield what experts and gate read, ``(p, n)`` and ``(p_g, n)``, block by block."""
        size = self.block_size()
        for i in range(0, max(len(X), 1), size):
            panel = self.design.panel(X[i : i + size])
            yield panel, panel if self.gate_design is None else self.gate_design.panel(X[i : i + size])

    def _pi(self, panel: Array) -> Array:
        return np.broadcast_to(self.gate.evaluate(panel)[1], (self.K, panel.shape[1]))

    def gate_weights(self, X: Array) -> Array:
        """Compute ``π_k(x_i)``, ``(n, K)``."""
        return _joined([self._pi(read).T for _, read in self.panels(X)], (self.K,))

    def mean(self, X: Array) -> Array:
        """Compute ``E[y | x] = Σ_k π_k(x) E[y | x, k]``: means ``(n, q)`` or class probabilities ``(n, C)``."""
        parts = [np.einsum("kn,kqn->nq", self._pi(read), self.experts.mean(P)) for P, read in self.panels(X)]
        return _joined(parts, (self.experts.mean(np.empty((self.design.p, 0))).shape[1],))

    def quantile(self, X: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the ``probability`` quantile of ``p(y | x_i)``, ``(n,)``, a root of ``Σ_k π_k(x_i) F_k(y | x_i)``.

        ``exposure (n,)`` is the size of each row, if its family has one; 1 by default.
        """
        size = self.block_size()
        parts = [
            self._quantile(*panels, probability, None if exposure is None else exposure[i * size : (i + 1) * size])
            for i, panels in enumerate(self.panels(X))
        ]
        return _joined(parts, ())

    def _quantile(self, panel: Array, read: Array, probability: float, exposure: Array | None) -> Array:
        pi = self.gate.evaluate(read)[1]
        each = self.experts.quantile(panel, probability, exposure)
        pad = 1e-9 * (1 + np.abs(each).max(axis=0)) + 2 * self.experts.discrete
        y = bisect(
            lambda y: np.sum(pi * self.experts.cdf(panel, y, exposure), axis=0),
            probability,
            each.min(axis=0) - pad,
            each.max(axis=0) + pad,
        )
        return np.floor(y + 1e-6) if self.experts.discrete else y

    def sample(
        self, X: Array, rng: np.random.Generator, labels: IntArray | None = None, exposure: Array | None = None
    ) -> tuple[Array, IntArray]:
        """Draw responses ``(n, q)`` at the rows of ``X (n, d)``, with their labels ``(n,)``."""
        if labels is None:
            below = np.cumsum(self.gate_weights(X), axis=1) < rng.random((len(X), 1))
            labels = np.minimum(below.sum(axis=1), self.K - 1)
        size = self.block_size()
        parts = []
        for i, (panel, _) in enumerate(self.panels(X)):
            part = slice(i * size, (i + 1) * size)
            parts.append(self.experts.sample(panel, labels[part], rng, None if exposure is None else exposure[part]))
        return np.concatenate(parts), labels

    # ------------------------------------------------------------------ the M-step

    def penalised(self, statistics: Statistics, penalty: Penalty) -> float:
        """Compute the penalised log-likelihood from statistics at this mixture."""
        return statistics.log_likelihood - self.ridge(penalty)

    def ridge(self, penalty: Penalty) -> float:
        """Return the ridge penalties, which are subtracted from the log-likelihood."""
        intercept = self.design.intercept
        return self.gate.penalty(penalty, intercept=intercept) + self.experts.penalty(penalty, intercept=intercept)

    def maximise(self, statistics: Statistics, penalty: Penalty, fraction: float = 1.0) -> Mixture:
        """M-step: exact if a closed form exists, otherwise ``fraction`` of one Newton step; shapes within bounds."""
        intercept = self.design.intercept
        gate = self.gate.step(statistics.gate, penalty, intercept=intercept, fraction=fraction)
        experts = self.experts.shared_step(statistics.experts, penalty, intercept=intercept, fraction=fraction)
        return replace(self, gate=gate, experts=experts.bounded(penalty, statistics.experts.plain[: self.K]))

    def bounded(self, penalty: Penalty) -> Mixture:
        """Return the mixture with shapes within the bounds of ``penalty`` and its shared coefficients equal."""
        experts = self.experts.with_shared(penalty.shared).bounded(penalty)
        return self if experts is self.experts else replace(self, experts=experts)

    @property
    def newton_type(self) -> bool:
        """Whether any part of the M-step is a Newton step that may have to be shortened."""
        return self.experts.newton_type or (self.gate.reads_covariates and self.K > 1)

    # ------------------------------------------------------------------ permutation and coordinates

    def permuted(self, permutation: IntArray) -> Mixture:
        """Return the mixture with its experts in another order."""
        return replace(self, gate=self.gate.permuted(permutation), experts=self.experts.permuted(permutation))

    def to_vector(self) -> Array:
        """Return gate contrasts, coefficients and shapes as one vector, to be averaged over mixtures.

        Average mixtures in the same coordinates (:meth:`in_coordinates_of`) and with the same labels.
        """
        parts = (self.gate.contrasts(), self.experts.free_coefficients(), self.experts.shape_values())
        return np.concatenate([part.ravel() for part in parts])

    def with_vector(self, vector: Array) -> Mixture:
        """Return a mixture of the same kind with these numbers; the inverse of :meth:`to_vector`."""
        contrasts, coefficients = self.gate.contrasts().ravel(), self.experts.free_coefficients()
        of_gate, of_experts, shapes = np.split(vector, np.cumsum([len(contrasts), len(coefficients)]))
        experts = self.experts.moved(of_experts - coefficients, np.zeros(self.experts.shape_parameters))
        experts = experts.with_shape_values(shapes.reshape(self.experts.shape_values().shape))
        return replace(self, gate=self.gate.moved(of_gate - contrasts), experts=experts)

    def in_coordinates(self, design: Design, gate_design: Design | None = None) -> Mixture:
        """Return the mixture with its coefficients on another design, or on two."""
        T = design.from_raw() @ self.design.to_raw()
        of_gate = (design if gate_design is None else gate_design).from_raw() @ self.reads.to_raw()
        return Mixture(design, self.gate.transformed(of_gate), self.experts.transformed(T), gate_design)

    def in_coordinates_of(self, other: Mixture) -> Mixture:
        """Return the mixture with its coefficients on the designs of another."""
        return self.in_coordinates(other.design, other.gate_design)

    def raw(self) -> Mixture:
        """Return the mixture with its coefficients on raw covariates."""
        if self.gate_design is None and self.design.is_raw:
            return self
        return self.in_coordinates(Design.raw(self.design.d, self.design.intercept))


def layout_of(mixture: Mixture) -> StatisticsLayout:
    """Return the shapes of the statistics of ``mixture``.

    Examples
    --------
    >>> from consilience.model import layout_of
    >>> from consilience.datasets import soft
    >>> layout = layout_of(soft(10, random_state=0).truth)
    >>> layout.size(information=False), layout.size(information=True)
    (2476, 13952)
    """
    gate, experts = mixture.gate, mixture.experts
    layouts = gate.layout(mixture.reads.p), experts.layout(mixture.design.p)
    return StatisticsLayout(*layouts, gate.parameter_count + experts.parameter_count)


def score_layout(mixture: Mixture) -> StatisticsLayout:
    """Return the shapes of the statistics of ``mixture`` without any ``x xᵀ``."""
    full = layout_of(mixture)
    return replace(full, gate=replace(full.gate, h=0), experts=replace(full.experts, h=0))


def _joined(parts: list[Array], tail: tuple[int, ...]) -> Array:
    return np.concatenate(parts) if parts else np.empty((0, *tail))


# ---------------------------------------------------------------- alignment

CLEARLY = 2.0
"""Factor by which the squared distance to other experts exceeds that to a clear match."""


def alignment(mixture: Mixture, reference: Mixture) -> IntArray:
    """Return the order for which ``mixture.permuted(permutation)`` is closest to ``reference``, by optimal assignment.

    Distance: squared difference of expert coefficients in the coordinates of the reference's design.
    """
    ours, theirs = mixture.in_coordinates(reference.design).coefficients, reference.coefficients
    return _assigned(np.sum((ours[:, None] - theirs) ** 2, axis=2))


@dataclass(frozen=True, eq=False)
class Matching:
    """Experts of a mixture matched to those of a reference by their responsibilities.

    Parameters
    ----------
    permutation : (K,) array of int
        ``mixture.permuted(permutation)`` has the labels of the reference.
    clear : bool
        Whether each expert of the reference is nearer to its match than to every other expert, by a factor of 2 in
        squared distance; if not, labels are arbitrary.
    """

    permutation: IntArray
    clear: bool


def matching(mixture: Mixture, reference: Array, rows: Rows) -> Matching:
    """Match experts so that responsibilities differ least in squares from ``reference (m, K)`` on ``rows``.

    Responsibilities depend on all parameters. Experts with equal coefficients and different variances or weights are
    told apart.
    """
    ours = mixture.responsibilities(rows)
    distance = np.sum(ours**2, axis=0)[:, None] - 2 * ours.T @ reference + np.sum(reference**2, axis=0)
    permutation = _assigned(distance)
    matched = distance[permutation]  # (K, K), matches on the diagonal
    others = np.where(np.eye(mixture.K, dtype=bool), np.inf, matched).min(axis=0)
    return Matching(permutation, bool(np.all(CLEARLY * np.diagonal(matched) <= others)))


def _assigned(cost: Array) -> IntArray:
    ours_at, theirs_at = linear_sum_assignment(cost)
    return ours_at[np.argsort(theirs_at)]

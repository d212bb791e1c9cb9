"""Generalised linear experts with one linear predictor: their common Newton step, ridge and projection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from consilience.model.families.base import Experts, MessageFields, Options, arrays_problem
from consilience.model.kernels import Workspace
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Moments, Penalty
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask, kronecker, unpack
from consilience.numerics.linalg import cap_step, solve_symmetric
from consilience.numerics.quadrature import legendre_nodes
from consilience.numerics.solvers import minimise

LARGEST_PREDICTOR = 100.0
"""Linear predictors of a log link are cut here: a mean of e^100 is a rejected step, not an overflow."""
NODES, EXACT = 48, 20
"""Number of nodes of a sum over counts, and the count below which every one is a node."""
DEVIATIONS = 7.0
"""Standard deviations around the mean of a Poisson count beyond which counts are not summed."""


@dataclass(frozen=True, eq=False)
class GeneralisedLinearExperts(Experts):
    """Experts whose response depends on ``x`` through ``η_k = x̃ᵀ b_k``; a family adds its link and its density.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the linear predictor, intercept first.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import GeneralisedLinearExperts
    >>> from consilience.model import PoissonExperts
    >>> issubclass(PoissonExperts, GeneralisedLinearExperts), PoissonExperts(np.zeros((2, 3))).p
    (True, 3)
    """

    B: Array

    message_fields: ClassVar[MessageFields] = {"B": (2,)}
    link = "log"
    largest_predictor: ClassVar[float] = LARGEST_PREDICTOR
    """Linear predictors are cut here."""

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts with coefficients 0."""
        return cls(np.zeros((K, p)))

    @classmethod
    def numbers(cls, p: int, q: int, options: Options) -> int:
        """Count the coefficients and their weights."""
        return 2 * p

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the arrays of several parts."""
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls._arrays()}
        return replace(parts[0], **arrays)

    @classmethod
    def _arrays(cls) -> list[str]:
        return [name for name, form in cls.message_fields.items() if isinstance(form[0], int)]

    def invalid(self) -> str:
        """Return the reason why coefficients or shapes are not valid; empty if they are."""
        shapes = {name: (getattr(self, name), (self.K,)) for name in self._arrays()}
        return arrays_problem(shapes | {"B": (self.B, self.B.shape)})

    def with_intercept(self, value: float) -> Self:
        """Return the experts with this intercept."""
        B = self.B.copy()
        B[:, 0] = value
        return replace(self, B=B)

    # ------------------------------------------------------------------ the pointwise loss

    @abstractmethod
    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute the negative expected log density at ``η`` for a mean, up to constants and a positive factor.

        Returns
        -------
        loss, slope, curvature
            The loss, minus its first derivative, and its second derivative in ``η``; all of the shape of ``eta``.
        """

    def predictor(self, panel: Array) -> Array:
        """Compute ``η_k(x_i)``, ``(K, n)``."""
        return np.minimum(self.B @ panel, self.largest_predictor)

    # ------------------------------------------------------------------ the M-step

    def stepped(self, gradient: Array, curvature: Array, penalty: Penalty, intercept: bool, fraction: float) -> Array:
        """Return the coefficients after ``fraction`` of a safeguarded Newton step of the penalised log-likelihood.

        Parameters
        ----------
        gradient : (K, p) array
        curvature : (K, p (p + 1) / 2) array
            Upper triangles.
        penalty, intercept, fraction
            As in :meth:`step`.
        """
        R = penalty.expert_matrix(self.p, intercept=intercept)
        uphill = gradient - self.B @ R
        systems = zip(unpack(curvature), uphill, strict=True)
        direction = np.array([solve_symmetric(H + R, g[:, None])[0][:, 0] for H, g in systems])
        return self.B + fraction * cap_step(direction, self.longest_step)

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take one safeguarded Newton step per expert."""
        return replace(self, B=self.stepped(moments.first, moments.second, penalty, intercept, fraction))

    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Compute the second derivative of the ridge."""
        return kronecker(np.eye(self.K), penalty.expert_matrix(self.p, intercept=intercept))

    # ------------------------------------------------------------------ derivatives

    def complete(self, moments: Moments) -> Array:
        """Compute ``Σ τ h(η) x xᵀ`` of each expert, ``(K, p, p)``, with the curvature ``h`` of the loss."""
        return unpack(moments.second)

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score ``(K, 1, p)``; no shapes."""
        return moments.first[:, None], np.empty((self.K, 0))

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the coefficients."""
        return replace(self, B=self.B + coefficients.reshape(self.B.shape))

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute the mean, of a row of unit size, ``(K, 1, n)``: ``exp η``, for a log link."""
        return np.exp(self.predictor(panel))[:, None]

    def mean_slopes(self, panel: Array) -> Array:
        """Compute the derivative of the mean in the linear predictor, ``(K, 1, 1, n)``: the mean, for a log link."""
        return self.mean(panel)[:, :, None]

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """Minimise the loss of each expert over the points by Newton's method."""
        pairs = zip(self.B, mass, mean, strict=True)
        B = [self._nearest(b, panel, m, v[0]) if m.sum() > 0 else b for b, m, v in pairs]
        return replace(self, B=np.array(B))

    def _nearest(self, start: Array, panel: Array, mass: Array, mean: Array) -> Array:
        def at(b: Array) -> tuple[Array, Array, Array]:
            return self.pointwise(np.minimum(b @ panel, self.largest_predictor), mean)

        def value(b: Array) -> float:
            return float(np.sum(mass * at(b)[0]))

        def step(b: Array) -> Array:
            _, slope, curvature = at(b)
            H = (panel * (mass * curvature)) @ panel.T
            return cap_step(solve_symmetric(H, (panel @ (mass * slope))[:, None])[0][:, 0], self.longest_step)

        return minimise(start, value, step)

    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""
        return replace(self, **{name: getattr(self, name)[permutation] for name in self._arrays()})

    def transformed(self, T: Array) -> Self:
        """Return the experts with coefficients ``T b``, for a change of covariate coordinates."""
        return replace(self, B=self.B @ T.T)


def whole_counts(rows: Rows) -> bool:
    """Whether there is a single response and it is a count.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows, whole_counts
    >>> whole_counts(Rows(np.zeros((2, 1)), np.array([[0.0], [2.5]])))
    False
    """
    return rows.Y.shape[1] == 1 and not np.any((rows.Y < 0) | (np.floor(rows.Y) != rows.Y))


def are_counts(y: Array) -> Mask:
    """Whether numbers are 0, 1, 2, …, elementwise.

    Examples
    --------
    >>> are_counts(np.array([0.0, 2.5, -1.0, np.inf]))
    array([ True, False, False, False])
    """
    return np.asarray((y >= 0) & (np.floor(y) == y) & np.isfinite(y))


def count_window(least: Array, most: Array) -> tuple[Array, Array]:
    """Return integers between which Poisson counts with means from ``least`` to ``most`` lie, up to 1e-8."""
    low = np.floor(least - DEVIATIONS * np.sqrt(least) - 2)
    return np.maximum(low, 0.0), np.ceil(most + DEVIATIONS * np.sqrt(most) + 12)


def count_nodes(
    one: GeneralisedLinearExperts, panel: Array, exposure: Array | None, low: Array, high: Array
) -> tuple[Array, Array]:
    """Return nodes and weights, both ``(NODES, n)``, of sums over the counts from ``low`` to ``high`` of one expert.

    A window of at most ``NODES`` counts is summed as it is. Of a wider one the counts below ``EXACT`` are, and the rest
    is an integral over the logarithm of the count, which follows skewed distributions and those that are greatest at 0.
    """
    counts, (u, w) = np.arange(float(NODES))[:, None], legendre_nodes(NODES - EXACT)
    start = np.log(np.maximum(low, EXACT) - 0.5)
    length = np.log(np.maximum(high, EXACT) + 0.5) - start
    above = np.exp(start + length * u[:, None])
    wide = np.concatenate([np.broadcast_to(counts[:EXACT], (EXACT, len(low))), above])
    widths = np.concatenate([np.ones((EXACT, len(low))), above * length * w[:, None]])
    narrow = high - low < NODES
    Y = np.where(narrow, np.minimum(low + counts, high), wide)
    many = None if exposure is None else np.tile(exposure, NODES)
    block = Block(np.tile(panel, (1, NODES)), Y.reshape(1, -1), None, many, None, Workspace())
    inside = ~narrow | (low + counts <= high)
    weight = np.where(inside, np.exp(one.evaluate(block).log_density.reshape(Y.shape)), 0.0)
    weight = weight * np.where(narrow, 1.0, widths)
    return Y, weight / weight.sum(axis=0)


def log_rates(rows: Rows) -> Array:
    """Compute ``log((y + 1/2) / exposure)``, ``(n, 1)``, of counts.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows, log_rates
    >>> log_rates(Rows(np.zeros((1, 1)), np.array([[0.5]]), exposure=np.array([1.0])))
    array([[0.]])
    """
    exposure = 1.0 if rows.exposure is None else rows.exposure[:, None]
    return np.log((rows.Y + 0.5) / exposure)


def mean_per_size(rows: Rows) -> float:
    """Compute the mean response per unit of size (exposure or trials), over weighted rows.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows, mean_per_size
    >>> mean_per_size(Rows(np.zeros((2, 1)), np.array([[1.0], [2.0]]), exposure=np.array([2.0, 4.0])))
    0.5
    """
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    size = 1.0 if rows.exposure is None else rows.exposure
    return float(weight @ rows.Y[:, 0] / np.sum(weight * size))


class CountExperts(GeneralisedLinearExperts):
    """Experts of counts with a log link, whose rows may have an exposure."""

    multiplied = "rate"
    discrete = True
    size_name: ClassVar[str | None] = "exposure"
    range_sentence = "the response must be one column of counts 0, 1, 2, …"

    def in_range(self, rows: Rows) -> bool:
        """Whether the response is a count."""
        return whole_counts(rows)

    def response_features(self, rows: Rows) -> Array:
        """Return log rates ``(n, 1)``."""
        return log_rates(rows)

    def at_level(self, rows: Rows) -> Self:
        """Return the blank experts with the log of the overall rate as intercept."""
        return self.with_intercept(float(np.log(max(mean_per_size(rows), 1e-8))))

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return which responses are counts, of rows whose exposure is positive."""
        return are_counts(Y[:, 0]) & (True if exposure is None else exposure > 0)

    def window(self, mu: Array) -> tuple[Array, Array]:
        """Return the least and the largest count ``(n,)`` that need to be summed for one expert with means ``mu``."""
        return count_window(mu, mu)

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return the counts of a window, or nodes in its place where it is wide, with their probabilities."""
        each = [self.permuted(np.array([k])) for k in range(self.K)]
        windows = [one.window(one.means(panel, exposure)[0]) for one in each]
        found = [count_nodes(one, panel, exposure, *window) for one, window in zip(each, windows, strict=True)]
        Y, weight = (np.stack(parts) for parts in zip(*found, strict=True))
        return Y, weight

    def log_means(self, block: Block) -> Array:
        """Compute ``η`` with the exposure of the rows, ``(K, n)``."""
        eta = self.B @ block.panel
        if block.exposure is not None:
            eta += np.log(block.exposure)
        return np.minimum(eta, LARGEST_PREDICTOR, out=eta)

    def means(self, panel: Array, exposure: Array | None) -> Array:
        """Compute the means of rows with an exposure, ``(K, n)``."""
        mu = self.mean(panel)[:, 0]
        return mu if exposure is None else mu * exposure

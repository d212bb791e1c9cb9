"""The interface of a family of experts, with defaults for families without shape parameters.

A family is a frozen dataclass of arrays, K experts stacked on axis 0. Everything that differs between families is a
method or a class attribute here; gates, the pass over the data, fits, messages and methods ask, and never test for a
concrete family. :mod:`consilience.model.families.registry` lists the families by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty
from consilience.model.rows import Block, Rows
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray

MessageFields = Mapping[str, tuple[int, ...] | tuple[str, ...]]
"""For each field of a dataclass its possible numbers of axes, or the words it may be."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Experts at a block: the log density, and in subclasses what the family's weights need."""

    log_density: Array  # (K, n)


@dataclass(frozen=True, eq=False)
class Scores:
    """Derivative of each expert's log density: ``linear ⊗ x`` for coefficients, ``shape`` for the rest."""

    linear: Array  # (K, channels, n)
    shape: Array  # (K, shapes, n)


@dataclass(frozen=True)
class Options:
    """Settings of a fit that some families read.

    Parameters
    ----------
    intercept : bool
        Whether the first coefficient is an intercept.
    structure : str
        Covariance structure of several real responses.
    n_classes : int
        Number of classes of a categorical response.
    """

    intercept: bool = True
    structure: str = "full"
    n_classes: int = 2


class Experts(ABC):
    """A family of K experts: frozen arrays with a density, additive statistics, a step and derivatives."""

    # ------------------------------------------------------------------ what kind of family it is

    family: ClassVar[str]
    """Name in the registry."""
    discrete: ClassVar[bool] = False
    """Whether responses are counts or classes."""
    classes: ClassVar[bool] = False
    """Whether the response is a class code."""
    several_responses: ClassVar[bool] = False
    """Whether a row may have more than one response."""
    newton_type: ClassVar[bool] = True
    """Whether the M-step is a Newton step, to be shortened when it overshoots."""
    size_name: ClassVar[str | None] = None
    """What the size of a row is called: ``"exposure"``, ``"trials"``, or None where rows have no size."""
    shape_name: ClassVar[str] = ""
    """What ``exp`` of a shape parameter is called where people read it, such as ``"variance"``."""
    range_sentence: ClassVar[str]
    """Which responses the family has, as a sentence for error messages."""
    message_fields: ClassVar[MessageFields]
    """For each field of the dataclass its possible numbers of axes, or the words it may be."""

    @classmethod
    @abstractmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """K equal experts at the level of the responses, from which labels make a start."""

    @classmethod
    @abstractmethod
    def numbers(cls, p: int, q: int, options: Options) -> int:
        """Bound on the numbers that one expert allocates: what a message may ask for is checked against it."""

    @classmethod
    def floor(cls, summary: ColumnSummary, fraction: float) -> Array:
        """Lower bound of the shapes, as :meth:`admissible` reads it: ``fraction`` of their scale."""
        return np.zeros((1, 1))

    @classmethod
    def unfittable(cls, summary: ColumnSummary) -> str:
        """Why the likelihood of responses with this summary has no maximum; empty where it has."""
        return ""

    @classmethod
    def coefficient_scale(cls, summary: ColumnSummary) -> float:
        """Size of coefficients on standardised covariates, for random starts."""
        return 1.0

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The experts of several parts as one."""

    # ------------------------------------------------------------------ sizes

    @property
    @abstractmethod
    def K(self) -> int:
        """Number of experts."""

    @property
    @abstractmethod
    def p(self) -> int:
        """Coefficients per linear predictor."""

    @property
    def q(self) -> int:
        """Number of responses of a row."""
        return 1

    @property
    def channels(self) -> int:
        """Free linear predictors per expert."""
        return 1

    @property
    def shapes(self) -> int:
        """Shape parameters per expert, before tying."""
        return 0

    @property
    def shape_parameters(self) -> int:
        """Free shape parameters of all experts."""
        return self.K * self.shapes

    @property
    def parameter_count(self) -> int:
        """Free parameters."""
        return self.K * self.channels * self.p + self.shape_parameters

    @property
    def form(self) -> str:
        """Form of the shape parameters, where a family has several; empty where it has not."""
        return ""

    @property
    def outcomes(self) -> int | None:
        """Number of values a response can have, where it is small and the same for all rows; else None."""
        return None

    # ------------------------------------------------------------------ responses

    @abstractmethod
    def in_range(self, rows: Rows) -> bool:
        """Whether all responses are possible; :attr:`range_sentence` says which are."""

    @abstractmethod
    def response_features(self, rows: Rows) -> Array:
        """Responses as real numbers ``(n, ·)``, for clustering and least squares in starts."""

    def at_level(self, rows: Rows) -> Self:
        """The blank experts with their intercepts at the overall level of ``rows``."""
        return self

    @abstractmethod
    def invalid(self) -> str:
        """Why the arrays are not the parameters of K proper experts; empty where they are."""

    # ------------------------------------------------------------------ the pass

    @abstractmethod
    def evaluate(self, block: Block) -> Any:
        """An :class:`Evaluated` of the family."""

    @abstractmethod
    def layout(self, p: int) -> Layout:
        """Shape of the family's moments."""

    @abstractmethod
    def weights(self, at: Any, tau: Array, p: int) -> Weights:
        """What the family wants summed, given responsibilities ``tau (K, n)``; ``plain`` starts with ``Σ τ_k``."""

    # ------------------------------------------------------------------ the step

    @abstractmethod
    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """M-step: exact, or ``fraction`` of a Newton step."""

    def full_rank(self, moments: Moments) -> bool:
        """Whether the coefficients are identified; a ridge identifies them always."""
        return True

    @abstractmethod
    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """What the ridge subtracts from the log-likelihood."""

    def admissible(self, penalty: Penalty) -> bool:
        """Whether the floor of the shapes is respected; always for a family without shapes."""
        return True

    # ------------------------------------------------------------------ derivatives

    @abstractmethod
    def scores(self, at: Any) -> Scores:
        """Complete-data scores."""

    @property
    def full_curvature(self) -> bool:
        """Whether the moments hold the full curvature, not a bound on it."""
        return True

    @abstractmethod
    def complete(self, moments: Moments) -> Array:
        """Complete-data information of each expert's coefficients and shapes, ``(K, f, f)``."""

    @abstractmethod
    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Observed score: coefficients ``(K, channels, p)`` and shapes ``(K, shapes)``."""

    def tie(self) -> Array:
        """Matrix ``(K shapes, shape_parameters)`` from free to per-expert shapes."""
        return np.eye(self.shape_parameters)

    @abstractmethod
    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Second derivative of the ridge in the free coefficients."""

    @abstractmethod
    def free_coefficients(self) -> Array:
        """Free coefficients, flat."""

    @abstractmethod
    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """The experts with these changes of their free parameters."""

    # ------------------------------------------------------------------ as people read it

    def coefficient_map(self) -> Array:
        """Matrix ``(c, channels)`` from the free linear predictors to those that people read."""
        return np.eye(self.channels)

    def log_shapes(self) -> Array:
        """Logarithms of the shapes that people read, ``(K, s)``."""
        return np.empty((self.K, 0))

    def log_shapes_jacobian(self) -> Array:
        """Derivative of :meth:`log_shapes` in the free shapes, ``(K s, shape_parameters)``."""
        return np.empty((0, 0))

    def attributes(self) -> dict[str, Array]:
        """Fitted attributes of an estimator besides the coefficients, by name."""
        return {}

    # ------------------------------------------------------------------ use

    @abstractmethod
    def mean(self, panel: Array) -> Array:
        """``E[y | x, k]`` or class probabilities, ``(K, ·, n)``; at size 1 where rows have a size."""

    @abstractmethod
    def cdf(self, panel: Array, y: Array) -> Array:
        """``P(Y ≤ y_i | x_i, k)``, ``(K, n)``, for one ordered response."""

    @abstractmethod
    def quantile(self, panel: Array, probability: float) -> Array:
        """Quantile of each expert, ``(K, n)``, for one ordered response."""

    @abstractmethod
    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Responses ``(n, q)`` of the experts named by ``labels (n,)``; ``exposure`` is the size of each row."""

    @abstractmethod
    def permuted(self, permutation: IntArray) -> Self:
        """The experts at these places."""

    @abstractmethod
    def transformed(self, T: Array) -> Self:
        """Coefficients ``T b``, for a change of covariate coordinates."""

    # ------------------------------------------------------------------ combining experts of several sites

    @abstractmethod
    def divergence(self, other: Self, panel: Array) -> Array:
        """``KL(f_k(· | x_i) ‖ g_l(· | x_i))`` from each expert to each of ``other``, ``(K, L, n)``."""

    def within(self, panel: Array, own: Array, mean: Array) -> Array:
        """What a projection needs besides mean responses: a sum over experts and points, of any shape.

        Parameters
        ----------
        panel : (p, S) array
        own : (K, S) array
            Mass of each expert at each point.
        mean : (·, S) array
            Their mean response at each point.
        """
        return np.zeros(())

    @abstractmethod
    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """The experts nearest in divergence to responses with these means, from the current ones.

        An expert without mass stays.

        Parameters
        ----------
        panel : (p, S) array
        mass : (K, S) array
        mean : (K, ·, S) array
        within : (K, ...) array
            As from :meth:`within`.
        """

    def like(self, other: Self) -> Self:
        """The same experts with the shape parameters in the form that ``other`` has."""
        return self

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Shapes as numbers ``(K, m)`` that may be averaged over sites."""
        return np.empty((self.K, 0))

    def with_shape_values(self, values: Array) -> Self:
        """The experts with these shapes; inverse of :meth:`shape_values`."""
        return self

    @property
    def ties_shapes(self) -> bool:
        """Whether all experts have one shape."""
        return False

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Shape values ``(K, m)`` that maximise the likelihood at the current coefficients."""
        return self.shape_values()

    def with_wide_shapes(self, summary: ColumnSummary, factor: float) -> Self:
        """The experts with shapes ``factor`` times as wide as the responses' own spread."""
        return self

    def relabelled(self, moments: Moments, permutation: IntArray) -> Moments | None:
        """Moments taken at these experts as if their labels had been permuted; None where that is not known."""
        return None


@runtime_checkable
class MomentExperts(Protocol):
    """Experts that second moments of the covariates suffice to compare and to average, in closed form."""

    def moment_costs(self, others: Self, mass: Array, second: Array) -> Array:
        """Divergence from each expert to each of ``others``, summed over its rows, ``(L, K)``."""
        ...

    def moment_barycentres(self, parts: Self, labels: IntArray, mass: Array, second: Array) -> Self:
        """For each of these experts the one nearest to the ``parts`` that ``labels (L,)`` give it."""
        ...

    def largest_precision(self, second: Array) -> Array:
        """Diagonal of each expert's information if labels were known, ``(K, f)``: a bound on any claim."""
        ...


def arrays_problem(arrays: Mapping[str, tuple[Array, tuple[int, ...]]]) -> str:
    """Why arrays are not of the expected shapes or not finite, in one sentence; empty where they are.

    Examples
    --------
    >>> arrays_problem({"B": (np.zeros((2, 3)), (2, 3))})
    ''
    >>> arrays_problem({"nu": (np.zeros(3), (2,))})
    'nu has shape (3,), expected (2,)'
    """
    for name, (array, shape) in arrays.items():
        if array.shape != shape:
            return f"{name} has shape {array.shape}, expected {shape}"
        if not np.all(np.isfinite(array)):
            return f"{name} has numbers that are not finite"
    return ""

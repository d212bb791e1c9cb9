"""The interface of a family of experts, with defaults for families without shape parameters.

A family is a frozen dataclass of arrays, K experts stacked on axis 0. Everything that differs between families is a
method or a class attribute here; gates, the E-step, fits, messages and methods call these and never test for a
concrete family. :mod:`consilience.model.families.registry` lists the families by name.

Where shape parameters are between two bounds, experts at a bound keep their shape until the score leads back inside.
A likelihood may increase up to a limit of its family: Student's t up to the normal distribution, the negative binomial
up to the Poisson. The shape then ends at its bound. There its score and its information are those of a parameter that
does not move, so that Newton steps and standard errors of the other parameters are those of the limiting family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from scipy.linalg import block_diag

from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Weights, quadratic
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask, unpack
from consilience.numerics.linalg import cap_step, is_semidefinite, solve_symmetric


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
    >>> import numpy as np
    >>> from consilience.model import Bounds
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
        return np.asarray((shape <= self.least) | (shape >= self.most))

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


def narrow_ratio(variances: Array, rows: Array, ratio: float) -> Array:
    """Return the variances ``(K,)`` of a bounded ratio that maximise ``-Σ_k n_k (log v_k + s_k / v_k)``.

    They are the given ones, ``s_k`` of ``n_k`` rows each, within ``[m, ratio m]``, with the mean of those below and of
    those above, divided by the ratio, as ``m`` (H. Fritz, L. A. García-Escudero and A. Mayo-Iscar, A fast algorithm for
    robust constrained clustering, Computational Statistics & Data Analysis 2013).

    Examples
    --------
    >>> narrow_ratio(np.array([1.0, 1e-6]), np.array([99.0, 1.0]), 100.0).round(4)
    array([0.99  , 0.0099])
    """
    edges = np.sort(np.concatenate([variances, variances / ratio]))
    best, found = -np.inf, variances
    for m in [edges[0] / 2, *(0.5 * (edges[1:] + edges[:-1])), 2 * edges[-1]]:
        below, above = variances < m, variances > ratio * m
        mass = rows[below].sum() + rows[above].sum()
        if mass <= 0:
            continue
        least = max(float(rows[below] @ variances[below] + rows[above] @ variances[above] / ratio) / float(mass), TINY)
        clipped = np.clip(variances, least, ratio * least)
        value = -float(rows @ (np.log(clipped) + variances / clipped))
        if value > best:
            best, found = value, clipped
    return found


# ---------------------------------------------------------------- base

TINY = float(np.finfo(float).tiny)
MessageFields = Mapping[str, tuple[int, ...] | tuple[str, ...]]
"""For each field of a dataclass: its allowed numbers of axes, or its allowed strings."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Experts evaluated at a block: the log density, and in subclasses the quantities that the weights need.

    Parameters
    ----------
    log_density : (K, n) array

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Evaluated
    >>> Evaluated(np.zeros((2, 5))).log_density.shape
    (2, 5)
    """

    log_density: Array  # (K, n)


@dataclass(frozen=True, eq=False)
class ExpertScores:
    """Derivative of each expert's log density: ``linear ⊗ x`` for coefficients, ``shape`` for the rest.

    Parameters
    ----------
    linear : (K, channels, n) array
    shape : (K, shapes, n) array

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import ExpertScores
    >>> ExpertScores(np.zeros((2, 1, 5)), np.zeros((2, 0, 5))).linear.shape
    (2, 1, 5)
    """

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
    degrees_of_freedom : float or None
        Degrees of freedom of Student's t; None to estimate them.

    Examples
    --------
    >>> from consilience.model import Options
    >>> Options(n_classes=3).intercept
    True
    """

    intercept: bool = True
    structure: str = "full"
    n_classes: int = 2
    degrees_of_freedom: float | None = None


@dataclass(frozen=True, eq=False)
class Share:
    """Experts of a part of the sites on points of the covariates, with the target that each is assigned to.

    Parameters
    ----------
    experts : Experts
        L experts.
    panel : (p, S) array
        The points in the experts' design.
    mass : (L, S) array
        Mass of each expert at each point.
    labels : (L, S) or (L, 1) array of int
        Target of each expert, at each point or everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Share
    >>> share = Share(None, np.ones((1, 3)), np.full((2, 3), 0.5), np.array([[0], [1]]))
    >>> share.own(1)
    array([[0. , 0. , 0. ],
           [0.5, 0.5, 0.5]])
    """

    experts: Any
    panel: Array
    mass: Array
    labels: IntArray

    def own(self, k: int) -> Array:
        """Return the mass of each expert at each point that target ``k`` has, ``(L, S)``."""
        return np.where(self.labels == k, self.mass, 0.0)

    def gathered(self, K: int) -> tuple[Array, Array, Array]:
        """Sum for each target: mass ``(K, S)``, mean response ``(K, ·, S)``, and the statistics of a projection."""
        each = self.experts.mean(self.panel)  # (L, ·, S)
        masses, means, withins = [], [], []
        for k in range(K):
            own = self.own(k)
            mass = own.sum(axis=0)
            mean = np.einsum("ls,lqs->qs", own, each) / np.where(mass > 0, mass, 1.0)
            masses.append(mass)
            means.append(mean)
            withins.append(self.experts.within(self.panel, own, mean))
        return np.array(masses), np.array(means), np.array(withins)


class Experts(ABC):
    """A family of K experts: frozen arrays with a density, additive statistics, a step and derivatives.

    Examples
    --------
    >>> from consilience.model import FAMILIES
    >>> gamma = FAMILIES["gamma"]
    >>> gamma.range_sentence, gamma.shape_name, gamma.discrete
    ('the response must be one column of positive numbers', 'dispersion', False)
    """

    # ------------------------------------------------------------------ properties of the family

    family: ClassVar[str]
    """Name in the registry."""
    discrete: ClassVar[bool] = False
    """Whether responses are counts or classes."""
    classes: ClassVar[bool] = False
    """Whether the response is a class code."""
    several_responses: ClassVar[bool] = False
    """Whether a row may have more than one response."""
    newton_type: ClassVar[bool] = True
    """Whether the M-step is a Newton step, to be shortened if it overshoots."""
    default_ridge: ClassVar[float] = 1e-3
    """Ridge on the slopes unless a specification states one; 0 for an M-step in closed form."""
    size_name: ClassVar[str | None] = None
    """Name of the size of a row: ``"exposure"``, ``"trials"``, or None if rows have no size."""
    link: ClassVar[str] = "identity"
    """How the mean depends on linear predictors: ``"identity"``, ``"log"``, ``"logit"`` or ``"multinomial logit"``."""
    shape_name: ClassVar[str] = ""
    """Name of ``exp`` of a shape parameter in tables, such as ``"variance"``; of the first if an expert has several."""
    multiplied: ClassVar[str] = ""
    """What ``exp`` of a coefficient multiplies, such as ``"rate"``; empty if a coefficient adds to the mean."""
    longest_step: ClassVar[float] = 30.0
    """Largest change of a coefficient in one Newton step."""
    relaxes: ClassVar[Mapping[str, str]] = {}
    """For other families: what further experts of them may model that this family has, such as ``"overdispersion"``."""
    in_papers: ClassVar[str] = ""
    """What papers call its regression, such as ``"logistic"``; empty for the name of the family."""
    squares_tell: ClassVar[bool] = False
    """Whether squared residuals of one expert tell where two are, so that a start can be found from sums with noise."""
    range_sentence: ClassVar[str]
    """Allowed responses of the family, as a sentence for error messages."""
    message_fields: ClassVar[MessageFields]
    """For each field of the dataclass: its allowed numbers of axes, or its allowed strings."""
    B: Array
    """Coefficients: those of an expert at a place of the first axis, those of a linear predictor along the last."""

    @classmethod
    @abstractmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K equal experts at the mean of the responses, from which starts are computed."""

    @classmethod
    @abstractmethod
    def numbers(cls, p: int, q: int, options: Options) -> int:
        """Return an upper bound on the numbers allocated per expert, to check the size of a message."""

    @classmethod
    def invalid_options(cls, options: Options) -> str:
        """Return the reason why the family cannot be fitted with these options; empty if it can."""
        if options.degrees_of_freedom is None:
            return ""
        return f"degrees_of_freedom={options.degrees_of_freedom!r}: {cls.family} experts have none; leave it None"

    @classmethod
    def floor(cls, summary: ColumnSummary, fraction: float) -> Array:
        """Return the lower bound of the shapes, as :meth:`is_above` reads it: ``fraction`` of their scale."""
        return np.zeros((1, 1))

    @classmethod
    def unfittable(cls, summary: ColumnSummary) -> str:
        """Return the reason why the likelihood of responses with this summary has no maximum; empty if it has one."""
        return ""

    @classmethod
    def constant_log_density(cls, summary: ColumnSummary) -> float:
        """Return the mean log density of the responses under one distribution, the same for all rows.

        It is NaN where the first two moments of the responses do not determine it.
        """
        return float("nan")

    @classmethod
    def coefficient_scale(cls, summary: ColumnSummary) -> float:
        """Return the scale of coefficients on standardised covariates, for random starts."""
        return 1.0

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the experts of several parts."""

    # ------------------------------------------------------------------ sizes

    @property
    def K(self) -> int:
        """Number of experts."""
        return len(self.B)

    @property
    def p(self) -> int:
        """Number of coefficients per linear predictor."""
        return int(self.B.shape[-1])

    @property
    def q(self) -> int:
        """Number of responses of a row."""
        return 1

    @property
    def channels(self) -> int:
        """Number of free linear predictors per expert."""
        return 1

    @property
    def shapes(self) -> int:
        """Number of shape parameters per expert, before tying."""
        return 0

    @property
    def shape_parameters(self) -> int:
        """Number of free shape parameters of all experts."""
        return self.K * self.shapes

    @property
    def parameter_count(self) -> int:
        """Free parameters."""
        return self.K * self.channels * self.p + self.shape_parameters

    @property
    def form(self) -> str:
        """Form of the shape parameters, for families with several forms; otherwise empty."""
        return ""

    @property
    def outcomes(self) -> int | None:
        """Number of values of a response if it is small and the same for all rows; otherwise None."""
        return None

    def has_two_outcomes(self, summary: ColumnSummary) -> bool:
        """Whether each response of data with this summary is one of two values."""
        return self.outcomes == 2

    # ------------------------------------------------------------------ responses

    @abstractmethod
    def in_range(self, rows: Rows) -> bool:
        """Whether all responses are in the support; :attr:`range_sentence` describes it."""

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return for each row whether its responses ``Y (n, q)`` are in the support, ``(n,)``; as :meth:`in_range`."""
        none, sizes = np.empty((1, 0)), [None] * len(Y) if exposure is None else list(exposure[:, None])
        rows = (Rows(none, y[None], exposure=size) for y, size in zip(Y, sizes, strict=True))
        return np.array([self.in_range(row) for row in rows], dtype=bool)

    @abstractmethod
    def response_features(self, rows: Rows) -> Array:
        """Return the responses as real numbers ``(n, ·)``, for clustering and least squares in starts."""

    def at_level(self, rows: Rows) -> Self:
        """Return the blank experts with their intercepts at the overall mean of ``rows``."""
        return self

    @abstractmethod
    def invalid(self) -> str:
        """Return the reason why the arrays are not valid parameters of K experts; empty if they are."""

    # ------------------------------------------------------------------ the E-step

    @abstractmethod
    def evaluate(self, block: Block) -> Any:
        """Evaluate the experts at a block, as an :class:`Evaluated` of the family."""

    @abstractmethod
    def layout(self, p: int) -> Layout:
        """Return the shape of the family's moments."""

    @abstractmethod
    def weights(self, at: Any, tau: Array, p: int) -> Weights:
        """Return the weights to sum, given responsibilities ``tau (K, n)``; ``plain`` starts with ``Σ τ_k``."""

    # ------------------------------------------------------------------ what must be true of statistics

    def row_products(self, moments: Moments, *, intercept: bool) -> tuple[Array, Array]:
        """Return the sums ``Σ w u uᵀ`` of ``u = (x̃, y)`` that moments state whatever the experts, NaN where unknown.

        Returns
        -------
        values, sizes : (p + q, p + q) array
            The sums, and upper bounds of the same sums of absolute values.
        """
        unknown = np.full((self.p + self.q, self.p + self.q), np.nan)
        return unknown, unknown.copy()

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give, such as a negative mass; empty if nothing. Second moments may be left out."""
        if np.any(moments.plain[: self.K] < 0):
            return "a negative mass"
        return "" if is_semidefinite(unpack(moments.second)) else "second moments that are not positive semidefinite"

    def expected_log_density(self, moments: Moments) -> float | None:
        """Compute ``Σ τ_k log f_k(y | x)``, which the log-likelihood never exceeds; None if moments do not state it."""
        return 0.0 if self.discrete else None

    # ------------------------------------------------------------------ the M-step

    @abstractmethod
    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """M-step: exact, or ``fraction`` of a Newton step."""

    def shared_step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """M-step whose coefficients :attr:`Penalty.shared` are equal in all experts: one system for all of them.

        Shapes, within their bounds, maximise at the current coefficients. Coefficients maximise at these shapes where
        the M-step has a closed form; otherwise they move by ``fraction`` of a Newton step at the current ones.
        """
        T = penalty.sharing(self.K, self.channels, self.p)
        if T is None:
            return self.step(moments, penalty, intercept=intercept, fraction=fraction)
        shaped = self.with_shape_values(self.shapes_at(moments, penalty)).bounded(penalty, moments.plain[: self.K])
        at = self if self.newton_type else shaped
        R = at.ridge(penalty, intercept=intercept)
        uphill = at.score(moments)[0].ravel() - R @ at.free_coefficients()
        H = block_diag(*at.coefficient_curvature(moments)) + R
        direction = T @ solve_symmetric(T.T @ H @ T, (T.T @ uphill)[:, None])[0][:, 0]
        if self.newton_type:
            direction = fraction * cap_step(direction, self.longest_step)
        return shaped.moved(direction, np.zeros(self.shape_parameters))

    def with_shared(self, shared: Sequence[int]) -> Self:
        """Return the experts with their mean over all experts as coefficients at these places of the design row."""
        if self.K == 1 or not shared:
            return self
        B, columns = self.B.copy(), list(shared)
        B[..., columns] = B[..., columns].mean(axis=0)
        return replace(self, B=B)  # type: ignore[type-var]  # every family is a dataclass

    def full_rank(self, moments: Moments) -> bool:
        """Whether the coefficients are identified; with a ridge they always are."""
        return True

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """Return the ridge penalty, which is subtracted from the log-likelihood."""
        return quadratic(self.B, penalty.expert_matrix(self.p, intercept=intercept))

    def lower_bound(self, penalty: Penalty) -> Array:
        """Return the least shapes that are allowed beside these: the floor, and a fraction of the widest expert's."""
        return penalty.floor

    def is_above(self, floor: Array) -> bool:
        """Whether no shape is below ``floor``; always for a family without shapes."""
        return True

    def raised(self, floor: Array) -> Self:
        """Return the experts with the shapes nearest to theirs that are not below ``floor``."""
        return self

    def admissible(self, penalty: Penalty) -> bool:
        """Whether the shapes respect their lower bounds."""
        return self.is_above(self.lower_bound(penalty))

    def bounded(self, penalty: Penalty, rows: Array | None = None) -> Self:
        """Return the experts with their shapes within the bounds of ``penalty``; ``rows (K,)`` are their weights."""
        bound = self.lower_bound(penalty)
        if self.is_above(bound):
            return self
        near = self if rows is None else self.within_ratio(penalty.shape_ratio, rows)
        return near.raised(near.lower_bound(penalty))

    def within_ratio(self, ratio: float, rows: Array) -> Self:
        """Return the experts with the likeliest shapes whose ratio is bounded, where it is known how to find them."""
        return self

    # ------------------------------------------------------------------ derivatives

    @abstractmethod
    def scores(self, at: Any) -> ExpertScores:
        """Compute the complete-data scores."""

    def curvature_rows(self) -> IntArray:
        """Return which second moments are the curvature of each linear predictor, ``(K channels,)``."""
        return np.repeat(np.arange(self.K), self.channels)

    @property
    def full_curvature(self) -> bool:
        """Whether the moments contain the full curvature rather than a bound on it."""
        return True

    def coefficient_curvature(self, moments: Moments) -> Array:
        """Compute the curvature ``(K, f, f)`` by which an M-step moves coefficients, positive semidefinite."""
        f = self.channels * self.p
        return self.complete(moments)[:, :f, :f]

    @abstractmethod
    def complete(self, moments: Moments) -> Array:
        """Compute the complete-data information of each expert's coefficients and shapes, ``(K, f, f)``."""

    @abstractmethod
    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, channels, p)`` and shapes ``(K, shapes)``."""

    def tie(self) -> Array:
        """Return the matrix ``(K shapes, shape_parameters)`` from free to per-expert shapes."""
        return np.eye(self.shape_parameters)

    @abstractmethod
    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Compute the second derivative of the ridge in the free coefficients."""

    def free_coefficients(self) -> Array:
        """Return the free coefficients, flat."""
        return self.B.ravel()

    @abstractmethod
    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add changes to the free parameters."""

    # ------------------------------------------------------------------ reported parameters

    def coefficient_map(self) -> Array:
        """Return the matrix ``(c, channels)`` from the free linear predictors to the reported ones."""
        return np.eye(self.channels)

    def log_shapes(self) -> Array:
        """Return the logarithms of the reported shapes, ``(K, s)``."""
        return np.empty((self.K, 0))

    @property
    def shape_names(self) -> tuple[str, ...]:
        """Names of the columns of :meth:`log_shapes`: by default :attr:`shape_name` for each response."""
        return (self.shape_name,) * int(self.log_shapes().shape[1])

    def log_shapes_jacobian(self) -> Array:
        """Compute the derivative of :meth:`log_shapes` in the free shapes, ``(K s, shape_parameters)``.

        Rows of shapes at a bound are NaN: they have no standard errors.
        """
        return np.empty((0, 0))

    def attributes(self) -> dict[str, Array]:
        """Return the fitted attributes of an estimator besides the coefficients, by name."""
        return {}

    # ------------------------------------------------------------------ prediction

    @abstractmethod
    def mean(self, panel: Array) -> Array:
        """Compute ``E[y | x, k]`` or class probabilities, ``(K, ·, n)``; at size 1 if rows have a size."""

    def mean_slopes(self, panel: Array) -> Array:
        """Compute the derivative of :meth:`mean` in the reported linear predictors, ``(K, ·, c, n)``.

        The reported predictors are those of :meth:`coefficient_map`. The default is the identity link.
        """
        slopes = np.eye(self.channels)[:, :, None]
        return np.broadcast_to(slopes, (self.K, self.channels, self.channels, panel.shape[1]))

    def mean_shape_slopes(self, panel: Array) -> Array:
        """Compute the derivative of :meth:`mean` in the reported log shapes, ``(K, ·, s, n)``; 0 by default."""
        K, m, n = self.mean(panel).shape
        return np.zeros((K, m, self.log_shapes().shape[1], n))

    @abstractmethod
    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``, for one ordered response; ``exposure`` as in :meth:`sample`."""

    @abstractmethod
    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, for one ordered response, up to 1 for counts."""

    @abstractmethod
    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw responses ``(n, q)`` of the experts given by ``labels (n,)``; ``exposure`` is the size of each row."""

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array] | None:
        """Return responses ``(K, J, n)`` and weights ``(K, J, n)`` with ``Σ_j w f(y) ≈ E[f(Y) | x_i, k]``.

        Where it is not known how, as by default, the answer is None, and responses are drawn instead. Those of a row
        depend on that row alone, to the last bit.
        """
        return None

    @abstractmethod
    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""

    @abstractmethod
    def transformed(self, T: Array) -> Self:
        """Return the experts with coefficients ``T b``, for a change of covariate coordinates."""

    # ------------------------------------------------------------------ combining experts of several sites

    @abstractmethod
    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute ``KL(f_k(· | x_i) ‖ g_l(· | x_i))`` from each expert to each of ``other``, ``(K, L, n)``."""

    def within(self, panel: Array, own: Array, mean: Array) -> Array:
        """Sum over experts and points the statistics that a projection needs besides mean responses.

        Parameters
        ----------
        panel : (p, S) array
        own : (K, S) array
            Weight of each expert at each point.
        mean : (·, S) array
            The mean response at each point.
        """
        return np.zeros(())

    @abstractmethod
    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """Return the experts closest in divergence to responses with these means, starting from the current ones.

        An expert without weight is unchanged.

        Parameters
        ----------
        panel : (p, S) array
        mass : (K, S) array
        mean : (K, ·, S) array
        within : (K, ...) array
            As from :meth:`within`.
        """

    def barycentres(self, shares: Sequence[Share]) -> Self:
        """Return the experts closest in divergence to what ``shares`` assign to them; unchanged if nothing.

        The default suffices where the divergence depends on the assigned experts through their mean response and
        :meth:`within`; other families start from it.
        """
        mass, mean, within = zip(*(share.gathered(self.K) for share in shares), strict=True)
        panel = np.concatenate([share.panel for share in shares], axis=1)
        return self.projected(panel, np.concatenate(mass, axis=1), np.concatenate(mean, axis=2), np.sum(within, axis=0))

    def like(self, other: Self) -> Self:
        """Return the same experts with the shape parameters in the form of ``other``."""
        return self

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return the shapes as numbers ``(K, m)`` that may be averaged over sites."""
        return np.empty((self.K, 0))

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these shapes; inverse of :meth:`shape_values`."""
        return self

    @property
    def ties_shapes(self) -> bool:
        """Whether all experts share one shape."""
        return False

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute the shape values ``(K, m)`` that maximise the likelihood at the current coefficients."""
        return self.shape_values()

    def with_wide_shapes(self, summary: ColumnSummary, factor: float) -> Self:
        """Return the experts with shapes ``factor`` times the spread of the responses."""
        return self

    def relabelled(self, moments: Moments, permutation: IntArray) -> Moments | None:
        """Return moments at these experts as if their labels had been permuted; None if not supported."""
        return None


@runtime_checkable
class MomentExperts(Protocol):
    """Experts that can be compared and averaged in closed form from second moments of the covariates."""

    def moment_costs(self, others: Self, mass: Array, second: Array) -> Array:
        """Compute the divergence from each expert to each of ``others``, summed over its rows, ``(L, K)``."""

    def moment_barycentres(self, parts: Self, labels: IntArray, mass: Array, second: Array) -> Self:
        """Compute for each of these experts the barycentre of the ``parts`` that ``labels (L,)`` assign to it."""

    def largest_precision(self, second: Array) -> Array:
        """Return the diagonal of each expert's information for known labels, ``(K, f)``: a bound on precisions."""

    def labelled_precision(self, second: Array) -> Array:
        """Return each expert's information for known labels, ``(K, f, f)``, from ``second (K, p, p)``."""


def arrays_problem(arrays: Mapping[str, tuple[Array, tuple[int, ...]]]) -> str:
    """Return the reason why arrays have unexpected shapes or are not finite, in one sentence; empty if valid.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import arrays_problem
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

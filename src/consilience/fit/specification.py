"""Specification of the mixture to fit: family, gate, number of experts, penalties; checks of what can be fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from consilience.errors import DegenerateFitWarning, InvalidInputError, RankDeficientWarning, TooFewRowsError, warn
from consilience.fit.climb import Ascent
from consilience.model import ColumnSummary, Design, Experts, Gate, Mixture, Options, Penalty, Rows
from consilience.model.families.base import MomentExperts
from consilience.model.families.covariance import as_structure
from consilience.model.families.registry import family_of
from consilience.model.gates import gate_of
from consilience.model.information import free_count
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.linalg import solve_symmetric


@dataclass(frozen=True)
class Specification:
    """The mixture to fit and its penalties.

    Parameters
    ----------
    K : int
        Number of experts.
    family : str
        Name of a family of experts, as in :data:`~consilience.model.FAMILIES`.
    gate : str
        Name of a gate, as in :data:`~consilience.model.GATES`.
    structure : {"full", "diag", "spherical", "tied"}
        Covariance structure of Gaussian experts.
    n_classes : int
        Number of classes of categorical experts.
    degrees_of_freedom : float or None
        Degrees of freedom of Student-t experts; None to estimate those of each expert.
    intercept : bool
    gate_ridge : float
        Total ridge penalty on the variance of the gate's linear predictors over the rows.
    expert_ridge : float or None
        Total ridge penalty on the experts' slopes, in standardised coordinates, per squared scale of the response
        (:meth:`~consilience.model.families.base.Experts.coefficient_scale`); None for the family's default, which is
        on the variance of their linear predictors.
    reg_covar : float
        Lower bound of the variances, as a fraction of the responses' covariance.
    shape_ratio : float
        Largest ratio of the variances, or dispersions, of two experts; counts need no bound.
    expert_columns, gate_columns : tuple of int or None
        The covariates that experts and gate read, in increasing order; None for all.
    shared : tuple of int
        The covariates whose coefficients are equal in all experts, in increasing order.

    Examples
    --------
    >>> from consilience.fit import Specification
    >>> Specification(K=3).family
    'gaussian'
    >>> Specification(K=3, gate="typo")
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: gate 'typo': expected one of softmax, constant
    """

    K: int
    family: str = "gaussian"
    gate: str = "softmax"
    structure: str = "full"
    n_classes: int = 2
    intercept: bool = True
    gate_ridge: float = 1e-3
    expert_ridge: float | None = None
    reg_covar: float = 1e-6
    shape_ratio: float = 100.0
    degrees_of_freedom: float | None = None
    expert_columns: tuple[int, ...] | None = None
    gate_columns: tuple[int, ...] | None = None
    shared: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        family_of(self.family)
        gate_of(self.gate)
        as_structure(self.structure)
        if problem := self.experts.invalid_options(self.options):
            raise InvalidInputError(problem)

    @property
    def experts(self) -> type[Experts]:
        """The family of experts."""
        return family_of(self.family)

    @property
    def gate_type(self) -> type[Gate]:
        """The type of gate."""
        return gate_of(self.gate)

    @property
    def options(self) -> Options:
        """Options that some families read."""
        return Options(self.intercept, self.structure, self.n_classes, self.degrees_of_freedom)

    def with_order(self, K: int) -> Specification:
        """Return the same specification with another number of experts."""
        return replace(self, K=K)

    def penalty(self, summary: ColumnSummary) -> Penalty:
        """Return the ridges and the bounds of the shapes for data with this summary."""
        form = summary.form(self.intercept, self.expert_columns)
        ridge = self.experts.default_ridge if self.expert_ridge is None else self.expert_ridge
        scale = self.experts.coefficient_scale(summary) if ridge > 0 else 1.0
        return Penalty(
            self.gate_ridge,
            ridge / scale**2,
            self.experts.floor(summary, self.reg_covar),
            self.shape_ratio,
            gate_form=summary.form(self.intercept, self.gate_columns),
            expert_form=form if self.expert_ridge is None else None,
            shared=self._shared_places(summary),
        )

    def _shared_places(self, summary: ColumnSummary) -> tuple[int, ...]:
        """Return the places of the shared coefficients in the design row; a covariate that is not read has none."""
        if not self.shared:
            return ()
        read = self.designs(summary)[0].read
        return tuple(i + self.intercept for i, j in enumerate(read) if j in self.shared)

    @property
    def needs_covariates(self) -> bool:
        """Whether combining fits needs covariate points: the gate reads covariates, or moments are not sufficient."""
        return self.gate_type.reads_covariates or not self.has_moments

    @property
    def has_moments(self) -> bool:
        """Whether second moments of the covariates are sufficient to combine experts."""
        return issubclass(self.experts, MomentExperts)

    def blank(self, summary: ColumnSummary) -> Mixture:
        """Return a mixture of K equal experts on standardised covariates, from which starts are computed."""
        design, of_gate = self.designs(summary)
        experts = self.experts.blank(self.K, design.p, summary, self.options)
        gate = self.gate_type.blank(self.K, design.p if of_gate is None else of_gate.p)
        return Mixture(design, gate, experts, of_gate)

    def designs(self, summary: ColumnSummary) -> tuple[Design, Design | None]:
        """Return the coordinates of the experts' covariates, and those of the gate's if they are others."""
        same = self.gate_columns == self.expert_columns or not self.gate_type.reads_covariates
        gate = None if same else summary.design(self.intercept, self.gate_columns)
        return summary.design(self.intercept, self.expert_columns), gate


# ---------------------------------------------------------------- checks


def check_start(start: Mixture, blank: Mixture) -> None:
    """Raise an error if a start has another family, gate or shape than ``blank``, a mixture of the model to fit."""
    for part, got, expected in (
        ("gate", start.gate.kind, blank.gate.kind),
        ("family of experts", start.experts.family, blank.experts.family),
        ("covariance or degrees of freedom", start.experts.form, blank.experts.form),
        ("intercept", start.design.intercept, blank.design.intercept),
        ("number of coefficients", _shape(start), _shape(blank)),
    ):
        if got != expected:
            raise InvalidInputError(f"the start has another {part} than the model: got {got}, expected {expected}")
    problem = start.experts.invalid() or start.gate.invalid(start.reads.p)
    if problem:
        raise InvalidInputError(f"the start is not a valid mixture: {problem}; pass the mixture_ of a fit")


def _shape(mixture: Mixture) -> tuple[int, int, int]:
    return mixture.K, mixture.experts.channels, mixture.design.d + mixture.design.intercept


def validate_orders(orders: Any) -> tuple[int, ...]:
    """Return the numbers of experts to compare; raise an error if they are not whole numbers of at least 1."""
    several = "expected several numbers of experts"
    if isinstance(orders, int | np.integer):
        raise InvalidInputError(f"orders={orders!r}: {several}, as in orders=range(1, {max(int(orders), 1) + 1})")
    if not isinstance(orders, Iterable) or isinstance(orders, str | bytes):
        raise InvalidInputError(f"orders={orders!r}: {several}, as in orders=range(1, 7)")
    found = tuple(orders)
    if not found:
        raise InvalidInputError(f"orders is empty: {several}, as in orders=range(1, 7)")
    for K in found:
        if not isinstance(K, int | np.integer) or isinstance(K, bool) or K < 1:
            raise InvalidInputError(f"orders has {K!r}: expected whole numbers of at least 1")
    return found


def check_labels(parts: Sequence[Rows], K: int) -> None:
    """Raise an error if there are fewer labels than experts over all ``parts`` of the data."""
    labels = sum(rows.n if rows.groups is None else len(rows.groups.bounds) - 1 for rows in parts)
    what = "rows" if parts[0].groups is None else "groups"
    if labels < K:
        raise InvalidInputError(
            f"n_samples={labels} {what} for {K} experts: pass at least as many {what} as experts,"
            " or ask for fewer experts"
        )


def check_no_ridge(specification: Specification, method: str, instead: str) -> None:
    """Raise an error if experts have a ridge, for a method whose steps know none."""
    if specification.expert_ridge:
        raise InvalidInputError(f"{method} has no expert_ridge: leave it out, or use {instead}")


def check_same_covariates(specification: Specification, method: str, instead: str) -> None:
    """Raise an error if gate or experts read some of the covariates, for a method in which both read all."""
    if specification.gate_columns is not None or specification.expert_columns is not None:
        raise InvalidInputError(
            f"gate and experts of {method} read the same covariates: leave gate_features and expert_features out, "
            f"or use {instead}"
        )


def check_fittable(specification: Specification, summary: ColumnSummary) -> None:
    """Raise an error for data on which the likelihood has no maximum."""
    if not (np.all(np.isfinite(summary.x_products)) and np.all(np.isfinite(summary.y_products))):
        raise InvalidInputError(
            "X or y has values whose squares overflow: rescale the columns, or leave these rows out"
        )
    if not summary.weight > 0:
        raise InvalidInputError("all weights are zero: pass at least one positive sample_weight")
    problem = specification.experts.unfittable(summary)
    if problem:
        raise InvalidInputError(problem)


def check_size(specification: Specification, rows: Rows, summary: ColumnSummary) -> None:
    """Raise an error if several experts have more parameters than responses, unless by a ridge; warn if it is near."""
    check_labels([rows], specification.K)
    check_fittable(specification, summary)
    if specification.K == 1 or specification.expert_ridge:
        return
    P = _free_parameters(specification, summary)
    n = rows.Y.size if rows.weight is None else rows.Y[rows.weight > 0].size
    said = f"{specification.K} experts have {P:,} parameters"
    if n < P:
        raise TooFewRowsError(f"{said}, more than the {n:,} observed responses: {_fewer(specification, summary, n)}")
    if n < 2 * P:
        what = f"{said} for {n:,} observed responses: estimates follow the noise"
        warn(f"{what}; {_fewer(specification, summary, n)}", DegenerateFitWarning)


def _free_parameters(specification: Specification, summary: ColumnSummary) -> int:
    """Return the number of free parameters of the mixture to fit."""
    return free_count(specification.blank(summary), specification.penalty(summary))


def _fewer(specification: Specification, summary: ColumnSummary, n: int) -> str:
    """Return how many experts have half as many parameters as responses, or what else helps if it is none.

    The number of parameters is a line in the number of experts.
    """
    two, three = (_free_parameters(specification.with_order(K), summary) for K in (2, 3))
    most = 2 + (n // 2 - two) // (three - two)
    if 1 <= most < specification.K:
        return f"fit at most {most} expert{'s' * (most > 1)}"
    if summary.x_mean.size:
        return "use fewer covariates, or a ridge (expert_ridge)"
    return "use fewer columns" + (", or covariance_type='diag'" if specification.structure in ("full", "tied") else "")


def warn_of_degeneracy(ascent: Ascent, penalty: Penalty) -> None:
    """Warn of experts with too few rows, with a shape at a bound, or with a rank-deficient design."""
    if reason := degeneracy(ascent, penalty):
        warn(f"{reason}: refit with fewer experts{_remedy(ascent, penalty)}", DegenerateFitWarning)
    if penalty.expert_ridge == 0 and not _has_full_rank(ascent, penalty):
        warn(
            "the covariates are linearly dependent among the rows of an expert: its coefficients are the minimum-norm "
            "solution and have no standard errors; use fewer experts or covariates",
            RankDeficientWarning,
        )


ROWS_PER_COEFFICIENT = 2.5
"""Minimum of an expert's rows per coefficient in a mixture: with fewer, labels follow the noise."""
AT_BOUND = 1.001
"""Multiple of a lower bound up to which a shape is at it."""


def coefficients_per_row(mixture: Mixture, shared: int = 0) -> int:
    """Return how many coefficients of an expert one observed number informs: ``p``, or ``(C - 1) p`` for C classes.

    Those that are ``shared`` with other experts are not counted.
    """
    experts, own = mixture.experts, mixture.experts.p - shared
    return own if experts.several_responses else own * experts.channels


def _has_full_rank(ascent: Ascent, penalty: Penalty) -> bool:
    """Whether the coefficients are identified; a shared one is if the rows of all experts together tell it."""
    experts, moments = ascent.mixture.experts, ascent.statistics.experts
    T = penalty.sharing(experts.K, experts.channels, experts.p)
    if T is None:
        return experts.full_rank(moments)
    H = T.T @ block_diag(*experts.coefficient_curvature(moments)) @ T
    return solve_symmetric(H, np.zeros((len(H), 1)))[1]


def degeneracy(ascent: Ascent, penalty: Penalty) -> str:
    """Return which expert is none, and by how much: too few rows, or a shape at a bound; empty if all are experts."""
    return _with_few_rows(ascent, penalty) or _with_bounded_shape(ascent, penalty)


def _with_few_rows(ascent: Ascent, penalty: Penalty) -> str:
    """Return which expert has too few rows for its coefficients; empty if none."""
    rows, coefficients = _rows_of_experts(ascent), coefficients_per_row(ascent.mixture, len(penalty.shared))
    k, needed = int(np.argmin(rows)), max(ROWS_PER_COEFFICIENT * coefficients, 1.0)
    if len(rows) == 1 or rows[k] >= needed:
        return ""
    have = "less than one row" if rows[k] < 1 else f"{rows[k]:.0f} rows"
    return f"expert {k + 1} has {have} for {coefficients} coefficients, at least {needed:.0f} are needed"


def _with_bounded_shape(ascent: Ascent, penalty: Penalty) -> str:
    """Return which expert has a shape at its lower bound, with its rows; empty if none."""
    mixture, order = ascent.mixture, shown_order(ascent)
    if not is_at_bound(mixture, penalty):
        return ""
    k = next(k for k in range(mixture.K) if is_at_bound(mixture, penalty, order[k]))
    of = f"the {mixture.experts.shape_name} of expert {k + 1}, with {_rows_of_experts(ascent)[k]:.0f} rows,"
    if _is_on_floor(mixture, penalty):
        return f"{of} is at its floor (set by reg_covar)"
    return f"{of} is at its bound, 1/{penalty.shape_ratio:g} of the largest (set by shape_ratio)"


def _rows_of_experts(ascent: Ascent) -> Array:
    """Return the expected number of rows of each expert, or of labels, in the order in which they are shown."""
    K, statistics = ascent.mixture.K, ascent.statistics
    return np.maximum(statistics.gate.plain[:K], statistics.experts.plain[:K])[shown_order(ascent)]


def shown_order(ascent: Ascent) -> IntArray:
    """Return the order in which the experts of an ascent are shown: by decreasing share of the labels."""
    return np.argsort(-ascent.statistics.gate.plain[: ascent.mixture.K], kind="stable")


def _remedy(ascent: Ascent, penalty: Penalty) -> str:
    """Return what helps besides fewer experts."""
    if _with_few_rows(ascent, penalty) or not is_at_bound(ascent.mixture, penalty):
        return ""
    if _is_on_floor(ascent.mixture, penalty):
        return ", or drop duplicate rows and responses that are exact functions of X"
    return ", or with a larger shape_ratio if so narrow an expert is expected"


def _is_on_floor(mixture: Mixture, penalty: Penalty) -> bool:
    return not mixture.experts.is_above(AT_BOUND * penalty.floor)


def is_at_bound(mixture: Mixture, penalty: Penalty, k: int | None = None) -> bool:
    """Whether the shape of an expert, or of expert ``k``, is at its floor or at the bound of the ratio of shapes."""
    experts, bound = mixture.experts, AT_BOUND * mixture.experts.lower_bound(penalty)
    return not (experts if k is None else experts.permuted(np.array([k]))).is_above(bound)


def is_degenerate(ascent: Ascent, penalty: Penalty) -> bool:
    """Whether an expert of a fit is none (:func:`degeneracy`): such ends, likely spurious, are ranked last."""
    return bool(degeneracy(ascent, penalty))

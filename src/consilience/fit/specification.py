"""Specification of the mixture to fit: family, gate, number of experts, penalties; checks of what can be fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.errors import DegenerateFitWarning, InvalidInputError, RankDeficientWarning, warn
from consilience.fit.climb import Ascent
from consilience.model import ColumnSummary, Design, Experts, Gate, Mixture, Options, Penalty, Rows
from consilience.model.families.base import MomentExperts
from consilience.model.families.covariance import as_structure
from consilience.model.families.registry import family_of
from consilience.model.gates import gate_of


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
    expert_columns, gate_columns : tuple of int or None
        The covariates that experts and gate read, in increasing order; None for all.

    Examples
    --------
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
    degrees_of_freedom: float | None = None
    expert_columns: tuple[int, ...] | None = None
    gate_columns: tuple[int, ...] | None = None

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
        """Return the ridges and the variance floor for data with this summary."""
        form = summary.form(self.intercept, self.expert_columns)
        ridge = self.experts.default_ridge if self.expert_ridge is None else self.expert_ridge
        scale = self.experts.coefficient_scale(summary) if ridge > 0 else 1.0
        return Penalty(
            self.gate_ridge,
            ridge / scale**2,
            self.experts.floor(summary, self.reg_covar),
            gate_form=summary.form(self.intercept, self.gate_columns),
            expert_form=form if self.expert_ridge is None else None,
        )

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


def warn_of_degeneracy(ascent: Ascent, penalty: Penalty) -> None:
    """Warn of experts without rows, on the variance floor, or with a rank-deficient design."""
    if reason := degeneracy(ascent, penalty):
        warn(f"{reason}: {_remedy(ascent, penalty)}", DegenerateFitWarning)
    if penalty.expert_ridge == 0 and not ascent.mixture.experts.full_rank(ascent.statistics.experts):
        warn(
            "the covariates are linearly dependent among the rows of an expert: its coefficients are the minimum-norm "
            "solution and have no standard errors; use fewer experts or covariates",
            RankDeficientWarning,
        )


def degeneracy(ascent: Ascent, penalty: Penalty) -> str:
    """Return the reason why a fit is degenerate: an expert without rows, or on the variance floor; empty if not."""
    mixture, statistics = ascent.mixture, ascent.statistics
    mass = np.maximum(statistics.gate.plain[: mixture.K], statistics.experts.plain[: mixture.K])  # labels, or rows
    empty = int(np.sum(mass < 1.0))
    if empty:
        return f"{empty} of {mixture.K} experts have less than one row"
    if on_floor(mixture, penalty):
        return f"an expert's {mixture.experts.shape_name} is at its floor (set by reg_covar)"
    return ""


def _remedy(ascent: Ascent, penalty: Penalty) -> str:
    if not on_floor(ascent.mixture, penalty):
        return "refit with fewer experts"
    return (
        "it fits a few rows exactly; refit with fewer experts, or drop duplicate rows and responses that are exact "
        "functions of X"
    )


def on_floor(mixture: Mixture, penalty: Penalty) -> bool:
    """Whether an expert's covariance is at the variance floor."""
    raised = replace(penalty, floor=1.001 * penalty.floor)
    return not mixture.experts.admissible(raised)

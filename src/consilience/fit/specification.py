"""Specification of the mixture to fit: family, gate, number of experts and penalties."""

from __future__ import annotations

from dataclasses import dataclass, replace

from consilience.errors import InvalidInputError
from consilience.model.design import Design
from consilience.model.families.base import Experts, MomentExperts, Options
from consilience.model.families.covariance import as_structure
from consilience.model.families.registry import family_of
from consilience.model.gates import Gate, gate_of
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.summary import ColumnSummary


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

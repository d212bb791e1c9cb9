"""A maximum likelihood problem: a specification on data with a known summary, and what is derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from consilience.fit.climb import Ascent, Climb, Expect, Quadratic, Stop, climb
from consilience.fit.fitting import Fit, finish_fit, rank_ascents
from consilience.fit.inference import InferredFit
from consilience.fit.specification import Specification, check_fittable, check_start
from consilience.fit.starts import StartEnds
from consilience.model import ColumnSummary, Design, Mixture, Penalty


@dataclass(frozen=True, eq=False)
class Problem:
    """A specification, the summary of the data, and how the likelihood is maximised; derived values are computed once.

    Parameters
    ----------
    specification : Specification
    summary : ColumnSummary
        Of all rows.
    tol, max_iter, newton, near
        As in :func:`~consilience.fit.climb`.

    Examples
    --------
    >>> from consilience.fit import Problem, Specification
    >>> from consilience.model import ColumnSummary
    >>> import numpy as np
    >>> summary = ColumnSummary(9.0, np.zeros(1), np.eye(1), np.zeros(1), np.eye(1))
    >>> Problem(Specification(K=2), summary).penalty.gate_ridge
    0.001
    """

    specification: Specification
    summary: ColumnSummary
    tol: float = 1e-9
    max_iter: int = 500
    newton: bool = True
    near: bool = False

    @cached_property
    def penalty(self) -> Penalty:
        """Ridges, and bounds of the shapes."""
        return self.specification.penalty(self.summary)

    @cached_property
    def blank(self) -> Mixture:
        """K equal experts on standardised covariates."""
        return self.specification.blank(self.summary)

    @property
    def design(self) -> Design:
        """Standardised coordinates of the covariates."""
        return self.blank.design

    def check(self) -> None:
        """Raise a named error where the likelihood has no maximum."""
        check_fittable(self.specification, self.summary)

    def from_start(self, start: Mixture) -> Mixture:
        """Return a given start in the coordinates of the problem; an error where it is of another kind."""
        check_start(start, self.blank)
        return start.in_coordinates_of(self.blank)

    def climb(self, start: Mixture) -> Climb:
        """Maximise the likelihood from ``start``."""
        return climb(start, self.penalty, tol=self.tol, max_iter=self.max_iter, newton=self.newton, near=self.near)

    def climb_from_sample(self, sample: Ascent) -> Climb:
        """Maximise the likelihood from the maximum of that of a sample of the rows, in few passes.

        With the information in its statistics, the first steps use the sample's curvature.
        """
        statistics, weight = sample.statistics, max(sample.statistics.weight, 1.0)
        model = Quadratic.at(sample.mixture, statistics, self.penalty) if self.newton else None
        scaled = None if model is None else model.scaled(self.summary.weight / weight)
        most = self.max_iter
        return climb(
            sample.mixture, self.penalty, tol=self.tol, max_iter=most, newton=self.newton, near=True, sampled=scaled
        )

    def ranked(self, ascents: Sequence[Ascent]) -> list[Ascent]:
        """Sort ascents, best first; degenerate ones, likely spurious, come last."""
        return rank_ascents(ascents, self.penalty)

    def evaluate(self, mixture: Mixture, stop: Stop, *, information: bool = False) -> Climb:
        """Compute the statistics at ``mixture`` in one pass: the end of a method that does not climb.

        Parameters
        ----------
        mixture : Mixture
            In the coordinates of the problem.
        stop : StopReason or MethodStop
        information : bool
            Whether the observed information is computed too, for standard errors.
        """
        statistics = yield Expect(mixture, information=information)
        value = mixture.penalised(statistics, self.penalty)
        return Ascent(mixture, statistics, (value,), 1, int(information), 0, stop)

    def fit(self, end: Ascent, ends: Sequence[Ascent] | None = None, *, without: str = "") -> Fit:
        """Return the fit at ``end``, with its standard errors or the reason why it has none.

        Parameters
        ----------
        end : Ascent
        ends : sequence of Ascent, optional
            Ascents from different starts, whose values are evidence; ``end`` alone by default.
        without : str
            Reason why the fit has no standard errors, which the model shows in their place; if it is empty, they are
            computed from the information of the last pass.
        """
        ends = [end] if ends is None else ends
        kinds = tuple(f"start {i}" for i in range(len(ends)))
        fit = finish_fit(end, self.penalty, StartEnds(tuple(each.penalised for each in ends), kinds))
        fit = replace(fit, two_outcomes=fit.mixture.experts.has_two_outcomes(self.summary))
        return InferredFit.without(fit, without) if without else fit

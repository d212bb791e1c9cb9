"""Gradient EM: federated EM with short messages, ``K (p + 1)`` numbers per round for regressions.

The sum ``Σ x̃ x̃ᵀ`` over all rows is requested once. The second moments of an expert with a fraction ``n_k / N`` of the
rows are approximated by that fraction of the sum, so that its step ``(N / n_k) (Σ x̃ x̃ᵀ)⁻¹ Σ τ_k r x̃`` needs no second
moments of its own. If the covariates of an expert's rows have another distribution, the step has another length but the
same fixed points; steps that decrease the likelihood are rejected and shortened. For two regressions with opposite
coefficients the step is that of exact EM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.disagreement import CrossLikelihood
from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, InferredFit, Problem, Specification, StopReason
from consilience.fit.climb import HALVINGS, ROUNDING, is_over_same_data
from consilience.messages import Answers, Dialogue, ScoreSums, Several, Total
from consilience.methods import Method, Task
from consilience.methods.federated_em import GRADIENT_EM, judges, starting_points, survey_columns
from consilience.methods.score_steps import each_score
from consilience.methods.site_reports import compare_sites
from consilience.model import Mixture, Moments, Penalty, Statistics, multinomial
from consilience.model.families.registry import gaussian, standard_regression
from consilience.numerics.arrays import Array, pack, unpack
from consilience.published.spectral import spectral_start, symmetric_mixture

SHORT = (
    "GradientEM asks for no second moments of each expert: for standard errors, fit with FederatedEM from this fit's "
    "mixture_"
)


@dataclass(frozen=True)
class GradientEM(Method):
    """Federated EM with short messages: gradients, preconditioned by one sum of ``x xᵀ`` over all rows.

    It needs more rounds than :class:`FederatedEM`, each with ``K (p + 1)`` numbers instead of about ``K p² / 2`` (a
    gate that reads covariates adds ``K p``). Standard errors are not available.

    Parameters
    ----------
    symmetric : bool
        Whether the two regressions have opposite coefficients, ``y = ± xᵀb + e``, equal weights and one variance. The
        step is then that of exact EM, and the start is computed from the spectrum of ``Σ y² x xᵀ``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GradientEM, MixtureOfRegressions
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = rng.choice([-1, 1], 2000) * (X @ [1.0, 2.0, -2.0]) + 0.5 * rng.normal(size=2000)
    >>> sites = Federation({"north": (X[:900], y[:900]), "south": (X[900:], y[900:])})
    >>> pair = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    >>> fit = sites.fit(pair, method=GradientEM(symmetric=True))
    >>> np.abs(fit.model.coef_.round(1))
    array([[1., 2., 2.],
           [1., 2., 2.]])
    """

    symmetric: bool = False

    def dialogue(self, task: Task) -> Dialogue[tuple[InferredFit]]:
        """Return one fit."""
        specification = task.only("GradientEM")
        self._check(specification, task.q)
        summary, starters, survey = yield from survey_columns(task)
        problem = task.problem(specification, summary)
        design = problem.design
        cross: CrossLikelihood | None = None
        if self.symmetric and task.start is None:
            found = yield from spectral_start(design, specification.structure)
            mixture, Sxx, of_gate = found.mixture, found.Sxx, found.Sxx
            statistics: Statistics = yield Total(ScoreSums(mixture))
        else:
            judging = judges(tuple(site.name for site in survey.sites), starters)
            starts = yield from starting_points(problem, task, starters, 1, judging)
            mixture, cross = starts.mixtures[0], starts.cross
            mixture = nearest_pair(mixture) if self.symmetric else mixture
            Sxx, of_gate, statistics = yield from _first_sums(mixture)
        preconditioner = Preconditioner(Sxx, problem.penalty, self.symmetric, of_gate)
        ascent = yield from _climbed(mixture, statistics, preconditioner, problem)
        if len(survey.sites) > 1:
            each = yield from each_score(ascent.mixture)
            survey = yield from compare_sites(survey, cross, each, ascent.mixture)
        return (InferredFit.without(replace(problem.fit(ascent, [ascent]), survey=survey), SHORT),)

    def _check(self, specification: Specification, q: int) -> None:
        GRADIENT_EM.check(specification.family, specification.gate, q)
        if self.symmetric and (specification.K != 2 or specification.gate_type.reads_covariates):
            raise InvalidInputError("symmetric=True is for two regressions: use MixtureOfRegressions(2)")


def _first_sums(mixture: Mixture) -> Dialogue[tuple[Array, Array, Statistics]]:
    """Ask for ``Σ x̃ x̃ᵀ`` of the experts' and of the gate's covariates, and for the scores of the start."""
    designs = (mixture.design,) if mixture.gate_design is None else (mixture.design, mixture.gate_design)
    asked = [Expect(standard_regression(design)) for design in designs]
    answers: Answers = yield Total(Several((*asked, ScoreSums(mixture))))
    *sums, statistics = answers.items
    products = [unpack(each.experts.second)[0] for each in sums]
    return products[0], products[-1], statistics


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """Constants of the rounds: sums over all rows, the penalty, and whether experts are ``± b``.

    ``Sxx (p, p)`` is ``Σ x̃ x̃ᵀ`` of the experts' covariates, ``of_gate`` that of the gate's.
    """

    Sxx: Array
    penalty: Penalty
    symmetric: bool
    of_gate: Array

    def step(self, mixture: Mixture, statistics: Statistics, length: float) -> Mixture:
        """Take a step from statistics without second moments, with step length ``length``."""
        if self.symmetric:
            statistics = mirror(statistics)
        return mixture.maximise(self.completed(mixture, statistics, length), self.penalty)

    def completed(self, mixture: Mixture, statistics: Statistics, length: float) -> Statistics:
        """Add second moments: each expert's fraction of ``Σ x̃ x̃ᵀ / length``, and an upper bound for the gate."""
        n = statistics.experts.plain[: mixture.K]
        share = n / max(float(n.sum()), np.finfo(float).tiny)
        S = pack(self.Sxx) / length
        gate, experts = statistics.gate, statistics.experts
        if mixture.gate.reads_covariates:
            labels = statistics.weight / max(float(n.sum()), np.finfo(float).tiny)
            bounds = multinomial.curvature_bounds(mixture.K, mixture.reads.p) * labels
            gate = replace(gate, second=bounds[:, None] * pack(self.of_gate) / length)
        return replace(statistics, gate=gate, experts=replace(experts, second=share[:, None] * S))


def nearest_pair(mixture: Mixture) -> Mixture:
    """Return the pair ``± b`` nearest to two regressions, with equal weights and their mean variance."""
    experts = gaussian(mixture.experts)
    b, sigma2 = (experts.B[0, 0] - experts.B[1, 0]) / 2, float(experts.variances.mean())
    return symmetric_mixture(mixture.design, b, sigma2, experts.structure)


def mirror(statistics: Statistics) -> Statistics:
    """Symmetrise the statistics of two experts ``± b``: average those of the first with the negated second."""
    experts, gate = statistics.experts, statistics.gate
    rows, squares = experts.plain[:2].mean(), experts.plain[2:].mean()
    first = (experts.first[0] - experts.first[1]) / 2
    moments = Moments(np.array([rows, rows, squares, squares]), np.array([first, -first]), experts.second)
    return replace(statistics, experts=moments, gate=replace(gate, plain=np.full(2, gate.plain.mean())))


def _climbed(
    mixture: Mixture, statistics: Statistics, preconditioner: Preconditioner, problem: Problem
) -> Dialogue[Ascent]:
    """Iterate: halve the step length if the likelihood decreases, double it (up to 1) after an accepted step."""
    value = mixture.penalised(statistics, preconditioner.penalty)
    trace, segments, length, halvings, stop = [value], [0], 1.0, 0, StopReason.MAX_ITER
    for _ in range(problem.max_iter):
        proposal = preconditioner.step(mixture, statistics, length)
        answer: Statistics = yield Total(ScoreSums(proposal))
        new = proposal.penalised(answer, preconditioner.penalty)
        if not is_over_same_data(answer, statistics):  # a site left: a new segment of the trace
            mixture, statistics, value = proposal, answer, new
            segments.append(len(trace))
            trace.append(value)
            continue
        if not new >= value - ROUNDING * answer.scale:
            length, halvings = length / 2, halvings + 1
            if length < 0.5**HALVINGS:
                stop = StopReason.STALLED
                break
            continue
        gain, full = new - value, length == 1
        mixture, statistics, value, length = proposal, answer, new, min(2 * length, 1.0)
        trace.append(value)
        if full and gain <= problem.tol * statistics.weight:
            stop = StopReason.CONVERGED_EM
            break
    ended = preconditioner.completed(mixture, statistics, 1.0)
    return Ascent(mixture, ended, tuple(trace), len(trace) + halvings, 0, halvings, stop, tuple(segments))

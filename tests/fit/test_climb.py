"""The climb: a conversation that never goes down, whoever answers, and says why it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from consilience.datasets import soft
from consilience.fit import Ascent, Expect, Problem, Specification, StopReason, climb, drive, fit_mixture
from consilience.fit.climb import (
    ROUNDING,
    Quadratic,
    decrement_bound,
    is_far_outdone,
    newton_step,
    shorten_step,
    takes_few_steps,
)
from consilience.fit.inference import inverse_information
from consilience.fit.starts import mixture_from, responder, soften_labels, start_sample
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Penalty, PoissonExperts, Rows, expect
from consilience.model.gates import SoftmaxGate
from consilience.model.information import coefficient_slice, gate_slice, shape_slice
from consilience.model.statistics import Statistics
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array
from families import SIZED
from simulated import FAMILIES, Simulated, simulated
from strategies import Shape, shapes, take_labels


def start_of(data: Simulated) -> tuple[Mixture, Penalty]:
    """A mixture made from labels by chance, and the default penalty."""
    summary = column_summary(data.rows)
    ground = start_sample(data.rows, data.specification, summary)
    labels = np.random.default_rng(1).integers(0, 2, ground.m)
    return mixture_from(soften_labels(labels, 2), ground), data.specification.penalty(summary)


def answering(rows: Rows) -> Callable[[Expect], Statistics]:
    return responder(rows, "test", None)


def penalised(mixture: Mixture, rows: Rows, penalty: Penalty) -> float:
    """The penalised likelihood by its definition: log densities of labels, and squared slopes."""
    present = np.ones(rows.n) if rows.weight is None else rows.weight
    mass = present if rows.groups is None else np.bincount(rows.groups.codes, present) > 0
    value = float(np.sum(mass * mixture.log_density(rows)))
    slopes = slice(int(mixture.design.intercept), None)
    if isinstance(mixture.gate, SoftmaxGate):
        value -= 0.5 * penalty.gate_ridge * np.sum(mixture.gate.alpha[:, slopes] ** 2)
    value -= 0.5 * penalty.expert_ridge * np.sum(mixture.experts.B[..., slopes] ** 2)
    return value


# ---------------------------------------------------------------------- never down


@pytest.mark.slow
@settings(max_examples=200)
@given(shapes(max_n=40))
def test_penalised_likelihood_never_falls(shape: Shape) -> None:
    mixture, rows = shape.problem()
    penalty = Penalty(1e-3, 1e-3, 1e-6 * np.atleast_2d(np.cov(rows.Y.T, bias=True)) + 1e-9 * np.eye(rows.Y.shape[1]))
    asked: list[tuple[float, float, float]] = []  # what climb was told, the definition, the scale of rounding

    def respond(question: Expect) -> Statistics:
        answer = expect(question.mixture, rows, information=question.information)
        claim = question.mixture.penalised(answer, penalty)
        asked.append((claim, penalised(question.mixture, rows, penalty), answer.absolute))
        return answer

    ascent = drive(climb(mixture, penalty, max_iter=30), respond)
    accepted = [next(entry for entry in asked if entry[0] == value) for value in ascent.trace]
    values, scale = np.array([entry[1] for entry in accepted]), np.array([entry[2] for entry in accepted])
    assert np.all(np.diff(values) >= -3 * ROUNDING * (scale[1:] + scale[:-1] + 1))
    assert np.isclose(penalised(ascent.mixture, rows, penalty), ascent.penalised, rtol=1e-11, atol=1e-9)
    assert ascent.passes == len(asked)
    assert ascent.n_iter == len(ascent.trace) - 1


# ---------------------------------------------------------------------- a conversation


def test_climb_can_be_driven_by_hand() -> None:
    data = simulated()
    start, penalty = start_of(data)
    dialogue = climb(start, penalty)
    question = next(dialogue)
    assert question.mixture is start
    assert not question.information
    asked, ascent = 1, None
    while ascent is None:
        answer = expect(question.mixture, data.rows, information=question.information)
        try:
            question = dialogue.send(answer)
            asked += 1
        except StopIteration as finished:
            ascent = finished.value
    driven = drive(climb(start, penalty), answering(data.rows))
    assert ascent.passes == asked
    assert ascent.trace == driven.trace
    assert ascent.stop is driven.stop is StopReason.CONVERGED_NEWTON


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("group_size", [1, 4])
def test_sum_over_two_sites_gives_the_pooled_iteration(family: str, group_size: int) -> None:
    data = simulated(family, n=200, group_size=group_size, exposure=family in SIZED, seed=3)
    labels = len(data.rows.groups.bounds) - 1 if data.rows.groups else data.rows.n
    first = np.arange(labels) < labels // 3
    north, south = take_labels(data.rows, first), take_labels(data.rows, ~first)
    start, penalty = start_of(data)
    iterations = 0

    def respond(question: Expect) -> Statistics:
        nonlocal iterations
        iterations += 1
        pooled = expect(question.mixture, data.rows, information=question.information)
        parts = [expect(question.mixture, site, information=question.information) for site in (north, south)]
        federated = parts[0] + parts[1]
        assert_same_step(question.mixture, pooled, federated, penalty, data.rows)
        return federated

    federated = drive(climb(start, penalty), respond)
    pooled = drive(climb(start, penalty), answering(data.rows))
    assert iterations > 3
    assert federated.stop is pooled.stop
    assert np.isclose(federated.penalised, pooled.penalised, rtol=1e-11)
    assert (
        np.abs(flat(federated.mixture) - flat(pooled.mixture)).max() < 1e-6 * errors(pooled, data.rows, penalty).min()
    )


def flat(mixture: Mixture) -> Array:
    """Gate, coefficients and covariances in one array."""
    gate = mixture.gate.alpha if isinstance(mixture.gate, SoftmaxGate) else mixture.gate.probabilities
    covariance = mixture.experts.covariance if isinstance(mixture.experts, GaussianExperts) else np.empty(0)
    return np.concatenate([gate.ravel(), mixture.experts.B.ravel(), covariance.ravel()])


def errors(ascent: Ascent, rows: Rows, penalty: Penalty) -> Array:
    """Standard errors of the free parameters."""
    statistics = expect(ascent.mixture, rows, information=True)
    return np.sqrt(np.diagonal(inverse_information(ascent.mixture, statistics, penalty)))


def assert_same_step(mixture: Mixture, a: Statistics, b: Statistics, penalty: Penalty, rows: Rows) -> None:
    """Both statistics lead to the same next mixture, to 1e-10 of max(|θ|, standard error of a share-sized sample)."""
    one, other = flat(mixture.maximise(a, penalty)), flat(mixture.maximise(b, penalty))
    assert np.all(np.abs(one - other) <= 1e-10 * np.maximum(np.abs(one), 1 / np.sqrt(rows.n)))
    assert np.isclose(a.log_likelihood, b.log_likelihood, rtol=1e-12)


# ---------------------------------------------------------------------- why it stops


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_newton_ends_where_em_run_long_ends(family: str, gate: str) -> None:
    data = simulated(family, gate=gate, group_size=5, seed=1)
    start, penalty = start_of(data)
    quick = drive(climb(start, penalty), answering(data.rows))
    patient = drive(climb(start, penalty, tol=1e-13, max_iter=5000, newton=False), answering(data.rows))
    assert quick.stop is StopReason.CONVERGED_NEWTON
    assert patient.stop is StopReason.CONVERGED_EM
    assert patient.informed_passes == 0
    assert quick.passes <= patient.passes
    assert np.isclose(quick.penalised, patient.penalised, rtol=1e-9)


def test_newton_stop_means_a_small_decrement() -> None:
    data = simulated()
    start, penalty = start_of(data)
    ascent = drive(climb(start, penalty), answering(data.rows))
    step = newton_step(ascent.mixture, expect(ascent.mixture, data.rows, information=True), penalty)
    assert ascent.stop is StopReason.CONVERGED_NEWTON
    assert step.decrement < decrement_bound(data.rows.n)


def test_em_stop_means_a_small_gain() -> None:
    data = simulated()
    start, penalty = start_of(data)
    ascent = drive(climb(start, penalty, tol=1e-7, newton=False), answering(data.rows))
    gains = np.diff(ascent.trace) / data.rows.n
    assert ascent.stop is StopReason.CONVERGED_EM
    assert gains[-1] <= 1e-7 < gains[-2]


def test_newton_step_needs_the_information() -> None:
    data = simulated()
    start, penalty = start_of(data)
    assert newton_step(start, expect(start, data.rows), penalty) is None
    assert inverse_information(start, expect(start, data.rows), penalty) is None


@pytest.mark.parametrize("max_iter", [1, 3])
def test_too_few_iterations_is_stopped_not_converged(max_iter: int) -> None:
    data = simulated()
    start, penalty = start_of(data)
    ascent = drive(climb(start, penalty, max_iter=max_iter), answering(data.rows))
    assert ascent.stop is StopReason.MAX_ITER
    assert not ascent.stop.converged
    assert ascent.n_iter <= max_iter  # a rejected step counts, too
    assert ascent.passes == max_iter + 1


def poisson_start(log_rate: float) -> Mixture:
    return Mixture(Design.raw(0), ConstantGate(np.ones(1)), PoissonExperts(np.array([[log_rate]])))


def test_overshooting_newton_steps_are_halved() -> None:
    rows = Rows(np.empty((50, 0)), np.full((50, 1), 20.0))
    ascent = drive(climb(poisson_start(np.log(20) - 1.5), Penalty()), answering(rows))
    assert ascent.halvings > 0
    assert ascent.stop.converged
    assert np.isclose(ascent.mixture.experts.B[0, 0], np.log(20))


def test_a_start_too_far_for_eight_halvings_stalls_and_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(np.empty((50, 0)), np.full((50, 1), 20.0))
    start = poisson_start(-9.0)
    assert drive(climb(start, Penalty()), answering(rows)).stop.converged  # steps of limited length come back
    monkeypatch.setattr("consilience.model.families.poisson.PoissonExperts.longest_step", np.inf)
    ascent = drive(climb(start, Penalty()), answering(rows))
    assert ascent.stop is StopReason.STALLED
    assert not ascent.stop.converged
    assert ascent.halvings >= 9
    assert ascent.mixture.experts.B[0, 0] == -9.0


def test_halving_ends_after_eight() -> None:
    fractions = [1.0]
    while fractions[-1] > 0:
        fractions.append(shorten_step(fractions[-1]))
    assert fractions == [*(0.5**i for i in range(9)), 0.0]


def test_misleading_gate_stalls_while_experts_still_climb() -> None:
    data = simulated()
    start, penalty = start_of(data)

    def respond(question: Expect) -> Statistics:
        answer = expect(question.mixture, data.rows)
        return replace(answer, gate=replace(answer.gate, first=-1e6 * np.abs(answer.gate.first)))

    ascent = drive(climb(start, penalty, newton=False), respond)
    assert ascent.stop is StopReason.STALLED
    assert np.all(np.diff(ascent.trace) >= 0)
    assert np.array_equal(ascent.mixture.gate.alpha, start.gate.alpha)
    assert ascent.n_iter >= 2


def test_closed_form_step_that_falls_stalls_at_once() -> None:
    data = simulated(gate="constant")
    start, penalty = start_of(data)
    answers = []

    def respond(question: Expect) -> Statistics:
        answers.append(expect(question.mixture, data.rows))
        return replace(answers[-1], log_likelihood=-1e3 * len(answers))

    ascent = drive(climb(start, penalty), respond)
    assert ascent.stop is StopReason.STALLED
    assert ascent.mixture is start
    assert len(answers) == 3


def test_refused_newton_step_falls_back_to_em() -> None:
    data = simulated()
    start, penalty = start_of(data)
    refused: list[Mixture] = []
    previous: list[Expect] = []

    def respond(question: Expect) -> Statistics:
        answer = expect(question.mixture, data.rows, information=question.information)
        by_newton = question.information and previous and previous[-1].information
        previous.append(question)
        if by_newton and not refused:
            refused.append(question.mixture)
            return replace(answer, log_likelihood=-np.inf)
        return answer

    ascent = drive(climb(start, penalty), respond)
    honest = drive(climb(start, penalty), answering(data.rows))
    assert refused
    assert ascent.stop.converged
    assert np.isclose(ascent.penalised, honest.penalised, rtol=1e-8)


def test_nan_likelihood_is_never_accepted() -> None:
    data = simulated()
    start, penalty = start_of(data)
    answers = []

    def respond(question: Expect) -> Statistics:
        answers.append(expect(question.mixture, data.rows))
        return answers[-1] if len(answers) == 1 else replace(answers[-1], log_likelihood=np.nan)

    ascent = drive(climb(start, penalty), respond)
    assert ascent.stop is StopReason.STALLED
    assert ascent.mixture is start
    assert np.isfinite(ascent.penalised)


def test_fit_on_the_variance_floor_converges_although_newton_would_leave_it() -> None:
    data = simulated(gate="constant")
    start, _ = start_of(data)
    floor = np.array([[2.0]])  # above both variances
    ascent = drive(climb(start, Penalty(floor=floor)), answering(data.rows))
    assert ascent.stop is StopReason.CONVERGED_EM
    assert np.allclose(ascent.mixture.experts.variances, floor)


def test_above_3000_parameters_newton_is_not_tried() -> None:
    K, d = 40, 40
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(200, d)), rng.normal(size=(200, 1)))
    experts = GaussianExperts(rng.normal(size=(K, 1, d + 1)), np.ones((K, 1, 1)))
    start = Mixture(Design.raw(d), SoftmaxGate(np.zeros((K, d + 1))), experts)
    assert start.parameter_count > 3000
    ascent = drive(climb(start, Penalty(floor=1e-2 * np.eye(1)), tol=1.0, max_iter=20), answering(rows))
    assert ascent.informed_passes == 0
    assert ascent.stop is StopReason.CONVERGED_EM


def test_decrement_bound_grows_with_weight_up_to_what_intervals_bear() -> None:
    assert decrement_bound(100) < decrement_bound(1000) < decrement_bound(1e12) == decrement_bound(1e13)


@pytest.mark.parametrize("reason", list(StopReason))
def test_stop_reasons_are_sentences_that_begin_with_the_verdict(reason: StopReason) -> None:
    verdict, sentence = str(reason).split(": ")
    assert verdict == ("converged" if reason.converged else "stopped")
    assert len(sentence.split()) > 4


def test_free_parameters_are_cut_into_gate_coefficients_and_shapes() -> None:
    for gate in ("softmax", "constant"):
        mixture = simulated(gate=gate, n=10).truth
        parts = [gate_slice(mixture), coefficient_slice(mixture), shape_slice(mixture)]
        covered = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        assert np.array_equal(np.sort(covered), np.arange(mixture.parameter_count))


def test_em_ends_where_it_has_converged_before_newton_steps_are_due() -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(2000, 16)) + 6 * rng.integers(2, size=(2000, 1))  # apart: EM needs few steps
    specification = Specification(K=2, gate="constant")
    rows = Rows(np.empty((2000, 0)), Y)
    fit = fit_mixture(rows, specification, rng=rng, n_init=1)
    ascent = fit_mixture(rows, specification, rng=rng, start=fit.mixture).ascent
    assert ascent.stop is StopReason.CONVERGED_EM
    assert ascent.passes <= 4
    assert ascent.informed_passes == 0


def test_a_climb_far_below_a_known_end_is_given_up_by_its_gains() -> None:
    trace = [-1000.0, -500.0, -300.0, -200.0, -150.0, -125.0]
    assert is_far_outdone(trace, bar=1000.0)
    assert not is_far_outdone(trace, bar=700.0)  # two steps ago, ten times what was left led to 800
    assert not is_far_outdone(trace[1:], bar=1000.0)
    assert not is_far_outdone([*trace, -95.0], bar=1000.0)  # a gain larger than the one before: a slow stretch is over


def test_few_steps_are_left_where_gains_shrink_fast() -> None:
    assert takes_few_steps(0.01, 0.1, least=1e-6, most=4)
    assert not takes_few_steps(0.01, 0.1, least=1e-6, most=2)
    assert not takes_few_steps(0.09, 0.1, least=1e-6, most=4)
    assert not takes_few_steps(0.01, 0.1, least=1e-6, most=0)
    assert not takes_few_steps(0.2, 0.1, least=1.0, most=4)


# ---------------------------------------------------------------------- from the maximum of a sample


def test_a_climb_from_a_sample_ends_at_the_maximum_with_less_information() -> None:
    data = soft(30_000, n_experts=2, n_features=3, random_state=0)
    rows = Rows(data.X, data.y[:, None])
    problem = Problem(Specification(K=2), column_summary(rows))
    sample = Rows(data.X[:1500], data.y[:1500, None])
    start = drive(problem.climb(data.truth.in_coordinates_of(problem.blank)), answering(sample))
    assert start.statistics.information is not None
    plain = drive(climb(start.mixture, problem.penalty, near=True), answering(rows))
    found = drive(problem.climb_from_sample(start), answering(rows))
    assert found.stop is StopReason.CONVERGED_NEWTON
    assert found.statistics.information is not None
    assert found.informed_passes < plain.informed_passes
    assert found.penalised == pytest.approx(plain.penalised, abs=0.01)


def test_a_wrong_curvature_does_not_lead_a_climb_astray() -> None:
    data = soft(3000, n_experts=2, n_features=3, random_state=0)
    rows = Rows(data.X, data.y[:, None])
    penalty = Specification(K=2).penalty(column_summary(rows))
    end = drive(climb(data.truth, penalty), answering(rows))
    model = Quadratic.at(end.mixture, end.statistics, penalty)
    assert model is not None
    for factor in (0.2, 20.0):
        found = drive(climb(data.truth, penalty, near=True, sampled=model.scaled(factor)), answering(rows))
        assert found.stop is StopReason.CONVERGED_NEWTON
        assert found.penalised == pytest.approx(end.penalised, abs=0.01)

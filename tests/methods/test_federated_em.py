"""Federated EM is pooled EM: the same iterates over any partition of the labels."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import Federation, MixtureOfRegressions
from consilience.engines import InProcess
from consilience.errors import ConsilienceWarning
from consilience.fit import Ascent, climb, drive, fit_mixture, infer
from consilience.fit.fitting import finish_fit
from consilience.fit.inference import inference_from_fit
from consilience.messages import Answers, Likelihood, ProposeStart, StartCandidates
from consilience.methods import FederatedEM, Task
from consilience.methods.federated_em import ask_total, best_candidates
from consilience.model import Penalty, Rows, SoftmaxGate, expect
from consilience.model.summary import column_summary
from consilience.runs import run
from consilience.site import Site
from families import SIZED
from pairwise import every_pair
from simulated import FAMILIES, simulated
from strategies import GATES, LABELS, label_count, take_labels


def partition(rows: Rows, owner: np.ndarray, sites: int) -> list[Site]:
    """Sites that hold the labels (rows, or groups) that ``owner`` gives them; some may be empty."""
    return [Site(f"site {i}", take_labels(rows, owner == i)) for i in range(sites)]


def federated(dialogue, rows: Rows, owner: np.ndarray, sites: int):
    return run(dialogue, InProcess().over(partition(rows, owner, sites))).value


def estimates(ascent: Ascent, rows: Rows, penalty: Penalty) -> tuple[np.ndarray, np.ndarray, float]:
    """Parameters, their standard errors (1 / √n where there are none) and the condition number of the information."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        inference = infer(finish_fit(ascent, penalty, ()), rows)
    se = np.sqrt(np.abs(np.diagonal(inference.covariance)))
    J = expect(ascent.mixture, rows, information=True).information
    return inference.estimates.flat(), np.where(se > 0, se, 1 / np.sqrt(rows.n)), float(np.linalg.cond(J))


@st.composite
def partitions(draw: st.DrawFn, labels: int) -> tuple[np.ndarray, int]:
    """Owners of labels: up to 7 sites; skewed, so that empty sites and sites with one label occur."""
    sites = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shares = rng.dirichlet(np.full(sites, draw(st.sampled_from([0.05, 0.3, 5.0]))))
    owner = rng.choice(sites, labels, p=shares)
    if sites > 2:
        owner[owner == 0] = 1  # site 0 is empty
        owner[0] = 2
    return owner, sites


CASES = every_pair(product(FAMILIES, GATES, LABELS))


@pytest.mark.slow
@settings(max_examples=12)  # for each case
@pytest.mark.parametrize(("family", "gate", "labels"), CASES)
@given(data=st.data())
def test_one_iteration_is_the_pooled_one(family: str, gate: str, labels: str, data: st.DataObject) -> None:
    case = simulated(
        family,
        gate=gate,
        n=120,
        group_size=3 if labels == "group" else 1,
        weights=data.draw(st.booleans(), "weights"),
        exposure=family in SIZED,
        seed=data.draw(st.integers(0, 2**32 - 1), "seed"),
    )
    owner, sites = data.draw(partitions(label_count(case.rows)), "partition")
    penalty = case.specification.penalty(column_summary(case.rows))
    start = case.truth.in_coordinates(column_summary(case.rows).design(case.specification.intercept))

    def steps():
        return climb(start, penalty, max_iter=1, newton=False)

    pooled = drive(steps(), lambda question: expect(question.mixture, case.rows))
    apart = federated(ask_total(steps()), case.rows, owner, sites)
    theta, se, _ = estimates(pooled, case.rows, penalty)
    ours, _, _ = estimates(apart, case.rows, penalty)
    assert np.all(np.abs(ours - theta) <= 1e-10 * np.maximum(np.abs(theta), se))
    assert apart.trace == pytest.approx(pooled.trace, rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate", "labels"), CASES)
def test_twenty_iterations_are_the_pooled_ones(family: str, gate: str, labels: str) -> None:
    case = simulated(family, gate=gate, n=900, group_size=3 if labels == "group" else 1, weights=True, seed=5)
    owner = np.random.default_rng(1).choice(6, label_count(case.rows), p=[0.0, 0.5, 0.3, 0.1, 0.09, 0.01])
    penalty = case.specification.penalty(column_summary(case.rows))
    start = case.truth.in_coordinates(column_summary(case.rows).design(case.specification.intercept))

    def steps():
        return climb(start, penalty, tol=-1.0, max_iter=20, newton=False)

    pooled = drive(steps(), lambda question: expect(question.mixture, case.rows))
    apart = federated(ask_total(steps()), case.rows, owner, 6)
    assert apart.passes == pooled.passes
    assert apart.penalised == pytest.approx(pooled.penalised, rel=1e-11)
    theta, se, condition = estimates(pooled, case.rows, penalty)
    ours, _, _ = estimates(apart, case.rows, penalty)
    assert np.all(np.abs(ours - theta) <= 1e-6 * se)
    if condition < 1e4:
        assert np.all(np.abs(ours - theta) <= 1e-10 * np.maximum(np.abs(theta), se))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate", "labels"), CASES)
def test_a_whole_fit_is_the_pooled_one_with_its_standard_errors(family: str, gate: str, labels: str) -> None:
    case = simulated(family, gate=gate, n=900, group_size=3 if labels == "group" else 1, seed=3)
    owner = np.random.default_rng(0).integers(0, 4, label_count(case.rows))
    pooled = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    d, q = case.rows.X.shape[1], case.rows.Y.shape[1]
    (apart,) = federated(
        FederatedEM().dialogue(Task([case.specification], d, q, start=case.truth)), case.rows, owner, 4
    )
    assert apart.ascent.stop is pooled.ascent.stop
    se = infer(pooled, case.rows).standard_errors().flat()
    ours, theirs = infer(apart), infer(pooled, case.rows)
    difference = np.abs(ours.estimates.flat() - theirs.estimates.flat())
    assert np.nanmax(difference / np.where(se > 0, se, 1.0)) <= 1e-6
    for kind in ("observed", "sandwich", "larger"):
        ours, theirs = infer(apart, kind=kind), infer(pooled, case.rows, kind=kind)
        np.testing.assert_allclose(ours.standard_errors().flat(), theirs.standard_errors().flat(), rtol=1e-8)
    assert inference_from_fit(apart).kind == "larger"


@pytest.mark.slow
def test_the_starts_of_the_sites_lead_to_the_pooled_maximum() -> None:
    case = simulated(n=3000, seed=1)
    owner = np.random.default_rng(0).choice(3, 3000, p=[0.7, 0.29, 0.01])
    pooled = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0))
    (apart,) = federated(FederatedEM().dialogue(Task([case.specification], 2, 1)), case.rows, owner, 3)
    assert apart.log_likelihood == pytest.approx(pooled.log_likelihood, rel=1e-9)


def test_of_starts_that_are_equally_likely_the_least_penalised_is_climbed() -> None:
    case = simulated(n=60)
    summary = column_summary(case.rows)
    flat, steep = (replace(case.truth, gate=SoftmaxGate(factor * case.truth.gate.alpha)) for factor in (1.0, 2.0))
    talk = best_candidates(ProposeStart(case.specification, summary, 0, 1), Penalty(gate_ridge=1.0), ("a", "b"), 1)
    next(talk)
    talk.send({"a": StartCandidates((steep,)), "b": StartCandidates((flat,))})
    with pytest.raises(StopIteration) as end:
        talk.send(Answers((Likelihood(-5.0, 60.0), Likelihood(-5.0, 60.0))))
    assert end.value.value.mixtures == [flat]


@pytest.mark.long
def test_where_no_site_can_fit_a_start_is_guessed() -> None:
    case = simulated(n=300, seed=2)
    (fit,) = federated(
        FederatedEM(n_climbs=3).dialogue(Task([case.specification], 2, 1)), case.rows, np.arange(300), 300
    )
    pooled = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0))
    assert fit.ascent.stop.converged
    assert fit.log_likelihood <= pooled.log_likelihood + 1e-6


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
def test_guesses_are_mixtures_that_can_be_asked_about(family: str, gate: str) -> None:
    case = simulated(family, gate=gate, n=60)
    (fit,) = federated(
        FederatedEM().dialogue(Task([replace(case.specification, K=2)], 2, 1, max_iter=2)), case.rows, np.arange(60), 60
    )
    assert np.isfinite(fit.log_likelihood)


@pytest.mark.slow
def test_several_orders_are_fitted_in_the_rounds_of_the_slowest() -> None:
    case = simulated(n=600, seed=4)
    owner = np.random.default_rng(0).integers(0, 2, 600)
    specifications = [replace(case.specification, K=K) for K in (1, 2)]
    both = run(FederatedEM().dialogue(Task(specifications, 2, 1)), InProcess().over(partition(case.rows, owner, 2)))
    single = [
        run(FederatedEM().dialogue(Task([one], 2, 1)), InProcess().over(partition(case.rows, owner, 2)))
        for one in specifications
    ]
    assert len(both.record.rounds) == max(len(alone.record.rounds) for alone in single)
    for together, alone in zip(both.value, single, strict=True):
        assert together.log_likelihood == alone.value[0].log_likelihood


@pytest.mark.slow
def test_several_climbs_share_messages_and_the_best_end_is_taken() -> None:
    case = simulated(n=600, seed=4)
    owner = np.random.default_rng(0).integers(0, 4, 600)
    one, three = (
        run(
            FederatedEM(n_climbs=n).dialogue(Task([case.specification], 2, 1)),
            InProcess().over(partition(case.rows, owner, 4)),
        )
        for n in (1, 3)
    )
    assert len(three.value[0].starts.values) == 3
    assert three.value[0].log_likelihood >= one.value[0].log_likelihood - 1e-9


def test_a_long_newton_proposal_is_refused_by_the_sum_alone() -> None:
    """The safeguard works across sites: a bad proposal raises no site's likelihood, and EM steps take over."""
    case = simulated("poisson", n=400, seed=8)
    owner = np.random.default_rng(0).integers(0, 3, 400)
    penalty = case.specification.penalty(column_summary(case.rows))
    start = case.truth.in_coordinates(column_summary(case.rows).design(True))
    pooled = drive(
        climb(start, penalty), lambda question: expect(question.mixture, case.rows, information=question.information)
    )
    apart = federated(ask_total(climb(start, penalty)), case.rows, owner, 3)
    assert (apart.passes, apart.halvings, apart.stop) == (pooled.passes, pooled.halvings, pooled.stop)


def test_of_many_large_sites_a_few_compare_the_starts() -> None:
    data = simulated(gate="constant", n=26_000)
    parts = np.array_split(np.arange(26_000), 8)
    sites = Federation({f"s{i}": (data.X[part], data.y[part]) for i, part in enumerate(parts)})
    result = sites.fit(MixtureOfRegressions(2, random_state=0), method=FederatedEM())
    asked = [len(each.exchanges) for each in result.record.rounds if "xxᵀ" in each.discloses]
    assert 2 in asked
    assert asked[-1] == 8
    pooled = MixtureOfRegressions(2, random_state=0).fit(data.X, data.y)
    assert result.model.log_likelihood_ == pytest.approx(pooled.log_likelihood_, rel=1e-10)
    assert result.model.starts_agree_

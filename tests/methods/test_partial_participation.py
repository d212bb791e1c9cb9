"""Partial participation: other clients in every round, the fit of all of them at the end."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from answering import Calls, small_sites, summaries
from consilience import ClusteredClients, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.datasets import clients
from consilience.engines import InProcess
from consilience.errors import ConvergenceWarning, InvalidInputError, RoundStoppedError, SetAsideWarning
from consilience.federation import FederatedFit
from consilience.fit import Expect, Specification
from consilience.fit.climb import StopReason, decrement_bound
from consilience.fit.problem import Problem
from consilience.messages import Failure, FailureCode, LogLikelihood, Summarise, Total, encode
from consilience.messages.dialogue import Dialogue
from consilience.messages.questions import Sample
from consilience.methods import Task
from consilience.methods.clustered import (
    SETTLED,
    Participation,
    at_origin,
    average_rounds,
    climb_to_information,
    mix_statistics,
    origin,
    squared_change,
    steady,
)
from consilience.model import Groups, Mixture, Rows, expect
from consilience.model.families.covariance import STRUCTURES
from consilience.model.mixture import alignment
from consilience.model.statistics import Statistics
from consilience.model.summary import column_summary
from consilience.numerics.arrays import unpack
from consilience.runs import run
from consilience.runs.engine import Reply, digest
from consilience.site import Site, respond
from strategies import Shape

G, K, D = 80, 3, 5
FLEET = clients([10] * G, n_features=D, noise=0.3, random_state=1)
ROWS = Rows(FLEET.X, FLEET.y[:, None], groups=Groups.of(FLEET.groups))
SPECIFICATION = Specification(K=K, gate="constant", intercept=False)


def dealt(number: int) -> dict[str, dict[str, np.ndarray]]:
    """The clients on some sites."""
    parts = {f"site {i}": np.isin(FLEET.groups % number, i) for i in range(number)}
    return {name: {"X": FLEET.X[m], "y": FLEET.y[m], "groups": FLEET.groups[m]} for name, m in parts.items()}


def alone() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each client a site."""
    return {f"client {g}": (FLEET.X[FLEET.groups == g], FLEET.y[FLEET.groups == g]) for g in range(G)}


def regressions(seed: int = 0, **options: Any) -> MixtureOfRegressions:
    return MixtureOfRegressions(K, fit_intercept=False, random_state=seed, **options)


@pytest.fixture(scope="module")
def everyone() -> FederatedFit:
    return Federation(dealt(1)).fit(regressions(), method=ClusteredClients())


def deficit(mixture: Mixture, everyone: FederatedFit) -> float:
    """How much likelihood a mixture lacks on the rows of all clients; half the number of parameters is usual."""
    return everyone.fit.log_likelihood - expect(mixture, ROWS).log_likelihood


def assert_near(done: FederatedFit, everyone: FederatedFit) -> None:
    """Coefficients within a few per cent of those of all clients, at a small cost in likelihood."""
    mixture = done.fit.mixture.permuted(alignment(done.fit.mixture, everyone.fit.mixture))
    B = everyone.fit.mixture.coefficients
    apart = np.linalg.norm(mixture.coefficients - B, axis=1) / np.linalg.norm(B, axis=1)
    assert apart.max() < 0.05
    assert deficit(done.fit.mixture, everyone) < 2.0
    assert done.fit.ascent.stop is StopReason.SETTLED


class Flaky(InProcess):
    """An engine some of whose sites are away, others in every round, from one of the rounds on."""

    def __init__(self, rate: float = 0.1, *, since: int = 1, seed: int = 0, until: int | None = None) -> None:
        self.rate, self.since, self.seed, self.until = rate, since, seed, until
        self.asked: list[tuple[str, ...]] = []

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> Flaky:
        self.engine = InProcess(threads=1).over(sites, in_memory=in_memory)
        return self

    @property
    def sites(self) -> tuple[str, ...]:
        return self.engine.sites

    def away(self, number: int) -> set[str]:
        u = np.random.default_rng([self.seed, number]).random(len(self.sites))
        return {site for site, value in zip(self.sites, u, strict=True) if value < self.rate and number >= self.since}

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        if self.until is not None and number > self.until:
            raise KeyboardInterrupt
        if number:  # the journal's data are compared before the first round
            self.asked.append(tuple(sites))
        away, failed = self.away(number), encode(Failure(FailureCode.INTERNAL, 1))
        for replies in self.engine.ask(number, question, sites, total=False, timeout=timeout):
            yield [
                replace(reply, message=failed, digests=(digest(failed),)) if reply.sites[0] in away else reply
                for reply in replies
            ]


# ---------------------------------------------------------------------- statistics that can be averaged


def at_hand(structure: str, q: int = 1, seed: int = 0) -> tuple[Mixture, Rows, Statistics]:
    shape = Shape(family=f"gaussian-{structure}", gate="constant", K=3, q=q, n=90, labels="group", seed=seed)
    mixture, rows = shape.problem()
    return mixture, rows, expect(mixture, rows)


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_statistics_about_0_are_those_with_the_same_responsibilities(structure: str, q: int) -> None:
    mixture, rows, statistics = at_hand(structure, q)
    found = at_origin(mixture, statistics)
    resp = mixture.responsibilities(rows).T
    about_0 = expect(origin(mixture), rows, given=resp).scaled(1 / statistics.weight)
    np.testing.assert_array_equal(origin(mixture).experts.B, 0.0)
    scale = np.abs(about_0.experts.to_array()).max()
    np.testing.assert_allclose(found.experts.to_array(), about_0.experts.to_array(), atol=1e-12 * scale)
    np.testing.assert_allclose(found.gate.to_array(), about_0.gate.to_array(), atol=1e-12)
    assert (found.weight, found.log_likelihood) == pytest.approx((1.0, statistics.log_likelihood / statistics.weight))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_step_from_0_ends_where_the_step_ends(structure: str) -> None:
    mixture, rows, statistics = at_hand(structure)
    penalty = Specification(K=3, gate="constant", structure=structure).penalty(column_summary(rows))
    step, again = (
        mixture.maximise(statistics, penalty),
        origin(mixture).maximise(at_origin(mixture, statistics), penalty),
    )
    np.testing.assert_allclose(again.coefficients, step.coefficients, atol=1e-11)
    np.testing.assert_allclose(again.experts.variances, step.experts.variances, rtol=1e-10)
    np.testing.assert_allclose(again.gate.probabilities, step.gate.probabilities, rtol=1e-12)


def test_mixed_statistics_are_a_weighted_mean() -> None:
    (_, _, one), (_, _, two) = at_hand("full"), at_hand("full", seed=1)
    expected = 0.75 * one.to_array() + 0.25 * two.to_array()
    np.testing.assert_allclose(mix_statistics(one, two, 0.25).to_array(), expected, rtol=1e-14)


def test_change_is_that_of_the_expert_that_moved_most_in_standard_errors_of_a_unit_of_weight() -> None:
    mixture, _, statistics = at_hand("full")
    other = replace(mixture, experts=replace(mixture.experts, B=mixture.experts.B + 0.1))
    S, p = unpack(statistics.experts.second), mixture.design.p
    expected = max(0.01 * S[k].sum() / other.experts.variances[k, 0] for k in range(3)) / p
    assert squared_change(mixture, other, statistics) == pytest.approx(expected, rel=1e-12)
    assert squared_change(mixture, mixture, statistics) == 0.0


# ---------------------------------------------------------------------- who takes part

NAMES = tuple(f"client {g}" for g in range(40))
QUESTION = Expect(FLEET.truth)


def test_a_whole_share_is_everyone() -> None:
    for singles in ((), NAMES):
        request = Participation(1.0, 40, 0, singles).request(QUESTION, 3)
        assert request.question is QUESTION
        assert request.sites is None


def test_of_single_clients_only_those_drawn_are_asked() -> None:
    participants = Participation(0.3, 40, 5, NAMES)
    drawn = [participants.request(QUESTION, number) for number in range(1, 201)]
    assert all(request.question is QUESTION and set(request.sites) <= set(NAMES) for request in drawn)
    assert all(list(request.sites) == sorted(request.sites, key=NAMES.index) for request in drawn)
    assert len({request.sites for request in drawn}) == 200
    often = np.array([sum(name in request.sites for request in drawn) for name in NAMES]) / 200
    assert np.all(np.abs(often - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / 200))
    assert participants.request(QUESTION, 7).sites == Participation(0.3, 40, 5, NAMES).request(QUESTION, 7).sites


def test_where_nobody_is_drawn_everybody_is_asked() -> None:
    assert Participation(1e-9, 40, 0, NAMES).request(QUESTION, 1).sites == NAMES


def test_sites_with_several_clients_draw_among_them_anew_in_every_round() -> None:
    requests = {
        (seed, number): Participation(0.25, 40, seed).request(QUESTION, number)
        for seed in range(8)
        for number in range(1, 9)
    }
    assert all(isinstance(request.question, Sample) and request.sites is None for request in requests.values())
    assert all(request.question.share == 0.25 for request in requests.values())
    seeds = {request.question.seed for request in requests.values()}
    assert len(seeds) == 64  # runs with neighbouring seeds are runs with other clients
    assert max(seeds) < 2**62


# ---------------------------------------------------------------------- averaged steps


def driven(dialogue: Dialogue[Any], *, sites: dict[str, Rows] | None = None) -> Any:
    held = {"all": ROWS} if sites is None else sites
    return run(dialogue, InProcess().over([Site(name, rows) for name, rows in held.items()])).value


def test_where_nobody_leaves_averaged_steps_settle_at_the_maximum(everyone: FederatedFit) -> None:
    problem = Problem(SPECIFICATION, column_summary(ROWS))
    end = driven(average_rounds(problem, FLEET.truth, Participation(1.0, G, 0)))
    assert deficit(end.mixture, everyone) < SETTLED * SPECIFICATION.K * D
    assert end.stop is StopReason.SETTLED
    assert end.statistics.weight == pytest.approx(G)
    assert end.statistics.information is not None


def test_the_first_rounds_are_forgotten() -> None:
    """A start far off: what the rounds from there said is no part of the mean."""
    far = replace(FLEET.truth, experts=replace(FLEET.truth.experts, covariance=np.full((K, 1, 1), 4.0)))
    problem = Problem(SPECIFICATION, column_summary(ROWS))
    steps = average_rounds(problem, far, Participation(1.0, G, 0))
    request, mixture = next(steps), far
    for _ in range(3):
        statistics = expect(request.question.mixture, ROWS)
        expected = request.question.mixture.maximise(statistics, problem.penalty)
        request = steps.send(statistics)
        np.testing.assert_allclose(request.question.mixture.coefficients, expected.coefficients, atol=1e-9)
        mixture = request.question.mixture
    before = mixture
    statistics = expect(before, ROWS)
    request = steps.send(statistics)  # the fourth is averaged with the third
    assert not np.allclose(
        request.question.mixture.coefficients, before.maximise(statistics, problem.penalty).coefficients, atol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("seed", [0, 1])
def test_half_of_the_clients_of_sites_lead_near_the_fit_of_all(number: int, seed: int, everyone: FederatedFit) -> None:
    done = Federation(dealt(number)).fit(regressions(seed), method=ClusteredClients(participation=0.5))
    assert_near(done, everyone)
    questions = [r.question for r in done.record.rounds]
    assert questions[:2] == ["Several", "Clients"]
    assert set(questions[2:]) == {"Sample"}
    assert done.fit.ascent.statistics.weight == pytest.approx(G)


@pytest.mark.slow
def test_half_of_the_sites_with_one_client_are_asked_and_lead_near_the_fit_of_all(everyone: FederatedFit) -> None:
    done = Federation(alone()).fit(regressions(), method=ClusteredClients(participation=0.5))
    assert_near(done, everyone)
    asked = [{site for exchange in r.exchanges for site in exchange.sites} for r in done.record.rounds]
    assert all(len(sites) == G for sites in asked[:2])
    assert all(G / 4 < len(sites) < 3 * G / 4 for sites in asked[2:])
    assert len({frozenset(sites) for sites in asked[2:]}) == len(asked) - 2
    assert {r.question for r in done.record.rounds[2:]} == {"Expect"}


def last_request(k: int, participants: Participation) -> Total:
    """What is asked at the end of a climb with k experts."""
    problem = Problem(replace(SPECIFICATION, K=k), column_summary(ROWS))
    B, V = FLEET.truth.experts.B[:k], FLEET.truth.experts.covariance[:k]
    gate = replace(FLEET.truth.gate, probabilities=np.full(k, 1 / k))
    start = Mixture(FLEET.truth.design, gate, replace(FLEET.truth.experts, B=B, covariance=V))
    steps = average_rounds(problem, start, participants)
    request = next(steps)
    while not request.question.information:
        request = steps.send(expect(request.question.mixture, ROWS))
    return request


def test_orders_are_compared_on_the_same_clients() -> None:
    asked = [last_request(k, Participation(0.3, G, 7, NAMES)) for k in (1, 2, 3)]
    assert len({request.sites for request in asked}) == 1
    assert asked[0].sites != NAMES


@pytest.mark.slow
def test_orders_can_be_chosen_with_a_share_of_the_clients() -> None:
    half, all_ = (
        Federation(dealt(4)).select_order(regressions(), (1, 2, 3), method=ClusteredClients(participation=share))
        for share in (0.5, 1.0)
    )
    assert half.best_order == all_.best_order == K
    ours, theirs = (np.diff([fit.bic for fit in chosen.fits]) for chosen in (half, all_))
    np.testing.assert_allclose(ours, theirs, rtol=0.5)


def test_rounds_that_are_too_few_are_named() -> None:
    model = regressions(max_iter=2)
    with pytest.warns(ConvergenceWarning, match="the maximum number of rounds was reached"):
        done = Federation(dealt(4)).fit(model, method=ClusteredClients(participation=0.5))
    assert done.fit.ascent.stop is StopReason.ROUNDS
    assert not done.model.converged_


def test_a_share_of_the_clients_has_the_standard_errors_of_all(everyone: FederatedFit) -> None:
    done = Federation(dealt(1)).fit(regressions(), method=ClusteredClients(participation=0.5))
    order = alignment(done.fit.mixture, everyone.fit.mixture)
    ours = done.model.inference_.standard_errors().experts[order]
    np.testing.assert_allclose(ours, everyone.model.inference_.standard_errors().experts, rtol=0.3)


# ---------------------------------------------------------------------- sites that are away for a round


def test_a_site_that_is_skipped_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    times = iter([False, True, False])

    def sometimes(question: Any, site: Site) -> bytes:
        return encode(Failure(FailureCode.INTERNAL, 1)) if next(times) else respond(question, site)

    calls.misbehave("north", sometimes)
    done = run(summaries(3), InProcess().over(small_sites()), on_drop="skip")
    assert done.value == [120.0, 80.0, 120.0]
    assert calls.asked.count("north") == 3
    assert done.record.dropped == {}
    outcomes = [{exchange.sites[0]: exchange.outcome for exchange in r.exchanges}["north"] for r in done.record.rounds]
    assert outcomes[0] == outcomes[2] == "answered"
    assert outcomes[1] == str(Failure(FailureCode.INTERNAL, 1))


def test_a_round_without_any_answer_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    for site in ("east", "north", "south"):
        calls.misbehave(site, lambda *_: encode(Failure(FailureCode.INTERNAL, 1)), time=1)
    with pytest.raises(RoundStoppedError, match="round 2: no site is left of those asked"):
        run(summaries(3), InProcess().over(small_sites()), on_drop="skip")


def asked_again(done: FederatedFit, engine: Flaky) -> None:
    """Nobody is dropped, and who was away is asked in the next round."""
    assert done.record.dropped == {}
    away = [engine.away(r.number) for r in done.record.rounds]
    assert sum(map(len, away)) > 0
    for i, r in enumerate(done.record.rounds):
        said = {exchange.sites[0]: exchange.outcome for exchange in r.exchanges}
        assert set(said) == set(engine.sites)
        assert all((said[site] != "answered") == (site in away[i]) for site in said)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "since", "seed"), [(8, 1, 0), (16, 4, 0), (16, 4, 1), (None, 1, 0)])
def test_where_a_tenth_is_away_in_every_round_the_fit_is_near_that_of_all(
    number: int | None, since: int, seed: int, everyone: FederatedFit
) -> None:
    engine = Flaky(since=since, seed=seed)
    sites = alone() if number is None else dealt(number)
    done = Federation(sites, engine=engine).fit(regressions(), method=ClusteredClients(), on_drop="skip")
    mixture = done.fit.mixture.permuted(alignment(done.fit.mixture, everyone.fit.mixture))
    B = everyone.fit.mixture.coefficients
    assert (np.linalg.norm(mixture.coefficients - B, axis=1) / np.linalg.norm(B, axis=1)).max() < 0.05
    assert deficit(done.fit.mixture, everyone) < 2.0
    assert done.model.converged_
    assert len(done.record.rounds) < 40
    asked_again(done, engine)


def steadily(*who: slice | np.ndarray) -> tuple[Any, int]:
    """What a steady climb returns if in each round only these clients answer, the last ones from then on."""
    steps = steady(climb_to_information(Problem(SPECIFICATION, column_summary(ROWS), near=True), FLEET.truth), G)
    request, number = next(steps), 0
    try:
        while True:
            number += 1
            present = np.isin(FLEET.groups, np.arange(G)[who[min(number, len(who)) - 1]])
            question = request.question
            rows = ROWS.take(np.flatnonzero(present))
            request = steps.send(expect(question.mixture, rows, information=question.information))
    except StopIteration as finished:
        return finished.value, number


def test_a_climb_goes_on_without_those_who_leave_and_ends_where_clients_come_back() -> None:
    everybody, most, some = slice(0, G), slice(0, G - 8), slice(0, G - 16)
    end, _ = steadily(everybody)
    assert end.statistics.weight == G
    for who in ((most,), (everybody, most), (everybody, most, some)):
        end, _ = steadily(*who)
        assert end.statistics.weight == G - 8 * len({id(part) for part in who if part is not everybody})
        assert end.stop.converged
        assert end.statistics.information is not None
    assert steadily(most, everybody) == (None, 2)
    assert steadily(everybody, some, most) == (None, 3)


def test_as_many_others_are_not_the_same_clients() -> None:
    """Sites of one size: the number of clients does not tell who takes part."""
    assert steadily(slice(0, G - 8), slice(8, G)) == (None, 2)


def test_more_clients_than_were_known_have_come() -> None:
    steps = steady(climb_to_information(Problem(SPECIFICATION, column_summary(ROWS)), FLEET.truth), G - 8)
    request = next(steps)
    with pytest.raises(StopIteration) as finished:
        steps.send(expect(request.question.mixture, ROWS))
    assert finished.value.value is None


def test_where_nobody_is_away_to_skip_is_to_stop(everyone: FederatedFit) -> None:
    done = Federation(dealt(4)).fit(regressions(), method=ClusteredClients(), on_drop="skip")
    assert done.fit.ascent.stop is StopReason.CONVERGED_NEWTON
    assert abs(done.fit.log_likelihood - everyone.fit.log_likelihood) <= 2 * decrement_bound(G)


@pytest.mark.slow
@pytest.mark.parametrize("time", [2, 3, 4])
def test_a_site_that_leaves_for_good_leaves_the_exact_fit_of_the_others(
    time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {name: part for name, part in dealt(5).items() if name != "site 2"}
    alone_ = Federation(others).fit(regressions(), method=ClusteredClients())
    Calls(monkeypatch).misbehave("site 2", lambda *_: encode(Failure(FailureCode.INTERNAL, 1)), time=time)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SetAsideWarning)  # that site 2 left the run
        done = Federation(dealt(5)).fit(regressions(), method=ClusteredClients(), on_drop="continue")
    if done.record.dropped:
        assert done.fit.ascent.statistics.weight == 64
        assert abs(done.fit.log_likelihood - alone_.fit.log_likelihood) <= 2 * decrement_bound(64)
        assert done.fit.ascent.stop.converged
    else:
        assert len(done.record.rounds) <= time
    assert time > 2 or done.record.dropped


def test_a_gate_that_reads_covariates_needs_the_same_clients_in_every_round() -> None:
    model = MixtureOfExpertsRegressor(K, fit_intercept=False, random_state=0)
    with pytest.raises(InvalidInputError, match="the participating clients change"):
        Federation(dealt(8), engine=Flaky()).fit(model, method=ClusteredClients(), on_drop="skip")


# ---------------------------------------------------------------------- the journal of such a run


def bits(done: Any) -> bytes:
    return encode(LogLikelihood(done.value[0].mixture))


def study(engine: Any, path: Path | None, method: ClusteredClients | None = None) -> Any:
    """A run over four sites with several clients, whose journal is kept."""
    sites = [
        Site(name, Rows(part["X"], part["y"][:, None], groups=Groups.of(part["groups"])))
        for name, part in dealt(4).items()
    ]
    dialogue = (method or ClusteredClients()).dialogue(Task([SPECIFICATION], D, 1))
    return run(dialogue, engine.over(sites), journal=path, on_drop="skip")


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [ClusteredClients(), pytest.param(ClusteredClients(participation=0.5), marks=pytest.mark.slow)],
    ids=["all", "half"],
)
def test_a_run_with_skipped_sites_is_replayed_from_its_journal(tmp_path: Path, method: ClusteredClients) -> None:
    path = tmp_path / "journal"
    plain = study(Flaky(0.3, seed=1), None, method)
    first = study(Flaky(0.3, seed=1), path, method)
    silent = Flaky(until=0)  # nobody is asked any more
    again = study(silent, path, method)
    assert bits(first) == bits(again) == bits(plain)
    assert silent.asked == []
    assert again.record.dropped == {}
    assert len(again.record.rounds) == len(first.record.rounds)


@pytest.mark.slow
@pytest.mark.parametrize("until", [2])
def test_an_interrupted_run_with_skipped_sites_goes_on_where_it_was(tmp_path: Path, until: int) -> None:
    path = tmp_path / "journal"
    whole = study(Flaky(0.3, seed=1), None)
    with pytest.raises(KeyboardInterrupt):
        study(Flaky(0.3, seed=1, until=until), path)
    engine = Flaky(0.3, seed=1)
    again = study(engine, path)
    assert bits(again) == bits(whole)
    assert len(engine.asked) == len(whole.record.rounds) - until


def test_an_unknown_rule_is_refused_and_the_known_ones_are_named() -> None:
    def nothing() -> Dialogue[None]:
        yield Total(Summarise(d=2, q=1))

    for rule in ("stop", "continue", "skip"):
        assert run(nothing(), InProcess().over(small_sites()), on_drop=rule).value is None  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="on_drop='wait': expected 'stop', 'continue' or 'skip'"):
        run(nothing(), InProcess().over(small_sites()), on_drop="wait")  # type: ignore[arg-type]

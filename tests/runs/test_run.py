"""Runs: rounds, drop-outs, deadlines, segments, and the record of all of them."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import numpy as np
import pytest

from answering import Calls, failing, slow, small_sites, summaries
from consilience.engines import InProcess
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.fit import climb
from consilience.messages import (
    Each,
    Failure,
    FailureCode,
    LogLikelihood,
    ProposeStart,
    Several,
    Summarise,
    Total,
    together,
)
from consilience.methods import FederatedEM, Task
from consilience.methods.federated_em import ask_total
from consilience.model import expect
from consilience.model.summary import column_summary
from consilience.runs import Journal, Limits, Reply, run
from consilience.runs.record import LATE
from consilience.runs.tree_sum import RunningSum
from consilience.site import Site, respond
from simulated import simulated

module = importlib.import_module("consilience.runs.run")

# ---------------------------------------------------------------------- requests


def test_each_keeps_the_order_of_the_sites_and_may_name_some() -> None:
    def dialogue():
        everyone = yield Each(Summarise(d=2, q=1))
        some = yield Each(Summarise(d=2, q=1), sites=("south", "east", "nowhere"))
        return list(everyone), list(some)

    assert run(dialogue(), InProcess().over(small_sites())).value == (["east", "north", "south"], ["east", "south"])


def test_answers_that_do_not_add_cannot_be_totalled() -> None:
    case = simulated(n=30)
    question = ProposeStart(case.specification, column_summary(case.rows), seed=0, n_init=1)
    with pytest.raises(InvalidInputError, match="do not add"):
        Total(question)
    with pytest.raises(InvalidInputError, match="do not add"):
        Total(Several((Summarise(1, 1), question)))


def test_a_run_needs_sites_and_a_known_rule() -> None:
    with pytest.raises(InvalidInputError, match="at least one site"):
        InProcess().over([])
    with pytest.raises(InvalidInputError, match="on_drop='ask'"):
        run(summaries(1), InProcess().over(small_sites()), on_drop="ask")  # type: ignore[arg-type]


def test_dialogues_side_by_side_share_a_message_only_where_they_ask_alike() -> None:
    def each_then_total():
        parts = yield Each(Summarise(d=2, q=1))
        total = yield Total(Summarise(d=2, q=1))
        return len(parts), total.weight

    def total_only():
        return (yield Total(Summarise(d=2, q=1))).weight

    def nothing():
        return 0
        yield

    done = run(together([each_then_total(), total_only(), nothing()]), InProcess().over(small_sites()))
    assert done.value == ((3, 120.0), 120.0, 0)
    assert [(r.request, r.question) for r in done.record.rounds] == [("Each", "Summarise"), ("Total", "Several")]


# ---------------------------------------------------------------------- sites that fail


def test_stop_names_the_site_after_the_others_have_answered(calls: Calls) -> None:
    calls.misbehave("north", failing, time=1)
    with pytest.raises(RoundStoppedError, match="round 2 stopped: north: an unexpected error") as stopped:
        run(summaries(3), InProcess().over(small_sites()))
    assert stopped.value.sites == ("north",)
    outcomes = {exchange.sites[0]: exchange.outcome for exchange in stopped.value.record.rounds[1].exchanges}
    assert outcomes["east"] == outcomes["south"] == "answered"
    assert "reference 1" in outcomes["north"]


def test_continue_leaves_the_site_out_for_the_rest(calls: Calls) -> None:
    calls.misbehave("north", failing, time=1)
    done = run(summaries(4), InProcess().over(small_sites()), on_drop="continue")
    assert done.value == [120.0, 80.0, 80.0, 80.0]
    assert calls.asked.count("north") == 2
    assert done.record.dropped == {"north": str(Failure(FailureCode.INTERNAL, 1))}
    assert "left out: north" in str(done.record)


def test_a_site_that_fails_in_the_first_round_never_takes_part(calls: Calls) -> None:
    calls.misbehave("east", failing)
    assert run(summaries(2), InProcess().over(small_sites()), on_drop="continue").value == [80.0, 80.0]


def test_when_nobody_is_left_the_run_stops(calls: Calls) -> None:
    for site in ("east", "north", "south"):
        calls.misbehave(site, failing, time=1)
    with pytest.raises(RoundStoppedError, match="no site is left"):
        run(summaries(2), InProcess().over(small_sites()), on_drop="continue")


def asked_of_some(*sites: str):
    """A dialogue that asks everyone, then for a sum over some sites."""
    yield Total(Summarise(d=2, q=1))
    return (yield Total(Summarise(d=2, q=1), sites)).weight


def test_when_nobody_of_those_asked_is_left_the_run_stops(calls: Calls) -> None:
    for site in ("north", "south"):
        calls.misbehave(site, failing, time=1)
    with pytest.raises(RoundStoppedError, match="round 2: no site is left of those asked") as stopped:
        run(asked_of_some("north", "south"), InProcess().over(small_sites()), on_drop="continue")
    assert stopped.value.record.dropped.keys() == {"north", "south"}
    assert calls.asked.count("east") == 1


def test_where_one_of_those_asked_is_left_the_run_goes_on(calls: Calls) -> None:
    calls.misbehave("north", failing, time=1)
    done = run(asked_of_some("north", "south"), InProcess().over(small_sites()), on_drop="continue")
    assert done.value == 40.0
    assert done.record.dropped.keys() == {"north"}


def test_a_sum_over_sites_that_had_left_or_never_were_is_no_sum(calls: Calls) -> None:
    calls.misbehave("north", failing)
    for sites in (("north",), ("nowhere",), ()):
        with pytest.raises(RoundStoppedError, match="round 2: no site is left of those asked"):
            run(asked_of_some(*sites), InProcess().over(small_sites()), on_drop="continue")


def test_answers_one_by_one_may_be_none(calls: Calls) -> None:
    def dialogue():
        some = yield Each(Summarise(d=2, q=1), sites=("north", "south"))
        rest = yield Total(Summarise(d=2, q=1))
        return some, rest.weight

    for site in ("north", "south"):
        calls.misbehave(site, failing)
    assert run(dialogue(), InProcess().over(small_sites()), on_drop="continue").value == ({}, 40.0)


def test_a_run_that_stopped_for_want_of_those_asked_can_be_resumed(calls: Calls, tmp_path: Path) -> None:
    for site in ("north", "south"):
        calls.misbehave(site, failing, time=1)
    with pytest.raises(RoundStoppedError, match="no site is left of those asked"):
        run(
            asked_of_some("north", "south"),
            InProcess().over(small_sites()),
            journal=Journal(tmp_path / "journal"),
            on_drop="continue",
        )
    calls._misbehaviour.clear()
    again = run(
        asked_of_some("north", "south"),
        InProcess().over(small_sites()),
        journal=Journal(tmp_path / "journal"),
        on_drop="continue",
    )
    assert again.value == 80.0
    assert calls.asked.count("east") == 1


@pytest.mark.slow
def test_a_late_answer_is_recorded_and_not_used(calls: Calls) -> None:
    calls.misbehave("north", slow(1.4))
    calls.misbehave("south", slow(0.7), time=1)  # the second round is still under way when north's answer comes
    done = run(summaries(2), InProcess(threads=3).over(small_sites()), deadline=1.0, on_drop="continue")
    assert done.value == [80.0, 80.0]
    late = [exchange for exchange in done.record.rounds[0].exchanges if exchange.outcome == LATE]
    assert [exchange.sites for exchange in late] == [("north",)]
    assert done.record.dropped == {"north": str(FailureCode.NO_ANSWER)}


@pytest.mark.slow
def test_hanging_sites_do_not_keep_the_others_waiting(calls: Calls) -> None:
    for site in ("a", "b"):
        calls.misbehave(site, slow(30.0))
    done = run(summaries(1), InProcess(threads=2).over(small_sites("abcdef")), deadline=4.0, on_drop="continue")
    assert done.value == [160.0]
    assert done.record.dropped.keys() == {"a", "b"}


# ---------------------------------------------------------------------- segments


def test_a_drop_out_opens_a_new_segment_of_the_trace(calls: Calls) -> None:
    case = simulated(n=900, seed=6)
    names = ("east", "north", "south")
    sites = [Site(name, case.rows.take(np.arange(i, 900, 3))) for i, name in enumerate(names)]
    calls.misbehave("north", failing, time=3)
    start = case.truth.in_coordinates(column_summary(case.rows).design(True))
    penalty = case.specification.penalty(column_summary(case.rows))
    done = run(ask_total(climb(start, penalty)), InProcess().over(sites), on_drop="continue")
    ascent = done.value
    assert len(ascent.segments) == 2
    assert ascent.n_iter == len(ascent.trace) - 2
    first, second = ascent.trace[: ascent.segments[1]], ascent.trace[ascent.segments[1] :]
    assert np.all(np.diff(first) >= 0)
    assert np.all(np.diff(second) >= 0)
    assert ascent.stop.converged
    assert ascent.statistics.weight == 600.0
    stayed = case.rows.take(np.flatnonzero(np.arange(900) % 3 != 1))
    assert ascent.statistics.log_likelihood == pytest.approx(expect(ascent.mixture, stayed).log_likelihood, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("time", range(1, 8))
def test_a_fit_without_the_lost_site_is_a_fit_of_those_that_stayed(calls: Calls, time: int) -> None:
    case = simulated(n=600, seed=6)
    sites = [Site(name, case.rows.take(np.arange(i, 600, 2))) for i, name in enumerate(("north", "south"))]
    calls.misbehave("north", failing, time=time)
    dialogue = FederatedEM().dialogue(Task([case.specification], 2, 1, seed=1))
    (fit,) = run(dialogue, InProcess().over(sites), on_drop="continue").value
    if fit.ascent.statistics.weight < 600:
        alone = expect(fit.ascent.mixture, sites[1].data)
        assert fit.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-12)
    assert fit.ascent.stop.converged


# ---------------------------------------------------------------------- the record


def test_the_record_says_what_was_asked_what_left_and_what_it_discloses() -> None:
    case = simulated(n=100)
    engine = InProcess().over([Site("north", case.rows), Site("south", case.rows.take(np.arange(99)))])

    def dialogue():
        yield Total(Summarise(d=2, q=1))
        yield Total(Several((LogLikelihood(case.truth), LogLikelihood(case.truth))))

    record = run(dialogue(), engine).record
    rows = record.to_rows()
    assert [(row["round"], row["site"]) for row in rows if row["round"] == 1] in (
        [(1, "north"), (1, "south")],
        [(1, "south"), (1, "north")],
    )
    assert all(row["bytes_sent"] > 0 and row["bytes_received"] > 0 and row["seconds"] > 0 for row in rows)
    assert rows[0]["discloses"].startswith("the total weight, the means and covariances of 2 covariates")
    assert rows[-1]["discloses"] == "2 times the total weight and the log-likelihood of one mixture"
    assert record.bytes_sent == sum(row["bytes_sent"] for row in rows)
    assert "2 rounds, 2 sites" in str(record)


def test_progress_is_told() -> None:
    claim = []
    run(summaries(2), InProcess().over(small_sites()), progress=lambda *what: claim.append(what))
    assert claim[-2:] == [("Summarise", 3, 3), ("computing with the answers", 0, 0)]


# ---------------------------------------------------------------------- traps


def test_a_dialogue_that_is_none_is_told_so() -> None:
    engine = InProcess().over(small_sites())
    with pytest.raises(InvalidInputError, match="call the function"):
        run(summaries, engine)  # type: ignore[arg-type]

    def bare():
        yield Summarise(2, 1)

    with pytest.raises(
        InvalidInputError,
        match=r"yields Total\(question\), Each\(question\) or PerSite\(\{site: question\}\), got Summarise",
    ):
        run(bare(), engine)


@pytest.mark.slow
def test_an_engine_serves_another_run_after_one_that_stopped(calls: Calls) -> None:
    engine = InProcess(threads=3).over(small_sites())
    calls.misbehave("north", slow(0.5))
    with pytest.raises(RoundStoppedError):
        run(summaries(1), engine, deadline=0.1)
    calls._misbehaviour.clear()

    def counts():
        total = yield Each(LogLikelihood(simulated(n=20).truth))
        time.sleep(0.6)  # north's answer to the first run has come
        again = yield Each(LogLikelihood(simulated(n=20).truth))
        return {site: (total[site].log_likelihood, again[site].log_likelihood) for site in total}

    values = run(counts(), engine).value
    assert list(values) == ["east", "north", "south"]
    assert all(first == second for first, second in values.values())


@pytest.mark.slow
def test_dialogues_of_dialogues_side_by_side() -> None:
    case = simulated(n=300, seed=4)
    sites = [Site("a", case.rows.take(np.arange(150))), Site("b", case.rows.take(np.arange(150, 300)))]

    def both():
        method = FederatedEM(n_climbs=2)
        return together(
            [method.dialogue(Task([case.specification], 2, 1)), method.dialogue(Task([case.specification], 2, 1))]
        )

    def three_levels():
        return together([both(), both()])

    nested = run(three_levels(), InProcess().over(sites))
    single = run(FederatedEM(n_climbs=2).dialogue(Task([case.specification], 2, 1)), InProcess().over(sites))
    assert len(nested.record.rounds) == len(single.record.rounds)
    assert {fit.log_likelihood for pair in nested.value for (fit,) in pair} == {single.value[0].log_likelihood}


def test_many_dialogues_side_by_side() -> None:
    done = run(together([summaries(1) for _ in range(100)]), InProcess().over(small_sites()))
    assert done.value == ([120.0],) * 100


# ---------------------------------------------------------------------- sums as they come


class InTurn:
    """An engine whose sites answer one after the other; it notes how many answers had been added before each."""

    def __init__(self, sites: list[Site], order: list[int]) -> None:
        self._sites, self._order = sites, order
        self.sites = tuple(site.name for site in sites)
        self.added: list[int] = []
        self.before: list[int] = []
        self.asked_for_totals: list[bool] = []

    def ask(self, number, question, sites, *, total, timeout):
        self.asked_for_totals.append(total)
        for place in self._order:
            self.before.append(sum(self.added))
            site = self._sites[place]
            yield [Reply(number, (site.name,), respond(question, site), (b"",), 0.0)]


def test_answers_of_known_sites_are_added_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = InTurn(small_sites([str(m) for m in range(20)]), list(range(20)))

    class Noted(RunningSum):
        def put(self, span, value) -> None:
            super().put(span, value)
            engine.added.append(1)
            assert len(self.nodes) <= 5

    monkeypatch.setattr(module, "RunningSum", Noted)
    run(summaries(2), engine)
    assert engine.before[:20] == [0] * 20  # in the first round a site may still turn out to have another one's rows
    assert engine.before[20:] == list(range(20, 40))


def test_whatever_site_answers_first_the_sum_has_the_same_bits() -> None:
    def twice():
        yield Total(Summarise(d=2, q=1))
        return (yield Total(Summarise(d=2, q=1)))

    sites, rng = small_sites([str(m) for m in range(37)]), np.random.default_rng(0)
    orders = [list(range(37)), *(rng.permutation(37).tolist() for _ in range(5))]
    sums = [run(twice(), InTurn(sites, order)).value for order in orders]
    assert len({each.y_mean.tobytes() + each.x_products.tobytes() for each in sums}) == 1


def test_where_rows_are_limited_each_site_answers_alone_in_every_round() -> None:
    engine = InTurn(small_sites(), [0, 1, 2])
    run(summaries(2), engine, limits=Limits(max_rows=100))
    assert engine.asked_for_totals == [False, False]  # a resumed run, which knows no earlier answer, is the same

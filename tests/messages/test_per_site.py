"""Requests with a question for each site: who is asked what, in which order it comes back, and what the record says."""

from __future__ import annotations

from typing import Any

import pytest

from answering import Calls, failing, slow, small_sites
from consilience.engines import InProcess
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.fit import Expect
from consilience.messages import (
    Each,
    Failure,
    FailureCode,
    LogLikelihood,
    PerSite,
    Several,
    Summarise,
    Total,
    decode,
    encode,
    together,
)
from consilience.messages.dialogue import Dialogue
from consilience.messages.questions import Bundle
from consilience.runs import run
from consilience.runs.record import ANSWERED, LATE
from consilience.site import Site, respond
from strategies import Shape

NAMES = ("west", "east", "north", "south")  # not sorted: the order is the engine's
QUESTIONS = {site: Expect(Shape(K=K, seed=K).problem()[0]) for K, site in enumerate(NAMES, start=1)}
SIZES = {site: len(encode(question)) for site, question in QUESTIONS.items()}


@pytest.fixture
def sites() -> list[Site]:
    return small_sites(NAMES)


def own(*names: str, times: int = 1) -> Dialogue[list[dict[str, Any]]]:
    """A dialogue that puts their own questions to some sites, several times."""
    answers = []
    for _ in range(times):
        answer = yield PerSite({site: QUESTIONS[site] for site in names})
        answers.append(answer)
    return answers


def alone(site: Site) -> bytes:
    """The answer of a site to its own question, without engine or run."""
    return encode(decode(respond(encode(QUESTIONS[site.name]), site)))


# ---------------------------------------------------------------------- who is asked what


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("names", [NAMES, NAMES[::-1], ("north", "west"), ("south",)])
def test_each_site_answers_its_own_question_in_the_order_of_the_engine(
    sites: list[Site], names: tuple[str, ...], threads: int
) -> None:
    (answers,) = run(own(*names), InProcess(threads=threads).over(sites)).value
    asked = [site for site in sites if site.name in names]
    assert list(answers) == [site.name for site in asked]
    assert [encode(answer) for answer in answers.values()] == [alone(site) for site in asked]


def test_a_site_is_shown_its_own_question_and_who_is_not_named_none(calls: Calls, sites: list[Site]) -> None:
    shown: dict[str, bytes] = {}

    def seen(question: Any, site: Site) -> bytes:
        shown[site.name] = encode(question)
        return respond(question, site)

    for name in NAMES:
        calls.misbehave(name, seen)
    run(own("south", "east", "west"), InProcess().over(sites))
    assert sorted(calls.asked) == ["east", "south", "west"]
    assert shown == {site: encode(QUESTIONS[site]) for site in ("west", "east", "south")}


def test_own_with_one_question_for_all_is_each(sites: list[Site]) -> None:
    question = QUESTIONS["north"]

    def both() -> Dialogue[tuple[list[tuple[str, bytes]], ...]]:
        each = yield Each(question)
        same = yield PerSite(dict.fromkeys(NAMES, question))
        return tuple([(site, encode(answer)) for site, answer in answers.items()] for answers in (each, same))

    each, same = run(both(), InProcess().over(sites)).value
    assert each == same


def test_names_that_are_no_site_are_passed_over_as_in_each(calls: Calls, sites: list[Site]) -> None:
    strangers = {"nowhere": QUESTIONS["west"]}

    def some() -> Dialogue[tuple[Any, ...]]:
        first = yield PerSite({**strangers, "east": QUESTIONS["east"]})
        none = yield PerSite(strangers)
        also_none = yield Each(QUESTIONS["west"], sites=("nowhere",))
        return list(first), none, also_none

    assert run(some(), InProcess().over(sites)).value == (["east"], {}, {})
    assert calls.asked == ["east"]


def test_questions_of_several_kinds_or_none_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one question, and all questions of one type"):
        PerSite({})
    with pytest.raises(InvalidInputError, match="all questions of one type"):
        PerSite({"west": Summarise(2, 1), "east": QUESTIONS["east"]})
    with pytest.raises(InvalidInputError, match="all questions of one type"):
        PerSite({"west": LogLikelihood(QUESTIONS["west"].mixture), "east": QUESTIONS["east"]})


def test_a_site_may_be_asked_several_questions_of_its_own(sites: list[Site]) -> None:
    def ask() -> Dialogue[Any]:
        return (yield PerSite({site: Several((QUESTIONS[site], Summarise(2, 1))) for site in ("west", "south")}))

    answers = run(ask(), InProcess().over(sites)).value
    for site in sites:
        if site.name in answers:
            first, _ = answers[site.name].items
            assert encode(first) == alone(site)
    assert list(answers) == ["west", "south"]


@pytest.mark.parametrize("other", ["west", "south"])
def test_an_answer_to_the_question_of_another_site_is_a_failure(calls: Calls, sites: list[Site], other: str) -> None:
    calls.misbehave("east", lambda question, site: respond(QUESTIONS[other], site))
    done = run(own(*NAMES), InProcess().over(sites), on_drop="continue")
    assert done.record.dropped == {"east": str(FailureCode.WRONG_SHAPE)}
    assert list(done.value[0]) == ["west", "north", "south"]


def test_an_engine_without_a_question_for_a_site_says_so_and_does_not_wait(calls: Calls, sites: list[Site]) -> None:
    engine = InProcess().over(sites)
    bundle = encode(Bundle((0, 2), (QUESTIONS["west"], QUESTIONS["north"])))
    with pytest.raises(KeyError, match="1"):
        list(engine.ask(1, bundle, ("west", "east"), total=False, timeout=None))
    assert calls.asked == []


# ---------------------------------------------------------------------- side by side


def test_dialogues_side_by_side_never_share_own_questions(calls: Calls, sites: list[Site]) -> None:
    def total() -> Dialogue[float]:
        return (yield Total(Summarise(2, 1))).weight

    dialogues = [own(*NAMES, times=2), total(), own(*NAMES), own("east"), total()]
    done = run(together(dialogues), InProcess().over(sites))
    expected = [(site.name, alone(site)) for site in sites]
    got = [
        [[(site, encode(answer)) for site, answer in answers.items()] for answers in done.value[i]] for i in (0, 2, 3)
    ]
    assert got == [[expected, expected], [expected], [expected[1:2]]]
    assert done.value[1] == done.value[4] == 160.0
    kinds = [(r.request, r.question, len(r.exchanges)) for r in done.record.rounds]
    assert sorted(kinds) == [("PerSite", "Expect", 1), *[("PerSite", "Expect", 4)] * 3, ("Total", "Several", 4)]


# ---------------------------------------------------------------------- the record


def test_the_record_has_the_bytes_of_each_sites_own_question(sites: list[Site]) -> None:
    done = run(own("north", "east", "west", times=2), InProcess().over(sites))
    assert len({*SIZES.values()}) == len(NAMES)
    for asked, answers in zip(done.record.rounds, done.value, strict=True):
        assert (asked.request, asked.question) == ("PerSite", "Expect")
        sent = {exchange.sites: exchange.bytes_sent for exchange in asked.exchanges}
        assert sent == {(site,): SIZES[site] for site in ("west", "east", "north")}
        received = {exchange.sites: exchange.bytes_received for exchange in asked.exchanges}
        assert received == {(site,): len(encode(answer)) for site, answer in answers.items()}
    assert done.record.bytes_sent == 2 * (SIZES["west"] + SIZES["east"] + SIZES["north"])


def test_the_record_says_what_any_of_the_questions_discloses(sites: list[Site]) -> None:
    mixture = QUESTIONS["east"].mixture
    plain, more = Expect(mixture), Expect(mixture, information=True)

    def ask() -> Dialogue[None]:
        yield PerSite({"west": plain, "north": plain})
        yield PerSite({"west": plain, "east": more, "north": plain})

    same, different = run(ask(), InProcess().over(sites)).record.rounds
    assert same.discloses == (plain).disclosed
    assert different.discloses == f"{(plain).disclosed}; {(more).disclosed}"


def test_progress_is_told_of_those_asked(sites: list[Site]) -> None:
    claim: list[tuple[str, int, int]] = []
    run(own("north", "west"), InProcess().over(sites), progress=lambda *what: claim.append(what))
    assert [what for what in claim if what[2]][-1] == ("Expect", 2, 2)
    assert claim[-1][1:] == (0, 0)  # the dialogue computes with the answers


# ---------------------------------------------------------------------- sites that fail


def test_stop_names_the_site_that_failed(calls: Calls, sites: list[Site]) -> None:
    calls.misbehave("east", failing, time=1)
    with pytest.raises(RoundStoppedError, match="round 2 stopped: east: an unexpected error") as stopped:
        run(own(*NAMES, times=3), InProcess().over(sites))
    assert stopped.value.sites == ("east",)
    exchanges = {exchange.sites[0]: exchange for exchange in stopped.value.record.rounds[1].exchanges}
    assert {site: exchange.bytes_sent for site, exchange in exchanges.items()} == SIZES
    assert {site for site, exchange in exchanges.items() if exchange.outcome == ANSWERED} == {*NAMES} - {"east"}


def test_continue_asks_the_others_their_own_questions_still(calls: Calls, sites: list[Site]) -> None:
    calls.misbehave("east", failing, time=1)
    done = run(own(*NAMES[::-1], times=3), InProcess().over(sites), on_drop="continue")
    got = [[(site, encode(answer)) for site, answer in answers.items()] for answers in done.value]
    everyone = [(site.name, alone(site)) for site in sites]
    others = [pair for pair in everyone if pair[0] != "east"]
    assert got == [everyone, others, others]
    assert calls.asked.count("east") == 2
    assert done.record.dropped == {"east": str(Failure(FailureCode.INTERNAL, 1))}


def test_when_all_who_have_a_question_are_gone_the_others_can_still_be_asked(calls: Calls, sites: list[Site]) -> None:
    calls.misbehave("east", failing)

    def ask() -> Dialogue[tuple[Any, ...]]:
        alone = yield PerSite({"east": QUESTIONS["east"]})
        again = yield PerSite({"east": QUESTIONS["east"]})
        rest = yield Total(Summarise(2, 1))
        return alone, again, rest.weight

    assert run(ask(), InProcess().over(sites), on_drop="continue").value == ({}, {}, 120.0)
    assert calls.asked.count("east") == 1


@pytest.mark.slow
def test_a_late_answer_is_recorded_and_not_used(calls: Calls, sites: list[Site]) -> None:
    calls.misbehave("east", slow(1.4))
    calls.misbehave("south", slow(0.7), time=1)  # the second round is still under way when east's answer comes
    done = run(own(*NAMES, times=2), InProcess(threads=4).over(sites), deadline=1.0, on_drop="continue")
    assert [list(answers) for answers in done.value] == [["west", "north", "south"]] * 2
    assert done.record.dropped == {"east": str(FailureCode.NO_ANSWER)}
    of_east = [exchange for exchange in done.record.rounds[0].exchanges if exchange.sites == ("east",)]
    assert [(e.outcome, e.bytes_sent) for e in of_east] == [(str(FailureCode.NO_ANSWER), SIZES["east"]), (LATE, 0)]
    assert of_east[1].bytes_received == len(alone(sites[1]))


def test_a_late_answer_stops_a_run_that_says_so(calls: Calls, sites: list[Site]) -> None:
    calls.misbehave("east", slow(1.0))
    with pytest.raises(RoundStoppedError, match=f"round 1 stopped: east: {FailureCode.NO_ANSWER}") as stopped:
        run(own(*NAMES), InProcess(threads=4).over(sites), deadline=0.5)
    sent = {exchange.sites[0]: exchange.bytes_sent for exchange in stopped.value.record.rounds[0].exchanges}
    assert sent == SIZES

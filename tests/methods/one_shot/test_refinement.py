"""Rounds of refinement: who takes part in them, and what follows a step that did not climb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from answering import Calls, Misbehaviour
from combining import common_design, fitted_model, parted
from consilience import OneShot
from consilience.aggregate import Combination, SiteEvidence, SiteModel, combine_models
from consilience.engines import InProcess
from consilience.fit import Ascent, Expect, fit_mixture
from consilience.fit.climb import CAUTIOUS_SHIFT, LARGEST_SHIFT, Quadratic, StopReason, grow_shift, newton_step
from consilience.fit.survey import Survey, SurveyedSite
from consilience.messages import (
    Answers,
    Dialogue,
    Each,
    Likelihood,
    LocalFit,
    LogLikelihood,
    PerSite,
    Several,
    Total,
    decode,
    encode,
)
from consilience.methods import CombinedFit, Task
from consilience.methods.one_shot.refinement import EXPLAINED, Contest, Opening, opening, refine
from consilience.methods.site_reports import NOISIER, compare_sites
from consilience.model import Mixture, Penalty, Rows, Statistics, expect
from consilience.model.information import move_parameters
from consilience.model.summary import column_summary
from consilience.runs import Run, run
from consilience.site import Site, answer, respond
from simulated import Simulated, simulated

USED = SiteEvidence("", 1.0, -1.0, 0.0, 0.0, (True, True), True)

pytestmark = pytest.mark.usefixtures("few_points")


@cache
def case() -> Simulated:
    return simulated(n=1_600, seed=3)


@cache
def parts() -> dict[str, Rows]:
    return parted(case().rows, 4)


@cache
def models() -> dict[str, SiteModel]:
    return {name: fitted_model(rows, case().specification, case().truth) for name, rows in parts().items()}


@cache
def combination() -> Combination:
    return combine_models(models(), 2, design=common_design(parts(), case().specification))


def bits(mixture: Mixture) -> bytes:
    return encode(LogLikelihood(mixture))


# ---------------------------------------------------------------------- who takes part


def judged_as(**evidence: SiteEvidence) -> Combination:
    """The combination with other words on some sites; ``_`` stands for a blank in their names."""
    said = {name.replace("_", " "): site for name, site in evidence.items()}
    return replace(combination(), sites=tuple(replace(said.get(name, USED), name=name) for name in parts()))


SET_ASIDE = replace(USED, experts=(False, False))
IN_PART = replace(USED, gate=False)


def local_fits(**claims: float) -> dict[str, LocalFit]:
    """The sites' answers; some claim another log-likelihood per row of their own."""
    said = {name.replace("_", " "): value for name, value in claims.items()}
    changed = {
        name: replace(model, log_likelihood=said.get(name, model.log_likelihood_per_row) * model.weight)
        for name, model in models().items()
    }
    return {
        name: LocalFit(column_summary(rows), changed[name], StopReason.CONVERGED_NEWTON)
        for name, rows in parts().items()
    }


def reaching(question: Several, rows: Rows, *per_row: float) -> Answers:
    """A site's answer in which each mixture reaches what is said, per row; the sites' models reach 0."""
    asked = [part for part in question.questions if isinstance(part, Expect)]
    *items, one = [expect(part.mixture, rows, information=part.information) for part in asked]
    claimed = [replace(item, log_likelihood=v * item.weight) for item, v in zip(items, per_row, strict=True)]
    return Answers((*claimed, one, *[Likelihood(0.0, float(rows.n))] * (len(question.questions) - len(asked))))


@cache
def one_regression() -> Mixture:
    return case().specification.with_order(1).blank(column_summary(case().rows))


def members_of(
    combinations: list[Combination],
    fits: Mapping[str, LocalFit],
    reached: Mapping[str, tuple[float, ...]],
    **with_own_gates: float,
) -> tuple[tuple[str, ...] | None, list[Statistics]]:
    """What the first round makes of answers that reach what is said; some more at a gate of their own."""
    own = {name.replace("_", " "): value for name, value in with_own_gates.items()}
    dialogue = opening(combinations, fits, one_regression(), Penalty())
    request = next(dialogue)
    assert isinstance(request, Each)
    assert request.sites is None
    answers = {name: reaching(request.question, rows, *reached[name]) for name, rows in parts().items()}
    opened = ended(dialogue, answers, {name: max(values) for name, values in reached.items()} | own)
    return opened.members, opened.firsts


def ended(dialogue: Dialogue[Opening], answers: Mapping[str, Answers], per_row: Mapping[str, float]) -> Opening:
    """The end of the first round; sites that are asked again at gates of their own reach what is said."""
    try:
        request = dialogue.send(answers)
        while True:
            assert isinstance(request, PerSite)
            found = {name: expect(asked.mixture, parts()[name]) for name, asked in request.questions.items()}
            claimed = {name: replace(at, log_likelihood=per_row[name] * at.weight) for name, at in found.items()}
            request = dialogue.send(claimed)
    except StopIteration as end:
        return end.value


LOWEST = -1.5
REACHED = {"site 0": (-1.2,), "site 1": (LOWEST,), "site 3": (-1.3,)}


@pytest.mark.slow
@pytest.mark.parametrize("doubt", [SET_ASIDE, IN_PART], ids=["set aside", "used in part"])
@pytest.mark.parametrize(
    ("own", "reached", "returns"),
    [
        (-1.4, -1.4, True),
        (-1.4, -1.4 - 0.9 * EXPLAINED, True),
        (-1.4, -1.4 - 1.1 * EXPLAINED, False),  # the others are explained no better, but its own model did better
        (-0.9, LOWEST, False),
        (-0.9, -1.1, True),
        (-3.0, LOWEST - 0.9 * EXPLAINED, True),
        (-3.0, LOWEST - NOISIER - 0.9 * EXPLAINED, True),
        (
            -3.0,
            LOWEST - NOISIER - 1.1 * EXPLAINED,
            False,
        ),  # as well as its own model, but far worse than all others
        (-3.0, -3.0, False),
        (-1e6, -50.0, False),
        (-1e6, -1.0, True),
    ],
)
def test_a_doubted_site_returns_if_it_is_explained_as_it_was_and_as_the_others_are(
    doubt: SiteEvidence, own: float, reached: float, returns: bool
) -> None:
    members, (total,) = members_of([judged_as(site_2=doubt)], local_fits(site_2=own), {**REACHED, "site 2": (reached,)})
    assert members == tuple(name for name in parts() if returns or name != "site 2")
    assert total.weight == sum(parts()[name].n for name in members)
    assert total.information is not None


def test_a_doubted_site_with_other_shares_of_the_same_experts_returns() -> None:
    doubted, reached = [judged_as(site_2=SET_ASIDE)], {**REACHED, "site 2": (-9.0,)}
    members, (total,) = members_of(doubted, local_fits(site_2=-1.4), reached, site_2=-1.4 - 0.9 * EXPLAINED)
    assert members == tuple(parts())
    assert total.weight == 1_600
    members, _ = members_of(doubted, local_fits(site_2=-1.4), reached, site_2=-1.4 - 1.1 * EXPLAINED)
    assert members == ("site 0", "site 1", "site 3")


def test_the_rows_of_sites_that_stay_out_are_in_no_sum() -> None:
    _, (total,) = members_of([judged_as(site_2=SET_ASIDE)], local_fits(site_2=-1.0), {**REACHED, "site 2": (-9.0,)})
    mixture = combination().mixture
    honest = [expect(mixture, rows, information=True) for name, rows in parts().items() if name != "site 2"]
    np.testing.assert_allclose(total.information, sum(each.information for each in honest), rtol=1e-12, atol=1e-9)
    assert total.log_likelihood == pytest.approx(400 * (-1.2 + LOWEST - 1.3))


def test_sites_without_a_model_do_not_set_the_bar() -> None:
    silent = SiteEvidence.without_model("", 0.0)
    combinations = [judged_as(site_2=SET_ASIDE, site_3=silent)]
    reached = {**REACHED, "site 2": (-50.0,), "site 3": (-900.0,)}  # one outlying row is enough for that
    members, _ = members_of(combinations, local_fits(site_2=-1e3), reached)
    assert members == ("site 0", "site 1", "site 3")


def test_a_copy_stays_out_however_well_it_is_explained() -> None:
    copy = replace(SET_ASIDE, copy_of="site 0")
    members, _ = members_of([judged_as(site_2=copy)], local_fits(), {**REACHED, "site 2": (-1.0,)})
    assert members == ("site 0", "site 1", "site 3")


def test_the_best_of_several_orders_speaks_for_a_site() -> None:
    pair = [judged_as(site_2=SET_ASIDE), judged_as()]
    reached = {name: (value, value - 0.5) for name, (value,) in REACHED.items()}
    for values, returns in (((-9.0, -1.4), True), ((-1.4, -9.0), True), ((-9.0, -9.0), False)):
        members, totals = members_of(pair, local_fits(site_2=-1.4), {**reached, "site 2": values})
        assert ("site 2" in members) == returns
        assert [total.weight for total in totals] == [400.0 * len(members)] * 2


def test_where_all_are_doubted_each_is_measured_by_its_own_model() -> None:
    doubted = judged_as(**{name.replace(" ", "_"): IN_PART for name in parts()})
    reached = {"site 0": (-1.4,), "site 1": (-7.0,), "site 2": (-8.0,), "site 3": (-1.4,)}
    fits = local_fits(site_0=-1.4, site_1=-7.1, site_2=-1.4, site_3=-1.0)
    members, _ = members_of([doubted], fits, reached)
    assert members == ("site 0", "site 1")


def test_where_all_are_doubted_the_answers_of_all_tell_sites_that_disagree() -> None:
    doubted = judged_as(**{name.replace(" ", "_"): IN_PART for name in parts()})
    dialogue = opening([doubted], local_fits(), one_regression(), Penalty())
    question = next(dialogue).question
    opened = ended(dialogue, {name: answer(question, Site(name, rows)) for name, rows in parts().items()}, {})
    (joint,) = opened.each
    assert set(joint) == set(parts())
    everyone = Survey(tuple(SurveyedSite(name, 400.0) for name in parts()))
    V = doubted.covariances()
    judging = compare_sites(everyone, opened.cross, joint, doubted.mixture, penalty=Penalty(), covariances=V)
    with pytest.raises(StopIteration) as judged:  # nobody is asked again
        next(judging)
    assert judged.value.value.suspicions == {}


def test_where_no_site_is_explained_all_take_part_and_the_result_is_in_doubt() -> None:
    doubted = judged_as(**{name.replace(" ", "_"): IN_PART for name in parts()})
    dialogue = opening([doubted], local_fits(), one_regression(), Penalty())
    question = next(dialogue).question
    answers = {name: reaching(question, rows, -50.0) for name, rows in parts().items()}
    opened = ended(dialogue, answers, dict.fromkeys(parts(), -50.0))
    assert opened.members is None
    assert not opened.explains
    contest = Contest.of(doubted.mixture, opened.firsts[0], opened)
    assert "explains the rows of no site: try FederatedEM" in contest.rivals.doubts(0.0)[0]


@pytest.mark.parametrize("other", [USED, SiteEvidence.without_model("", 400.0)], ids=["used", "no model"])
def test_where_nobody_is_doubted_all_take_part(other: SiteEvidence) -> None:
    members, (statistics,) = members_of([judged_as(site_2=other)], local_fits(), dict.fromkeys(parts(), (-1.0,)))
    assert members is None
    assert statistics.weight == 1_600


# ---------------------------------------------------------------------- sites that say other than they are


def one_shot(refine: int = 1, **changed: Rows) -> Run[tuple[CombinedFit, ...]]:
    sites = {**parts(), **changed}
    dialogue = OneShot(refine=refine).dialogue(Task([case().specification], 2, 1, start=case().truth, seed=0))
    return run(dialogue, InProcess().over([Site(name, rows) for name, rows in sites.items()]))


def claiming(of: Callable[[SiteModel], SiteModel]) -> Misbehaviour:
    """A site that sends another model than it has."""

    def answer(question: bytes, site: Site) -> bytes:
        fit = decode(respond(question, site))
        return encode(replace(fit, model=of(fit.model)) if isinstance(fit, LocalFit) else fit)

    return answer


def spoiled(model: SiteModel) -> SiteModel:
    experts = model.mixture.experts
    return replace(model, mixture=replace(model.mixture, experts=replace(experts, B=10 * experts.B)))


def flipped() -> Rows:
    """Rows of which the combined mixture knows nothing."""
    rows = parts()["site 2"]
    return Rows(rows.X, -rows.Y)


@pytest.mark.slow
@pytest.mark.parametrize("per_row", [None, -3.0, -1e3, -1e6])
def test_a_foreign_site_does_not_talk_itself_in_with_a_low_likelihood(per_row: float | None, calls: Calls) -> None:
    if per_row is not None:
        calls.misbehave("elsewhere", claiming(lambda m: replace(m, log_likelihood=per_row * m.weight)))
    done = one_shot(elsewhere=flipped())
    (fit,) = done.value
    assert set(fit.combination.set_aside) == {"elsewhere"}
    assert fit.members == tuple(parts())
    assert fit.ascent.statistics.weight == 1_600


@pytest.mark.slow
@pytest.mark.parametrize(("more", "returns"), [(0.0, True), (1.0, False)])
def test_a_site_that_claims_to_do_better_alone_is_left_alone(more: float, returns: bool, calls: Calls) -> None:
    calls.misbehave(
        "site 2", claiming(lambda m: replace(spoiled(m), log_likelihood=m.log_likelihood + more * m.weight))
    )
    (fit,) = one_shot().value
    assert set(fit.combination.set_aside) == ({"site 2"} - set(fit.members))
    assert any("its own model was not the start" in said for said in fit.evidence()[2].remarks) == returns
    assert ("site 2" in fit.members) == returns
    assert fit.ascent.statistics.weight == 1_600 - 400 * (not returns)


def test_later_rounds_are_asked_of_members_only() -> None:
    done = one_shot(refine=4, elsewhere=flipped())
    sums = [each for each in done.record.rounds[2:] if each.request != "PerSite"]  # gates of their own come before
    assert {site for r in sums for exchange in r.exchanges for site in exchange.sites} == set(parts())


# ---------------------------------------------------------------------- steps


@cache
def near_the_top(step: float = 0.5) -> tuple[Mixture, Statistics, Penalty]:
    """A mixture whose Newton decrement is about ``step``, with its statistics."""
    rows, specification = case().rows, case().specification
    top = fit_mixture(rows, specification, rng=np.random.default_rng(0), start=case().truth).ascent.mixture
    J = expect(top, rows, information=True).information
    away = np.random.default_rng(0).normal(size=len(J))
    start = move_parameters(top, away * np.sqrt(2 * step / (away @ J @ away)))
    return start, expect(start, rows, information=True), specification.penalty(column_summary(rows))


def answered(request: object, *, worse: bool = False) -> Statistics:
    """What the sites say to a request; ``worse`` than it is."""
    assert isinstance(request, Total)
    assert isinstance(request.question, Expect)
    statistics = expect(request.question.mixture, case().rows, information=request.question.information)
    return replace(statistics, log_likelihood=statistics.log_likelihood - 1e4) if worse else statistics


def result(dialogue, statistics: Statistics) -> Ascent:
    with pytest.raises(StopIteration) as end:
        dialogue.send(statistics)
    return end.value.value


def test_near_the_top_a_newton_step_is_next() -> None:
    start, first, penalty = near_the_top()
    step = newton_step(start, first, penalty)
    dialogue = refine(start, first, penalty, 1, ("site 0", "site 1"))
    request = next(dialogue)
    assert request.sites == ("site 0", "site 1")
    assert request.question.information
    assert bits(request.question.mixture) == bits(move_parameters(start, step.direction))
    end = result(dialogue, answered(request))
    assert (end.passes, end.halvings, len(end.trace)) == (2, 0, 2)
    assert end.trace[1] > end.trace[0]


def test_far_from_the_top_the_first_step_is_shifted() -> None:
    start, first, penalty = near_the_top(5.0)
    request = next(refine(start, first, penalty, 9, None))
    step = Quadratic.at(start, first, penalty).step(CAUTIOUS_SHIFT)
    assert bits(request.question.mixture) == bits(move_parameters(start, step.direction))


def test_after_rejected_steps_come_larger_shifts_then_an_em_step_then_shorter_ones() -> None:
    start, first, penalty = near_the_top()
    model = Quadratic.at(start, first, penalty)
    dialogue = refine(start, first, penalty, 9, None)
    request, shift = next(dialogue), grow_shift(0.0)
    while shift <= LARGEST_SHIFT:
        request = dialogue.send(answered(request, worse=True))
        assert bits(request.question.mixture) == bits(move_parameters(start, model.step(shift).direction))
        shift = grow_shift(shift)
    for fraction in (1.0, 0.5):
        request = dialogue.send(answered(request, worse=True))
        assert bits(request.question.mixture) == bits(start.maximise(first, penalty, fraction))
        assert request.question.information
    dialogue.close()


def test_a_last_step_that_did_not_climb_is_not_returned() -> None:
    start, first, penalty = near_the_top()
    dialogue = refine(start, first, penalty, 1, None)
    end = result(dialogue, answered(next(dialogue), worse=True))
    assert end.passes == 2
    assert end.mixture is start
    assert end.statistics is first
    assert end.stop is StopReason.REFINED
    assert end.trace == (start.penalised(first, penalty),)


def test_at_the_top_no_more_is_asked() -> None:
    start, first, penalty = near_the_top(1e-9)
    with pytest.raises(StopIteration) as end:
        next(refine(start, first, penalty, 3, None))
    assert end.value.value.mixture is start
    assert end.value.value.stop is StopReason.CONVERGED_NEWTON


def test_a_fall_because_a_site_left_is_no_fall() -> None:
    start, first, penalty = near_the_top()
    dialogue = refine(start, first, penalty, 2, None)
    proposal = next(dialogue).question.mixture
    fewer = case().rows.take(np.arange(900))
    again = dialogue.send(expect(proposal, fewer, information=True))
    assert bits(again.question.mixture) == bits(start)
    after = dialogue.send(expect(start, fewer, information=True))
    end = result(dialogue, expect(after.question.mixture, fewer, information=True))
    assert end.segments == (0, 1)
    assert end.trace[2] > end.trace[1]
    assert end.halvings == 0

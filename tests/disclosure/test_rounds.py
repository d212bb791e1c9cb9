"""Attacks by questions in rounds: each is refused under the policy, and recovers rows with its rules switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import round_attacks as attacks
from consilience import FederatedEM
from consilience.columns import Column
from consilience.datasets import paper, soft
from consilience.engines import InProcess
from consilience.fit import Expect, Specification
from consilience.kit.combination import GuardedSites
from consilience.kit.examination import UsedRows
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.rounds.asked import Asked, RefusedQuestionError
from consilience.kit.policy.rounds.guard import GuardedSite, RoundsOf, check_settings
from consilience.kit.site_rounds import collect_asked, record_into
from consilience.messages import Failure, FailureCode, Summarise, decode, encode
from consilience.messages.questions import Sample, ScoreSums, Several
from consilience.methods.task import Task
from consilience.model import ConstantGate, Design, Mixture, Rows
from consilience.model.families.registry import FAMILIES
from consilience.numerics.arrays import unpack
from consilience.published.client_steps import Sizes
from consilience.runs import run
from consilience.site import Site
from consilience.site.answer import answer, respond
from policy_cases import policy_with
from round_attacks import D, Refused, free_ask, guarded_ask, hospital

OPEN = Policy.of_profile("open")
NO_L: dict[str, Any] = {"max_leverage": 1.0, "effective_rows": 1, "max_operations": 1e18, "max_memory": 10**6}


def few_rows() -> Site:
    rng = np.random.default_rng(3)
    return Site("north", Rows(rng.normal(size=(20, 20)), rng.normal(size=(20, 1)) + 3))


def clusters() -> Site:
    return Site("north", Rows(np.empty((60, 0)), np.random.default_rng(0).normal(size=(60, 3))))


ON_WEIGHTS: list[tuple[str, Callable[..., float], Callable[[], Site], str, float]] = [
    ("A2 histogram", attacks.histogram, hospital, "effective_rows", 1e-5),
    ("A3 thin experts", attacks.thin_experts, hospital, "effective_rows", 1e-9),
    ("A4 moved past one row", attacks.moved_past_one_row, hospital, "max_leverage", 1e-9),
    ("A5 Poisson weights", attacks.exponential, attacks.counts, "effective_rows", 1e-9),
    ("A6 class boundary", attacks.class_boundary, attacks.classes, "max_leverage", 1e-9),
    ("batch", attacks.in_one_batch, hospital, "effective_rows", 1e-6),
    ("four sets", attacks.four_sets, partial(hospital, 2000), "effective_rows", 1e-9),
    ("four thin sets", attacks.four_thin_sets, partial(hospital, 2000), "max_leverage", 1e-9),
    ("A7 likelihoods", attacks.likelihoods, hospital, "max_leverage", 1e-6),
    ("A15 sums of scores", partial(attacks.histogram, question=ScoreSums), hospital, "effective_rows", 1e-4),
    ("A7 likelihoods, hidden", partial(attacks.likelihoods, far=8), hospital, "max_leverage", 1e-2),
]


@pytest.mark.parametrize(
    ("attack", "site", "rule", "accuracy"), [e[1:] for e in ON_WEIGHTS], ids=[e[0] for e in ON_WEIGHTS]
)
def test_weights_that_single_out_rows_are_refused(attack: Any, site: Any, rule: str, accuracy: float) -> None:
    where = site()
    ask, guard = guarded_ask(where, Policy.of_profile())
    with pytest.raises(Refused, match=rule):
        attack(ask, where)
    assert guard.asked.ended
    ask, _ = guarded_ask(where, policy_with(**NO_L))
    assert attack(ask, where) < accuracy


THIN = ("A2 histogram", "A3 thin experts", "A5 Poisson weights", "A15 sums of scores")
OVER_LARGE_SETS = [e for e in ON_WEIGHTS if e[0] not in THIN]


@pytest.mark.parametrize(("attack", "site"), [e[1:3] for e in OVER_LARGE_SETS], ids=[e[0] for e in OVER_LARGE_SETS])
def test_leverage_alone_stops_differences_of_large_sets(attack: Any, site: Any) -> None:
    where = site()
    ask, _ = guarded_ask(where, policy_with(effective_rows=1))
    with pytest.raises(Refused, match="max_leverage"):
        attack(ask, where)


OTHERS: list[tuple[str, Callable[..., float], Callable[[], Site], float]] = [
    ("A9 as many experts as rows", attacks.as_many_experts_as_rows, clusters, 1e-6),
    ("A10 clients of one row", attacks.clients_of_one, partial(hospital, groups=np.arange(1000)), 1e-9),
    ("A10 anchors", attacks.anchors, partial(hospital, groups=np.arange(1000) // 2), 1e-4),
    ("A11 local steps", attacks.local_steps, partial(hospital, groups=np.arange(1000)), 1e-4),
    ("A11 critic", attacks.critic, hospital, 1e-3),
    ("A16 pairs", attacks.pairs, few_rows, 1e-4),
]


@pytest.mark.parametrize(("attack", "site", "accuracy"), [e[1:] for e in OTHERS], ids=[e[0] for e in OTHERS])
def test_questions_that_are_not_listed_are_refused(attack: Any, site: Any, accuracy: float) -> None:
    where = site()
    ask, _ = guarded_ask(where, policy_with(min_rows=1))
    with pytest.raises(Refused, match="questions"):
        attack(ask, where)
    assert attack(free_ask(where), where) < accuracy


# ---------------------------------------------------------------------- draws, fits, moments, changed rows


def test_a_sample_is_not_drawn_by_the_coordinator() -> None:
    site = hospital()
    with pytest.raises(Refused, match="questions"):
        attacks.chosen_draw(guarded_ask(site, Policy.of_profile())[0], site)
    with pytest.raises(Refused, match="min_rows"):
        attacks.chosen_draw(guarded_ask(site, policy_with(questions=["Sample", "Expect"]))[0], site)
    assert attacks.chosen_draw(free_ask(site), site) < 1e-9
    half = Sample(Expect(attacks.one(D)), 0.5, 5)  # the site's own draw is another one
    assert guarded_ask(site, OPEN)[0](half).weight != free_ask(site)(half).weight


def test_no_start_crosses_the_border() -> None:
    site = hospital(3000)
    study = Task([Specification(K=2)], D, 1).fit_site(describe=False)
    with pytest.raises(Refused, match="settings"):
        attacks.crafted_start(guarded_ask(site, OPEN, fit=study)[0], site)
    assert attacks.crafted_start(lambda question: answer(question, site), site) < 1e-6


@pytest.mark.parametrize("changed", [{"seed": 1}, {"n_init": 1}, {"max_iter": 1}, {"tol": 1.0}, {"orders": (2, 60)}])
def test_settings_of_a_fit_are_the_studys(changed: dict[str, Any]) -> None:
    study = Task([Specification(K=2)], D, 1).fit_site(describe=False)
    check_settings(study, study)
    with pytest.raises(RefusedQuestionError):
        check_settings(replace(study, **changed), study)
    with pytest.raises(RefusedQuestionError):
        check_settings(replace(study, specification=replace(study.specification, reg_covar=1e-12)), study)


@pytest.mark.parametrize("attack", [attacks.fourth_moments, attacks.pairs])
def test_fourth_moments_need_rows(attack: Any) -> None:
    site = few_rows()
    every = {**NO_L, "min_rows": 1, "questions": OPEN.rounds.questions}
    with pytest.raises(Refused, match="rows_per_column"):
        attack(guarded_ask(site, policy_with(**every))[0], site)
    assert attack(guarded_ask(site, policy_with(**every, rows_per_column=0.0))[0], site) < 1e-4


def test_rows_that_change_in_a_run_end_it() -> None:
    before = hospital()
    after = Site("north", Rows(before.data.X[:-1], before.data.Y[:-1]), key=before.key)

    def difference(ask: Any, again: Any) -> float:
        a, b = ask(Summarise(D, 1)), again(Summarise(D, 1))
        row = np.append(a.weight * a.x_mean - b.weight * b.x_mean, a.weight * a.y_mean - b.weight * b.y_mean)
        return attacks.error(before, row)

    ask, guard = guarded_ask(before, Policy.of_profile())
    again, other = guarded_ask(after, Policy.of_profile())

    def later(question: Any) -> Any:
        other.asked = guard.asked  # what was asked so far is stored at the site
        return again(question)

    with pytest.raises(Refused, match="data_changed"):
        difference(ask, later)
    assert difference(free_ask(before), free_ask(after)) < 1e-9


# ---------------------------------------------------------------------- refusals as an oracle


def test_one_code_whatever_the_rule() -> None:
    site = hospital()
    questions = [
        b"noise",
        encode(Sizes()),
        encode(Expect(attacks.gated([100.0], np.eye(D)[0], 1.0))),
        encode(Summarise(D + 1, 1)),
        encode(Expect(Mixture(Design.raw(D), ConstantGate(np.ones(1)), FAMILIES["poisson"](np.zeros((1, D + 1)))))),
    ]
    replies = {GuardedSite(site, RoundsOf(Policy.of_profile())).reply(question) for question in questions}
    assert replies == {encode(Failure(FailureCode.REFUSED))}
    assert len({respond(question, site) for question in questions}) > 2  # without a guard the codes tell them apart


def test_failure_codes_do_not_tell_the_largest_class() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 7, 500).astype(float)
    site = Site("north", Rows(rng.normal(size=(500, 1)), y[:, None]))

    def largest(ask: Any) -> int:
        for C in range(2, 12):
            try:
                experts = FAMILIES["categorical"](np.zeros((1, C, 2)))
                ask(Expect(Mixture(Design.raw(1), ConstantGate(np.ones(1)), experts)))
                return C - 1
            except Refused:
                continue
        return -1

    assert largest(free_ask(site)) == y.max()
    assert largest(guarded_ask(site, Policy.of_profile())[0]) == -1


def test_a_refusal_ends_the_run_and_is_charged(tmp_path: Any) -> None:
    folder = SiteFolder.init("north", Policy.of_profile().to_text(), tmp_path)
    used = UsedRows.of(pa.table({"age": list(range(100))}), [Column("age")], folder.secret)
    keep = record_into(folder, "sha256:a", used)
    guard = GuardedSite(hospital(), RoundsOf(Policy.of_profile()), keep=keep)
    summary = encode(Summarise(D, 1))
    assert not isinstance(decode(guard.reply(summary)), Failure)
    assert isinstance(decode(guard.reply(encode(Sizes()))), Failure)
    assert isinstance(decode(guard.reply(summary)), Failure)
    charged = [entry.details["rule"] for entry in folder.entries if entry.kind == "refusal"]
    assert charged == ["questions"]
    assert guard.asked.refusals == collect_asked(folder, used).refusals == 1
    assert [entry.kind for entry in folder.entries] == ["init", "answer", "refusal"]


def test_where_refusals_begin_tells_nothing() -> None:
    site = hospital()
    alone = policy_with(max_leverage=1.0)

    def forgetful(question: Any) -> Any:
        return guarded_ask(site, alone)[0](question)  # each refusal is the first

    assert attacks.bisected_refusals(forgetful, site) < 1e-6
    ask, guard = guarded_ask(site, alone)
    answered = []

    def patient(question: Any) -> Any:
        if guard.asked.ended:
            guard.asked = guard.asked.next_run()  # another run, as often as the site allows
        found = ask(question)
        answered.append(question)
        return found

    attacks.bisected_refusals(patient, site)
    assert guard.asked.refusals == alone.rounds.max_refusals
    assert len(guard.refusals) + len(answered) == 45


# ---------------------------------------------------------------------- the replay check


def study_run(M: int = 2, n: int = 600, *, sandwich: bool = False) -> tuple[Any, list[Site]]:
    data = soft(M * n, n_experts=2, n_features=2, random_state=0)
    task = Task([Specification(K=2)], 2, 1, start=data.truth, sandwich=sandwich)
    sites = [Site(str(i), Rows(data.X[i::M], data.y[i::M][:, None])) for i in range(M)]
    return (lambda: FederatedEM(totals_only=True).dialogue(task)), sites


def bent(question: Expect, by: float) -> Expect:
    gate = question.mixture.gate
    alpha = gate.alpha.copy()
    alpha[0, 1] += by
    return replace(question, mixture=replace(question.mixture, gate=type(gate)(alpha)))


@pytest.mark.parametrize("more", [[], ["ScoreProducts"]])
def test_a_site_answers_only_what_its_own_dialogue_asks(more: list[str]) -> None:
    make, sites = study_run(sandwich=bool(more))
    policy = policy_with(**NO_L, questions=[*Policy.of_profile().rounds.questions, *more])
    guards = [GuardedSite(site, RoundsOf(policy, dialogue=make)) for site in sites]
    guided, free = run(make(), GuardedSites(guards)), run(make(), InProcess().over(sites))
    assert guided.value[0].log_likelihood == free.value[0].log_likelihood
    assert all(not guard.refusals for guard in guards)
    assert guards[0].asked.rounds == len(free.record.rounds) > 3
    assert (guided.value[0].meat is not None) == bool(more)


@pytest.mark.parametrize(("by", "refused"), [(1e-5, True), (1e-12, False)])
def test_a_bent_gate_is_refused(by: float, refused: bool) -> None:
    make, sites = study_run(M=1)
    replies = {}
    for checks in (True, False):
        limits = policy_with(**NO_L, replay_check=checks)
        guard, dialogue, totals = GuardedSite(sites[0], RoundsOf(limits, dialogue=make)), make(), list[bytes]()
        question = next(dialogue).question
        for _ in range(2):
            totals.append(guard.reply(encode(question), totals))
            question = dialogue.send(decode(totals[-1])).question
        question = question.questions[0] if isinstance(question, Several) else question
        replies[checks] = decode(guard.reply(encode(bent(question, by)), totals))
    assert isinstance(replies[True], Failure) is refused
    assert not isinstance(replies[False], Failure)


@pytest.mark.parametrize("attack", [attacks.moved_past_one_row, attacks.four_thin_sets])
def test_attacks_are_not_in_the_study(attack: Any) -> None:
    site = hospital(2000)
    task = Task([Specification(K=2)], D, 1)

    def make() -> Any:
        return FederatedEM(totals_only=True).dialogue(task)

    with pytest.raises(Refused, match="replay_check"):
        attack(guarded_ask(site, policy_with(**NO_L), dialogue=make)[0], site)
    assert attack(guarded_ask(site, policy_with(**NO_L, replay_check=False), dialogue=make)[0], site) < 1e-9


def test_totals_that_were_shown_stay() -> None:
    make, sites = study_run(M=1)
    guard, dialogue = GuardedSite(sites[0], RoundsOf(policy_with(**NO_L), dialogue=make)), make()
    first = guard.reply(encode(next(dialogue).question))
    second = guard.reply(encode(dialogue.send(decode(first)).question), [first])
    question = encode(dialogue.send(decode(second)).question)
    other = encode(replace(decode(first), weight=decode(first).weight + 1))
    assert isinstance(decode(guard.reply(question, [other, second])), Failure)
    assert guard.refusals[0].rule == "replay_check"


# ---------------------------------------------------------------------- an honest run, read passively


def rows_read(seen: list[tuple[Mixture, Any]], X: np.ndarray) -> dict[int, float]:
    """Rows whose covariates are the one direction of a difference of two answers, with their errors."""
    design = seen[0][0].design
    Z, found = (X - design.centre) / design.scale, dict[int, float]()
    for i, (mixture, a) in enumerate(seen):
        for _, b in seen[:i]:
            for k in range(mixture.K):
                values, V = np.linalg.eigh(unpack(a.experts.second[k] - b.experts.second[k]))
                size = np.abs(values)
                v = V[:, size.argmax()]
                if size.max() > 1e-6 and size.max() > 0.99 * size.sum() and abs(v[0]) > 1e-3:
                    e = np.sqrt(np.mean((Z - v[1:] / v[0]) ** 2, axis=1))
                    if e.min() < 0.05:
                        found[int(e.argmin())] = min(float(e.min()), found.get(int(e.argmin()), 1.0))
    return found


def transcript(ask: Any, make: Any) -> list[tuple[Mixture, Any]]:
    """What the coordinator of one site receives in an honest run."""
    dialogue, seen = make(), []
    request = next(dialogue)
    try:
        while True:
            total = ask(request.question)
            several = isinstance(request.question, Several)
            asked, got = (request.question.questions, total.items) if several else ((request.question,), (total,))
            seen += [(part.mixture, value) for part, value in zip(asked, got, strict=True) if isinstance(part, Expect)]
            request = dialogue.send(total)
    except StopIteration:
        return seen


@pytest.mark.parametrize("seed", [2, 4])
def test_an_honest_run_with_a_sharp_gate_discloses_rows(seed: int) -> None:
    data = paper(2000, n_experts=4, n_features=20, random_state=seed)
    site = Site("north", Rows(data.X, data.y[:, None]))

    def make() -> Any:
        return FederatedEM(n_climbs=1, totals_only=True).dialogue(Task([Specification(K=4)], 20, 1, sandwich=False))

    seen = []
    ask, _ = guarded_ask(site, Policy.of_profile())

    def watched(question: Any) -> Any:
        found = ask(question)
        seen.extend([] if not isinstance(question, Expect) else [(question.mixture, found)])
        return found

    with pytest.raises(Refused, match=r"max_leverage|effective_rows"):
        transcript(watched, make)
    assert not seen or not rows_read(seen, data.X)
    found = rows_read(transcript(free_ask(site), make), data.X)
    assert min(found.values()) < 1e-2


# ---------------------------------------------------------------------- stored state


def test_what_was_asked_binds_after_it_was_stored() -> None:
    """The four sets, each asked in a run of its own, and the state read from a file in between."""
    site = hospital(2000)
    ask, guard = guarded_ask(site, Policy.of_profile())

    def stored(question: Any) -> Any:
        guard.asked = Asked.from_text(guard.asked.to_text()).next_run()
        return ask(question)

    with pytest.raises(Refused, match="max_leverage"):
        attacks.four_thin_sets(stored, site)

"""Attacks by questions in rounds: under contract they work, as the annex says; a site with noise answers none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import round_attacks as attacks
from consilience.fit.private_step import PublicStep
from consilience.kit.policy.policy import Policy
from consilience.messages import Failure, FailureCode, PrivateScores, Summarise, decode, encode
from consilience.messages.questions import ScoreSums
from consilience.model import Rows
from consilience.numerics.budget import rho_of
from consilience.site import Site, answer, respond
from contributing import drawn_rows, mixture_of
from policy_cases import policy_with
from round_attacks import Refused, contract_ask, free_ask, hospital

RESEARCH = Policy.of_profile("research")
ATTACKS: list[tuple[str, Callable[..., float], Callable[[], Site], float]] = [
    ("histogram", attacks.histogram, hospital, 1e-5),
    ("thin experts", attacks.thin_experts, hospital, 1e-9),
    ("moved past one row", attacks.moved_past_one_row, hospital, 1e-9),
    ("likelihoods", attacks.likelihoods, hospital, 1e-6),
    ("likelihoods, hidden", partial(attacks.likelihoods, far=8), hospital, 1e-2),
    ("sums of scores", partial(attacks.histogram, question=ScoreSums), hospital, 1e-4),
    ("chosen draw", attacks.chosen_draw, hospital, 1e-9),
    ("clients of one row", attacks.clients_of_one, partial(hospital, groups=np.arange(1000)), 1e-9),
]


@pytest.mark.parametrize(("attack", "site", "accuracy"), [e[1:] for e in ATTACKS], ids=[e[0] for e in ATTACKS])
def test_a_coordinator_under_contract_could_compute_rows_and_one_without_is_refused(
    attack: Any, site: Any, accuracy: float
) -> None:
    where = site()
    assert attack(contract_ask(where, RESEARCH), where) < accuracy
    noisy = Site(where.name, replace(where.data, groups=None), key=where.key).private(rho_of(3.0, 1e-6), 8)
    with pytest.raises(Refused, match="REFUSED"):
        attack(free_ask(noisy), noisy)
    assert noisy.account is not None
    assert noisy.account.spent == 0


OTHERS: list[tuple[str, Callable[..., float], Callable[[], Site], float]] = [
    ("Poisson weights", attacks.exponential, attacks.counts, 1e-9),
    ("class boundary", attacks.class_boundary, attacks.classes, 1e-9),
    ("crafted start", attacks.crafted_start, partial(hospital, 3000), 1e-6),
    ("as many experts as rows", attacks.as_many_experts_as_rows, attacks.clusters, 1e-6),
    ("anchors", attacks.anchors, partial(hospital, groups=np.arange(1000) // 2), 1e-4),
    ("local steps", attacks.local_steps, partial(hospital, groups=np.arange(1000)), 1e-4),
    ("critic", attacks.critic, hospital, 1e-3),
    ("fourth moments", attacks.fourth_moments, attacks.few_rows, 1e-4),
    ("pairs", attacks.pairs, attacks.few_rows, 1e-4),
    ("one likelihood", attacks.one_likelihood, hospital, 1e-6),
]


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "site", "accuracy"), [e[1:] for e in OTHERS], ids=[e[0] for e in OTHERS])
def test_questions_about_exact_sums_give_rows_and_a_site_with_noise_answers_none(
    attack: Any, site: Any, accuracy: float
) -> None:
    where = site()
    assert attack(lambda question: answer(question, where), where) < accuracy
    noisy = Site(where.name, replace(where.data, groups=None), key=where.key).private(rho_of(3.0, 1e-6), 8)
    with pytest.raises(Refused, match="REFUSED"):
        attack(free_ask(noisy), noisy)
    assert noisy.account is not None
    assert noisy.account.spent == 0


def test_where_refusals_begin_tells_nothing_at_a_site_with_noise() -> None:
    """Where a refusal depends on sums over rows, bisection finds a value; with noise it depends on the question."""
    where = hospital()

    def guarded(question: Any) -> Any:
        """What a rule on the number of rows of each expert would answer."""
        found = free_ask(where)(question)
        if found.experts.plain[:2].min() < 20:
            raise Refused("effective_rows")
        return found

    assert attacks.bisected_refusals(guarded, where) < 1e-6
    noisy = where.private(rho_of(3.0, 1e-6), 8)
    said = {respond(encode(attacks.Expect(attacks.gated([t], np.eye(4)[0], 1e9))), noisy) for t in (20.0, 60.0, 200.0)}
    assert {decode(each).code for each in said} == {FailureCode.REFUSED}


def test_under_contract_questions_work_and_memory_are_limited() -> None:
    where = hospital()
    fewer = policy_with(questions=["Summarise", "Expect"])
    assert contract_ask(where, fewer)(Summarise(d=4, q=1)).weight == where.data.n
    with pytest.raises(Refused, match="does not list LogLikelihood"):
        attacks.likelihoods(contract_ask(where, fewer), where)
    with pytest.raises(Refused, match="does not list Sample"):
        attacks.chosen_draw(contract_ask(where, fewer), where)
    with pytest.raises(Refused, match="max_operations"):
        attacks.histogram(contract_ask(where, policy_with(max_operations=1e5)), where)
    wide = hospital(300, d=60)
    many = attacks.Mixture(attacks.Design.raw(60), attacks.ConstantGate(np.full(90, 1 / 90)), attacks.gaussians(90, 60))
    with pytest.raises(Refused, match="max_memory"):
        contract_ask(wide, policy_with(max_memory=1))(attacks.Expect(many))


# ---------------------------------------------------------------------- differences of noisy sums


def two_tables(n: int = 60) -> tuple[Rows, Rows, Callable[[int], PrivateScores], np.ndarray]:
    """Tables that differ by their last row, which is as far out as a row can be, the question, and its direction."""
    rng = np.random.default_rng(4)
    mixture = mixture_of("gaussian-full", rng)
    rows = drawn_rows("gaussian-full", mixture, n, rng)
    X, Y = rows.X.copy(), rows.Y.copy()
    X[-1], Y[-1] = 50.0, 500.0
    step = PublicStep.at(mixture, rng.normal(size=(1500, 2)))
    whole = Rows(X, Y)
    from consilience.model.contributions import private_total

    rest = whole.take(np.arange(n - 1))
    sums = [np.array(private_total(mixture, each, step.factor, step.clip), dtype=float) for each in (whole, rest)]
    return whole, rest, lambda place: PrivateScores(mixture, step.factor, step.clip, place), sums[0] - sums[1]


def statistic(rows: Rows, question: PrivateScores, direction: np.ndarray, rho: Fraction) -> float:
    """What the best attacker computes of one answer: its length along what the row adds."""
    found = decode(respond(encode(question), Site("north", rows).private(rho, 1)))
    return float(np.array(found.values, dtype=float) @ direction / np.linalg.norm(direction))


@pytest.mark.slow
def test_the_difference_of_two_answers_tells_of_the_worst_row_what_epsilon_allows() -> None:
    """Sums over a table with and without a row, at ε = 1: right guesses are at most Φ(√(ρ / 2)), 54 of 100."""
    whole, rest, question, direction = two_tables()
    draws = 1500
    for rho, expected in ((rho_of(1.0, 1e-6), None), (Fraction(40), 0.99)):
        inside = np.array([statistic(whole, question(0), direction, rho) for _ in range(draws)])
        outside = np.array([statistic(rest, question(0), direction, rho) for _ in range(draws)])
        between = (inside.mean() + outside.mean()) / 2
        right = (np.mean(inside > between) + np.mean(outside <= between)) / 2
        if expected is None:
            assert right < norm.cdf(np.sqrt(float(rho) / 2)) + 4 * 0.5 / np.sqrt(2 * draws)
        else:  # with hardly any noise the attack succeeds
            assert right > expected


def test_the_same_question_cannot_be_averaged_and_parts_end() -> None:
    whole, _, question, _ = two_tables()
    site = Site("north", whole).private(rho_of(3.0, 1e-6), 2)
    answers = [decode(respond(encode(question(0)), site)) for _ in range(5)]
    assert len({each.values for each in answers}) == 1
    assert not isinstance(decode(respond(encode(question(1)), site)), Failure)
    for place in (2, 3, 4_000):
        found = decode(respond(encode(question(place)), site))
        assert isinstance(found, Failure)
        assert found.code is FailureCode.REFUSED

"""Answers that cannot be, questions that make no sense, and questions that cost too much: all are refused."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience.errors import MessageError
from consilience.fit import Expect, Specification
from consilience.messages import (
    Failure,
    FailureCode,
    FitSite,
    Likelihood,
    LogLikelihood,
    ProposeStart,
    Several,
    Summarise,
    decode,
    encode,
)
from consilience.messages.codec import FORMAT, HEADER, MARK, Message
from consilience.messages.questions import Clients, Pairs, ScoreProducts
from consilience.messages.table import kinds, receive
from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, Rows, SoftmaxGate, expect
from consilience.model.clients import ClientMoments, PairSums, as_clients, client_moments, pair_sums
from consilience.model.expectation import score_products
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary, column_summary
from consilience.numerics import arrays
from consilience.published.client_steps import Anchors, ClientSizes, LocalSteps, Sizes
from consilience.published.critic import CriticSums, minimax_sums
from consilience.published.spectral import SquaredMoments, SquaredResponses, squared_moments
from consilience.site import Site, respond
from fuzzing import MOST_GROWTH, MOST_SECONDS, fuzz
from strategies import Shape

MIXTURE, ROWS = Shape(n=60, q=2).problem()
SUMMARY, SUMS = column_summary(ROWS), expect(MIXTURE, ROWS)
INFORMED = expect(MIXTURE, ROWS, information=True)
ONE, CLIENT_ROWS = Shape(n=30, K=2, gate="constant", family="gaussian-tied").problem()
CLIENT_ROWS = as_clients(CLIENT_ROWS)
DESIGN = Design.raw(2)


def experts(**changes: Any) -> Statistics:
    return replace(SUMS, experts=replace(SUMS.experts, **changes))


def clients() -> ClientMoments:
    return client_moments(CLIENT_ROWS, DESIGN, np.zeros(3))


def critic() -> tuple[CriticSums, Any]:
    mixture = replace(ONE, design=DESIGN)
    B = mixture.experts.B[:, 0]
    rows = replace(CLIENT_ROWS, groups=None)
    return CriticSums(mixture, B, B + 1), minimax_sums(mixture, B, B + 1, rows)


PRODUCTS = ScoreProducts(MIXTURE, SUMS.experts.second)
MEAT = score_products(MIXTURE, ROWS, SUMS.experts.second)
IMPOSSIBLE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "covariance not symmetric": lambda: (
        Summarise(2, 2),
        replace(SUMMARY, y_products=SUMMARY.y_products + np.array([[0, 9.0], [0, 0]])),
    ),
    "covariance indefinite": lambda: (Summarise(2, 2), replace(SUMMARY, y_products=np.array([[1, 50.0], [50, 1]]))),
    "1e300 rows": lambda: (Summarise(2, 2), replace(SUMMARY, weight=1e300)),
    "means of 1e308": lambda: (Summarise(2, 2), replace(SUMMARY, x_mean=np.full(2, 1e308))),
    "a negative weight": lambda: (Expect(MIXTURE), replace(SUMS, weight=-5.0)),
    "negative masses": lambda: (Expect(MIXTURE), experts(plain=-SUMS.experts.plain)),
    "ten times the mass": lambda: (Expect(MIXTURE), experts(plain=10 * SUMS.experts.plain)),
    "second moments indefinite": lambda: (Expect(MIXTURE), experts(second=-SUMS.experts.second)),
    "other masses than second moments": lambda: (Expect(MIXTURE), experts(second=2 * SUMS.experts.second)),
    "gradient of other rows": lambda: (Expect(MIXTURE), experts(first=SUMS.experts.first + 1e3)),
    "log-likelihood 1e308": lambda: (Expect(MIXTURE), replace(SUMS, log_likelihood=1e308, absolute=1e308)),
    "log-likelihood above its terms": lambda: (Expect(MIXTURE), replace(SUMS, absolute=0.0)),
    "information negative": lambda: (
        Expect(MIXTURE, information=True),
        replace(INFORMED, information=1e3 * INFORMED.information),
    ),
    "all 1e200": lambda: (Expect(MIXTURE), SUMS.scaled(1e200)),
    "likelihood of -3 rows": lambda: (LogLikelihood(MIXTURE), Likelihood(1e9, -3.0)),
    "products of scores negative": lambda: (PRODUCTS, replace(MEAT, products=-MEAT.products)),
    "products of scores of -1 rows": lambda: (PRODUCTS, replace(MEAT, weight=-1.0)),
    "-7 pairs": lambda: (
        Pairs(DESIGN, np.zeros(3)),
        replace(pair_sums(CLIENT_ROWS, DESIGN, np.zeros(3)), pairs=-7.0),
    ),
    "pairs not symmetric": lambda: (Pairs(DESIGN, np.zeros(3)), PairSums(np.triu(np.ones((3, 3))), 7.0)),
    "squared moments negative": lambda: (
        SquaredResponses(DESIGN),
        SquaredMoments(-squared_moments(DESIGN, CLIENT_ROWS).second, 30.0),
    ),
    "squared moments of -1 rows": lambda: (
        SquaredResponses(DESIGN),
        replace(squared_moments(DESIGN, CLIENT_ROWS), weight=-1.0),
    ),
    "moments of clients negative": lambda: (Clients(DESIGN, np.zeros(3)), replace(clients(), S=-clients().S)),
    "residuals of clients without squares": lambda: (
        Clients(DESIGN, np.zeros(3)),
        replace(clients(), c=0 * clients().c),
    ),
    "negative sizes of clients": lambda: (Sizes(), ClientSizes(np.full(3, -0.5))),
    "shares of a critic negative": lambda: (critic()[0], replace(critic()[1], shares=-critic()[1].shares)),
    "squares of a critic negative": lambda: (critic()[0], replace(critic()[1], squares=-1.0)),
}


@pytest.mark.parametrize("case", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_an_answer_that_cannot_be_is_refused(case: Callable[[], tuple[Any, Any]]) -> None:
    question, answer = case()
    found = receive(encode(answer), question)
    assert isinstance(found, Failure)
    assert found.code in (FailureCode.IMPOSSIBLE, FailureCode.UNREADABLE_ANSWER)


def fit_site(**changes: Any) -> FitSite:
    plain = FitSite(Specification(K=2), (2,), 0, n_init=1, max_iter=20, columns=(2, 1), describe=False)
    return replace(plain, **changes)


def with_penalty(**changes: float) -> FitSite:
    return fit_site(specification=replace(Specification(K=2), **changes))


SIMPLE, SIMPLE_ROWS = Shape(n=60).problem()
SENSELESS: dict[str, Any] = {
    "ridge NaN": with_penalty(gate_ridge=np.nan),
    "ridge -1e6": with_penalty(gate_ridge=-1e6, expert_ridge=-1e6),
    "floor -1": with_penalty(reg_covar=-1.0),
    "floor NaN": with_penalty(reg_covar=np.nan),
    "floor 1e99": with_penalty(reg_covar=1e99),
    "tolerance NaN": fit_site(tol=np.nan),
    "tolerance -1": fit_site(tol=-1.0),
    "slopes of 1e99": Expect(replace(SIMPLE, gate=SoftmaxGate(1e99 * SIMPLE.gate.alpha))),
    "coefficients of 1e99": Expect(replace(SIMPLE, experts=replace(SIMPLE.experts, B=1e99 * SIMPLE.experts.B))),
    "variances of 1e-300": Expect(
        replace(SIMPLE, experts=replace(SIMPLE.experts, covariance=np.full_like(SIMPLE.experts.covariance, 1e-300)))
    ),
    "scales of 1e-300": Expect(replace(SIMPLE, design=replace(SIMPLE.design, scale=np.full(2, 1e-300)))),
    "negative second moments": replace(PRODUCTS, second=-PRODUCTS.second),
    "second moments of other experts": replace(PRODUCTS, second=PRODUCTS.second[1:]),
    "NaN in coefficients": Pairs(DESIGN, np.full(3, np.nan)),
    "more directions than covariates": Pairs(DESIGN, np.zeros(3), np.ones((3, 4))),
}


@pytest.mark.parametrize("question", SENSELESS.values(), ids=list(SENSELESS))
def test_a_question_that_makes_no_sense_is_refused(question: Any) -> None:
    said = decode(respond(encode(question), Site("here", SIMPLE_ROWS)))
    assert isinstance(said, Failure)
    assert said.code is FailureCode.UNREADABLE_QUESTION


# ---------------------------------------------------------------------- bombs

RNG = np.random.default_rng(0)
LARGE = Rows(RNG.normal(size=(20_000, 2)), RNG.normal(size=(20_000, 1)), groups=Groups.of(np.arange(20_000) // 10))
PLAIN = Rows(LARGE.X[:2000], LARGE.Y[:2000])


def regressions(K: int, d: int) -> Mixture:
    B = RNG.normal(size=(K, 1, d + 1))
    return Mixture(Design.raw(d), ConstantGate(np.full(K, 1 / K)), GaussianExperts(B, np.ones((1, 1)), "tied"))


def critic_of(K: int) -> CriticSums:
    return CriticSums(regressions(K, 2), RNG.normal(size=(K, 3)), RNG.normal(size=(K, 3)))


def forged(question: Any, place: int, value: int) -> bytes:
    """An encoded question with another number among its integers, since no library of ours would send it."""
    message = Message.from_bytes(encode(question))
    head = message.head.copy()
    head[place] = value
    return Message(message.kind, head, message.body).to_bytes()


def place_of(question: FitSite, value: int) -> int:
    return Message.from_bytes(encode(question)).head.tolist().index(value)


STARTS = fit_site(n_init=7777)
CATEGORICAL = Specification(K=100, family="categorical", n_classes=10_000, gate="constant")
BOMBS: dict[str, Callable[[], tuple[bytes, Rows]]] = {
    "a million starts": lambda: (forged(STARTS, place_of(STARTS, 7777), 10**6), PLAIN),
    "many starts of many iterations": lambda: (encode(fit_site(n_init=10_000, max_iter=10**6)), PLAIN),
    "one order a hundred times": lambda: (encode(fit_site(orders=(30,) * 100)), PLAIN),
    "starts of a proposal": lambda: (
        encode(ProposeStart(Specification(K=200), ColumnSummary.unit(200, 1), 0, 10_000)),
        PLAIN,
    ),
    "a critic of 200 experts": lambda: (encode(critic_of(200)), PLAIN),
    "a thousand anchors with a thousand directions": lambda: (
        encode(Anchors(DESIGN, (0,) * 20, np.zeros((20, 3)), np.ones((20, 3, 1000)))),
        LARGE,
    ),
    "20,000 directions": lambda: (encode(Clients(DESIGN, np.zeros(3), np.ones((3, 20_000)))), PLAIN),
    "pairs in 10^5 directions": lambda: (encode(Pairs(DESIGN, np.zeros(3), np.ones((3, 10**5)))), PLAIN),
    "classes without columns": lambda: (
        encode(fit_site(specification=CATEGORICAL, orders=(100,), columns=None)),
        Rows(RNG.normal(size=(50, 400)), np.zeros((50, 1))),
    ),
    "local steps": lambda: (
        forged(LocalSteps(regressions(2, 2), 777, 1e-6), -2, 10**4),
        LARGE,
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=list(BOMBS))
def test_a_question_that_costs_too_much_is_refused_at_once(bomb: Callable[[], tuple[bytes, Rows]]) -> None:
    message, rows = bomb()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    said = decode(respond(message, Site("here", rows)))
    assert time.process_time() - began < 0.1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert isinstance(said, Failure)
    assert said.code in (FailureCode.TOO_COSTLY, FailureCode.UNREADABLE_QUESTION)


def test_a_specification_that_refuses_its_own_values_is_an_unreadable_message() -> None:
    heavy, counts = (Specification(K=2, family=name) for name in ("student", "poisson"))
    heads = [Message.from_bytes(encode(fit_site(specification=each))).head for each in (heavy, counts)]
    (place,) = np.flatnonzero(heads[0] != heads[1])
    asked = forged(fit_site(specification=replace(heavy, degrees_of_freedom=5.0)), place, heads[1][place])
    with pytest.raises(MessageError, match="poisson experts have none"):
        decode(asked)
    said = decode(respond(asked, Site("here", PLAIN)))
    assert isinstance(said, Failure)
    assert said.code is FailureCode.UNREADABLE_QUESTION


def test_an_answer_longer_than_its_question_allows_is_refused_unread() -> None:
    mixture, rows = Shape(n=20).problem()
    question = Expect(mixture)
    kind = [record.type for record in kinds().values()].index(Statistics)
    body = np.zeros(3 + 400 * 401 // 2)
    long = Message(kind, (0,) * 10 + (1, 400), body).to_bytes()
    arrays._kept_triangle.cache_clear()
    assert receive(long, question) == Failure(FailureCode.WRONG_SHAPE)
    assert arrays._kept_triangle.cache_info().currsize == 0
    assert isinstance(receive(encode(expect(mixture, rows)), question), Statistics)


def test_a_head_of_millions_of_numbers_takes_no_more_than_its_bytes() -> None:
    data = HEADER.pack(MARK, FORMAT, 7, 2_000_000, 0, 0) + bytes(16_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert receive(data, Expect(SIMPLE)) == Failure(FailureCode.WRONG_SHAPE)
    assert isinstance(decode(respond(data, Site("here", SIMPLE_ROWS))), Failure)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_indices_of_large_matrices_are_not_kept() -> None:
    arrays._kept_triangle.cache_clear()
    for p in range(300, 310):
        arrays.upper_triangle(p)
    assert arrays._kept_triangle.cache_info().currsize == 0


def test_questions_of_one_message_are_limited() -> None:
    many = Several(tuple(Summarise(1, 1) for _ in range(400)))
    assert len(decode(encode(many)).questions) == 400


@pytest.mark.slow
@pytest.mark.parametrize("number", [1_500, pytest.param(5_000, marks=pytest.mark.long)])
def test_mutated_messages_answers_questions_and_journals_are_read_or_refused(number: int) -> None:
    done = fuzz(number)
    assert not done.problems
    assert done.slowest < MOST_SECONDS
    assert done.growth < MOST_GROWTH
    assert sum(done.counts.values()) == number

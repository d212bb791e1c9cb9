"""Rules for rounds: leverages against a singular value decomposition, lists of questions, costs, the stored state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest

from consilience.datasets import soft
from consilience.fit import Expect
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.policy import Question as Listed
from consilience.kit.policy.refit import fit_releasable
from consilience.kit.policy.rounds.asked import Asked, RefusedQuestionError
from consilience.kit.policy.rounds.guard import WHY_OFF, GuardedSite, RoundsOf, check_cost, check_kind
from consilience.kit.policy.rounds.leverage import (
    Span,
    Weighting,
    extend_span,
    largest_leverage,
    leverages,
    weightings_of,
)
from consilience.kit.site_fit import question_of
from consilience.messages import LogLikelihood, ScoreSums, Several, Summarise, decode, encode
from consilience.messages.table import table
from consilience.model import ConstantGate, Design, Mixture, Penalty, Rows, expect
from consilience.model.families.base import Options
from consilience.model.families.registry import FAMILIES
from consilience.model.gates import SoftmaxGate
from consilience.model.rows import Groups
from consilience.model.summary import ColumnSummary
from consilience.site import Site
from policy_cases import policy_with, study_of


@cache
def iterates(n: int = 3000, steps: int = 6) -> tuple[Rows, tuple[Weighting, ...]]:
    """Rows, and the mixtures of some EM iterations."""
    data = soft(n, n_experts=3, n_features=4, random_state=0)
    rows = Rows(data.X, data.y[:, None])
    mixture, found = data.truth, []
    for step in range(steps):
        found.append(Weighting(mixture, information=step % 2 == 0))
        mixture = mixture.maximise(expect(mixture, rows), Penalty())
    return rows, tuple(found)


def by_svd(rows: Rows, weightings: Iterable[Weighting], part: float) -> np.ndarray:
    W = np.concatenate([each.vectors(rows) for each in weightings]).T
    U, values, _ = np.linalg.svd(W / np.linalg.norm(W, axis=0), full_matrices=False)
    return np.asarray(np.sum(U[:, values > part] ** 2, axis=1))


def test_leverages_are_those_of_the_span() -> None:
    rows, weightings = iterates()
    span, _ = extend_span(Span(), weightings[:2], lambda: [rows])
    found = np.concatenate(list(leverages(span, lambda: [rows])))
    np.testing.assert_allclose(found, by_svd(rows, weightings[:2], 1e-10), atol=1e-6)
    assert found.sum() == pytest.approx(span.rank, abs=1e-6)


def test_chunks_do_not_matter() -> None:
    rows, weightings = iterates()
    parts = [rows.take(np.arange(a, b)) for a, b in ((0, 700), (700, 701), (701, 3000))]
    whole, _ = extend_span(Span(), weightings[:3], lambda: [rows])
    apart, _ = extend_span(Span(), weightings[:3], lambda: parts)
    assert whole.rank == apart.rank
    assert largest_leverage(whole, lambda: [rows]) == pytest.approx(largest_leverage(apart, lambda: parts), abs=1e-6)


def test_leverage_never_falls_and_repetition_adds_nothing() -> None:
    rows, weightings = iterates()
    span, last = Span(), 0.0
    for each in weightings:
        span, _ = extend_span(span, [each], lambda: [rows])
        now = largest_leverage(span, lambda: [rows])
        assert now > last - 1e-6
        last = now
    again, _ = extend_span(span, weightings[:2], lambda: [rows])
    assert again.rank == span.rank


def test_tiny_weights_count_as_much_as_others() -> None:
    """Weights near the smallest numbers still give sums with all digits."""
    site = Rows(np.linspace(-3, 3, 200)[:, None], np.ones((200, 1)))
    experts = FAMILIES["poisson"](np.array([[-650.0, 12.0]]))
    _, thin = extend_span(
        Span(), [Weighting(Mixture(Design.raw(1), ConstantGate(np.ones(1)), experts))], lambda: [site]
    )
    assert thin.effective < 10


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_weights(family: str) -> None:
    rng = np.random.default_rng(0)
    experts = FAMILIES[family].blank(2, 3, ColumnSummary.unit(2, 1), Options())
    rows = Rows(rng.normal(size=(80, 2)), np.ones((80, 1)), exposure=np.full(80, 2.0) if experts.size_name else None)
    mixture = Mixture(Design.raw(2), SoftmaxGate(rng.normal(size=(2, 3))), experts)
    for weighting in (Weighting(mixture), Weighting(mixture, sums=False), Weighting(mixture, information=True)):
        vectors = weighting.vectors(rows)
        assert len(vectors) >= len(weighting.names)
        assert np.all(np.isfinite(vectors))


def test_batches_count_by_what_is_in_them() -> None:
    truth = soft(10, random_state=0).truth
    asked = Several((Summarise(2, 1), Several((Expect(truth), LogLikelihood(truth))), ScoreSums(truth)))
    assert [each.sums for each in weightings_of(asked)] == [True, False, True]


def test_the_policy_lists_real_questions() -> None:
    real = {each.__name__ for each in table()} - {"PrivateScores"}  # not answered by files: it needs an account
    assert set(get_args(Listed)) == real
    assert set(WHY_OFF) == real - set(Policy.of_profile().rounds.questions) - {"ScoreSums"}


def test_questions_that_a_policy_lists_by_itself_have_rules() -> None:
    truth = soft(10, random_state=0).truth
    of_rows = {each.__name__ for each in (Expect, LogLikelihood, ScoreSums) if weightings_of(each(truth))}
    of_the_whole = {"Summarise", "FitSite"}  # rules on the number of rows, and on the fit as it is released
    for profile in ("hospital", "research"):
        assert set(Policy.of_profile(profile).rounds.questions) <= of_rows | of_the_whole


def test_scores_are_answered_where_expectations_are() -> None:
    asked = ScoreSums(soft(10, random_state=0).truth)
    check_kind(asked, Policy.of_profile())
    with pytest.raises(RefusedQuestionError, match="ScoreSums"):
        check_kind(asked, policy_with(questions=["Summarise"]))


def test_scores_weigh_rows_by_no_products_of_two_gate_weights() -> None:
    data = soft(60, n_experts=3, n_features=2, random_state=0)
    (weighting,), rows = weightings_of(ScoreSums(data.truth)), Rows(data.X, data.y[:, None])
    named, vectors = weighting.names, weighting.vectors(rows)
    assert len(named) == len(vectors) == 2 + 3 + 3 + 3
    pi = data.truth.gate_weights(rows.X).T
    squares = [i for i, name in enumerate(named) if name.startswith("products of gate")]
    np.testing.assert_allclose(vectors[squares], pi**2, rtol=1e-12)


def test_a_costly_question_is_refused_before_it_is_answered() -> None:
    weightings = [Weighting(soft(10, random_state=0).truth)] * 10
    check_cost(weightings, 0, 10_000, Policy.of_profile())
    with pytest.raises(RefusedQuestionError, match="multiplications"):
        check_cost(weightings, 0, 10_000, policy_with(max_operations=1e6))
    with pytest.raises(RefusedQuestionError, match="MB"):
        check_cost(weightings, 5000, 10_000, policy_with(max_memory=10))


def test_state_is_stored_and_read_again() -> None:
    rows, weightings = iterates()
    guard = GuardedSite(Site("north", rows), RoundsOf(policy_with(max_leverage=0.99, effective_rows=2)))
    for each in weightings[:2]:
        guard.reply(encode(Expect(each.mixture, information=each.information)))
    assert guard.asked.rounds == 2
    stored = Asked.from_text(guard.asked.to_text())
    assert stored == guard.asked
    span, _ = extend_span(Span(), stored.weightings, lambda: [rows])
    assert guard.asked.span is not None
    before, after = (largest_leverage(each, lambda: [rows]) for each in (guard.asked.span, span))
    assert before == pytest.approx(after, abs=1e-5)


@pytest.mark.parametrize("text", ["{}", "[]", '{"format": "consilience-rounds", "version": 1}', "x"])
def test_damaged_state_is_an_error(text: str) -> None:
    with pytest.raises(Exception, match=r"file|damaged|JSON|state"):
        Asked.from_text(text)


def test_rows_with_groups_have_no_rules_and_are_refused() -> None:
    rows, weightings = iterates()
    grouped = Rows(rows.X, rows.Y, groups=Groups.of(np.arange(rows.n) // 3))
    guard = GuardedSite(Site("north", grouped), RoundsOf(Policy.of_profile()))
    assert decode(guard.reply(encode(Expect(weightings[0].mixture)))).code.name == "REFUSED"


def test_the_reason_says_what_to_do() -> None:
    rows, weightings = iterates()
    guard = GuardedSite(Site("north", rows), RoundsOf(policy_with(max_leverage=0.01)))
    question: Any = encode(Expect(weightings[0].mixture))
    guard.reply(question)
    for words in ("one exchange", "more rows in all", "Noise"):
        assert words in guard.refusals[0].reason


def test_the_question_for_the_own_fit_is_answered_by_the_released_fit() -> None:
    data = soft(600, n_experts=2, n_features=2, random_state=1)
    rows, study = Rows(data.X, data.y[:, None]), study_of(["a", "b"])
    question = question_of(study)
    released = fit_releasable(question, rows, study, Policy.of_profile()).fit
    assert released is not None
    named = replace(released, model=replace(released.model, log_likelihood=-1234.5))  # what only the release can say
    run = RoundsOf(Policy.of_profile(), study, question, released=named)
    guard = GuardedSite(Site("north", rows), run)
    assert decode(guard.reply(encode(question))).model.log_likelihood == -1234.5
    assert guard.asked.span.rank > 0  # the responsibilities of the fit count in what may be asked later
    bare = GuardedSite(Site("north", rows), replace(run, released=None))
    assert decode(bare.reply(encode(question))).model.log_likelihood != -1234.5

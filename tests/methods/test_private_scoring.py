"""Private scoring over sites of this process: fits, budgets, verdicts, and what it does not serve."""

from __future__ import annotations

import warnings
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from consilience import (
    Federation,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    load,
)
from consilience.errors import ConsilienceWarning, InvalidInputError, UntrustedWarning
from consilience.fit.private_step import Forecast, PublicStep, schedule
from consilience.messages import Answers, NoisySums, PrivateScores
from consilience.methods import FederatedEM, PrivateScoring
from consilience.methods.private_scoring import ScoredRound, shorter_steps, unsettled_reason
from consilience.methods.private_sums import Purse
from consilience.model import Mixture, mixture_of_experts
from consilience.model.contributions import COUNTED
from consilience.numerics.budget import rho_of

N, ONE = 6000, np.zeros((2, 1))


def truth() -> Mixture:
    B = np.array([[-1.5, 0.8, -0.4], [1.5, -0.2, 0.6]])
    alpha = np.array([[0.1, 0.5, -0.2], [-0.1, -0.5, 0.2]])
    return mixture_of_experts(alpha, B, 0.4)


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.random(n) < 0.4, rng.normal(size=n)]).astype(float)
    return X, truth().sample(X, rng)[0][:, 0]


@cache
def start() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, random_state=0).fit(*drawn(600, 1))


def sites(n: int = N, **more: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    X, y = drawn(n, 2)
    whole = {"X": X, "y": y, **more}
    return {f"site {i}": {name: part[i::3] for name, part in whole.items()} for i in range(3)}


def method(epsilon: float = 3, **how: object) -> PrivateScoring:
    return PrivateScoring(epsilon, covariates=drawn(1500, 3)[0], **how)


def private(epsilon: float = 3, **how: object):
    return Federation(sites()).fit(MixtureOfExpertsRegressor(2, random_state=0), method(epsilon, **how), start=start())


def test_a_fit_is_near_the_truth_with_standard_errors_that_count_the_noise():
    pooled = Federation(sites()).fit(MixtureOfExpertsRegressor(2, random_state=0))
    found = private(3)
    assert found.settled
    assert found.model.converged_
    error = found.model.inference_.standard_errors().flat()
    without = pooled.model.inference_.standard_errors().flat()
    ratio = np.sqrt(np.nanmean((error / without) ** 2))
    assert 1.0 < ratio < 2.5
    assert found.fit.forecast.ratio == pytest.approx(ratio, rel=0.3)
    gap = found.model.inference_.estimates.flat() - pooled.model.inference_.estimates.flat()
    assert np.sqrt(np.mean((gap / error) ** 2)) < 2


def test_the_budget_is_spent_exactly_and_on_private_questions_only():
    for epsilon in (1, 8):
        found = private(epsilon)
        assert found.privacy.rho == rho_of(epsilon, 1e-6)
        assert (found.privacy.epsilon, found.privacy.delta, found.privacy.unit) == (epsilon, 1e-6, "row")
        assert all(isinstance(rho, Fraction) for rho in found.privacy.rhos)
        asked = {each.question for each in found.record.rounds}
        assert asked <= {"PrivateScores", "Several"}
        assert len(found.record.rounds) == len(found.privacy.rhos) == len(found.fit.surprises)
    assert Federation(sites()).fit(MixtureOfExpertsRegressor(2, random_state=0)).privacy is None


@pytest.mark.system_noise
@pytest.mark.filterwarnings("ignore::consilience.errors.UntrustedWarning")  # a run may not settle
def test_noise_does_not_come_from_the_seed():
    one, other = private(3), private(3)
    assert not np.array_equal(one.model.coef_, other.model.coef_)


def test_the_number_of_rows_is_known_up_to_noise():
    weight = private(3).fit.ascent.statistics.weight
    assert abs(weight - N) < 200
    assert weight != N


def test_a_run_from_far_takes_more_steps_with_the_same_budget():
    near, far = private(8), MixtureOfExpertsRegressor(2, random_state=0)
    moved = start().mixture_.permuted(np.arange(2))
    vector = moved.to_vector()
    off = moved.with_vector(vector + 0.6 * np.where(np.arange(len(vector)) % 2, 1, -1) * (np.arange(len(vector)) < 9))
    result = Federation(sites()).fit(far.set_params(mixture_init=off), method(8))
    assert len(result.privacy.rhos) == 7
    assert len(near.privacy.rhos) in (5, 7)
    assert result.privacy.rho == near.privacy.rho
    assert result.fit.surprises[0] > 3 > result.fit.surprises[-1]


def test_a_run_that_has_not_settled_says_so_and_has_no_intervals():
    wrong = mixture_of_experts(np.zeros((2, 3)), np.array([[-9.0, 0, 0], [9.0, 0, 0]]), 0.05)
    estimator = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=wrong)
    with pytest.warns(UntrustedWarning, match="not settled"):
        found = Federation(sites()).fit(estimator, method(8, rounds=2))
    assert not found.settled
    assert not found.model.converged_
    assert "not settled" in found.model.inference_.withheld["gate"]
    assert np.all(np.isnan(found.model.inference_.covariance))
    assert "not settled" in repr(found)


def test_verdicts():
    expected = Forecast(np.ones(3), np.ones(3))
    assert unsettled_reason(1.0, np.ones(3), expected) == ""
    assert "last total" in unsettled_reason(1.6, np.ones(3), expected)
    assert "last total" in unsettled_reason(float("nan"), np.ones(3), expected)
    assert "forecast" in unsettled_reason(0.5, 2 * np.ones(3), expected)


def test_shorter_steps_spend_the_same_parts():
    for rounds in range(1, 8):
        plan = list(zip(*schedule(rounds), strict=True))[1:]
        longer = shorter_steps(plan)
        assert sum(share for _, share in longer) == sum(share for _, share in plan)
        assert len(longer) >= len(plan)
        if longer:
            assert [lam for lam, _ in longer] == sorted((lam for lam, _ in longer), reverse=True)


def test_parts_of_a_round_are_averaged():
    """Three parts of the budget asked in one round give the mean total, with a third of the variance."""
    step = PublicStep.at(truth(), drawn(1500, 3)[0])
    P = truth().parameter_count
    dialogue = Purse(8, None, [4]).ask(PrivateScores(step.mixture, step.factor, step.clip, 0), 3)
    request = next(dialogue)
    assert [part.place for part in request.question.questions] == [4, 5, 6]
    sums = [NoisySums((*([10 * i] * P), 100 * COUNTED), step.clip, 90) for i in range(3)]
    with pytest.raises(StopIteration) as reached:
        dialogue.send(Answers(tuple(sums)))
    done = ScoredRound.after(step, reached.value.value, 3)
    assert done.rows == 100
    assert np.allclose(done.total, 10 * step.unit)
    assert done.noise == pytest.approx(step.noise(30))


def responses() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Covariates, and responses of mixtures of two regressions with constant shares, by family."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 2))
    eta = np.where(rng.random(4000) < 0.65, 0.5 + 0.5 * X[:, 0], 2.0 - 0.4 * X[:, 1])
    return X, {
        "gaussian": eta + 0.4 * rng.normal(size=4000),
        "student": eta + 0.3 * rng.standard_t(5, size=4000),
        "gamma": rng.gamma(5.0, np.exp(eta) / 5),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
        "negative_binomial": rng.poisson(np.exp(eta) * rng.gamma(6.0, 1 / 6, 4000)).astype(float),
        "zero_inflated_poisson": rng.poisson(np.exp(eta)) * (rng.random(4000) < 0.8).astype(float),
    }


def check_family(family: str) -> None:
    """Check that a run at ε = 8 settles near the maximum of the likelihood over all rows."""
    X, drawn_responses = responses()
    y = drawn_responses[family]
    data = {"a": (X[::2], y[::2]), "b": (X[1::2], y[1::2])}
    estimator = MixtureOfRegressions(2, family=family, random_state=0)
    first = MixtureOfRegressions(2, family=family, random_state=0).fit(X[:800], y[:800])
    found = Federation(data).fit(estimator, PrivateScoring(8, covariates=X[:1500]), start=first)
    pooled = Federation(data).fit(estimator, start=first)
    error = pooled.model.inference_.standard_errors().flat()
    gap = (found.model.inference_.estimates.flat() - pooled.model.inference_.estimates.flat()) / error
    assert found.settled, family
    assert np.sqrt(np.nanmean(gap**2)) < 2, family


@pytest.mark.slow
def test_families_behind_a_constant_gate():
    for family in ("gaussian", "gamma"):
        check_family(family)


@pytest.mark.long
def test_other_families_behind_a_constant_gate():
    for family in ("student", "poisson", "negative_binomial", "zero_inflated_poisson"):
        check_family(family)


@pytest.mark.slow
def test_one_expert_and_classes():
    X, drawn_responses = responses()
    y, rng = drawn_responses["gaussian"], np.random.default_rng(6)
    known = PrivateScoring(8, covariates=X[:1500])
    single = MixtureOfExpertsRegressor(1, random_state=0)
    first = MixtureOfExpertsRegressor(1, random_state=0).fit(X[:300], y[:300])
    assert Federation({"a": (X, y)}).fit(single, known, start=first).settled
    labels = (rng.random(4000) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    classes = MixtureOfExpertsClassifier(2, random_state=0).fit(X[:600], labels[:600])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)  # two experts of a response of 0 or 1 are hardly identified
        found = Federation({"a": (X, labels)}).fit(MixtureOfExpertsClassifier(2, random_state=0), known, start=classes)
    assert set(found.model.inference_.withheld) == {"gate", "experts"}


def test_results_can_be_read_and_saved(tmp_path):
    found = private(3)
    assert "and the noise" in found.model.summary()
    assert "PrivateScores" in str(found.record)
    assert "ε = 3, δ = 1e-06 for each row of a site" in repr(found)
    assert "not known" in repr(found)
    found.model.save(tmp_path / "model.json")
    kept = load(tmp_path / "model.json")
    assert np.allclose(kept.coef_, found.model.coef_)
    assert kept.inference_.kind == "private"


def test_what_it_does_not_serve_is_refused_by_a_sentence():
    estimator = MixtureOfExpertsRegressor(2, random_state=0)
    for how, said in (
        ({"unit": "group", "covariates": ONE}, "unit"),
        ({"rounds": 0, "covariates": ONE}, "rounds"),
        ({"delta": 0.0, "covariates": ONE}, "delta"),
        ({}, "covariates"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            PrivateScoring(3, **how)
    for epsilon in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidInputError, match="epsilon"):
            PrivateScoring(epsilon, covariates=ONE)
    with pytest.raises(InvalidInputError, match="public start"):
        Federation(sites()).fit(estimator, method())
    with pytest.raises(InvalidInputError, match="covariates"):
        Federation(sites()).fit(estimator, PrivateScoring(3, covariates=np.zeros((9, 5))), start=start())
    with pytest.raises(InvalidInputError, match="weights"):
        Federation(sites(sample_weight=np.ones(N))).fit(estimator, method(), start=start())
    with pytest.raises(InvalidInputError, match="clusters"):
        Federation(sites(clusters=np.arange(N))).fit(estimator, method(), start=start())
    with pytest.raises(InvalidInputError, match="not fitted"):
        Federation(sites()).fit(estimator, method(), start=estimator)
    assert FederatedEM().budget is None


def test_a_journal_would_spend_a_budget_again(tmp_path):
    with pytest.raises(InvalidInputError, match="journal"):
        Federation(sites()).fit(
            MixtureOfExpertsRegressor(2, random_state=0), method(), start=start(), journal=tmp_path / "run"
        )

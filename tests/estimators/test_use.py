"""Using a fitted model: prediction, quantiles, samples, densities, criteria, standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import InvalidInputError
from simulated import simulated


def fitted(family: str = "gaussian", **options: object) -> tuple[MixtureOfExpertsRegressor, np.ndarray, np.ndarray]:
    data = simulated(family, **options)
    model = MixtureOfExpertsRegressor(2, family=family, random_state=0, n_init=2)
    return model.fit(data.X, data.y, exposure=data.rows.exposure), data.X, data.y


# ---------------------------------------------------------------------- prediction


def test_prediction_is_the_gate_weighted_mean_of_experts() -> None:
    model, X, _ = fitted()
    experts = X @ model.coef_.T + model.intercept_
    assert np.allclose(model.predict(X), np.sum(model.predict_gate(X) * experts, axis=1))


def test_gate_is_the_softmax_of_its_coefficients() -> None:
    model, X, _ = fitted()
    scores = np.exp(X @ model.gate_coef_.T + model.gate_intercept_)
    assert np.allclose(model.predict_gate(X), scores / scores.sum(axis=1, keepdims=True))


def test_rates_are_predicted_at_unit_exposure() -> None:
    model, X, _ = fitted("poisson", exposure=True, n=2000)
    rates = np.exp(X @ model.coef_.T + model.intercept_)
    assert np.allclose(model.predict(X), np.sum(model.predict_gate(X) * rates, axis=1))


def test_two_responses_are_predicted_together() -> None:
    model, X, y = fitted(q=2)
    assert model.predict(X).shape == y.shape == (300, 2)
    assert model.sample(X, random_state=0)[0].shape == (300, 2)
    assert model.score(X, y) <= 1


def test_responsibilities_follow_bayes() -> None:
    model, X, y = fitted()
    means = X @ model.coef_.T + model.intercept_
    density = np.exp(-((y[:, None] - means) ** 2) / (2 * model.variances_)) / np.sqrt(2 * np.pi * model.variances_)
    joint = model.predict_gate(X) * density
    assert np.allclose(model.responsibilities(X, y), joint / joint.sum(axis=1, keepdims=True))
    assert np.allclose(model.log_density(X, y), np.log(joint.sum(axis=1)))


@pytest.mark.slow
def test_classes_come_back_as_they_were_named() -> None:
    data = simulated("categorical")
    names = np.array(["a", "b", "c"])[data.y.astype(int)]
    model = MixtureOfExpertsClassifier(2, random_state=0, n_init=2).fit(data.X, names)
    proba = model.predict_proba(data.X)
    assert np.allclose(proba.sum(axis=1), 1)
    assert np.array_equal(model.predict(data.X), model.classes_[proba.argmax(axis=1)])
    assert model.score(data.X, names) == np.mean(model.predict(data.X) == names)
    drawn, labels = model.sample(data.X, random_state=0)
    assert set(drawn) <= {"a", "b", "c"}
    assert set(labels) <= {0, 1}
    chosen = proba[np.arange(300), data.y.astype(int)]
    assert np.allclose(model.log_density(data.X, names), np.log(chosen))


def test_gaussian_mixture_predicts_components() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (80, 2)), rng.normal(8, 1, (40, 2))])
    model = GaussianMixture(2, random_state=0)
    labels = model.fit_predict(X)
    assert np.array_equal(labels, np.repeat([0, 1], [80, 40]))
    assert np.array_equal(labels, model.predict(X))
    assert np.allclose(model.predict_gate(X), model.weights_)
    assert model.score(X) == pytest.approx(model.log_likelihood_ / 120)
    drawn, components = model.sample(5000, random_state=0)
    assert drawn.shape == (5000, 2)
    assert np.allclose(drawn.mean(axis=0), X.mean(axis=0), atol=0.3)
    assert np.isclose(components.mean(), 1 / 3, atol=0.03)
    pairs = np.repeat(np.arange(60), 2)
    together = model.responsibilities(X, groups=pairs)
    assert np.allclose(together[::2], together[1::2])


# ---------------------------------------------------------------------- quantiles and samples


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_quantiles_are_those_of_samples(family: str) -> None:
    model, X, _ = fitted(family, n=400)
    at, q = X[:4], np.array([0.05, 0.25, 0.5, 0.9])
    quantiles = model.predict_quantiles(at, q)
    assert quantiles.shape == (4, 4)
    draws = 20_000
    for i in range(4):
        y, _ = model.sample(np.repeat(at[i : i + 1], draws, axis=0), random_state=i)
        below = (y[:, None] < quantiles[i]).mean(axis=0)
        up_to = (y[:, None] <= quantiles[i]).mean(axis=0)
        assert np.all(below <= q + 0.02)
        assert np.all(up_to >= q - 0.02)


def test_quantiles_increase_and_one_number_is_one_column() -> None:
    model, X, _ = fitted()
    assert np.all(np.diff(model.predict_quantiles(X, np.linspace(0.01, 0.99, 20)), axis=1) > 0)
    assert model.predict_quantiles(X, 0.5).shape == (300, 1)
    assert model.predict_quantiles(X).shape == (300, 3)


@pytest.mark.parametrize("q", [0.0, 1.0, [0.5, 1.5], np.nan, -0.1])
def test_probabilities_must_lie_between_zero_and_one(q: object) -> None:
    model, X, _ = fitted()
    with pytest.raises(InvalidInputError, match="strictly between 0 and 1"):
        model.predict_quantiles(X, q)


def test_two_responses_have_no_quantile() -> None:
    model, X, _ = fitted(q=2)
    with pytest.raises(InvalidInputError, match="2 responses have no joint quantile: fit a single response"):
        model.predict_quantiles(X)


@pytest.mark.slow
def test_samples_repeat_with_the_seed_and_have_the_predicted_mean() -> None:
    model, X, _ = fitted(n=400)
    y, labels = model.sample(X, random_state=3)
    again, _ = model.sample(X, random_state=3)
    assert np.array_equal(y, again)
    many = np.mean([model.sample(X, random_state=s)[0] for s in range(200)], axis=0)
    assert np.mean(np.abs(many - model.predict(X))) < 0.2
    assert np.isclose(labels.mean(), model.predict_gate(X)[:, 1].mean(), atol=0.08)


# ---------------------------------------------------------------------- criteria


def test_criteria_follow_their_formulas() -> None:
    model, X, y = fitted()
    ll, P, n = model.log_likelihood_, model.mixture_.parameter_count, len(y)
    tau = model.responsibilities(X, y)
    entropy = -np.sum(tau * np.log(np.maximum(tau, 1e-300)))
    assert P == 3 + 2 * 3 + 2
    assert model.aic(X, y) == pytest.approx(-2 * ll + 2 * P)
    assert model.bic(X, y) == pytest.approx(-2 * ll + P * np.log(n))
    assert model.icl(X, y) == pytest.approx(model.bic(X, y) + 2 * entropy)


def test_criteria_take_weights_groups_and_exposure() -> None:
    data = simulated("poisson", n=200, group_size=4, exposure=True, weights=True)
    metadata = {
        "sample_weight": data.rows.weight,
        "groups": data.rows.groups.codes,
        "exposure": data.rows.exposure,
    }
    model = MixtureOfExpertsRegressor(2, family="poisson", random_state=0, n_init=2).fit(data.X, data.y, **metadata)
    ll, P = model.log_likelihood_, model.mixture_.parameter_count
    assert model.aic(data.X, data.y, **metadata) == pytest.approx(-2 * ll + 2 * P)
    assert model.bic(data.X, data.y, **metadata) == pytest.approx(-2 * ll + P * np.log(model.n_labels_))


# ---------------------------------------------------------------------- standard errors of other kinds


def test_default_errors_can_be_asked_for_again() -> None:
    model, X, y = fitted()
    again = model.infer(X, y, kind="larger")
    assert np.allclose(again.covariance, model.inference_.covariance)


def test_sandwich_is_the_default_and_can_be_shown_in_the_summary() -> None:
    model, X, y = fitted(n=1000)
    sandwich = model.infer(X, y)
    assert sandwich.kind == "sandwich"
    model.inference_ = sandwich
    assert "Standard errors: sandwich." in model.summary()


def test_bootstrap_of_a_mixture_of_regressions() -> None:
    data = simulated(gate="constant", n=300, d=1)
    model = MixtureOfRegressions(2, random_state=0, n_init=2).fit(data.X, data.y)
    drawn = model.infer(data.X, data.y, kind="bootstrap", draws=10)
    ratio = drawn.standard_errors().flat() / model.inference_.standard_errors().flat()
    assert np.all((ratio > 0.3) & (ratio < 3))
    model.inference_ = drawn
    assert "parametric bootstrap" in model.summary()


def test_sandwich_reads_the_exposure() -> None:
    data = simulated("poisson", n=1000, exposure=True)
    model = MixtureOfExpertsRegressor(1, family="poisson").fit(data.X, data.y, exposure=data.rows.exposure)
    unit = MixtureOfExpertsRegressor(1, family="poisson").fit(data.X, data.y, exposure=5 * data.rows.exposure)
    a = model.infer(data.X, data.y, exposure=data.rows.exposure).standard_errors().experts
    b = unit.infer(data.X, data.y, exposure=5 * data.rows.exposure).standard_errors().experts
    assert np.allclose(a, b, rtol=1e-4)


def test_unknown_kind_of_errors_is_refused() -> None:
    model, X, y = fitted()
    with pytest.raises(InvalidInputError, match="'larger' or 'bootstrap'"):
        model.infer(X, y, kind="jackknife")


def test_nothing_works_before_fit() -> None:
    model, X = MixtureOfExpertsRegressor(), np.zeros((3, 2))
    calls = (
        lambda: model.predict(X),
        lambda: model.predict_gate(X),
        lambda: model.aic(X, X[:, 0]),
        model.summary,
        model.to_frame,
        lambda: GaussianMixture().sample(3),
    )
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


# ---------------------------------------------------------------------- sizes of rows


def counts_with_exposure() -> tuple[MixtureOfRegressions, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(2000, 1)), rng.uniform(0.05, 1, 2000)
    y = rng.poisson(exposure * np.exp(1.5 + 0.8 * X[:, 0]))
    return MixtureOfRegressions(1, family="poisson").fit(X, y, exposure=exposure), X, y, exposure


def test_counts_are_scored_against_their_expected_counts() -> None:
    model, X, y, exposure = counts_with_exposure()
    expected = exposure * model.predict(X)
    assert np.allclose(model.predict(X, exposure=exposure), expected)
    r2 = 1 - np.sum((y - expected) ** 2) / np.sum((y - y.mean()) ** 2)
    assert model.score(X, y, exposure=exposure) == pytest.approx(r2)
    assert r2 > 0.6
    with pytest.raises(InvalidInputError, match="fitted with exposure: pass exposure"):
        model.score(X, y)


def test_intervals_of_counts_depend_on_exposure() -> None:
    model, X, y, exposure = counts_with_exposure()
    lower, upper = model.predict_quantiles(X, [0.05, 0.95], exposure=exposure).T
    assert 0.9 <= np.mean((y >= lower) & (y <= upper)) < 0.97
    drawn, _ = model.sample(X, random_state=0, exposure=exposure)
    assert drawn.mean() == pytest.approx(y.mean(), rel=0.1)


def test_successes_are_predicted_for_their_trials() -> None:
    rng = np.random.default_rng(0)
    X, trials = rng.normal(size=(500, 1)), rng.integers(1, 40, 500)
    y = rng.binomial(trials, 1 / (1 + np.exp(-X[:, 0])))
    model = MixtureOfRegressions(1, family="binomial").fit(X, y, trials=trials)
    assert np.allclose(model.predict(X, trials=trials), trials * model.predict(X))
    assert model.score(X, y, trials=trials) > 0.8
    lower, upper = model.predict_quantiles(X, [0.05, 0.95], trials=trials).T
    assert 0.88 <= np.mean((y >= lower) & (y <= upper)) < 0.98
    with pytest.raises(InvalidInputError, match="exposure is for"):
        model.predict(X, exposure=trials)


@pytest.mark.filterwarnings("ignore::consilience.errors.ConvergenceWarning")
def test_class_probabilities_never_exceed_one() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2)) * 30
    model = MixtureOfExpertsClassifier(2, random_state=1, n_init=1).fit(X[:300], X[:300, 0] > 0)
    assert model.mixture_.mean(X).max() > 1.0, "the sum over experts no longer rounds above 1: change the data"
    proba = model.predict_proba(X)
    assert proba.max() <= 1.0
    assert np.allclose(proba.sum(axis=1), 1)


def test_starts_in_processes_give_the_same_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.estimators.estimator.WORTH_A_PROCESS", 0.0)
    data = simulated(gate="constant", n=200)
    alone, shared = (MixtureOfRegressions(3, random_state=0, n_jobs=jobs).fit(data.X, data.y) for jobs in (None, 2))
    assert alone.log_likelihood_ == shared.log_likelihood_
    assert str(alone.starts_) == str(shared.starts_)
    np.testing.assert_array_equal(alone.coef_, shared.coef_)

"""Exposure and trials in every method of every estimator."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from consilience import Federation, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import InvalidInputError
from consilience.model.families.registry import family_of, regression_families
from families import SIZED
from simulated import simulated

GATES = {"softmax": MixtureOfExpertsRegressor, "constant": MixtureOfRegressions}


@cache
def fitted(family: str, gate: str = "softmax"):
    """A fit with K = 2, its data, and its sizes by name."""
    data = simulated(family, gate=gate, n=300, exposure=True)
    name = family_of(family).size_name
    sizes = {} if name is None else {name: data.rows.exposure}
    return GATES[gate](2, family=family, random_state=0, n_init=2).fit(data.X, data.y, **sizes), data, sizes


def of_row(sizes: dict[str, np.ndarray], i: int, n: int) -> dict[str, np.ndarray]:
    return {name: np.full(n, values[i]) for name, values in sizes.items()}


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", regression_families())
def test_the_density_integrates_to_one(family: str, gate: str) -> None:
    model, data, sizes = fitted(family, gate)
    for i in (0, 1, 2):
        y, width = support(family, sizes.get("trials", np.full(i + 1, 3000))[i])
        X = np.broadcast_to(data.X[i], (len(y), 2))
        total = width @ np.exp(model.log_density(X, y, **of_row(sizes, i, len(y))))
        assert total == pytest.approx(1, abs=1e-6)


def support(family: str, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Responses and their weights in a sum over counts, or in an integral over ``t``, ``y = sinh t`` or ``exp t``."""
    if family_of(family).discrete:
        return np.arange(most + 1), np.ones(int(most) + 1)
    t = np.linspace(-30, 30, 60_001)
    y, slope = (np.exp(t), np.exp(t)) if family == "gamma" else (np.sinh(t), np.cosh(t))
    return y, slope * (t[1] - t[0])


def test_class_probabilities_sum_to_one_as_densities() -> None:
    data = simulated("categorical", n=150)
    model = MixtureOfExpertsClassifier(2, mixture_init=data.truth).fit(data.X, data.y)
    total = sum(np.exp(model.log_density(data.X[:5], np.full(5, c))) for c in model.classes_)
    assert np.allclose(total, 1)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", SIZED)
def test_predictions_scale_with_the_size(family: str, gate: str) -> None:
    model, data, sizes = fitted(family, gate)
    (size,) = sizes.values()
    assert np.allclose(model.predict(data.X, **sizes), size * model.predict(data.X))
    mean, error = model.predict_experts(data.X, return_std_error=True, **sizes)
    rate, error_of_rate = model.predict_experts(data.X, return_std_error=True)
    assert np.allclose(mean, size[:, None] * rate)
    assert np.allclose(error, size[:, None] * error_of_rate)
    assert np.allclose(np.sum(model.predict_gate(data.X) * mean, axis=1), model.predict(data.X, **sizes))


@pytest.mark.parametrize("family", SIZED)
def test_score_is_the_share_of_variance_that_sized_predictions_explain(family: str) -> None:
    model, data, sizes = fitted(family)
    rest = np.sum((data.y - model.predict(data.X, **sizes)) ** 2)
    assert model.score(data.X, data.y, **sizes) == pytest.approx(1 - rest / np.sum((data.y - data.y.mean()) ** 2))


@pytest.mark.parametrize("family", SIZED)
def test_samples_and_quantiles_follow_the_size(family: str) -> None:
    model, data, sizes = fitted(family)
    X = np.repeat(data.X[:1], 20_000, axis=0)
    large = {name: np.full(len(X), 40.0) for name in sizes}
    drawn, _ = model.sample(X, random_state=0, **large)
    assert drawn.mean() == pytest.approx(model.predict(data.X[:1])[0] * 40, rel=0.05)
    lower, upper = model.predict_quantiles(X[:1], [0.05, 0.95], **{name: size[:1] for name, size in large.items()})[0]
    assert 0.9 <= np.mean((drawn >= lower) & (drawn <= upper)) < 0.97


@pytest.mark.parametrize("family", SIZED)
def test_responsibilities_are_bayes_rule_with_sizes(family: str) -> None:
    model, data, sizes = fitted(family)
    resp = model.responsibilities(data.X, data.y, **sizes)
    parts = [
        np.log(model.predict_gate(data.X)[:, k]) + single(model, k).log_density(model.rows(data.X, data.y, **sizes))
        for k in (0, 1)
    ]
    joint = np.exp(np.array(parts).T)
    assert np.allclose(resp, joint / joint.sum(axis=1, keepdims=True))
    assert np.allclose(model.log_density(data.X, data.y, **sizes), np.log(joint.sum(axis=1)))


def single(model: MixtureOfExpertsRegressor, k: int):
    """The mixture of the expert ``k`` alone."""
    from consilience.model import ConstantGate, Mixture

    experts = model.mixture_.experts.permuted(np.array([k]))
    return Mixture(model.mixture_.design, ConstantGate(np.ones(1)), experts)


METHODS = ("score", "log_density", "responsibilities", "aic", "bic", "icl", "infer", "rows")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_responses_without_the_sizes_of_the_fit_are_refused(family: str, method: str) -> None:
    model, data, sizes = fitted(family)
    (name,) = sizes
    getattr(model, method)(data.X, data.y, **sizes)
    with pytest.raises(InvalidInputError, match=f"fitted with {name}: pass {name}= beside y"):
        getattr(model, method)(data.X, data.y)


def test_a_fit_without_sizes_needs_none_and_a_new_fit_forgets_them() -> None:
    data = simulated("poisson", n=200, exposure=True)
    model = MixtureOfRegressions(1, family="poisson").fit(data.X, data.y, exposure=data.rows.exposure)
    assert np.isfinite(model.fit(data.X, data.y).score(data.X, data.y))


def test_a_federated_fit_knows_its_sizes() -> None:
    data = simulated("poisson", n=200, exposure=True)
    parts = {
        name: {"X": data.X[at], "y": data.y[at], "exposure": data.rows.exposure[at]}
        for name, at in (("north", slice(0, 120)), ("south", slice(120, 200)))
    }
    model = Federation(parts).fit(MixtureOfRegressions(1, family="poisson", random_state=0)).model
    with pytest.raises(InvalidInputError, match="fitted with exposure"):
        model.log_density(data.X, data.y)
    assert np.isfinite(model.log_density(data.X, data.y, exposure=data.rows.exposure)).all()

"""The lasso of mixtures: conditions of a maximum, the same over sites, the support of a known design, the choice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from consilience import Federation, Lasso, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import InvalidInputError
from consilience.methods import lasso
from consilience.methods.lasso import descend, descend_in_groups, extrapolated, log_sizes, slopes
from consilience.model import Mixture, Rows
from consilience.model.information import free_parameters
from consilience.model.summary import column_summary

EXPERTS = np.array([[1.5, -1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.5, 1.0, -1.0, 0.0]])
GATE = np.array([2.0, 0.0, 0.0, 0.0, 0.0, -2.0])


def design(seed: int, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of two experts with three of six covariates each, and a gate with two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    first = rng.random(n) < 1 / (1 + np.exp(-X @ GATE))
    return X, np.where(first, 1 + X @ EXPERTS[0], -1 + X @ EXPERTS[1]) + 0.7 * rng.normal(size=n)


def parted(X: np.ndarray, y: np.ndarray, number: int) -> Federation:
    bounds = np.linspace(0, len(y), number + 1).astype(int)
    parts = (slice(a, b) for a, b in pairwise(bounds))
    return Federation({f"site {i}": (X[part], y[part]) for i, part in enumerate(parts)})


def test_coordinate_descent_ends_where_no_coefficient_can_improve() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(8, 8))
    H, g, b, limit = A @ A.T + np.eye(8), 10 * rng.normal(size=8), rng.normal(size=8), np.full(8, 12.0)
    limit[0], limit[7] = 0.0, np.inf
    found = descend(g, H, b, limit)
    slope = g - H @ (found - b)
    assert found[7] == 0
    assert 0 < np.sum(found[1:7] == 0) < 6
    still = found == 0
    assert np.all(np.abs(slope[still]) <= limit[still])
    np.testing.assert_allclose(slope[~still], limit[~still] * np.sign(found[~still]), atol=1e-8)


def test_groups_of_the_gate_end_where_none_can_improve() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(12, 12))
    H, g, theta, limit = A @ A.T + np.eye(12), 10 * rng.normal(size=(2, 6)), rng.normal(size=(2, 6)), np.full(6, 15.0)
    found = descend_in_groups(g, H, theta, limit)
    slope = g - (H @ (found - theta).ravel()).reshape(2, 6)
    of_experts = np.vstack([slope, -slope.sum(axis=0)])  # in centred coordinates
    centred = np.vstack([found, np.zeros(6)]) - found.sum(axis=0) / 3
    sizes = np.linalg.norm(centred, axis=0)
    assert 0 < np.sum(sizes == 0) < 6
    assert np.all(np.linalg.norm(of_experts, axis=0)[sizes == 0] <= 15.0 * (1 + 1e-8))
    kept = sizes > 0
    np.testing.assert_allclose(of_experts[:, kept], 15.0 * centred[:, kept] / sizes[kept], atol=1e-6)


def on_a_line(end: Mixture, way: np.ndarray, fraction: float) -> Mixture:
    """A mixture before ``end``, which the same fraction of the way is left to in each step."""
    moved = end.experts.moved(fraction * way, np.zeros(end.experts.shape_parameters))
    return Mixture(end.design, end.gate, moved, end.gate_design)


def test_two_steps_of_a_geometric_series_are_extrapolated_to_its_limit() -> None:
    X, y = design(5)
    end = MixtureOfExpertsRegressor(2, random_state=0, n_init=1).fit(X, y).mixture_
    way = np.random.default_rng(0).normal(size=end.coefficients.size) * (np.arange(end.coefficients.size) % 3 > 0)
    three = tuple(on_a_line(end, way, fraction) for fraction in (1.0, 0.75, 0.75**2))
    for longest, left in ((10.0, 0.0), (4.0, 0.0), (1.0, 0.75**2)):
        found, length = extrapolated(three, longest)
        assert length == pytest.approx(min(longest, 4.0))
        expected = on_a_line(end, way, left)
        np.testing.assert_allclose(free_parameters(found), free_parameters(expected), atol=1e-9)
        np.testing.assert_allclose(log_sizes(found.experts), log_sizes(expected.experts), atol=1e-9)


def test_leaps_save_half_of_the_rounds_and_lead_to_the_same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = design(6)
    start = MixtureOfExpertsRegressor(2, random_state=0, n_init=2).fit(X, y).mixture_
    model = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=start, tol=1e-11, max_iter=2000)
    leaping = parted(X, y, 1).fit(model, Lasso(strengths=(0.02, 0.2)))
    monkeypatch.setattr(lasso, "FIRST_LEAP", 1.0)
    monkeypatch.setattr(lasso, "LENGTHENED", 1.0)
    plain = parted(X, y, 1).fit(model, Lasso(strengths=(0.02, 0.2)))
    assert len(leaping.record.rounds) < 0.6 * len(plain.record.rounds)
    for a, b in zip(leaping.fit.path, plain.fit.path, strict=True):
        assert np.array_equal(a.mixture.coefficients == 0, b.mixture.coefficients == 0)
        np.testing.assert_allclose(a.mixture.coefficients, b.mixture.coefficients, atol=1e-3)
        assert np.all(np.diff(a.refit.trace) > -1e-6)


def test_each_step_of_the_path_is_a_maximum_of_the_penalised_likelihood() -> None:
    X, y = design(0)
    model = MixtureOfExpertsRegressor(2, random_state=0, tol=1e-11, max_iter=2000)
    path = parted(X, y, 1).fit(model, Lasso(n_strengths=3)).fit.path
    rows, rng = Rows(X, y[:, None]), np.random.default_rng(0)
    assert np.any(slopes(path[1].mixture)[0] == 0)
    for step in path[:2]:
        at = step.mixture

        def value(mixture, strength=step.strength):
            own, shared = slopes(mixture)
            sizes = np.abs(own).sum(axis=1) / np.sqrt(mixture.experts.variances[:, 0])
            ridge = mixture.ridge(model._specification().penalty(column_summary(rows)))
            ll = mixture.log_density(rows).sum()
            return ll - ridge - len(y) * strength * (sizes.sum() + np.linalg.norm(shared, axis=0).sum())

        here = value(at)
        for _ in range(40):
            change = 1e-3 * rng.normal(size=at.coefficients.size) * rng.integers(0, 2, at.coefficients.size)
            moved = at.experts.moved(change, 1e-3 * rng.normal(size=2))
            of_gate = at.gate.moved(1e-3 * rng.normal(size=at.gate.contrasts().size))
            assert value(type(at)(at.design, of_gate, moved, at.gate_design)) < here


def test_four_sites_give_the_path_of_one_table() -> None:
    X, y = design(1)
    start = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y).mixture_
    model = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=start)
    one, four = (parted(X, y, number).fit(model, Lasso(n_strengths=5)) for number in (1, 4))
    assert one.fit.chosen == four.fit.chosen
    for a, b in zip(one.fit.path, four.fit.path, strict=True):
        assert a.strength == pytest.approx(b.strength, rel=1e-8)
        np.testing.assert_allclose(a.mixture.coefficients, b.mixture.coefficients, rtol=0, atol=1e-8)
        assert np.array_equal(a.mixture.coefficients == 0, b.mixture.coefficients == 0)
    np.testing.assert_allclose(one.model.coef_, four.model.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.model.gate_coef_, four.model.gate_coef_, rtol=0, atol=1e-8)
    assert {each.question for each in four.record.rounds} <= {"Summarise", "Expect"}


def supports(model: MixtureOfExpertsRegressor) -> tuple[np.ndarray, np.ndarray]:
    """Whether each covariate is in each expert, sorted as in the design, and in the gate."""
    order = np.argsort(-model.coef_[:, 2])
    return model.coef_[order] != 0, np.any(model.gate_coef_ != 0, axis=0)


def recovered(seed: int) -> bool:
    X, y = design(seed, n=3000)
    model = parted(X, y, 1).fit(MixtureOfExpertsRegressor(2, random_state=0, n_init=3), Lasso(n_strengths=12)).model
    experts, gate = supports(model)
    return bool(np.array_equal(experts, EXPERTS != 0) and np.array_equal(gate, GATE != 0))


@pytest.mark.slow
def test_the_support_is_recovered() -> None:
    assert sum(map(recovered, range(10, 14))) >= 3


@pytest.mark.long
def test_the_support_is_recovered_in_90_of_100_draws() -> None:
    assert sum(map(recovered, range(100, 200))) >= 90


def test_the_model_is_the_refit_without_intervals_and_says_why() -> None:
    X, y = design(2)
    found = parted(X, y, 2).fit(MixtureOfExpertsRegressor(2, random_state=0), Lasso(n_strengths=6))
    model, step = found.model, found.fit.path[found.fit.chosen]
    assert model.n_parameters_ == step.parameter_count == found.fit.parameter_count
    assert found.bic == pytest.approx(step.bic)
    assert step.bic == min(each.bic for each in found.fit.path)
    assert model.log_likelihood_ == pytest.approx(model.log_density(X, y).sum(), rel=1e-10)
    assert set(model.inference_.withheld) == {"gate", "experts"}
    assert "selected on the same rows" in model.inference_.withheld["experts"]
    assert np.all(np.isnan(model.inference_.standard_errors().experts))
    assert "selected on the same rows" in " ".join(model.summary().split())


def test_held_out_sites_choose_without_being_fitted() -> None:
    X, y = design(3, n=900)
    parts = {"a": slice(0, 300), "b": slice(300, 600), "judge": slice(600, 900)}
    sites = Federation({name: (X[part], y[part]) for name, part in parts.items()})
    found = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), Lasso(n_strengths=3, held_out=("judge",)))
    judged = [each.held_out for each in found.fit.path]
    assert found.fit.chosen == int(np.argmax(judged))
    chosen = found.fit.path[found.fit.chosen]
    held = Rows(X[600:], y[600:, None])
    assert chosen.held_out == pytest.approx(chosen.refit.mixture.log_density(held).sum(), rel=1e-10)
    assert found.fit.ascent.statistics.weight == 600
    only = Federation({name: (X[parts[name]], y[parts[name]]) for name in ("a", "b")})
    alone = only.fit(MixtureOfExpertsRegressor(2, random_state=0), Lasso(n_strengths=3))
    np.testing.assert_allclose([s.bic for s in alone.fit.path], [s.bic for s in found.fit.path], rtol=1e-8)


def test_what_the_lasso_does_not_do_is_said() -> None:
    X, y = design(4, n=200)
    with pytest.raises(InvalidInputError, match="one response that is a number"):
        parted(X, (y > 0).astype(int), 2).fit(MixtureOfExpertsClassifier(1), Lasso())
    with pytest.raises(InvalidInputError, match="student experts"):
        parted(X, y, 2).fit(MixtureOfRegressions(1, family="student"), Lasso())
    with pytest.raises(InvalidInputError, match="held_out"):
        parted(X, y, 2).fit(MixtureOfRegressions(1), Lasso(held_out=("elsewhere",)))
    with pytest.raises(InvalidInputError, match="strengths"):
        Lasso(strengths=())

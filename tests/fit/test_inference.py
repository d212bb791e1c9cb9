"""Standard errors against closed forms, derivatives and the bootstrap; and the reasons for withholding them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from scipy.special import expit, ndtri
from scipy.stats import t as student

from consilience import GaussianMixture
from consilience.datasets import paper
from consilience.errors import InvalidInputError
from consilience.fit import Fit, Specification, bootstrap, fit_mixture, infer
from consilience.fit import inference as inference_module
from consilience.fit.inference import inverse_information, ridge_share, simulate
from consilience.fit.parameters import Parameters, jacobian, parameters
from consilience.model import ConstantGate, Design, GaussianExperts, Rows, SoftmaxGate
from consilience.model.information import move_parameters
from consilience.model.mixture import Mixture
from families import SIZED
from simulated import FAMILIES, Simulated, simulated
from strategies import Shape, shapes

QUIET = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")


def fitted(data: Simulated, **options: object) -> Fit:
    return fit_mixture(data.rows, data.specification, rng=np.random.default_rng(0), **options)


# ---------------------------------------------------------------------- against closed forms


def one_expert(family: str, Y: np.ndarray, X: np.ndarray, **options: object) -> tuple[Parameters, Parameters]:
    rows = Rows(X, Y[:, None])
    fit = fit_mixture(
        rows, Specification(K=1, family=family, expert_ridge=0.0, **options), rng=np.random.default_rng(0)
    )
    inference = infer(fit, rows)
    assert not inference.withheld
    return inference.estimates, inference.standard_errors()


def linear_design(n: int = 400) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) * [1.0, 30.0] + [0.0, 100.0]
    return X, np.column_stack([np.ones(n), X]), rng


def test_one_gaussian_expert_is_least_squares() -> None:
    X, A, rng = linear_design()
    y = A @ [1.0, 2.0, 0.1] + rng.normal(size=len(X))
    estimates, se = one_expert("gaussian", y, X)
    b = np.linalg.lstsq(A, y, rcond=None)[0]
    variance = np.mean((y - A @ b) ** 2)
    assert np.allclose(estimates.experts[0, 0], b)
    assert np.allclose(estimates.log_shapes, np.log(variance))
    n, p = A.shape
    unbiased = variance * n / (n - p)
    assert np.allclose(se.experts[0, 0], np.sqrt(np.diagonal(unbiased * np.linalg.inv(A.T @ A))))
    assert np.allclose(se.log_shapes, np.sqrt(2 / (n - p) + np.log(n / (n - p)) ** 2))


def test_one_poisson_expert_has_the_glm_covariance() -> None:
    X, A, rng = linear_design()
    y = rng.poisson(np.exp(A @ [0.2, 0.4, 0.01])).astype(float)
    estimates, se = one_expert("poisson", y, X)
    mu = np.exp(A @ estimates.experts[0, 0])
    assert np.allclose(A.T @ (y - mu), 0, atol=1e-3)
    assert np.allclose(se.experts[0, 0], np.sqrt(np.diagonal(np.linalg.inv((A.T * mu) @ A))), rtol=1e-5)


def test_one_binary_expert_has_the_logistic_covariance_and_the_log_odds_of_class_one() -> None:
    X, A, rng = linear_design()
    y = (rng.random(len(X)) < expit(A @ [-1.0, 1.0, 0.02])).astype(float)
    estimates, se = one_expert("categorical", y, X)
    p = expit(A @ estimates.experts[0, 0])
    assert np.allclose(A.T @ (y - p), 0, atol=1e-3)
    assert np.allclose(se.experts[0, 0], np.sqrt(np.diagonal(np.linalg.inv((A.T * p * (1 - p)) @ A))), rtol=1e-5)


@given(shapes(n=6, labels="row", weights=None))
def test_jacobian_is_the_derivative_of_the_read_parameters(shape: Shape) -> None:
    mixture, _ = shape.problem()
    rng = np.random.default_rng(shape.seed)
    order = rng.permutation(mixture.K)
    direction, h = rng.normal(size=mixture.parameter_count), 1e-5

    def read(step: float) -> np.ndarray:
        return parameters(move_parameters(mixture, step * direction).permuted(order)).flat()

    by_difference = (read(h) - read(-h)) / (2 * h)
    assert np.allclose(jacobian(mixture, order) @ direction, by_difference, rtol=1e-6, atol=1e-7)


def test_parameters_keep_their_shapes_when_flat() -> None:
    read = parameters(simulated("gaussian", q=2, n=5).truth)
    again = read.like(read.flat())
    for name in ("gate", "experts", "log_shapes"):
        assert np.array_equal(getattr(again, name), getattr(read, name))


# ---------------------------------------------------------------------- on data from the model


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("group_size", [1, 5])
def test_on_data_from_the_model_information_and_sandwich_agree_and_cover_the_truth(
    family: str, group_size: int
) -> None:
    size = max(group_size, 3) if family == "categorical" else group_size
    data = simulated(family, n=5000, d=1, C=2, group_size=size, exposure=family in SIZED)
    fit = fitted(data, start=data.truth)
    observed, sandwich = infer(fit, data.rows), infer(fit, data.rows, kind="sandwich")
    assert (observed.kind, sandwich.kind) == ("observed", "sandwich")
    assert not observed.withheld
    a, b = observed.standard_errors().flat(), sandwich.standard_errors().flat()
    assert np.all(np.isfinite(a))
    assert np.all(np.abs(np.log(a / b)) < 0.3)
    z = (observed.estimates.flat() - parameters(data.truth.permuted(fit.permutation)).flat()) / a
    assert np.abs(z).max() < 4.5


def test_interval_is_estimate_plus_minus_quantile_times_error() -> None:
    data = simulated(gate="constant", n=500)
    inference = infer(fitted(data), data.rows)
    degrees = inference.degrees_of_freedom()
    assert np.all(np.isinf(degrees.gate))
    assert np.all(degrees.experts < data.rows.n)
    for level in (0.5, 0.95):
        lower, upper = inference.interval(level)
        quantiles = [np.full(degrees.gate.size, ndtri(0.5 + level / 2))]
        quantiles += [student.ppf(0.5 + level / 2, part.ravel()) for part in (degrees.experts, degrees.log_shapes)]
        reach = np.concatenate(quantiles) * inference.standard_errors().flat()
        assert np.allclose(upper.flat() - lower.flat(), 2 * reach)
        assert np.allclose(upper.flat() + lower.flat(), 2 * inference.estimates.flat())


def test_information_is_read_again_where_the_climb_ended_without_it() -> None:
    data = simulated(gate="constant")
    fit = fitted(data, newton=False, tol=1e-13, max_iter=3000)
    assert fit.ascent.statistics.information is None
    by_newton = infer(fitted(data), data.rows)
    assert np.allclose(infer(fit, data.rows).covariance, by_newton.covariance, rtol=1e-3, atol=1e-9)


def test_contrasts_have_the_covariance_of_a_difference() -> None:
    data = simulated(n=2000)
    inference = infer(fitted(data, start=data.truth), data.rows)
    V, p = inference.covariance, inference.estimates.gate.shape[1]
    for reference in (0, 1):
        estimate, se = inference.gate_contrasts(reference)
        other = 1 - reference
        i, j = other * p + np.arange(p), reference * p + np.arange(p)
        assert np.allclose(estimate[other], inference.estimates.gate[other] - inference.estimates.gate[reference])
        assert np.allclose(se[other] ** 2, V[i, i] + V[j, j] - 2 * V[i, j])
        assert np.all(estimate[reference] == 0)
        assert np.allclose(se[reference], 0)


# ---------------------------------------------------------------------- withheld, with the reason


def reasons(data: Simulated, rows: Rows | None = None, **options: object) -> dict[str, str]:
    inference = infer(fitted(data, **options), data.rows if rows is None else rows)
    se = inference.standard_errors()
    for parts, values in (
        ({"gate"}, se.gate),
        ({"experts"}, se.experts),
        ({"experts", "shapes"}, se.log_shapes),
    ):
        assert np.all(np.isnan(values) if parts & inference.withheld.keys() else np.isfinite(values))
    if "gate" in inference.withheld:
        assert np.all(np.isnan(inference.gate_contrasts(0)[1]))
    return dict(inference.withheld)


def test_sharp_gate_is_withheld_as_nearly_separated() -> None:
    simulation = paper(1000, n_experts=2, n_features=10, random_state=0)
    rows = Rows(simulation.X, simulation.y[:, None])
    data = Simulated(rows, simulation.truth, Specification(K=2), simulation.labels)
    found = reasons(data, start=simulation.truth)
    assert set(found) == {"gate"}
    assert "nearly separated" in found["gate"]


def test_few_rows_withhold_shapes_alone() -> None:
    found = reasons(simulated(n=90))
    assert set(found) == {"shapes"}


def test_a_fit_cut_short_withholds_everything() -> None:
    data = simulated(n=2000)
    start = data.truth.permuted(np.array([0, 1]))
    shifted = replace(start, experts=start.experts.moved(np.full(start.experts.B.size, 0.2), np.zeros(2)))
    found = reasons(data, start=shifted, max_iter=1)
    assert set(found) == {"gate", "experts"}
    for reason in found.values():
        assert "has not converged: another step would raise the log-likelihood by about" in reason


def test_constant_gate_has_no_reason_of_its_own() -> None:
    assert reasons(simulated(n=90, gate="constant")).keys() == {"shapes"}


def test_variances_of_fewer_than_100_rows_an_expert_are_withheld() -> None:
    assert "at least 100 are needed" in reasons(simulated(n=150, gate="constant"))["shapes"]
    assert not reasons(simulated(n=500, gate="constant"))


@QUIET
@pytest.mark.parametrize("kind", ["observed", "sandwich"])
def test_above_3000_parameters_the_full_information_is_refused(kind: str) -> None:
    rng = np.random.default_rng(0)
    K, d = 40, 40
    rows = Rows(rng.normal(size=(120, d)), rng.normal(size=(120, 1)))
    experts = GaussianExperts(rng.normal(size=(K, 1, d + 1)), np.ones((K, 1, 1)))
    start = Mixture(Design.raw(d), SoftmaxGate(np.zeros((K, d + 1))), experts)
    fit = fit_mixture(rows, Specification(K=K), rng=rng, start=start, max_iter=1)
    inference = infer(fit, rows, kind=kind)
    assert set(inference.withheld) == {"gate", "experts"}
    assert "3279 parameters" in inference.withheld["experts"]
    assert np.all(np.isnan(inference.standard_errors().flat()))
    assert np.all(np.isfinite(inference.estimates.flat()))


def test_ridge_share_is_that_of_the_largest_direction() -> None:
    data = simulated(n=500)
    fit = fitted(data)
    mixture, statistics = fit.ascent.mixture, fit.ascent.statistics
    inverse = inverse_information(mixture, statistics, fit.penalty)
    R = fit.penalty.gate_form * fit.penalty.gate_ridge / 2  # K = 2: (1 - 1/K) = 1/2
    expected = np.linalg.eigvals(R @ inverse[:3, :3]).real.max()
    assert np.isclose(ridge_share(mixture, fit.penalty, inverse), expected)
    assert ridge_share(mixture, replace(fit.penalty, gate_ridge=0.0), inverse) == 0.0


# ---------------------------------------------------------------------- bootstrap


@pytest.mark.slow
@pytest.mark.parametrize(("family", "group_size"), [("gaussian", 1), ("poisson", 4)])
def test_bootstrap_agrees_with_the_information(family: str, group_size: int) -> None:
    data = simulated(family, gate="constant", n=400, d=1, group_size=group_size, exposure=family in SIZED, seed=1)
    fit = fitted(data)
    drawn = bootstrap(fit, data.rows, data.specification, rng=np.random.default_rng(0), draws=40)
    assert drawn.kind == "bootstrap"
    ratio = drawn.standard_errors().flat() / infer(fit, data.rows).standard_errors().flat()
    assert np.all(np.abs(np.log(ratio)) < 0.6)
    assert np.array_equal(drawn.estimates.flat(), parameters(fit.mixture).flat())


def test_bootstrap_refuses_weights_but_not_ones() -> None:
    data = simulated(gate="constant", n=100)
    fit = fitted(data)
    weighted = replace(data.rows, weight=np.full(100, 2.0))
    with pytest.raises(InvalidInputError, match="repeat rows instead"):
        bootstrap(fit, weighted, data.specification, rng=np.random.default_rng(0), draws=2)
    ones = replace(data.rows, weight=np.ones(100))
    assert bootstrap(fit, ones, data.specification, rng=np.random.default_rng(0), draws=2).kind == "bootstrap"


@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_simulated_groups_share_one_expert(gate: str) -> None:
    data = simulated(gate=gate, n=400, group_size=20)
    sharp = replace(data.truth, experts=replace(data.truth.experts, covariance=np.full((2, 1, 1), 1e-12)))
    drawn = simulate(sharp, data.rows, np.random.default_rng(0))
    assert drawn.groups is data.rows.groups
    nearest = np.abs(drawn.Y.T - sharp.experts.mean(sharp.design.panel(drawn.X))[:, 0]).argmin(axis=0)
    shares = [np.mean(nearest[drawn.groups.codes == g]) for g in range(20)]
    assert np.all(np.isclose(shares, 0) | np.isclose(shares, 1))
    assert 0 < np.mean(shares) < 1


def mean_count(mixture: Mixture, rows: Rows) -> float:
    return float(simulate(mixture, rows, np.random.default_rng(0)).Y.mean())


def test_simulated_counts_scale_with_exposure() -> None:
    data = simulated("poisson", n=2000, exposure=True)
    doubled = replace(data.rows, exposure=2 * data.rows.exposure)
    assert mean_count(data.truth, doubled) == pytest.approx(2 * mean_count(data.truth, data.rows), rel=0.05)


def test_standard_errors_that_need_the_rows_ask_for_them():
    case = simulated(n=200)
    fit = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    with pytest.raises(InvalidInputError, match="'sandwich' standard errors of this fit need its rows"):
        infer(fit, kind="sandwich")


def contaminated(n: int) -> Rows:
    """Two experts that differ in variance and share alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1))
    spread = np.where(rng.random(n) < 0.25, 4.0, 1.0)
    return Rows(X, (1 + X[:, 0] + spread * rng.normal(size=n))[:, None])


@pytest.mark.slow
def test_bootstrap_keeps_the_labels_of_experts_with_equal_coefficients() -> None:
    rows, two = contaminated(1000), Specification(K=2, gate="constant")
    fit = fit_mixture(rows, two, rng=np.random.default_rng(0))
    drawn = bootstrap(fit, rows, two, rng=np.random.default_rng(0), draws=30)
    assert not drawn.withheld
    ratio = drawn.standard_errors().flat() / infer(fit, rows).standard_errors().flat()
    assert np.all((ratio > 0.6) & (ratio < 1.7))


@pytest.mark.slow
@QUIET
def test_bootstrap_withholds_where_experts_cannot_be_matched() -> None:
    """Two experts that are nearly one normal distribution: their labels are arbitrary."""
    rng = np.random.default_rng(1)
    rows = Rows(np.empty((150, 0)), rng.normal(size=(150, 1)))
    two = Specification(K=2, gate="constant")
    experts = GaussianExperts(np.array([[[-0.2]], [[0.2]]]), np.ones((2, 1, 1)))
    start = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)
    fit = fit_mixture(rows, two, rng=rng, start=start, max_iter=1)
    drawn = bootstrap(fit, rows, two, rng=rng, draws=20)
    assert set(drawn.withheld) == {"gate", "experts"}
    assert "without a clear match" in drawn.withheld["experts"]
    assert np.all(np.isnan(drawn.standard_errors().flat()))


@pytest.mark.slow
@QUIET
def test_bootstrap_withholds_what_the_information_withholds() -> None:
    data = simulated(n=60)
    fit = fitted(data)
    reasons = infer(fit, data.rows).withheld
    assert reasons.keys() == {"shapes"}
    assert (
        bootstrap(fit, data.rows, data.specification, rng=np.random.default_rng(0), draws=2).withheld.keys()
        >= reasons.keys()
    )


def test_a_costly_information_is_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(2000, 16)) + 5 * rng.integers(2, size=(2000, 1))
    fitted_at_once = GaussianMixture(2, n_init=1, random_state=0).fit(Y)
    assert not fitted_at_once.inference_.withheld
    monkeypatch.setattr(inference_module, "MOST_OPERATIONS", 1e3)
    model = GaussianMixture(2, n_init=1, random_state=0).fit(Y)
    assert (
        "the information of 305 parameters takes 2e+08 operations on 2,000 rows: infer() computes it"
        in model.inference_.withheld["experts"]
    )
    errors = model.infer(Y).standard_errors().experts
    np.testing.assert_allclose(errors, fitted_at_once.infer(Y).standard_errors().experts, rtol=1e-3)

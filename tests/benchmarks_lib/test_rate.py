"""The rate of EM that the missing information predicts, against the steps EM takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from benchmarks.lib.rate import Rate, em_rate
from consilience.errors import InvalidInputError
from consilience.fit import Fit, fit_mixture
from consilience.fit.climb import newton_step
from consilience.fit.parameters import jacobian, parameters
from consilience.model import Design, Mixture, Penalty, Rows, expect
from consilience.model.information import move_parameters
from simulated import FAMILIES, Simulated, simulated
from strategies import Shape, shapes


def fitted(data: Simulated) -> Fit:
    return fit_mixture(data.rows, data.specification, rng=np.random.default_rng(0), start=data.truth)


def rate_of(fit: Fit, rows: Rows) -> Rate:
    return em_rate(fit.ascent.mixture, expect(fit.ascent.mixture, rows, information=True), fit.penalty)


# ---------------------------------------------------------------------- against EM's own steps


def em_step(mixture: Mixture, rows: Rows, penalty: Penalty) -> np.ndarray:
    return parameters(mixture.maximise(expect(mixture, rows), penalty)).flat()


def at_the_top(fit: Fit, rows: Rows) -> Mixture:
    """The fitted mixture after two more Newton steps."""
    mixture = fit.ascent.mixture
    for _ in range(2):
        mixture = move_parameters(
            mixture, newton_step(mixture, expect(mixture, rows, information=True), fit.penalty).direction
        )
    return mixture


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("group_size", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_shares_are_the_eigenvalues_of_the_derivative_of_an_em_step(family: str, group_size: int, gate: str) -> None:
    data = simulated(family, gate=gate, n=600, group_size=group_size, seed=2)
    fit = fitted(data)
    top, h = at_the_top(fit, data.rows), 1e-4
    nudges = h * np.eye(top.parameter_count)
    steps = [[em_step(move_parameters(top, s * nudge), data.rows, fit.penalty) for nudge in nudges] for s in (1, -1)]
    read = jacobian(top, np.arange(top.K))  # of what is read from a mixture, in its free parameters
    derivative = np.linalg.lstsq(read, np.subtract(*steps).T / (2 * h), rcond=None)[0]
    found = em_rate(top, expect(top, data.rows, information=True), fit.penalty)
    assert found.reason == ""
    assert np.allclose(np.sort(np.linalg.eigvals(derivative).real)[::-1], found.shares, atol=1e-5)


def contraction(data: Simulated, fit: Fit) -> float:
    """Factor by which EM steps from the truth shrink, while they are 1e-9 to 1e-11 long: at the top, above rounding."""
    mixture = data.truth.in_coordinates(fit.ascent.mixture.design)
    at, lengths = parameters(mixture).flat(), []
    while not lengths or lengths[-1] > 1e-11:
        mixture = mixture.maximise(expect(mixture, data.rows), fit.penalty)
        before, at = at, parameters(mixture).flat()
        lengths.append(float(np.linalg.norm(at - before)))
    first, last = int(np.argmax(np.array(lengths) < 1e-9)), len(lengths) - 1
    return float((lengths[last] / lengths[first]) ** (1 / (last - first)))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_em_steps_shrink_by_the_rate(family: str) -> None:
    data = simulated(family, n=600, seed=2)
    fit = fitted(data)
    assert contraction(data, fit) == pytest.approx(rate_of(fit, data.rows).rate, rel=0.01)


@pytest.mark.slow
def test_overlapping_experts_are_slow() -> None:
    far = simulated(n=2000, seed=1)
    near = replace(far.truth, experts=replace(far.truth.experts, B=0.3 * far.truth.experts.B))
    Y, _ = near.sample(far.X, np.random.default_rng(1))
    overlapping = replace(far, truth=near, rows=Rows(far.X, Y))
    fit = fitted(overlapping)
    predicted = rate_of(fit, overlapping.rows)
    assert predicted.rate > 0.9 > rate_of(fitted(far), far.rows).rate
    assert contraction(overlapping, fit) == pytest.approx(predicted.rate, rel=0.01)


# ---------------------------------------------------------------------- what it does not depend on


@given(shapes())
def test_shares_do_not_depend_on_the_order_of_experts(shape: Shape) -> None:
    mixture, rows = shape.problem()
    order = np.random.default_rng(shape.seed).permutation(mixture.K)
    one, other = (em_rate(m, expect(m, rows, information=True), Penalty()) for m in (mixture, mixture.permuted(order)))
    assert one.reason == other.reason
    assert np.allclose(one.shares, other.shares, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_shares_at_a_maximum_do_not_depend_on_the_order_of_experts(family: str) -> None:
    data = simulated(family, n=500)
    fit = fitted(data)
    swapped = fit.ascent.mixture.permuted(np.array([1, 0]))
    other = em_rate(swapped, expect(swapped, data.rows, information=True), fit.penalty)
    assert np.allclose(other.shares, rate_of(fit, data.rows).shares, atol=1e-9)


def test_rate_does_not_depend_on_the_units_of_covariates() -> None:
    data = simulated(n=500)
    mixture = fitted(data).ascent.mixture
    other = mixture.in_coordinates(Design(np.array([5.0, -3.0]), np.array([1e3, 1e-2])))
    free = Penalty(gate_ridge=0.0)
    one, two = (em_rate(m, expect(m, data.rows, information=True), free) for m in (mixture, other))
    assert np.allclose(one.shares, two.shares, atol=1e-9)


def test_sites_add_to_the_pooled_rate() -> None:
    data = simulated(n=500)
    fit = fitted(data)
    north, south = (Rows(data.X[part], data.rows.Y[part]) for part in (slice(200), slice(200, None)))
    both = [expect(fit.ascent.mixture, site, information=True) for site in (north, south)]
    federated = em_rate(fit.ascent.mixture, both[0] + both[1], fit.penalty)
    assert np.allclose(federated.shares, rate_of(fit, data.rows).shares, atol=1e-10)


# ---------------------------------------------------------------------- borders


@pytest.mark.parametrize("family", FAMILIES)
def test_one_expert_misses_nothing(family: str) -> None:
    data = simulated(family, n=300)
    specification = replace(data.specification, K=1)
    fit = fit_mixture(data.rows, specification, rng=np.random.default_rng(0))
    rate = rate_of(fit, data.rows)
    assert rate.rate < 1e-12
    assert rate.passes_per_digit < 0.1


def test_digits_of_the_extremes() -> None:
    assert Rate(np.array([0.0])).passes_per_digit == 0
    assert Rate(np.array([1.0])).passes_per_digit == np.inf
    assert Rate(np.array([0.1])).passes_per_digit == pytest.approx(1)


def test_away_from_a_maximum_there_is_a_reason_instead() -> None:
    data = simulated(gate="constant", n=300)
    B = data.truth.experts.B
    saddle = replace(data.truth, experts=replace(data.truth.experts, B=np.repeat(B.mean(axis=0)[None], 2, axis=0)))
    rate = em_rate(saddle, expect(saddle, data.rows, information=True), Penalty())
    assert "no maximum" in rate.reason
    assert np.all(np.isnan(rate.shares))
    assert np.isnan(rate.passes_per_digit)


def test_statistics_without_the_information_are_refused() -> None:
    data = simulated(n=50)
    with pytest.raises(InvalidInputError, match="information=True"):
        em_rate(data.truth, expect(data.truth, data.rows), Penalty())

"""Statistics of any rows pass every check; statistics that no rows can give do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from consilience.messages.checks import impossible_statistics
from consilience.model import Design, GaussianExperts, Mixture, Rows, SoftmaxGate, Statistics, expect
from consilience.model.expectation import score_sums
from consilience.model.information import is_informable
from strategies import FAMILIES, Shape, shapes


@given(shapes())
def test_honest_statistics_are_possible(shape: Shape) -> None:
    mixture, rows = shape.problem()
    assert impossible_statistics(mixture, expect(mixture, rows, information=is_informable(mixture))) == ""
    assert impossible_statistics(mixture, score_sums(mixture, rows)) == ""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-8), (1e6, 1.0), (-1e3, 1e6), (1e9, 1e3)])
def test_badly_scaled_covariates_raise_no_alarm(family: str, shift: float, scale: float) -> None:
    mixture, rows = Shape(family=family, n=200, K=3, d=3).problem()
    scaled = replace(rows, X=shift + scale * rows.X)
    design = replace(mixture.design, centre=shift + scale * mixture.design.centre, scale=scale * mixture.design.scale)
    moved = replace(mixture, design=design)
    assert impossible_statistics(moved, expect(moved, scaled, information=True)) == ""


def lies(honest: Statistics) -> dict[str, Statistics]:
    """Statistics that no rows can give, whatever the family."""
    experts, gate = honest.experts, honest.gate
    negative = experts.plain.copy()
    negative[0] *= -1
    return {
        "weight": replace(honest, weight=-5.0),
        "mass": replace(honest, experts=replace(experts, plain=negative)),
        "masses": replace(honest, gate=replace(gate, plain=10 * gate.plain)),
        "second moments": replace(honest, experts=replace(experts, second=-experts.second)),
        "absolute": replace(honest, absolute=0.0),
        "information": replace(honest, information=10 * honest.information),
        "curvature of the gate": replace(honest, gate=replace(gate, second=-gate.second)),
        "weight that drifts": replace(honest, weight=honest.weight * (1 + 1e-6)),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_lies_are_impossible(family: str) -> None:
    mixture, rows = Shape(family=family, n=60).problem()
    honest = expect(mixture, rows, information=True)
    silent = [name for name, lie in lies(honest).items() if not impossible_statistics(mixture, lie)]
    assert not silent


@pytest.mark.parametrize("family", ["gaussian-full", "gaussian-diag", "student"])
def test_gradients_of_other_rows_are_impossible(family: str) -> None:
    mixture, rows = Shape(family=family, n=60).problem()
    honest = expect(mixture, rows)
    steered = replace(honest.experts, first=honest.experts.first + 60.0)
    assert "positive semidefinite" in impossible_statistics(mixture, replace(honest, experts=steered))


@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("family", ["gaussian-full", "gaussian-tied", "student", "poisson"])
def test_log_likelihood_is_bounded(family: str, gate: str) -> None:
    mixture, rows = Shape(family=family, gate=gate, n=60).problem()
    honest = expect(mixture, rows)

    def shifted(by: float) -> Statistics:
        value = honest.log_likelihood + by
        return replace(honest, log_likelihood=value, absolute=honest.absolute + abs(by))

    assert "above its bound" in impossible_statistics(mixture, shifted(1e3))
    if gate == "constant" and family != "poisson":
        assert "below its bound" in impossible_statistics(mixture, shifted(-1e3))


def test_empty_sites_are_possible() -> None:
    mixture, rows = Shape().problem()
    assert impossible_statistics(mixture, expect(mixture, rows.take(np.arange(0)), information=True)) == ""


def test_counts_far_above_their_rates_are_possible() -> None:
    mixture, rows = Shape(family="poisson", n=40, K=3).problem()
    for gate in ("softmax", "constant"):
        mixture = Shape(family="poisson", gate=gate, K=3).problem()[0]
        for times in (10.0, 100.0, 1e3, 1e4):  # the missing information is far above the complete-data information
            far = replace(rows, Y=times * (1 + rows.Y))
            assert impossible_statistics(mixture, expect(mixture, far, information=True)) == ""


@pytest.mark.parametrize("times", [1e-1, 1e-2, 1e-3, 1e-5])
def test_residuals_of_many_standard_deviations_are_possible(times: float) -> None:
    mixture, rows = Shape(n=40, K=3).problem()
    sharp = replace(mixture, experts=replace(mixture.experts, covariance=times**2 * mixture.experts.covariance))
    assert impossible_statistics(sharp, expect(sharp, rows, information=True)) == ""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sharper", [10.0, 30.0, 100.0, 1e4])
def test_sharp_gates_are_possible(family: str, sharper: float) -> None:
    for seed in range(5):
        mixture, rows = Shape(family=family, n=40, K=3, seed=seed).problem()
        sharp = replace(mixture, gate=replace(mixture.gate, alpha=sharper * mixture.gate.alpha))
        assert impossible_statistics(sharp, expect(sharp, rows, information=True)) == ""


@pytest.mark.parametrize("sharper", [10.0, 30.0, 100.0])
def test_saturated_classes_are_possible(sharper: float) -> None:
    for seed in range(5):
        mixture, rows = Shape(family="categorical", n=40, K=3, C=4, seed=seed).problem()
        sharp = replace(mixture, experts=replace(mixture.experts, B=sharper * mixture.experts.B))
        assert impossible_statistics(sharp, expect(sharp, rows, information=True)) == ""


def test_an_expert_that_fits_a_few_equal_responses_exactly_raises_no_alarm() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(np.arange(300) < 3, 99.0, X @ [1.0, 0.5] + rng.normal(size=300))
    experts = GaussianExperts(np.array([[[99.0, 1e-8, -3e-8]], [[0.0, 1.0, 0.5]]]), np.array([[[2e-5]], [[1.0]]]))
    gate = SoftmaxGate(np.array([[-2.0, 0.2, 0.0], [2.0, -0.2, 0.0]]))
    mixture = Mixture(Design.raw(2), gate, experts)
    assert impossible_statistics(mixture, expect(mixture, Rows(X, y[:, None]), information=True)) == ""

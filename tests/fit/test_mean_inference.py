"""The mean of a mixture over rows: its derivative, and errors by the delta method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.fit import infer
from consilience.fit.fitting import fit_mixture
from consilience.fit.inference import withhold_inference
from consilience.fit.mean_inference import delta_errors, mean_over_rows
from consilience.fit.parameters import jacobian, parameters
from consilience.model import Mixture
from consilience.model.information import coefficient_slice, gate_slice, shape_slice
from families import CASES
from simulated import simulated


def numerical(mixture: Mixture, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Derivative of the average in the free parameters, ``(G, m, P)``."""
    gate, experts, step = mixture.gate, mixture.experts, 1e-6
    places = gate_slice(mixture), coefficient_slice(mixture), shape_slice(mixture)
    found = []
    for i in range(mixture.parameter_count):
        ends = []
        for sign in (1, -1):
            change = sign * step * (np.arange(mixture.parameter_count) == i)
            of_gate, coefficients, shapes = (change[place] for place in places)
            moved = replace(mixture, gate=gate.moved(of_gate), experts=experts.moved(coefficients, shapes))
            ends.append(weights @ moved.mean(X))
        found.append((ends[0] - ends[1]) / (2 * step))
    return np.moveaxis(np.array(found), 0, -1)


@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("case", CASES)
def test_the_derivative_is_that_of_finite_differences_of_the_mean(case: str, gate: str) -> None:
    family, _, structure = case.partition("-")
    data = simulated(family, gate=gate, n=40, q=2 if structure else 1, structure=structure or "full")
    mixture, rng = data.truth.raw(), np.random.default_rng(0)
    weights = rng.random((2, 40)) / 40
    found = mean_over_rows(mixture, data.X, weights)
    np.testing.assert_allclose(found.values, weights @ mixture.mean(data.X), rtol=1e-12)
    D = jacobian(mixture, np.arange(mixture.K))
    held = ~np.isfinite(D).all(axis=1)  # a shape at its bound
    by_free = found.gradient[..., ~held] @ D[~held]
    assert found.gradient.shape[-1] == len(parameters(mixture).flat())
    np.testing.assert_allclose(by_free, numerical(mixture, data.X, weights), rtol=1e-5, atol=1e-7)


def test_errors_are_those_of_the_inverse_information() -> None:
    data = simulated(n=300)
    fit = fit_mixture(data.rows, data.specification, rng=np.random.default_rng(0), start=data.truth)
    inference, weights = infer(fit), np.full((1, 300), 1 / 300)
    D = jacobian(fit.mixture.raw(), np.arange(2))
    free = np.linalg.pinv(D) @ inference.covariance @ np.linalg.pinv(D).T
    slopes = numerical(fit.mixture.raw(), data.X, weights)[0, 0]
    found = delta_errors(inference, mean_over_rows(fit.mixture, data.X, weights).gradient[0])
    assert found.se[0] == pytest.approx(np.sqrt(slopes @ free @ slopes), rel=1e-6)
    assert found.withheld == [""]
    assert np.isfinite(found.degrees[0])


def test_an_error_is_withheld_with_a_part_that_it_depends_on() -> None:
    data = simulated(n=300)
    fit = fit_mixture(data.rows, data.specification, rng=np.random.default_rng(0), start=data.truth)
    inference = infer(fit)
    J = np.zeros((3, len(inference.estimates.flat())))
    size = inference.estimates.gate.size
    J[0, 0], J[1, size], J[2, size + 3] = 1, 1, 1  # the gate, expert 1, expert 2
    for withheld, silent in (
        ({"gate": "a"}, [0]),
        ({"expert 1": "b"}, [2]),
        ({"experts": "c"}, [1, 2]),
        ({"shapes": "d"}, []),
    ):
        found = delta_errors(replace(inference, withheld=withheld), J)
        assert np.flatnonzero(np.isnan(found.se)).tolist() == silent
        assert [bool(reason) for reason in found.withheld] == [i in silent for i in range(3)]
    assert delta_errors(replace(inference, withheld={"expert 1": "b"}), J).withheld[2] == "expert 2: b"
    without = delta_errors(withhold_inference(inference.estimates, "observed", "none"), J)
    assert np.isnan(without.se).all()
    assert without.withheld == ["gate: none", "experts: none", "experts: none"]


def test_satterthwaite_of_one_part_has_its_degrees() -> None:
    data = simulated(n=300)
    fit = fit_mixture(data.rows, data.specification, rng=np.random.default_rng(0), start=data.truth)
    inference = infer(fit)
    size = inference.estimates.gate.size
    J = np.eye(len(inference.estimates.flat()))[[0, size, size + 3]]
    degrees = inference.degrees_of_freedom().experts[:, 0, 0]
    np.testing.assert_allclose(delta_errors(inference, J).degrees, [np.inf, *degrees], rtol=1e-9)

"""Information criteria by their formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.fit import aic, bic
from consilience.fit.criteria import entropy, entropy_of_sums, has_entropy_of_sums, label_count, log_likelihood
from consilience.model import expect
from simulated import FAMILIES, simulated
from strategies import unweighted


def test_formulas() -> None:
    assert aic(-7.0, 4) == 14 + 8
    assert bic(-7.0, 4, np.e) == pytest.approx(14 + 4)


def test_n_is_the_weight_or_the_number_of_groups_with_weight() -> None:
    data = simulated(n=60, group_size=3, weights=True)
    by_row = replace(data.rows, groups=None)
    assert label_count(by_row) == data.rows.weight.sum()
    assert label_count(replace(by_row, weight=None)) == 60
    assert label_count(replace(data.rows, weight=None)) == 20
    gone = data.rows.weight.copy()
    gone[data.rows.groups.codes == 4] = 0
    gone[data.rows.groups.codes == 5] = [0, 0, 1]
    present = np.bincount(data.rows.groups.codes, gone) > 0
    assert label_count(replace(data.rows, weight=gone)) == present.sum() < 20


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("group_size", [1, 4])
def test_log_likelihood_and_entropy_count_weights_as_repetition(family: str, group_size: int) -> None:
    data = simulated(family, n=80, group_size=group_size, weights=True)
    repeated = unweighted(data.rows)
    assert log_likelihood(data.truth, data.rows) == pytest.approx(log_likelihood(data.truth, repeated), rel=1e-12)
    assert entropy(data.truth, data.rows) == pytest.approx(entropy(data.truth, repeated), rel=1e-12)


def test_entropy_is_that_of_the_responsibilities() -> None:
    data = simulated(n=50)
    tau = data.truth.responsibilities(data.rows)
    assert entropy(data.truth, data.rows) == pytest.approx(-np.sum(tau * np.log(np.maximum(tau, 1e-300))))
    certain = replace(data.truth, experts=replace(data.truth.experts, covariance=np.full((2, 1, 1), 1e-6)))
    assert 0 <= entropy(certain, data.rows) < 1e-3


@pytest.mark.parametrize("gate", ["constant", "softmax"])
@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_state_the_entropy_or_nothing(family: str, group_size: int, gate: str) -> None:
    data = simulated(family, gate=gate, n=80, group_size=group_size, weights=True)
    found = entropy_of_sums(data.truth, expect(data.truth, data.rows))
    assert (found is not None) == has_entropy_of_sums(data.specification)
    assert (found is not None) == (gate == "constant" and family in {"gaussian", "student"})
    if found is not None:
        assert found == pytest.approx(entropy(data.truth, data.rows), rel=1e-8)


@pytest.mark.parametrize("structure", ["full", "tied", "diag", "spherical"])
def test_sums_state_the_entropy_of_every_covariance(structure: str) -> None:
    data = simulated(gate="constant", n=80, q=3, structure=structure)
    assert entropy_of_sums(data.truth, expect(data.truth, data.rows)) == pytest.approx(
        entropy(data.truth, data.rows), rel=1e-8
    )

"""The parametric bootstrap likelihood-ratio test of the number of experts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions, order_test
from consilience.errors import InvalidInputError
from consilience.estimators import OrderTest
from simulated import simulated

QUIET = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
MODEL = MixtureOfRegressions(random_state=0, n_init=2)


@pytest.mark.slow
@QUIET
def test_two_clear_experts_are_found() -> None:
    data = simulated(gate="constant", n=100)
    test = order_test(MODEL, data.X, data.y, K=1, draws=4)
    assert test.statistic == 2 * (test.alternative.log_likelihood_ - test.null.log_likelihood_)
    assert test.statistic > 2 * test.draws.max()
    assert test.p_value == 0.2
    assert (
        repr(test)
        == f"1 against 2 experts: 2 log likelihood ratio {test.statistic:.2f}, p = 0.2 from 4 bootstrap data sets"
    )


@QUIET
@pytest.mark.slow
def test_the_result_does_not_depend_on_the_number_of_processes() -> None:
    data = simulated(gate="constant", n=60)
    alone, shared = (order_test(MODEL, data.X, data.y, K=1, draws=3, n_jobs=n_jobs) for n_jobs in (None, 2))
    assert np.array_equal(alone.draws, shared.draws)


def test_p_value_counts_the_data_as_one_draw() -> None:
    test = OrderTest(1, 2.0, np.array([0.0, 1.0, 2.0, 3.0]), None, None)
    assert test.p_value == 3 / 5
    assert replace(test, statistic=9.0).p_value == 1 / 5


@QUIET
def test_groups_and_exposure_are_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    data = simulated("poisson", n=120, group_size=4, exposure=True)
    model = MixtureOfExpertsRegressor(family="poisson", random_state=0, n_init=1)
    test = order_test(
        model, data.X, data.y, 1, draws=2, verbose=True, groups=data.rows.groups.codes, exposure=data.rows.exposure
    )
    assert test.null.n_labels_ == 30
    assert test.p_value == pytest.approx(1 / 3)
    assert "2 of 2" in capsys.readouterr().err


def test_weights_and_impossible_numbers_are_errors() -> None:
    X = np.random.default_rng(0).normal(size=(40, 1))
    with pytest.raises(InvalidInputError, match="repeat rows instead"):
        order_test(GaussianMixture(random_state=0, n_init=1), X, K=1, draws=1, sample_weight=np.full(40, 2.0))
    for arguments in ({"K": 0}, {"draws": 0}, {"K": 1.5}):
        with pytest.raises(InvalidInputError, match="expected a whole number"):
            order_test(GaussianMixture(), X, **arguments)


@QUIET
@pytest.mark.long
def test_level_is_about_right_for_one_regression() -> None:
    """With data of one regression p-values are about uniform: few are 0.05, and their median is in the middle."""
    p_values = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 1))
        model = MixtureOfRegressions(random_state=seed, n_init=2)
        p_values.append(order_test(model, X, X[:, 0] + rng.normal(size=60), K=1, draws=19).p_value)
    assert np.sum(np.array(p_values) <= 0.05) <= 2
    assert 0.25 < np.median(p_values) < 0.9

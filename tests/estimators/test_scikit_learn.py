"""The estimators keep scikit-learn's promises."""

from __future__ import annotations

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils.estimator_checks import (
    check_fit_idempotent,
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions

QUICK = {"n_init": 1, "random_state": 0}
FAST = [MixtureOfExpertsRegressor(**QUICK), GaussianMixture(**QUICK)]
SLOW = [MixtureOfExpertsClassifier(**QUICK), MixtureOfRegressions(**QUICK)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")  # tiny data sets fit exactly
@parametrize_with_checks(FAST)
def test_promises(estimator: object, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@parametrize_with_checks(SLOW)
def test_promises_of_the_others(estimator: object, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("estimator", [*FAST, *SLOW], ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("check", [check_fit_idempotent, check_sample_weight_equivalence_on_dense_data])
def test_promises_that_depend_on_all_kinds_of_starts(estimator: BaseEstimator, check) -> None:
    check(type(estimator).__name__, clone(estimator).set_params(n_init=6))

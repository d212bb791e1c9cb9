"""The estimators keep scikit-learn's promises."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions

FAST = [MixtureOfExpertsRegressor(random_state=0), GaussianMixture(random_state=0)]
SLOW = [MixtureOfExpertsClassifier(random_state=0), MixtureOfRegressions(random_state=0)]


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")  # tiny data sets fit exactly
@parametrize_with_checks(FAST)
def test_promises(estimator: object, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@parametrize_with_checks(SLOW)
def test_promises_of_the_others(estimator: object, check) -> None:
    check(estimator)

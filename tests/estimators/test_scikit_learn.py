"""The estimators keep scikit-learn's promises."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions

FAST = [MixtureOfExpertsRegressor(random_state=0), GaussianMixture(random_state=0)]
SLOW = [MixtureOfExpertsClassifier(random_state=0), MixtureOfRegressions(random_state=0)]


def expected_failures(estimator: object) -> dict[str, str]:
    if isinstance(estimator, GaussianMixture):
        return {}
    needs_y = "score_samples(X, y) is the log density of y given X: there is none without y"
    return {"check_methods_sample_order_invariance": needs_y, "check_methods_subset_invariance": needs_y}


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")  # tiny data sets fit exactly
@parametrize_with_checks(FAST, expected_failed_checks=expected_failures)
def test_promises(estimator: object, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@parametrize_with_checks(SLOW, expected_failed_checks=expected_failures)
def test_promises_of_the_others(estimator: object, check) -> None:
    check(estimator)

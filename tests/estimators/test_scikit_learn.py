"""The estimators keep scikit-learn's promises; in the lane of every change, each path through the code once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils.estimator_checks import (
    check_fit_idempotent,
    check_sample_weight_equivalence_on_dense_data,
    estimator_checks_generator,
    parametrize_with_checks,
)

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import TooFewRowsError

QUICK = {"n_init": 1, "random_state": 0}
RIDGE = {"expert_ridge": 1e-3}  # some tables have fewer rows than two experts have parameters: refused without a ridge
FAST = [MixtureOfExpertsRegressor(**QUICK, **RIDGE), GaussianMixture(**QUICK)]
SLOW = [MixtureOfExpertsClassifier(**QUICK, **RIDGE), MixtureOfRegressions(**QUICK, **RIDGE)]
WIDE = "check_sample_weight_equivalence_on_dense_data"  # 27 rows of 30 columns


def refused(estimator: BaseEstimator) -> dict[str, str]:
    """Checks whose table a default Gaussian mixture refuses; diagonal covariances pass them (below)."""
    full = isinstance(estimator, GaussianMixture) and estimator.covariance_type == "full"
    return {WIDE: "991 parameters are more than the 810 observed values"} if full else {}


OF_CONSTRUCTORS = (
    *("check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init", "check_mixin_order"),
    *("check_estimator_tags_renamed", "check_valid_tag_types", "check_parameters_default_constructible"),
    *("check_do_not_raise_errors_in_init_or_set_params", "check_get_params_invariance", "check_set_params"),
    *("check_estimators_overwrite_params", "check_dont_overwrite_parameters", "check_regressors_train"),
)
OF_CLASSES = (
    *("check_supervised_y_2d", "check_supervised_y_no_nan", "check_requires_y_none", "check_fit_score_takes_y"),
    *("check_estimators_fit_returns_self", "check_estimators_unfitted", "check_fit_check_is_fitted"),
    *("check_n_features_in", "check_n_features_in_after_fitting", "check_estimators_pickle", "check_dict_unchanged"),
    *("check_methods_subset_invariance", "check_methods_sample_order_invariance", "check_sample_weights_list"),
)
OVERRIDDEN = {  # the rest of their code is that of MixtureOfExpertsRegressor
    MixtureOfRegressions: OF_CONSTRUCTORS,
    MixtureOfExpertsClassifier: (*OF_CONSTRUCTORS, *OF_CLASSES, "check_classifier", "check_decision_proba"),
}


def name_of(check: Callable[..., object]) -> str:
    return name_of(check.func) if isinstance(check, partial) else check.__name__


def checks_of(estimators: list[BaseEstimator]) -> Iterator[object]:
    """Yield each check of each estimator; those of code that another estimator's checks run are in the long lane."""
    for estimator in estimators:
        for i, (instance, check) in enumerate(estimator_checks_generator(estimator, legacy=True)):
            own = name_of(check).startswith(OVERRIDDEN[type(estimator)])
            name = f"{type(estimator).__name__}-{name_of(check)}-{i}"
            yield pytest.param(instance, check, id=name, marks=() if own else pytest.mark.long)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")  # tiny data sets fit exactly
@parametrize_with_checks(FAST, expected_failed_checks=refused)
def test_promises(estimator: object, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize(("estimator", "check"), list(checks_of(SLOW)))
def test_promises_of_the_others(estimator: object, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("estimator", [*FAST, *SLOW], ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("check", [check_fit_idempotent, check_sample_weight_equivalence_on_dense_data])
def test_promises_that_depend_on_all_kinds_of_starts(estimator: BaseEstimator, check) -> None:
    few = {"covariance_type": "diag"} if isinstance(estimator, GaussianMixture) else {}
    check(type(estimator).__name__, clone(estimator).set_params(n_init=6, **few))


@pytest.mark.parametrize("estimator", [MixtureOfExpertsRegressor(**QUICK), GaussianMixture(**QUICK)])
def test_without_a_ridge_a_table_with_fewer_rows_than_parameters_is_refused(estimator: BaseEstimator) -> None:
    with pytest.raises(TooFewRowsError, match="more than the"):
        check_sample_weight_equivalence_on_dense_data(type(estimator).__name__, estimator)

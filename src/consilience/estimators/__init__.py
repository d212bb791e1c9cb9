"""scikit-learn estimators: validation, fitted attributes and tables; ``fit`` and ``model`` do the mathematics."""

from consilience.estimators.averages import average_contrasts, average_marginal_effects, average_predictions
from consilience.estimators.calibrated_intervals import CalibratedIntervals, calibrate_intervals
from consilience.estimators.classifier import MixtureOfExpertsClassifier
from consilience.estimators.comparison import ModelComparison, compare
from consilience.estimators.covariate_tests import CovariateTest, likelihood_ratio_test, wald_test
from consilience.estimators.gaussian_mixture import GaussianMixture
from consilience.estimators.likelihood_ratio import OrderTest, order_test
from consilience.estimators.mixture_of_regressions import MixtureOfRegressions
from consilience.estimators.order import OrderSelection, select_order
from consilience.estimators.regressor import MixtureOfExpertsRegressor
from consilience.estimators.saving import load
from consilience.estimators.scorer import LogDensityScorer, log_density_scorer

__all__ = [
    "CalibratedIntervals",
    "CovariateTest",
    "GaussianMixture",
    "LogDensityScorer",
    "MixtureOfExpertsClassifier",
    "MixtureOfExpertsRegressor",
    "MixtureOfRegressions",
    "ModelComparison",
    "OrderSelection",
    "OrderTest",
    "average_contrasts",
    "average_marginal_effects",
    "average_predictions",
    "calibrate_intervals",
    "compare",
    "likelihood_ratio_test",
    "load",
    "log_density_scorer",
    "order_test",
    "select_order",
    "wald_test",
]

"""Mixtures of experts, mixtures of regressions and Gaussian mixtures, fitted to data in one or many places.

Names are imported on first use (PEP 562), so ``import consilience`` is fast.

Examples
--------
>>> import consilience
>>> "GaussianMixture" in dir(consilience)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING

from consilience._version import __version__

if TYPE_CHECKING:
    from consilience import plot
    from consilience.engines import DaskCluster, Engine, InProcess
    from consilience.errors import (
        ConsilienceWarning,
        ConvergenceWarning,
        DegenerateFitWarning,
        LargeMessagesWarning,
        OneExpertWarning,
        RankDeficientWarning,
        SetAsideWarning,
        StartsDisagreeWarning,
        SuspectDataWarning,
        UntrustedWarning,
    )
    from consilience.estimators import (
        GaussianMixture,
        MixtureOfExpertsClassifier,
        MixtureOfExpertsRegressor,
        MixtureOfRegressions,
        average_contrasts,
        average_marginal_effects,
        average_predictions,
        calibrate_intervals,
        compare,
        likelihood_ratio_test,
        load,
        log_density_scorer,
        order_test,
        select_order,
        wald_test,
    )
    from consilience.federation import Federation
    from consilience.methods import (
        ClusteredClients,
        FederatedEM,
        Lasso,
        Method,
        OneShot,
        PrivateScoring,
        SharedCentre,
        Task,
    )
    from consilience.published import FedGrEM, FedMomentDescent, GradientEM, MinimaxRegression
    from consilience.runs import Limits, RunOptions

__all__ = [
    "ClusteredClients",
    "ConsilienceWarning",
    "ConvergenceWarning",
    "DaskCluster",
    "DegenerateFitWarning",
    "Engine",
    "FedGrEM",
    "FedMomentDescent",
    "FederatedEM",
    "Federation",
    "GaussianMixture",
    "GradientEM",
    "InProcess",
    "LargeMessagesWarning",
    "Lasso",
    "Limits",
    "Method",
    "MinimaxRegression",
    "MixtureOfExpertsClassifier",
    "MixtureOfExpertsRegressor",
    "MixtureOfRegressions",
    "OneExpertWarning",
    "OneShot",
    "PrivateScoring",
    "RankDeficientWarning",
    "RunOptions",
    "SetAsideWarning",
    "SharedCentre",
    "StartsDisagreeWarning",
    "SuspectDataWarning",
    "Task",
    "UntrustedWarning",
    "__version__",
    "average_contrasts",
    "average_marginal_effects",
    "average_predictions",
    "calibrate_intervals",
    "compare",
    "likelihood_ratio_test",
    "load",
    "log_density_scorer",
    "order_test",
    "plot",
    "select_order",
    "wald_test",
]

_SUBPACKAGES = ("plot",)

_PUBLIC = {
    "engines": ("DaskCluster", "Engine", "InProcess"),
    "errors": (
        "ConsilienceWarning", "ConvergenceWarning", "DegenerateFitWarning", "LargeMessagesWarning",
        "RankDeficientWarning", "SetAsideWarning", "OneExpertWarning",
        "StartsDisagreeWarning", "SuspectDataWarning", "UntrustedWarning",
    ),
    "estimators": (
        "GaussianMixture", "MixtureOfExpertsClassifier", "MixtureOfExpertsRegressor", "MixtureOfRegressions",
        "average_contrasts", "average_marginal_effects", "average_predictions", "calibrate_intervals", "compare",
        "likelihood_ratio_test", "load", "log_density_scorer",
        "order_test", "select_order", "wald_test",
    ),
    "federation": ("Federation",),
    "methods": (
        "ClusteredClients", "FederatedEM", "Lasso", "Method", "OneShot", "PrivateScoring", "SharedCentre", "Task",
    ),
    "published": ("FedGrEM", "FedMomentDescent", "GradientEM", "MinimaxRegression"),
    "runs": ("Limits", "RunOptions"),
}  # fmt: skip
_HOME = {name: f"consilience.{package}" for package, names in _PUBLIC.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name from its module, or a subpackage, on first use."""
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted(globals().keys() | _HOME.keys() | set(_SUBPACKAGES))

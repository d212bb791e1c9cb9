"""Mixtures as immutable values: gates, experts, additive sufficient statistics, score and information."""

from consilience.model.design import Design
from consilience.model.expectation import expect
from consilience.model.families.base import Experts
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.registry import FAMILIES
from consilience.model.families.regressions import mixture_of_experts, mixture_of_regressions
from consilience.model.gates import GATES, ConstantGate, Gate, SoftmaxGate
from consilience.model.mixture import Mixture, layout_of
from consilience.model.moments import Moments
from consilience.model.penalty import Penalty
from consilience.model.rows import Groups, Rows
from consilience.model.statistics import Statistics

__all__ = [
    "FAMILIES",
    "GATES",
    "CategoricalExperts",
    "ConstantGate",
    "Design",
    "Experts",
    "Gate",
    "GaussianExperts",
    "Groups",
    "Mixture",
    "Moments",
    "Penalty",
    "PoissonExperts",
    "Rows",
    "SoftmaxGate",
    "Statistics",
    "expect",
    "layout_of",
    "mixture_of_experts",
    "mixture_of_regressions",
]

"""Mixtures as values: gates, experts, statistics that add, and what the data say about them."""

from consilience.model.design import Design
from consilience.model.expectation import expect
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.gates import ConstantGate, SoftmaxGate
from consilience.model.mixture import Mixture, layout_of
from consilience.model.moments import Moments
from consilience.model.penalty import Penalty
from consilience.model.rows import Groups, Rows
from consilience.model.statistics import Statistics

__all__ = [
    "CategoricalExperts",
    "ConstantGate",
    "Design",
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
]

"""Mixtures as immutable values: gates, experts, additive sufficient statistics, score and information."""

from consilience.model.design import Design
from consilience.model.expectation import expect
from consilience.model.families.base import Evaluated, Experts, Options, Scores, Share, arrays_problem
from consilience.model.families.bounded import Bounds
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.glm import GeneralisedLinearExperts, log_rates, mean_per_size, whole_counts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.registry import FAMILIES
from consilience.model.families.regressions import mixture_of_experts, mixture_of_regressions
from consilience.model.gates import GATES, ConstantGate, Gate, SoftmaxGate
from consilience.model.mixture import Mixture, layout_of
from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty
from consilience.model.rows import Block, Groups, Rows
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import unpack

__all__ = [
    "FAMILIES",
    "GATES",
    "Block",
    "Bounds",
    "CategoricalExperts",
    "ColumnSummary",
    "ConstantGate",
    "Design",
    "Evaluated",
    "Experts",
    "Gate",
    "GaussianExperts",
    "GeneralisedLinearExperts",
    "Groups",
    "Layout",
    "Mixture",
    "Moments",
    "Options",
    "Penalty",
    "PoissonExperts",
    "Rows",
    "Scores",
    "Share",
    "SoftmaxGate",
    "Statistics",
    "Weights",
    "arrays_problem",
    "expect",
    "layout_of",
    "log_rates",
    "mean_per_size",
    "mixture_of_experts",
    "mixture_of_regressions",
    "unpack",
    "whole_counts",
]

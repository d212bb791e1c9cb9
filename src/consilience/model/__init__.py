"""Mixtures as immutable values: gates, experts, additive sufficient statistics, score and information."""

from consilience.model.design import Design
from consilience.model.expectation import expect
from consilience.model.families.base import Bounds, Evaluated, Experts, ExpertScores, Options, Share, arrays_problem
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.glm import GeneralisedLinearExperts, log_rates, mean_per_size, whole_counts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.registry import FAMILIES, mixture_of_experts, mixture_of_regressions
from consilience.model.gates import GATES, ConstantGate, Gate, SoftmaxGate
from consilience.model.mixture import Mixture, layout_of
from consilience.model.rows import Block, Groups, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Statistics, Weights
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
    "ExpertScores",
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

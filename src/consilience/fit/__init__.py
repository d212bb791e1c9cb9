"""Fitting: EM and Newton iterations, starts, selection of K, and inference."""

from consilience.fit.climb import Ascent, Expect, MethodStop, StopReason, climb, drive
from consilience.fit.criteria import aic, bic
from consilience.fit.fitting import Fit, fit_mixture
from consilience.fit.inference import Inference, InferredFit, bootstrap, infer
from consilience.fit.parameters import Parameters
from consilience.fit.problem import Problem
from consilience.fit.specification import Specification
from consilience.fit.starts import StartEnds

__all__ = [
    "Ascent",
    "Expect",
    "Fit",
    "Inference",
    "InferredFit",
    "MethodStop",
    "Parameters",
    "Problem",
    "Specification",
    "StartEnds",
    "StopReason",
    "aic",
    "bic",
    "bootstrap",
    "climb",
    "drive",
    "fit_mixture",
    "infer",
]

"""Effects of covariates on gate and experts with their intervals, per standard deviation of the covariate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from consilience.fit.inference import (
    expert_means,
    mean_errors,
    predictor_covariance,
    quantile,
)
from consilience.fitted.protocols import FittedMixture, response_names, shared_places, term_names
from consilience.model import Design
from consilience.numerics.arrays import Array, Mask

BINARY = 1e-9
"""Relative difference between a variance and that of a column of 0 and 1, up to which a column is taken for one."""


@dataclass(frozen=True)
class Step:
    """A change of one covariate: its place among the terms, its size, the covariate's spread, and words."""

    name: str
    place: int
    size: float
    spread: float
    words: str
    more: str
    less: str

    @property
    def standardised(self) -> bool:
        """Whether the step is one standard deviation."""
        return self.words.startswith("per standard deviation")


@dataclass(frozen=True)
class Effect:
    """What goes with a step: change of a linear predictor with its interval, and the words of what changes."""

    step: Step
    of: str
    estimate: float
    lower: float
    upper: float
    strength: float
    ratio: bool

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return bool(np.isfinite(self.lower) and np.isfinite(self.upper))

    @property
    def supported(self) -> bool:
        """Whether the interval excludes no effect."""
        return self.known and (self.lower > 0 or self.upper < 0)


def supported_decimals(lower: float, upper: float) -> int:
    """Return with how many decimals an estimate is said: those of two significant digits of its interval's width.

    An end is not said to be 0 for that: there is one decimal more where it would.

    Examples
    --------
    >>> supported_decimals(0.0102, 0.031), supported_decimals(20.1, 226.0), supported_decimals(0.004, 0.35)
    (3, -1, 3)
    """
    if not upper > lower:
        return 15
    decimals = 1 - floor(log10(upper - lower))
    return decimals + any(round(end, decimals) == 0 for end in (lower, upper))


def gate_effects(estimator: FittedMixture, k: int, level: float) -> list[Effect]:
    """Return the effect of each covariate on the log odds of expert ``k`` against the geometric mean of the others."""
    K, inference = estimator.mixture_.K, estimator.inference_
    lower, upper = inference.interval(level)
    against = K / (K - 1)  # coefficients sum to zero over experts
    return [
        _effect(step, "", *(against * part.gate[k, step.place] for part in (inference.estimates, lower, upper)))
        for step in covariate_steps(estimator, estimator.coordinates_[1])
    ]


def expert_effects(estimator: FittedMixture, k: int, level: float) -> list[Effect]:
    """Return the effect of each covariate on each response, or on the odds of each class against the others."""
    experts, inference, names = estimator.mixture_.experts, estimator.inference_, response_names(estimator)
    lower, upper = inference.interval(level)
    c = len(names)
    against = c / (c - 1) if experts.classes and c > 1 else 1.0  # coefficients sum to zero over classes
    log_shapes = inference.estimates.log_shapes
    spread = np.exp(0.5 * log_shapes[k]) if c > 1 and log_shapes.shape[1] == c else np.ones(c)  # of each response
    return [
        _effect(
            step,
            _changed_quantity(estimator, name),
            *(against * part.experts[k, j, step.place] for part in (inference.estimates, lower, upper)),
            scale=spread[j],
            ratio=bool(experts.multiplied),
        )
        for j, name in enumerate(names)
        for step in covariate_steps(estimator, estimator.coordinates_[0])
    ]


def _changed_quantity(estimator: FittedMixture, name: str) -> str:
    experts = estimator.mixture_.experts
    return f"{experts.multiplied}{f' of class {name}' if experts.classes else ''}" if experts.multiplied else name


def means_at_centre(estimator: FittedMixture, level: float) -> tuple[Array, Array, Array]:
    """Return the mean responses at the mean of the covariates, and the bounds of their intervals, each ``(K, m)``."""
    mixture, inference, design = estimator.mixture_, estimator.inference_, estimator.coordinates_[0]
    centre = np.zeros((1, design.d))
    centre[0, list(design.read)] = design.centre
    reach = quantile(level, inference.degrees_of_freedom().experts[:, 0, 0])  # (K,)
    mean = expert_means(mixture, centre)[0]
    if mixture.experts.channels > 1:
        span = reach[:, None] * mean_errors(mixture, inference, centre)[0]
        lower, upper = mean - span, mean + span
        return (mean, np.maximum(lower, 0), np.minimum(upper, 1)) if mixture.experts.classes else (mean, lower, upper)
    panel = mixture.design.panel(centre)  # (p, 1)
    span = reach * np.sqrt(predictor_covariance(inference, panel)[:, 0, 0, 0])
    at = mixture.experts.transformed(panel.T)  # one coefficient: the linear predictor there
    fixed = np.zeros(at.shape_parameters)
    ends = np.sort([at.moved(sign * span, fixed).mean(np.ones((1, 1)))[:, :, 0] for sign in (-1, 1)], axis=0)
    own = slice(1, None) if mixture.experts.classes else slice(None)  # of two classes the second
    return mean[:, own], ends[0][:, own], ends[1][:, own]


def mean_distances(estimator: FittedMixture, k: int, level: float) -> tuple[Array, Mask]:
    """Return each mean's distance from the overall mean in standard deviations, and whether it is more than chance."""
    inference, w = estimator.inference_, estimator.weights_
    means, first = inference.estimates.experts[:, :, 0], inference.estimates.gate.size  # (K, q)
    K, q = means.shape
    contrast = (np.arange(K) == k) - w
    own = slice(first, first + K * q)
    covariance = inference.covariance[own, own].reshape(K, q, K, q)
    error = np.sqrt(np.maximum(np.einsum("k,kqlq,l->q", contrast, covariance, contrast), 0.0))
    difference = contrast @ means
    within = np.exp(inference.estimates.log_shapes)  # (K, q) variances
    total = np.sqrt(w @ (within + (means - w @ means) ** 2))
    reach = quantile(level, inference.degrees_of_freedom().experts[k, :, 0])
    clear = np.abs(difference) > reach * error
    return difference / total, clear if inference.shows_expert(k) else np.ones(q, dtype=bool)


def has_gate_intervals(estimator: FittedMixture) -> bool:
    """Whether the intervals of the gate are shown."""
    return "gate" not in estimator.inference_.withheld


def effect_count(estimator: FittedMixture) -> int:
    """Return the number of effects that are looked at: those of experts and gates whose intervals are known."""
    K, outcomes = estimator.mixture_.K, len(response_names(estimator))
    speaking = sum(map(estimator.inference_.shows_expert, range(K)))
    if is_of_points(estimator):
        return 0 if K == 1 else speaking * outcomes
    gates = 0
    if estimator.mixture_.gate.reads_covariates and K > 1 and has_gate_intervals(estimator):
        gates = 1 if K == 2 else K
    experts, gate = (len(design.read) for design in estimator.coordinates_)
    shared = len(shared_places(estimator)) if speaking else 0
    return int(gate * gates + ((experts - shared) * speaking + shared) * outcomes)


def is_of_points(estimator: FittedMixture) -> bool:
    """Whether the model has no covariates, as a Gaussian mixture."""
    return bool(estimator.mixture_.design.d == 0)


def covariate_steps(estimator: FittedMixture, design: Design) -> list[Step]:
    """Return the step of each covariate: a standard deviation if known, 0 to 1 for a column of both, else a unit."""
    names, intercept = term_names(estimator), int(design.intercept)
    places = [j + intercept for j in design.read]
    return [_step(estimator, names[place], design, i, place) for i, place in enumerate(places)]


def _step(estimator: FittedMixture, name: str, design: Design, i: int, place: int) -> Step:
    centre, scale = float(design.centre[i]), float(design.scale[i])
    direction = f"the higher {name} is", f"the lower {name} is"
    if not is_standardised(estimator):
        return Step(name, place, 1.0, scale, f"per unit of {name}", *direction)
    category = estimator.columns_.category_of(name)
    if category is not None:
        column, level, reference = category
        words = f"where {column} is {level} rather than {reference}"
        return Step(name, place, 1.0, scale, words, f"where {column} is {level}", f"where {column} is {reference}")
    if 0 < centre < 1 and abs(scale**2 - centre * (1 - centre)) <= BINARY * scale**2:
        both = f"where {name} is 1", f"where {name} is 0"
        return Step(name, place, 1.0, scale, f"where {name} is 1 rather than 0", *both)
    return Step(name, place, scale, scale, f"per standard deviation of {name}", *direction)


def is_standardised(estimator: FittedMixture) -> bool:
    """Whether mean and standard deviation of each covariate are known."""
    design = estimator.coordinates_[0]
    return bool(design.intercept and not design.is_raw)


def _effect(
    step: Step, of: str, estimate: float, lower: float, upper: float, *, scale: float = 1.0, ratio: bool = True
) -> Effect:
    size = step.size
    return Effect(step, of, estimate * size, lower * size, upper * size, step.spread * abs(estimate) / scale, ratio)


def select_supported(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects whose interval excludes none, the strongest first; all, if there are no intervals."""
    supported = [each for each in effects if each.supported or not any(other.known for other in effects)]
    return sorted(supported, key=lambda each: -each.strength)

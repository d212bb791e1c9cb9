"""Effects of covariates within each kind: in all sites, at each site, in a further one, and without each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, nan, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from consilience.fit.inference import quantile
from consilience.fitted.effects import is_standardised
from consilience.fitted.protocols import FittedMixture, response_names
from consilience.report.kinds import LEVEL, RowKind
from consilience.report.run_evidence import BetweenSites, RunEvidence, WithoutUnits
from consilience.report.scale import NaturalStep, term_spreads
from consilience.report.wording import Words

FOR_PREDICTION = 4
"""Least number of sites for the prediction interval of a further one: with three it says nothing."""
MEANS = ("mean", "rate")
"""What experts multiply whose logarithm is linear in the covariates."""
Interval = tuple[float, float, float]
"""An estimate and the bounds of its interval."""


@dataclass(frozen=True)
class SiteEffect:
    """The effect at one site, with its share in the information of all sites; NaN where it is not known."""

    name: str
    interval: Interval
    weight: float


@dataclass(frozen=True)
class Agreement:
    """How far sites agree in one effect.

    Parameters
    ----------
    I2 : float
        Share of the variation between sites that chance does not explain.
    I2_interval : (float, float)
        Test-based interval (Higgins and Thompson 2002).
    tau : float
        Standard deviation between sites, for the step.
    p : float
        P-value of Cochran's Q.
    next_site : (float, float)
        Prediction interval of the effect at a further site (Higgins, Thompson and Spiegelhalter 2009).
    """

    I2: float
    I2_interval: tuple[float, float]
    tau: float
    p: float
    next_site: tuple[float, float]


@dataclass(frozen=True)
class KindEffect:
    """What goes with a step of a covariate within one kind, as changes of the linear predictor.

    Parameters
    ----------
    kind : RowKind
    step : NaturalStep
    response : str
        Name of one of several responses; empty if there is one.
    all : Interval
    sites : tuple of SiteEffect
    agreement : Agreement or None
    without : mapping of str to float
        The estimate without each institution.
    error : float
        Standard error, without the variance between sites if changes without sites are measured in it.
    """

    kind: RowKind
    step: NaturalStep
    response: str
    all: Interval
    sites: tuple[SiteEffect, ...] = ()
    agreement: Agreement | None = None
    without: Mapping[str, float] = field(default_factory=dict)
    error: float = nan

    @property
    def is_shown(self) -> bool:
        """Whether the interval excludes no effect."""
        return not self.all[1] <= 0 <= self.all[2]

    @property
    def title(self) -> str:
        """The effect at the beginning of a line, within a kind that is known there."""
        return f"{f'{self.response}: ' if self.response else ''}{self.step.title}"

    @property
    def whole_title(self) -> str:
        """The effect with its kind."""
        return f"{self.kind.title}: {self.step}{f', {self.response}' if self.response else ''}"


def find_effects(
    model: FittedMixture, evidence: RunEvidence | None, kinds: tuple[RowKind, ...], steps: list[NaturalStep]
) -> list[KindEffect]:
    """Return the effect of each step within each kind on each response: all kinds of a step beside each other."""
    names = response_names(model)
    of = [""] if len(names) == 1 else names
    return [
        _effect(model, evidence, kind, step, c=c, response=name)
        for c, name in enumerate(of)
        for step in steps
        for kind in kinds
    ]


def _effect(
    model: FittedMixture, evidence: RunEvidence | None, kind: RowKind, step: NaturalStep, *, c: int, response: str
) -> KindEffect:
    k, t, inference = kind.expert, step.place, model.inference_
    bounds = (inference.estimates, *inference.interval(LEVEL))
    estimate, lower, upper = (float(step.size * part.experts[k, c, t]) for part in bounds)
    joint = (estimate, min(lower, upper), max(lower, upper))
    if evidence is None:
        return KindEffect(kind, step, response, joint)
    without, error = _without(model, evidence.without, k, c, step)
    return KindEffect(
        kind,
        step,
        response,
        joint,
        _at_sites(evidence, k, c, step),
        _agreement(model, evidence.between, k, c, step),
        without,
        error,
    )


def change_in_units(
    model: FittedMixture, words: Words, kind: RowKind, step: NaturalStep, steps: Sequence[NaturalStep]
) -> Interval:
    """Return how far the typical response after a step is from that before it, in units; NaN if that is no number.

    Before the step the row is the average one, and at the reference of the category that the step changes. The interval
    is of the delta method.
    """
    experts, k, inference = model.mixture_.experts, kind.expert, model.inference_
    is_ratio = words.response.back == "exp" or experts.multiplied in MEANS
    if not (words.response.unit and is_ratio and is_standardised(model)) or experts.q > 1 or experts.size_name:
        return nan, nan, nan
    before = np.nan_to_num([mean for mean, _ in term_spreads(model)])  # those that no expert reads are not known
    before[0] = 1.0
    before[[each.place for each in steps if each.column == step.column and each.is_level]] = 0.0
    after = before.copy()
    after[step.place] += step.size
    b, p = inference.estimates.experts[k, 0], len(before)
    low, high = np.exp(before @ b), np.exp(after @ b)
    slope, first = high * after - low * before, inference.estimates.gate.size + k * p
    covariance = inference.covariance[first : first + p, first : first + p]
    error = sqrt(slope @ covariance @ slope) if inference.shows_expert(k) else nan
    reach = float(quantile(LEVEL, inference.degrees_of_freedom().experts[k, 0, step.place])) * error
    return float(high - low), float(high - low - reach), float(high - low + reach)


def _at_sites(evidence: RunEvidence, k: int, c: int, step: NaturalStep) -> tuple[SiteEffect, ...]:
    """Return the effect at each site; nothing where a method gets no estimates of single sites."""
    found = evidence.coefficients
    if found is None:
        return ()
    variances = found.variances[:, k, c, step.place]
    reach = ndtri(0.5 + LEVEL / 2) * np.sqrt(variances) * abs(step.size)
    information = 1 / variances
    weights = information / np.nansum(information) if np.isfinite(information).any() else information
    at = found.estimates[:, k, c, step.place] * step.size
    rows = zip(evidence.sites, at, at - reach, at + reach, weights, strict=True)
    return tuple(SiteEffect(site.name, (float(b), float(low), float(high)), float(w)) for site, b, low, high, w in rows)


def _agreement(model: FittedMixture, found: BetweenSites | None, k: int, c: int, step: NaturalStep) -> Agreement | None:
    if found is None:
        return None
    at = c * model.mixture_.design.p + step.place
    if at >= found.Q.shape[1] or not np.isfinite(found.Q[k, at]) or found.df[k, at] < 1:
        return None
    Q, df, tau2 = (float(part[k, at]) for part in (found.Q, found.df, found.tau2))
    error = float(model.inference_.standard_errors().experts[k, c, step.place])
    reach = float(stdtrit(df - 1, 0.5 + LEVEL / 2)) * sqrt(error**2 + tau2) if df + 1 >= FOR_PREDICTION else nan
    centre = float(model.inference_.estimates.experts[k, c, step.place])
    ends = sorted(step.size * (centre + sign * reach) for sign in (-1, 1))
    return Agreement(
        float(found.I2[k, at]),
        I2_interval(Q, df),
        sqrt(max(tau2, 0.0)) * abs(step.size),
        float(found.p_value[k, at]),
        (ends[0], ends[1]),
    )


def I2_interval(Q: float, df: float) -> tuple[float, float]:
    """Return the test-based 95 % interval of I² (Higgins and Thompson 2002).

    Examples
    --------
    >>> [round(end, 2) for end in I2_interval(8.0, 4.0)]
    [0.0, 0.82]
    """
    k = df + 1
    if k < 3 or Q <= 0:
        return nan, nan
    H = log(sqrt(Q / df))
    if k < Q:
        error = 0.5 * (log(Q) - log(df)) / (sqrt(2 * Q) - sqrt(2 * k - 3))
    else:
        error = sqrt(1 / (2 * (k - 2)) * (1 - 1 / (3 * (k - 2) ** 2)))
    return _bound(error, H, -1), _bound(error, H, 1)


def _bound(error: float, log_H: float, sign: int) -> float:
    return max(0.0, 1 - 1 / exp(log_H + sign * float(ndtri(0.975)) * error) ** 2)


def _without(
    model: FittedMixture, found: WithoutUnits | None, k: int, c: int, step: NaturalStep
) -> tuple[dict[str, float], float]:
    """Return the effect without each institution, and the standard error in which changes are measured."""
    at = model.inference_.estimates
    if found is None:
        return {}, nan
    _, C, p = at.experts.shape
    i = at.gate.size + (k * C + c) * p + step.place
    centre = float(at.experts[k, c, step.place])
    errors = model.inference_.deviations() if found.errors is None else found.errors
    changed = {
        unit: step.size * (centre + float(change[i])) for unit, change in zip(found.units, found.changes, strict=True)
    }
    return {unit: value for unit, value in changed.items() if np.isfinite(value)}, float(errors[i]) * abs(step.size)

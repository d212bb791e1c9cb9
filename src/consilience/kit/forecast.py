"""What a study with noise will know: standard errors before anything is spent, and whether the study can succeed.

A forecast reads no row. It is computed from the study, a public start and covariates that are drawn from the
dictionary, with the formula by which the run itself computes its standard errors (:mod:`consilience.fit.private_step`).
For n rows over several sites the variance of an estimate is ``a / n + b v / n²``, where v is the variance of the noise
of all sites: one step serves all numbers of rows and all ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from consilience.columns import Column
from consilience.errors import InvalidInputError, RefusedError
from consilience.estimators.federated import adopt_fit, specification_of
from consilience.fit.climb import MethodStop
from consilience.fit.parameters import jacobian
from consilience.fit.private_step import Forecast, PublicStep, planned_noise, reach_of, schedule
from consilience.fitted.protocols import parameter_keys
from consilience.kit.policy.policy import Policy, PrivacyRules
from consilience.kit.spending import check_spending, check_study
from consilience.kit.study import PrivacyTerms, Study
from consilience.kit.study_model import estimators_of, private_method, task_of
from consilience.kit.study_terms import draw_terms
from consilience.methods.private_scoring import ended, shorter_steps
from consilience.model import FAMILIES, Mixture, Rows
from consilience.model.information import coefficient_slice, gate_slice, move_parameters, shape_slice
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array
from consilience.numerics.budget import epsilon_of, rho_of

EPSILONS = (1.0, 3.0, 8.0)
"""Values of ε of every forecast, beside that of the study."""
SITE_PROFILES = ("hospital", "research")
"""Profiles for sites; "open" is for tests."""
Outlook = Literal["good", "doubtful", "hopeless"]
DOUBTFUL, HOPELESS = 1.75, 3.0
"""Forecast, in standard errors without noise, that is the precision of a third of the rows, and of a ninth.

From the first on, a part of the runs does not settle; at the second, the largest site alone often knows as much.
"""
FLAT = 1e-3
"""Singular value of the slope of a total, in units of the largest, below which a direction is lost."""
FEWEST = 10.0
"""Rows for each parameter below which the forecast is not reliable: the likelihood itself is not."""


@dataclass(frozen=True, eq=False)
class StudyForecast:
    """Standard errors that a study with noise will have, if its start is right and the run settles.

    Parameters
    ----------
    terms : PrivacyTerms
        Those of the study.
    parameters : tuple of (str, int, str, str)
        Part, expert, response and term of each reported parameter, in the words of the study.
    step : PublicStep
        At the start, without damping.
    reported : (L, P) array
        Derivative of the reported parameters by the free ones.
    guessed : bool
        Whether there was no public start, so that standard errors are known in units of those without noise only.
    """

    terms: PrivacyTerms
    parameters: tuple[tuple[str, int, str, str], ...]
    step: PublicStep
    reported: Array
    guessed: bool

    @property
    def P(self) -> int:
        """Number of free parameters."""
        return self.step.mixture.parameter_count

    @property
    def lost(self) -> int:
        """Number of directions of which totals say nothing at the start, besides parameters at a bound."""
        values = np.linalg.svd(self.step.slope, compute_uv=False)
        bounded = np.count_nonzero(np.diagonal(self.step.information) <= 0)
        return max(int(np.count_nonzero(values < FLAT * values[0])) - int(bounded), 0)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """ε of the study and the usual ones, in order."""
        return tuple(sorted({self.terms.epsilon, *EPSILONS}))

    def rounds(self, *, far: bool = False) -> int:
        """Return the number of rounds, 1 for one file; ``far`` if the first one finds that the start is far."""
        return len(self._shares(far=far))

    def ratio(self, n: float, sites: int, epsilon: float | None = None, *, far: bool = False) -> float:
        """Return the root mean square of the standard errors, in units of those of all rows without noise."""
        return Forecast.at(self.step, n, self._noise(sites, epsilon, far=far)).ratio

    def errors(self, n: float, sites: int, epsilon: float | None = None, *, far: bool = False) -> Array:
        """Return the standard error of each reported parameter ``(L,)``."""
        return self._reported(self.step.covariance(n, self._noise(sites, epsilon, far=far)))

    def pooled(self, n: float) -> Array:
        """Return the standard error of each reported parameter in a fit to all rows without noise, ``(L,)``."""
        return self._reported(self.step.factor @ self.step.factor.T / n)

    def rows_needed(self, ratio: float, sites: int, epsilon: float | None = None) -> float:
        """Return the number of rows in all for which the forecast is a ratio; infinite if there is none."""
        clip, noise = self._parts(sites, epsilon)
        return noise / (ratio**2 - clip) if ratio**2 > clip else np.inf

    def epsilon_needed(self, ratio: float, n: float, sites: int) -> float:
        """Return the least ε for which the forecast is a ratio; infinite if there is none."""
        clip, noise = self._parts(sites, self.terms.epsilon)
        if ratio**2 <= clip:
            return np.inf
        rho = float(rho_of(self.terms.epsilon, self.terms.delta)) * noise / n / (ratio**2 - clip)
        return epsilon_of(rho, self.terms.delta)

    def _parts(self, sites: int, epsilon: float | None) -> tuple[float, float]:
        """Return a and b of the squared ratio ``a + b / n``: of the clip, and of the noise."""
        clip, with_noise = self.ratio(1.0, 1, np.inf) ** 2, self.ratio(1.0, sites, epsilon) ** 2
        return clip, with_noise - clip

    def _noise(self, sites: int, epsilon: float | None, *, far: bool = False) -> float:
        epsilon = self.terms.epsilon if epsilon is None else epsilon
        if np.isinf(epsilon):
            return 0.0
        shares = self._shares(far=far)
        rho = float(rho_of(epsilon, self.terms.delta)) / sum(shares)
        rows_each = 1 if self.terms.persons is None else self.terms.persons.rows
        return planned_noise(self.step, [rho * share for share in shares], sites, rows_each)

    def _shares(self, *, far: bool) -> tuple[int, ...]:
        if self.terms.exchange == "file":
            return (1,)  # the sums of all steps of a file count, as one sum with the whole budget
        damping, shares = schedule(self.terms.rounds)
        rest = list(zip(damping, shares, strict=True))[1:]
        return (shares[0], *(share for _, share in shorter_steps(rest))) if far else shares

    def _reported(self, covariance: Array) -> Array:
        variances: Array = np.einsum("lp,pq,lq->l", self.reported, covariance, self.reported)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)))

    @cached_property
    def smallest(self) -> float:
        """Number of rows in all below which there are too few for the parameters."""
        return FEWEST * self.P


def forecast_study(study: Study, start: Mixture | None = None) -> StudyForecast:
    """Return the forecast of a study with noise; no row is read.

    Parameters
    ----------
    study : Study
    start : Mixture, optional
        Public start of the run. Without one, it is guessed from the dictionary (:func:`guess_start`).
    """
    if study.privacy is None:
        raise InvalidInputError("a forecast is for studies with noise: this one has no table [privacy]")
    models = estimators_of(study)
    task, method = task_of(study, models), private_method(study, study.privacy)
    if start is None:
        check_guessable(study)
    given = guess_start(study) if start is None else start
    problem, X = method.posed(task, given)
    here = problem.from_start(given)
    stop = MethodStop("nothing was asked", converged=False)
    fit = problem.fit(ended(here, X, task.seed, float(len(X)), stop), without="nothing was asked")
    keys = parameter_keys(adopt_fit(models[0], fit))
    kept = [i for i, key in enumerate(keys) if key is not None]
    named = tuple(key for key in keys if key is not None)
    return StudyForecast(
        study.privacy, named, PublicStep.at(here, X), jacobian(here, fit.permutation)[kept], start is None
    )


# ---------------------------------------------------------------- a guess of the start

WITHIN = 6.0
"""Standard deviations in the range of the response."""
SLOPE, GATE, TIGHTER = 0.3, 0.6, -1.0
"""Slopes of experts and of the gate, and change of log variances, in the guess of a start."""


def check_guessable(study: Study) -> None:
    """Raise an error where a guess of the start makes no forecast."""
    family = FAMILIES[study.model.family]
    if max(study.model.experts) > 2 or family.classes or family.link == "logit":
        raise InvalidInputError(
            "a forecast for three and more experts, or for a response of a few classes, needs the public start "
            "(--start model.json): how well experts are told apart depends on it, and a guess would be far off"
        )


def guess_start(study: Study) -> Mixture:
    """Guess a mixture from the dictionary of a study: experts that are well apart in a response over its range.

    It serves forecasts in units of the standard errors without noise, which depend on the number of parameters and rows
    much more than on the mixture; not standard errors themselves, and not a run.
    """
    rng = np.random.default_rng([study.seed, 3])
    X = draw_terms(study, 2000, rng)
    specification = specification_of(estimators_of(study)[0])
    blank = specification.blank(column_summary(Rows(X, _responses(study.response, len(X), rng))))
    delta, K = np.zeros(blank.parameter_count), blank.K
    place = coefficient_slice(blank)
    size = reach_of(blank, X)[place].reshape(K, -1)
    apart = np.linspace(-1.0, 1.0, K) if K > 1 else np.zeros(1)
    signs = np.where(np.arange(size.shape[1]) % 2, 1.0, -1.0)
    slopes = SLOPE * np.outer(np.where(np.arange(K) % 2, -1.0, 1.0), signs)
    slopes[:, 0] = apart
    delta[place] = (size * slopes).ravel()
    if blank.gate.reads_covariates and K > 1:
        gate = delta[gate_slice(blank)].reshape(K - 1, -1)
        gate += GATE * np.where(np.arange(gate.shape[1]) % 2, 1.0, -1.0)
        gate[:, 0] = 0.0
        delta[gate_slice(blank)] = gate.ravel()
    if blank.experts.link == "identity":
        shapes = np.full((blank.experts.shape_parameters // blank.experts.shapes, blank.experts.shapes), -TIGHTER)
        shapes[:, 0] = TIGHTER  # scales; degrees of freedom grow
        delta[shape_slice(blank)] = shapes.ravel()
    return move_parameters(blank, delta)


def _responses(column: Column, m: int, rng: np.random.Generator) -> Array:
    """Draw responses over the range of their column, ``(m, 1)``; classes by their places."""
    if column.is_category:
        return rng.integers(len(column.levels), size=m).astype(float)[:, None]
    low, high = (0.0 if end is None else end for end in (column.rule.low, column.rule.high))
    if low >= high:
        low, high = low - WITHIN / 2, low + WITHIN / 2
    found: Array = np.clip(rng.normal((low + high) / 2, (high - low) / WITHIN, size=m), low, high)[:, None]
    return found


# ---------------------------------------------------------------- what is said of it


def outlook(forecast: StudyForecast, rows: Sequence[int], epsilon: float | None = None) -> Outlook:
    """Return whether a study can succeed with this many rows at each site."""
    n = sum(rows)
    ratio = forecast.ratio(n, len(rows), epsilon)
    if forecast.lost or ratio > HOPELESS or n < forecast.smallest:
        return "hopeless"
    return "doubtful" if ratio > DOUBTFUL else "good"


def say_outlook(forecast: StudyForecast, rows: Sequence[int], epsilon: float | None = None) -> str:
    """Say in plain words whether a study can succeed, and what would help."""
    n, sites = sum(rows), len(rows)
    ratio = forecast.ratio(n, sites, epsilon)
    if n < forecast.smallest:
        return (
            f"This study cannot succeed: {n:,} rows are too few for {forecast.P} parameters, with or without noise; "
            f"{forecast.smallest:,.0f} or more are needed. More rows, fewer experts or fewer columns would help; a "
            "larger epsilon would not."
        )
    if forecast.lost:
        return (
            f"This study cannot succeed: at its start, rows say nothing of {forecast.lost} combinations of its "
            f"{forecast.P} parameters. Fewer experts or columns would help, or another start; more rows or a larger "
            "epsilon would not."
        )
    found = outlook(forecast, rows, epsilon)
    if found == "good":
        return (
            f"Standard errors will be about {ratio:.2f} times those of a fit to all rows without noise, if the run "
            "settles."
        )
    head = "This study cannot succeed" if found == "hopeless" else "This study may fail"
    said = f"{head}: with noise its standard errors would be {ratio:.1f} times those without."
    return f"{said} {_help(forecast, rows, epsilon)}"


def _help(forecast: StudyForecast, rows: Sequence[int], epsilon: float | None) -> str:
    """Say what would make the forecast good."""
    n, sites = sum(rows), len(rows)
    more, larger = forecast.rows_needed(DOUBTFUL, sites, epsilon), forecast.epsilon_needed(DOUBTFUL, n, sites)
    clip, now = forecast.ratio(n, sites, np.inf) ** 2, forecast.ratio(n, sites, epsilon) ** 2
    fewer = int(forecast.P * (DOUBTFUL**2 - clip) / (now - clip)) if now > clip else 0  # noise grows as P
    ways = [f"{np.ceil(more / 100) * 100:,.0f} rows in all"] * bool(np.isfinite(more))
    ways += [f"epsilon = {np.ceil(larger * 10) / 10:.1f}"] * bool(larger <= max(EPSILONS))
    ways += [f"about {fewer} parameters in place of {forecast.P} (fewer experts or columns)"] * (
        2 <= fewer < forecast.P
    )
    if not ways:
        return "Neither more rows nor a larger epsilon makes it good: use fewer experts or columns."
    return f"One of these would help: {'; '.join(ways)}."


def doubts_beforehand(study: Study, start: Mixture | None, sites: int, rows: Sequence[int] = ()) -> list[str]:
    """Return what people should know before a run begins: what no profile answers, and whether the study can succeed.

    Parameters
    ----------
    study : Study
    start : Mixture or None
    sites : int
    rows : sequence of int
        Rows of each site, if they are known.
    """
    refusals = profile_refusals(study)
    said = []
    if all(refusals.values()):
        reasons = "; ".join(f"{name}: {why}" for name, why in refusals.items())
        said.append(f"No shipped profile answers this study, unless sites change their policy. {reasons}")
    if study.privacy is None:
        return said
    forecast = forecast_study(study, start)
    if rows:
        return said + [say_outlook(forecast, rows)] * (outlook(forecast, rows) != "good")
    needed = max(forecast.rows_needed(DOUBTFUL, sites), forecast.smallest)
    if forecast.lost or not np.isfinite(needed):
        return [*said, say_outlook(forecast, (10**6,) * sites)]
    enough = f"With {np.ceil(needed / 100) * 100:,.0f} rows or more at {sites} sites this study can succeed"
    return [*said, f"{enough}; with fewer it may fail after budgets are spent. --rows 350,600,... checks it here"]


# ---------------------------------------------------------------- budgets of the profiles


def runs_allowed(rules: PrivacyRules, privacy: PrivacyTerms) -> int:
    """Return how many runs of a study a budget allows of which nothing was spent."""
    return int(rho_of(rules.max_epsilon_ever, rules.max_delta) / rho_of(privacy.epsilon, privacy.delta))


def profile_refusals(study: Study) -> dict[str, str]:
    """Return for each shipped profile for sites why it refuses a study; empty for one that answers it."""
    return {name: _refusal(Policy.of_profile(name), study) for name in SITE_PROFILES}


def _refusal(policy: Policy, study: Study) -> str:
    try:
        policy.check_way(study.way)
        if study.privacy is not None:
            check_study(policy.privacy, study.privacy)
            check_spending(policy.privacy, Fraction(0), rho_of(study.privacy.epsilon, study.privacy.delta))
    except RefusedError as error:
        return str(error)
    return ""

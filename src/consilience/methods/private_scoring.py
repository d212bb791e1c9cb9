"""Private scoring: maximum likelihood from noisy sums of clipped scores, with standard errors that count the noise.

Sites are asked for sums of the contributions of their rows at a mixture (:mod:`consilience.model.contributions`); each
adds discrete Gaussian noise of its own budget. What such a sum says is computed from covariates that are public
(:mod:`consilience.fit.private_step`), so that no other question is asked.

In rounds, the coordinator takes a step from the total over sites, and asks again. By one file, each site takes steps
alone (:mod:`consilience.fit.own_steps`) and sends the noisy sums of all of them; the coordinator finds the mixture that
explains the sums of all sites (:mod:`consilience.fit.noisy_totals`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Fit, Problem
from consilience.fit.climb import MethodStop
from consilience.fit.inference import TWO_OUTCOMES, Inference, InferredFit, withhold_inference
from consilience.fit.noisy_totals import Combined, NoisyTotal, explain_totals, rows_of
from consilience.fit.own_steps import PARTS
from consilience.fit.parameters import identification_mask, jacobian, parameters
from consilience.fit.private_step import (
    AVERAGED,
    UNSETTLED,
    Forecast,
    PublicStep,
    averaged_noise,
    schedule,
    simulated_rows,
)
from consilience.messages import Dialogue, Each, NoisySteps, NoisySums, PrivateScores, PrivateSteps, Several, Total
from consilience.methods.task import Method, Task, check_whole
from consilience.model import Mixture, Rows, expect
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array
from consilience.numerics.budget import check_delta, rho_of

FAR = 3.0
"""q of the first total, without noise about the squared distance of the start, above which more steps are taken."""
WIDER = 1.5
"""Standard errors in units of the forecast above which a run has not settled."""
MISFIT, DEVIATIONS = 1.3, 4.0
"""Misfit of the mixture to the noisy sums of files above which a run has not settled; more if there are few sums, whose
misfit varies: so many of its standard deviations above 1."""
Exchange = Literal["rounds", "file"]
"""How sites answer: with a sum in each round, or with one file."""
KIND = "private"
NO_START = (
    "PrivateScoring needs a public start: pass start=a fitted model, of one site that may release its fit, of earlier "
    "or of public data. Starts that are found privately are not offered: for three and more experts none is reliable"
)
NO_COVARIATES = (
    "PrivateScoring needs to know what covariates are like without asking for them: pass covariates=public or "
    "simulated rows of them, such as those of the start"
)


@dataclass(frozen=True)
class Privacy:
    """What a run may have disclosed about a row: (ε, δ)-differential privacy at each site.

    Parameters
    ----------
    epsilon, delta : float
    unit : str
        What is protected: ``"row"``.
    rhos : tuple of Fraction
        ρ of each round at each site, or of its one file; they add.
    exchange : {"rounds", "file"}

    Examples
    --------
    >>> Privacy(3.0, 1e-6, "row", (Fraction(1, 40), Fraction(1, 20))).rho
    Fraction(3, 40)
    """

    epsilon: float
    delta: float
    unit: str
    rhos: tuple[Fraction, ...]
    exchange: Exchange = "rounds"

    @property
    def rho(self) -> Fraction:
        """ρ of the run at each site."""
        return sum(self.rhos, Fraction(0))

    def __str__(self) -> str:
        sent = "in one file" if self.exchange == "file" else f"in {len(self.rhos)} rounds"
        return f"ε = {self.epsilon:g}, δ = {self.delta:g} for each {self.unit} of a site, {sent}"


@dataclass(frozen=True, eq=False)
class PrivateFit(InferredFit):
    """A fit from noisy sums, with standard errors that count the noise.

    Its log-likelihood is not known: it would be one more question.

    Parameters
    ----------
    privacy : Privacy
    unsettled : str
        Reason why the run has not settled, and why it has no intervals; empty if it has.
    surprises : tuple of float
        ``q`` of each round: the squared total in units of its covariance, for each parameter. After a step the noise
        that it followed is a part of the next total. Of files, the misfit of the mixture to their sums.
    forecast : Forecast
        Standard errors that were forecast at the start.

    Examples
    --------
    >>> from consilience import Federation, MixtureOfRegressions, PrivateScoring
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 1))
    >>> y = 1 + X[:, 0] + rng.normal(size=3000)
    >>> start = MixtureOfRegressions(1).fit(X[:200], y[:200])
    >>> method = PrivateScoring(epsilon=8, covariates=rng.normal(size=(1500, 1)))
    >>> result = Federation({"north": (X, y)}).fit(MixtureOfRegressions(1), method, start=start)
    >>> type(result.fit).__name__, result.privacy.epsilon, len(result.privacy.rhos) == len(result.fit.surprises)
    ('PrivateFit', 8, True)
    """

    privacy: Privacy
    unsettled: str
    surprises: tuple[float, ...]
    forecast: Forecast

    @property
    def settled(self) -> bool:
        """Whether the last total is as small as noise and chance make it."""
        return not self.unsettled

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to trust the result as a whole."""
        return (*super().doubts, *filter(None, [self.unsettled]))


@dataclass(frozen=True, eq=False)
class ScoredRound(NoisyTotal):
    """A round as it was answered: the total over sites, and the mixture after its step."""

    end: Mixture

    def surprise(self, rows: float, before: float = 0.0) -> float:
        """Return q of the total, where the noise of the round before, of this variance, has moved the mixture too."""
        return self.step.surprise(self.total, rows, self.noise + before)


@dataclass(frozen=True)
class PrivateScoring(Method):
    """Maximum likelihood with differential privacy for each row, whatever the coordinator asks.

    Whatever a site sends is (ε, δ)-differentially private for one row added or removed. The guarantee is that of each
    site's own rows; the rows of a person who has some at several sites, or several at one, are several rows.

    Parameters
    ----------
    epsilon : float
        ε; 1 is strict, 8 is lax.
    delta : float
        δ; below one in the number of rows.
    unit : {"row"}
        What is protected.
    rounds : int
        Number of steps in rounds. If the first total says that the start is far, the same budget is spent on more and
        shorter steps.
    start : estimator, Mixture or None
        Public start: a model of the same form. None for that of :meth:`consilience.Federation.fit`, or of the
        estimator.
    covariates : (m, d) array
        Public or simulated rows of covariates that are like those of the sites. Steps and standard errors are computed
        from them; the guarantee does not depend on them. If a column varies much less here than at the sites, steps are
        too long, and the run does not settle.
    exchange : {"rounds", "file"}
        Whether sites answer in each round, or take as many steps as the start needs alone and send one file.

    Examples
    --------
    >>> rho, parts = PrivateScoring(epsilon=3, covariates=np.zeros((2, 1))).budget
    >>> round(float(rho * parts), 4), parts
    (0.1851, 8)
    """

    epsilon: float
    delta: float = 1e-6
    unit: str = "row"
    rounds: int = 5
    start: Any = None
    covariates: ArrayLike | None = field(default=None, repr=False)
    exchange: Exchange = "rounds"

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_whole("rounds", self.rounds)
        rho_of(self.epsilon, self.delta)
        if self.unit != "row":
            raise InvalidInputError(f"unit={self.unit!r}: expected 'row'; groups and persons are not protected as such")
        if self.exchange not in get_args(Exchange):
            raise InvalidInputError(f"exchange={self.exchange!r}: expected 'rounds' or 'file'")
        if self.covariates is None:
            raise InvalidInputError(NO_COVARIATES)

    @property
    def budget(self) -> tuple[Fraction, int]:
        """ρ of each part of the budget of a site, and the number of parts."""
        parts = PARTS if self.exchange == "file" else sum(schedule(self.rounds)[1])
        return rho_of(self.epsilon, self.delta) / parts, parts

    def dialogue(self, task: Task) -> Dialogue[Sequence[Fit | None]]:
        """Return the dialogue that fits the specification of a task."""
        problem, start, X = self.public(task)
        if self.exchange == "file":
            sent: Mapping[str, NoisySteps] = yield Each(PrivateSteps(start, X))
            return [self.fit_from_files(problem, X, start, list(sent.values()), task.seed)]
        rounds = yield from self.scored(start, X)
        return [self.fit(problem, X, start, rounds, task.seed)]

    def steps_question(self, task: Task) -> PrivateSteps:
        """Return the one question to a site that takes its steps alone."""
        _, start, X = self.public(task)
        return PrivateSteps(start, X)

    # ------------------------------------------------------------------ what is public

    def public(self, task: Task) -> tuple[Problem, Mixture, Array]:
        """Return the problem, the start in its coordinates, and simulated covariates ``(m, d)``; all without a row."""
        specification = task.only(type(self).__name__)
        given = task.start if self.start is None else getattr(self.start, "mixture_", self.start)
        if not isinstance(given, Mixture):
            raise InvalidInputError(NO_START)
        X = self.simulated(task, given)
        Y, _ = given.sample(X, np.random.default_rng(task.seed))
        problem = task.problem(specification, column_summary(Rows(X, Y)))
        return problem, problem.from_start(given), X

    def simulated(self, task: Task, start: Mixture) -> Array:
        """Return public or simulated rows of covariates, ``(m, d)``."""
        rng, m = np.random.default_rng([task.seed, 1]), simulated_rows(start.parameter_count)
        X = np.asarray(self.covariates, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != task.d or len(X) < 2 or not np.all(np.isfinite(X)):
            raise InvalidInputError(f"covariates: expected rows of {task.d} finite numbers, got shape {X.shape}")
        return X if len(X) == m else X[rng.integers(len(X), size=m)]

    # ------------------------------------------------------------------ rounds

    def scored(self, start: Mixture, X: Array) -> Dialogue[list[ScoredRound]]:
        """Take the steps; after the first total, decide on their number."""
        damping, shares = schedule(self.rounds)
        plan = list(zip(damping, shares, strict=True))
        here, rounds, place = start, list[ScoredRound](), 0
        while plan:
            lam, share = plan.pop(0)
            done = yield from ask_round(PublicStep.at(here, X, lam), place, share)
            here, place = done.end, place + share
            rounds.append(done)
            if len(rounds) == 1 and done.surprise(done.rows) > FAR:
                plan = shorter_steps(plan)
        return rounds

    def fit(self, problem: Problem, X: Array, start: Mixture, rounds: Sequence[ScoredRound], seed: int) -> PrivateFit:
        """Return the fit at the mean of the last ends, with its covariance and the verdict."""
        shares = [each.share for each in rounds]
        n = max(float(np.average([each.rows for each in rounds], weights=shares)), 1.0)
        last = rounds[-AVERAGED:]
        weights = [each.share for each in last]
        end = start.with_vector(np.average([each.end.to_vector() for each in last], axis=0, weights=weights))
        noise = averaged_noise([each.noise for each in last], weights)
        covariance = PublicStep.at(end, X).covariance(n, noise)
        expected = forecast_of(start, X, n, rounds)
        before = [0.0, *(each.noise for each in rounds)]
        surprises = tuple(each.surprise(n, noise) for each, noise in zip(rounds, before, strict=False))
        found = Ending(end, covariance, n, surprises, expected)
        unsettled = unsettled_reason(surprises[-1], found.errors, expected)
        return self.described(problem, X, found, seed, (unsettled, [self.budget[0] * share for share in shares]))

    def fit_from_files(
        self, problem: Problem, X: Array, start: Mixture, sent: Sequence[NoisySteps], seed: int
    ) -> PrivateFit:
        """Return the fit that explains the noisy sums of all files, with its covariance and the verdict."""
        places = [totals_of(steps, X) for steps in sent]
        combined = explain_totals(start, places, X)
        n = sum(map(rows_of, places))
        found = Ending(
            combined.mixture, combined.covariance, n, (combined.misfit,), forecast_of_files(start, X, places)
        )
        unsettled = unexplained_reason(combined, found.errors, found.forecast)
        return self.described(problem, X, found, seed, (unsettled, [self.budget[0] * PARTS]))

    def described(
        self, problem: Problem, X: Array, found: Ending, seed: int, verdict: tuple[str, Sequence[Fraction]]
    ) -> PrivateFit:
        """Return the fit of what was found, with the reason why it has not settled, and ρ of each answer."""
        unsettled, rhos = verdict
        privacy = Privacy(self.epsilon, self.delta, self.unit, tuple(rhos), self.exchange)
        sentence = f"the last total is {'more' if unsettled else 'no more'} than noise and chance"
        if self.exchange == "file":
            sentence = f"the files {'do not agree' if unsettled else 'agree'} with one mixture up to noise and chance"
        stop = MethodStop(sentence, converged=not unsettled)
        fit = problem.fit(ended(found.mixture, X, seed, found.rows, stop), without="no information was asked for")
        inference = private_inference(fit, found.covariance, unsettled)
        return PrivateFit(
            **(vars(fit) | {"inference": inference}),
            privacy=privacy,
            unsettled=unsettled,
            surprises=found.surprises,
            forecast=found.forecast,
        )


@dataclass(frozen=True, eq=False)
class Ending:
    """What noisy sums say: the mixture, the covariance of its free parameters, the number of rows, and how sure."""

    mixture: Mixture
    covariance: Array
    rows: float
    surprises: tuple[float, ...]
    forecast: Forecast

    @property
    def errors(self) -> Array:
        """Standard errors of the free parameters, ``(P,)``."""
        return np.sqrt(np.diagonal(self.covariance))


def ask_round(step: PublicStep, place: int, share: int) -> Dialogue[ScoredRound]:
    """Ask for the total at a step, with the noise of some parts of the budget, which are averaged."""
    asked = tuple(PrivateScores(step.mixture, step.factor, step.clip, place + i) for i in range(share))
    if share == 1:
        sums: NoisySums = yield Total(asked[0])
    else:
        several = yield Total(Several(asked))
        sums = reduce(add, several.items)
    found = NoisyTotal.of(step, sums.values, sums.variance, share)
    return ScoredRound(**vars(found), end=step.move(found.total, found.rows))


def shorter_steps(plan: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return a plan of more steps with the same parts: one part for each, and two for the last."""
    parts = sum(share for _, share in plan)
    if parts < len(plan) + 1:
        return list(plan)
    shares = [1] * (parts - 2) + [2]
    late = [lam for lam, _ in plan][-len(shares) :]
    early = [max((lam for lam, _ in plan), default=0.0)] * (len(shares) - len(late))
    return list(zip(early + late, shares, strict=True))


def forecast_of(start: Mixture, X: Array, n: float, rounds: Sequence[ScoredRound]) -> Forecast:
    """Forecast standard errors from the noise of the rounds as they were planned."""
    step = rounds[0].step if not rounds[0].step.damping else PublicStep.at(start, X)
    last = rounds[-AVERAGED:]
    noise = averaged_noise([each.noise for each in last], [each.share for each in last])
    return Forecast.at(step, n, noise)


def unsettled_reason(surprise: float, errors: Array, expected: Forecast) -> str:
    """Return the reason why a run has not settled; empty if it has."""
    if not surprise <= UNSETTLED:
        return (
            f"the run has not settled: the last total is {surprise:.3g} times what noise and chance give, at most "
            f"{UNSETTLED}; start from a model that is nearer, or spend more"
        )
    return wider_reason(errors, expected)


def wider_reason(errors: Array, expected: Forecast) -> str:
    """Return the reason why standard errors say that a run has not settled; empty if they do not."""
    wider = float(np.sqrt(np.mean((errors / expected.standard_errors) ** 2)))
    if not wider <= WIDER:
        return (
            f"the run has not settled: its standard errors are {wider:.3g} times those that were forecast at its "
            f"start, at most {WIDER}"
        )
    return ""


def totals_of(steps: NoisySteps, X: Array) -> list[NoisyTotal]:
    """Return the totals that a site sent, with what was asked."""
    parts = zip(steps.mixtures, steps.dampings, steps.shares, steps.sums, strict=True)
    return [
        NoisyTotal.of(PublicStep.at(mixture, X, float(lam)), sums.values, sums.variance, share)
        for mixture, lam, share, sums in parts
    ]


def forecast_of_files(start: Mixture, X: Array, places: Sequence[Sequence[NoisyTotal]]) -> Forecast:
    """Forecast standard errors from the rows and the noise of each place, if the start is right."""
    step = PublicStep.at(start, X)
    rows = [rows_of(totals) for totals in places]
    noises = [1 / sum(1 / each.noise for each in totals) for totals in places]
    weights = sum(np.linalg.pinv(step.covariance(n, noise)) for n, noise in zip(rows, noises, strict=True))
    pooled = np.diagonal(step.factor @ step.factor.T) / sum(rows)
    return Forecast(np.sqrt(np.diagonal(np.linalg.pinv(weights))), np.sqrt(pooled))


def unexplained_reason(combined: Combined, errors: Array, expected: Forecast) -> str:
    """Return the reason why files do not settle on a mixture; empty if they do."""
    most = max(MISFIT, 1 + DEVIATIONS * float(np.sqrt(2 / combined.freedom)))
    if not combined.stands or not combined.misfit <= most:
        return (
            f"the files have not settled on one mixture: what they say differs from it by {combined.misfit:.3g} times "
            f"what noise and chance give, at most {most:.3g}; start from a model that is nearer, or spend more"
        )
    return wider_reason(errors, expected)


def ended(mixture: Mixture, X: Array, seed: int, n: float, stop: MethodStop) -> Ascent:
    """Return the end of a run, with the statistics of simulated rows in place of those of the sites."""
    Y, _ = mixture.sample(X, np.random.default_rng(seed))
    statistics = expect(mixture, Rows(X, Y)).scaled(n / len(X))
    unknown = replace(statistics, log_likelihood=float("nan"), absolute=float("nan"))
    return Ascent(mixture, unknown, (float("nan"),), 0, 0, 0, stop)


def private_inference(fit: Fit, covariance: Array, unsettled: str) -> Inference:
    """Return standard errors from the covariance of the free parameters; withheld if the run has not settled."""
    estimates = parameters(fit.mixture)
    if reason := unsettled or (TWO_OUTCOMES if fit.two_outcomes and fit.mixture.K > 1 else ""):
        return withhold_inference(estimates, KIND, reason)
    J = jacobian(fit.ascent.mixture, fit.permutation)
    reported = J @ covariance @ J.T
    known = identification_mask(fit.ascent.mixture)
    return Inference(estimates, 0.5 * (reported + reported.T), KIND, float("nan"), {}, identified=known)

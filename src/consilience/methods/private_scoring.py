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
    Units,
    averaged_noise,
    schedule,
    simulated_groups,
    simulated_rows,
)
from consilience.messages import (
    Dialogue,
    Each,
    Masked,
    NoisySteps,
    NoisySums,
    PrivateLikelihoods,
    PrivateScores,
    PrivateSquares,
    PrivateSteps,
)
from consilience.methods.private_start import NO_RANGE, START_PARTS, private_start, responses_within
from consilience.methods.private_sums import LOST, SPARE, Purse, affordable
from consilience.methods.task import Method, QuestionKind, Task, check_whole
from consilience.model import Groups, Mixture, Rows, expect
from consilience.model.group_contributions import GroupedCovariates
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array
from consilience.numerics.budget import Budget, check_delta, rho_of
from consilience.numerics.linalg import symmetrise

FAR = 3.0
"""q of the first total, without noise about the squared distance of the start, above which more steps are taken."""
WIDER = 1.5
"""Standard errors in units of the forecast above which a run has not settled."""
PRIVATE_ROWS = 1500
"""Number of simulated rows of covariates if the start is found privately."""
MISFIT, DEVIATIONS = 1.3, 4.0
"""Misfit of the mixture to the noisy sums of files above which a run has not settled; more if there are few sums, whose
misfit varies: so many of its standard deviations above 1."""
Exchange = Literal["rounds", "file"]
"""How sites answer: with a sum in each round, or with one file."""
KIND = "private"
NO_START = (
    "PrivateScoring needs a public start: pass start=a fitted model, of one site that may release its fit, of earlier "
    "or of public data; or, for two Gaussian experts, start='private' with the range of the response"
)
NO_COVARIATES = (
    "PrivateScoring needs to know what covariates are like without asking for them: pass covariates=public or "
    "simulated rows of them, such as those of the start"
)

NO_GROUPS = (
    "unit='group' needs to know what groups are like without asking for them: pass groups=labels of the rows of "
    "covariates, with unit='group' and no other"
)
OF_ROWS = (
    "unit='group' needs rounds and a public start: what sums over groups say of another mixture than that they were "
    "asked at, as exchange='file' and start='private' need it, is known for rows only; leave these out"
)


@dataclass(frozen=True)
class Privacy:
    """What a run may have disclosed about a row or a person: (ε, δ)-differential privacy at each site.

    Parameters
    ----------
    epsilon, delta : float
    unit : str
        What is protected: ``"row"``, ``"group"``, or a person of whom so many rows count, ``"person with 4 rows"``.
    rhos : tuple of Fraction
        ρ of each round at each site, or of its one file; they add.
    sums : {"each", "masked"}
        Whether this holds for what each site sends, or for the sum over sites, if not more of them collude than the
        method states.
    exchange : {"rounds", "file"}

    Examples
    --------
    >>> from fractions import Fraction
    >>> from consilience.methods import Privacy
    >>> Privacy(3.0, 1e-6, "row", (Fraction(1, 40), Fraction(1, 20))).rho
    Fraction(3, 40)
    """

    epsilon: float
    delta: float
    unit: str
    rhos: tuple[Fraction, ...]
    sums: str = "each"
    exchange: Exchange = "rounds"

    @property
    def rho(self) -> Fraction:
        """ρ of the run at each site."""
        return sum(self.rhos, Fraction(0))

    def __str__(self) -> str:
        sent = "in one file" if self.exchange == "file" else f"in {len(self.rhos)} rounds"
        of = f"ε = {self.epsilon:g}, δ = {self.delta:g} for each {self.unit} of a site, {sent}"
        return of if self.sums == "each" else f"{of} of masked sums"


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
        Standard errors that were forecast at the start; if it was found privately, before the last two steps.

    Examples
    --------
    >>> import numpy as np
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
    """A round as it was answered: the total over sites, and the mixture after its step.

    ``sites`` is the number of sites whose sums were masked together; 0 if they were not masked.
    """

    end: Mixture
    sites: int = 0

    @classmethod
    def after(cls, step: PublicStep, sums: NoisySums, share: int, sites: int = 0) -> ScoredRound:
        """Return the round of which these are the sums over sites and over some parts of the budget, which average."""
        found = NoisyTotal.of(step, sums.values, sums.variance, share)
        return cls(**vars(found), end=step.move(found.total, found.rows), sites=sites)

    def surprise(self, rows: float, before: float = 0.0) -> float:
        """Return q of the total, where the noise of the round before, of this variance, has moved the mixture too."""
        return self.step.surprise(self.total, rows, self.noise + before)


@dataclass(frozen=True)
class PrivateScoring(Method):
    """Maximum likelihood with differential privacy for each row, whatever the coordinator asks.

    Whatever a site sends is (ε, δ)-differentially private for one row added or removed, or for all rows of one person
    or of one group.
    The guarantee is that of each site's own rows: of a person who has some at several sites, ρ of the sites adds.

    Parameters
    ----------
    epsilon : float
        ε; 1 is strict, 8 is lax.
    delta : float
        δ; below one in the number of rows.
    unit : {"row", "person", "group"}
        What is protected. Persons are the clusters of the rows. Groups are rows with one label
        (``groups`` of the rows): each contributes one score, whatever its number of rows is. Rows with groups are
        protected as groups only.
    rows_each : int
        For persons: number of rows of a person that count, the first in the order of the table; the others are left
        out. The noise is so many times as large. If it is above 1, standard errors take the rows of a person as
        independent.
    rounds : int
        Number of steps in rounds. If the first total says that the start is far, the same budget is spent on more and
        shorter steps.
    start : estimator, Mixture, "private" or None
        Public start: a model of the same form. None for that of :meth:`consilience.Federation.fit`, or of the
        estimator. ``"private"``: for two Gaussian experts, a start is found from sums with noise, for three quarters of
        the budget.
    response : (float, float), optional
        Public range of the response, for a private start.
    sums : {"each", "masked"}
        ``"each"``: every site adds noise of its own, and the guarantee is for what it sends. ``"masked"``: sites add
        shares of one noise, and mask their sums so that only the sum over all of them can be read; the guarantee is for
        that sum. Worth it from ten small sites on, or for ε = 1. Needs the package cryptography.
    colluding : int
        For masked sums: number of sites that may tell the coordinator their masks and their noise. If all but one do,
        ρ of that one is as many times as large as there are shares of the noise that are enough.
    covariates : (m, d) array
        Public or simulated rows of covariates that are like those of the sites. Steps and standard errors are computed
        from them; the guarantee does not depend on them. If a column varies much less here than at the sites, steps are
        too long, and the run does not settle.
    groups : (m,) array, optional
        For groups: labels of the rows of ``covariates``, which are then those of whole public or simulated groups.
        Their sizes, and how covariates vary within them, should be like those of the sites.
    exchange : {"rounds", "file"}
        Whether sites answer in each round, or take as many steps as the start needs alone and send one file.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import PrivateScoring
    >>> budget = PrivateScoring(epsilon=3, covariates=np.zeros((2, 1))).budget
    >>> round(float(budget.whole), 4), budget.parts
    (0.1851, 8)
    """

    epsilon: float
    delta: float = 1e-6
    unit: str = "row"
    rounds: int = 5
    rows_each: int = 1
    start: Any = None
    sums: str = "each"
    colluding: int = 1
    response: tuple[float, float] | None = None
    covariates: ArrayLike | None = field(default=None, repr=False)
    exchange: Exchange = "rounds"
    groups: ArrayLike | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_whole("rounds", self.rounds)
        rho_of(self.epsilon, self.delta)
        if self.unit not in ("row", "person", "group"):
            raise InvalidInputError(f"unit={self.unit!r}: expected 'row', 'person' or 'group'")
        check_whole("rows_each", self.rows_each)
        if self.unit != "person" and self.rows_each != 1:
            raise InvalidInputError("rows_each is for unit='person': a row is one row, and of a group all rows count")
        if (self.unit == "group") != (self.groups is not None):
            raise InvalidInputError(NO_GROUPS)
        if self.exchange not in get_args(Exchange):
            raise InvalidInputError(f"exchange={self.exchange!r}: expected 'rounds' or 'file'")
        if self.covariates is None:
            raise InvalidInputError(NO_COVARIATES)
        if self.sums not in ("each", "masked"):
            raise InvalidInputError(f"sums={self.sums!r}: expected 'each' or 'masked'")
        if self.exchange == "file" and (self.sums == "masked" or isinstance(self.start, str)):
            raise InvalidInputError(
                "exchange='file': sums='masked' and start='private' need rounds; start from a model, with sums='each'"
            )
        if self.unit == "group" and (self.exchange == "file" or isinstance(self.start, str)):
            raise InvalidInputError(OF_ROWS)
        if isinstance(self.start, str):
            check_private_start(self.start, self.response)
        check_whole("colluding", self.colluding, "a whole number", least=0)

    @property
    def budget(self) -> Budget:
        """What each site may spend."""
        parts = PARTS
        if self.exchange == "rounds":
            parts = sum(share for _, share in self.plan) + (START_PARTS if self.is_private_start else 0)
        rows_each = self.rows_each if self.unit == "person" else None
        return Budget(rho_of(self.epsilon, self.delta) / parts, parts, rows_each, self.unit == "group")

    @property
    def is_private_start(self) -> bool:
        """Whether the start is found from sums with noise."""
        return isinstance(self.start, str)

    @property
    def plan(self) -> list[tuple[float, int]]:
        """λ and parts of the budget of each step, if all goes well."""
        steps = list(zip(*schedule(self.rounds), strict=True))
        return steps if self.masked is None else [*steps, (0.0, SPARE)]

    @property
    def masked(self) -> int | None:
        """Number of colluding sites that masked sums tolerate; None if the answers of sites are not masked."""
        return self.colluding if self.sums == "masked" else None

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return the kinds of sums with noise."""
        if self.exchange == "file":
            return (QuestionKind(PrivateSteps, "for all steps together", 1),)
        if self.masked is not None:
            return (QuestionKind(Masked, "in each step, for a part of the budget", self.budget.parts),)
        found = [QuestionKind(PrivateScores, "in each step, for a part of the budget", self.budget.parts)]
        if self.is_private_start:
            found += [
                QuestionKind(PrivateSquares, "to find a start", 1),
                QuestionKind(PrivateLikelihoods, "to choose a start"),
            ]
        return found

    def dialogue(self, task: Task) -> Dialogue[Sequence[Fit | None]]:
        """Return the dialogue that fits the specification of a task."""
        if self.exchange == "file":
            problem, start, X = self.public(task)
            of_rows = covariates_of_rows(X)
            sent: Mapping[str, NoisySteps] = yield Each(PrivateSteps(start, of_rows))
            return [self.fit_from_files(problem, of_rows, start, list(sent.values()), task.seed)]
        purse = Purse(self.budget.parts, None if self.masked is None else task.sites)
        if self.is_private_start and self.response is not None:
            X = covariates_of_rows(self.simulated(task, PRIVATE_ROWS))
            Y = responses_within(self.response, len(X), task.q)
            problem = task.problem(task.only(type(self).__name__), column_summary(Rows(X, Y)))
            start = yield from private_start(problem, X, self.response, purse)
        else:
            problem, start, X = self.public(task)
        rounds = yield from self.scored(start, X, purse)
        return [self.fit(problem, X, start, rounds, purse.spent, task.seed)]

    def steps_question(self, task: Task) -> PrivateSteps:
        """Return the one question to a site that takes its steps alone."""
        _, start, X = self.public(task)
        return PrivateSteps(start, covariates_of_rows(X))

    # ------------------------------------------------------------------ what is public

    def public(self, task: Task) -> tuple[Problem, Mixture, Units]:
        """Return the problem, the start in its coordinates, and simulated covariates of units; all without a row."""
        given = task.start if self.start is None else getattr(self.start, "mixture_", self.start)
        if not isinstance(given, Mixture):
            raise InvalidInputError(NO_START)
        problem, X = self.posed(task, given)
        return problem, problem.from_start(given), X

    def posed(self, task: Task, start: Mixture) -> tuple[Problem, Units]:
        """Return the problem on public covariates with responses that the start draws, and these covariates."""
        P = start.parameter_count
        X = self.simulated(task, simulated_rows(P) if self.groups is None else simulated_groups(P))
        rows = drawn_rows(start, X, task.seed)
        return task.problem(task.only(type(self).__name__), column_summary(rows)), X

    def simulated(self, task: Task, m: int) -> Units:
        """Return public or simulated covariates of m units: of rows, ``(m, d)``, or of groups."""
        rng = np.random.default_rng([task.seed, 1])
        X = np.asarray(self.covariates, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != task.d or len(X) < 2 or not np.all(np.isfinite(X)):
            raise InvalidInputError(f"covariates: expected rows of {task.d} finite numbers, got shape {X.shape}")
        units = X if self.groups is None else public_groups(X, np.asarray(self.groups))
        return units if len(units) == m else units[rng.integers(len(units), size=m)]

    # ------------------------------------------------------------------ rounds

    def scored(self, start: Mixture, X: Units, purse: Purse) -> Dialogue[list[ScoredRound]]:
        """Take the steps that the purse pays for; after the first total, decide on their number."""
        plan, here, rounds = affordable(self.plan, purse.left), start, list[ScoredRound]()
        while plan:
            lam, share = plan.pop(0)
            step = PublicStep.at(here, X, lam)
            sums = yield from purse.ask(PrivateScores(step.mixture, step.factor, step.clip, 0), share)
            if sums is None:
                plan = affordable([(lam, share), *plan], purse.left)
                continue
            rounds.append(done := ScoredRound.after(step, sums, share, len(purse.sites or ())))
            here = done.end
            if len(rounds) == 1 and done.surprise(done.rows) > FAR:
                plan = shorter_steps(plan)
        if not rounds:
            raise InvalidInputError(LOST)
        return rounds

    def fit(  # noqa: PLR0917 - what a run ends with
        self,
        problem: Problem,
        X: Units,
        start: Mixture,
        rounds: list[ScoredRound],
        spent: Sequence[int],
        seed: int,
    ) -> PrivateFit:
        """Return the fit at the mean of the last ends, with its covariance and the verdict."""
        same = [each for each in rounds if each.sites == rounds[-1].sites]  # with the rows of the same sites
        n = max(float(np.average([each.rows for each in same], weights=[each.share for each in same])), 1.0)
        last = rounds[-AVERAGED:]
        weights = [each.share for each in last]
        end = start.with_vector(np.average([each.end.to_vector() for each in last], axis=0, weights=weights))
        noise = averaged_noise([each.noise for each in last], weights)
        covariance = PublicStep.at(end, X).covariance(n, noise)
        expected = forecast_of(rounds, X, n, at_end=self.is_private_start)
        before = [0.0, *(each.noise for each in rounds)]
        surprises = tuple(each.surprise(n, noise) for each, noise in zip(rounds, before, strict=False))
        found = Ending(end, covariance, n, surprises, expected)
        unsettled = unsettled_reason(surprises[-1], found.errors, expected)
        return self.described(problem, X, found, seed, (unsettled, [self.budget.rho * share for share in spent]))

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
        return self.described(problem, X, found, seed, (unsettled, [self.budget.rho * PARTS]))

    def described(
        self, problem: Problem, X: Units, found: Ending, seed: int, verdict: tuple[str, Sequence[Fraction]]
    ) -> PrivateFit:
        """Return the fit of what was found, with the reason why it has not settled, and ρ of each answer."""
        unsettled, rhos = verdict
        privacy = Privacy(self.epsilon, self.delta, self.budget.unit, tuple(rhos), self.sums, self.exchange)
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


def check_private_start(start: str, response: tuple[float, float] | None) -> None:
    """Raise an error unless a word names a private start, with a range of the response."""
    if start != "private":
        raise InvalidInputError(f"start={start!r}: expected a model, or 'private'")
    if response is None or not (np.all(np.isfinite(response)) and response[0] < response[1]):
        raise InvalidInputError(NO_RANGE)


def shorter_steps(plan: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return a plan of more steps with the same parts: one part for each, and two for the last."""
    parts = sum(share for _, share in plan)
    if parts < len(plan) + 1:
        return list(plan)
    shares = [1] * (parts - 2) + [2]
    late = [lam for lam, _ in plan][-len(shares) :]
    early = [max((lam for lam, _ in plan), default=0.0)] * (len(shares) - len(late))
    return list(zip(early + late, shares, strict=True))


def forecast_of(rounds: Sequence[ScoredRound], X: Units, n: float, *, at_end: bool) -> Forecast:
    """Forecast standard errors from the noise of the last rounds, at the start of a run or of these rounds."""
    last = rounds[-AVERAGED:]
    first = last[0] if at_end else rounds[0]
    step = first.step if not first.step.damping else PublicStep.at(first.step.mixture, X)
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
            f"the run has not settled: its standard errors are {wider:.3g} times those that were forecast, at "
            f"most {WIDER}"
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


def public_groups(X: Array, labels: np.ndarray) -> GroupedCovariates:
    """Return the covariates of public groups from those of their rows, ``(m, d)``, and the labels of these."""
    if labels.shape != (len(X),):
        raise InvalidInputError(f"groups: expected a label for each of the {len(X)} rows of covariates")
    groups = Groups.of(labels)
    return GroupedCovariates(X[groups.order], np.diff(groups.bounds))


def drawn_rows(mixture: Mixture, X: Units, seed: int) -> Rows:
    """Return units with responses that a mixture draws."""
    rng = np.random.default_rng(seed)
    return X.drawn(mixture, rng) if isinstance(X, GroupedCovariates) else Rows(X, mixture.sample(X, rng)[0])


def covariates_of_rows(X: Units) -> Array:
    """Return covariates of rows; raise an error if they are of groups."""
    if isinstance(X, GroupedCovariates):
        raise InvalidInputError(OF_ROWS)
    return X


def ended(mixture: Mixture, X: Units, seed: int, n: float, stop: MethodStop) -> Ascent:
    """Return the end of a run, with the statistics of simulated units in place of those of the sites."""
    statistics = expect(mixture, drawn_rows(mixture, X, seed)).scaled(n / len(X))
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
    return Inference(estimates, symmetrise(reported), KIND, float("nan"), {}, identified=known)

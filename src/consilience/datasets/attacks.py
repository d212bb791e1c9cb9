"""Simulated attacks by sites, to test the robustness of methods.

An attack maps a site's honest estimate of its experts (:class:`Claim`) to the one it sends. :class:`Drill` is an engine
with attacking sites::

    Federation(sites, engine=Drill({"north": sign_flip, "south": Collusion(3.0)}))

The attacks apply to the sites' own fits and to the sums of every round, for Gaussian experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from consilience.engines import Engine, InProcess
from consilience.errors import InvalidInputError
from consilience.fit import Expect
from consilience.messages import Answers, LocalFit, Several, decode, encode, question_for
from consilience.messages.codec import message_fingerprint
from consilience.model import Mixture, Moments, Statistics
from consilience.model.families.covariance import LeastSquares
from consilience.model.families.registry import gaussian
from consilience.numerics.arrays import Array, IntArray, pack, unpack
from consilience.numerics.linalg import solve_symmetric
from consilience.runs import EngineOverSites, Reply, digest
from consilience.site import Site

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Claim:
    """A site's estimate of its experts, in its own fit or in the sums of a round.

    Parameters
    ----------
    n : (K,) array
        Number of rows of each expert.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients: of the fit, or those that an M-step on the sums gives.
    scatter : (K, q, q) or (K, q) array
        Scatter of the residuals from ``B``, or its diagonal.
    precision : array
        As in :class:`~consilience.aggregate.SiteModel`; empty in the sums of a round.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> claim.standard_errors().ravel()
    array([0.2, 0.2])
    """

    n: Array
    S: Array
    B: Array
    scatter: Array
    precision: Array = field(default_factory=lambda: np.empty((0, 0)))

    def standard_errors(self) -> Array:
        """Compute standard errors of the coefficients for known labels, ``(K, q, p)``."""
        diagonal = np.diagonal(self.scatter, axis1=1, axis2=2) if self.scatter.ndim > 2 else self.scatter
        variances = diagonal / np.maximum(self.n, 1.0)[:, None]  # (K, q)
        inverse = np.array([np.diagonal(solve_symmetric(S, np.eye(len(S)))[0]) for S in self.S])  # (K, p)
        errors: Array = np.sqrt(variances[:, :, None] * np.maximum(inverse, 0.0)[:, None])
        return errors

    def permuted(self, permutation: IntArray) -> Claim:
        """Reorder the experts."""
        precision = self.precision[permutation] if len(self.precision) else self.precision
        return Claim(
            self.n[permutation], self.S[permutation], self.B[permutation], self.scatter[permutation], precision
        )


@dataclass
class Replay:
    """Attack that repeats the sums of the first round in every round; use one instance per site.

    Sums of other numbers of experts, such as those of one regression, are repeated apart.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Replay
    >>> from consilience.model import Statistics
    >>> from consilience.model.statistics import Moments
    >>> none = Moments(np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    >>> replay = Replay()
    >>> [replay.instead_of(Statistics(none, none, ll, 1.0, 1.0)).log_likelihood for ll in (-7.0, -5.0)]
    [-7.0, -7.0]
    """

    first: dict[tuple[int, ...], Statistics] = field(default_factory=dict)

    def instead_of(self, answer: Statistics) -> Statistics:
        """Return the statistics to send."""
        first = self.first.setdefault(answer.experts.first.shape, answer)
        return replace(first, information=answer.information)


Attack = Callable[[Claim], Claim] | Replay
"""Function from the honest to the attacked estimate."""


def label_flip(claim: Claim) -> Claim:
    """Shift the labels of the experts by one.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim, label_flip
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> label_flip(claim).B.ravel()
    array([5., 0.])
    """
    return claim.permuted(np.roll(np.arange(len(claim.n)), -1))


def sign_flip(claim: Claim) -> Claim:
    """Flip the sign of all coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim, sign_flip
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[1.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> sign_flip(claim).B.ravel()
    array([-1., -5.])
    """
    return replace(claim, B=-claim.B)


def not_a_number(claim: Claim) -> Claim:
    """Replace all coefficients by NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim, not_a_number
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> not_a_number(claim).B.ravel()
    array([nan])
    """
    return replace(claim, B=np.full_like(claim.B, np.nan))


def fewer_experts(claim: Claim) -> Claim:
    """Omit the last expert.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim, fewer_experts
    >>> claim = Claim(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> fewer_experts(claim).B.ravel()
    array([0.])
    """
    return claim.permuted(np.arange(len(claim.n) - 1))


@dataclass(frozen=True)
class Blown:
    """Attack that multiplies the coefficients by ``factor``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Blown, Claim
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Blown()(claim).B.ravel()
    array([5000.])
    """

    factor: float = 1e3

    def __call__(self, claim: Claim) -> Claim:
        """Return the attacked claim."""
        return replace(claim, B=self.factor * claim.B)


@dataclass(frozen=True)
class Collusion:
    """Attack that shifts every coefficient by a multiple of its standard error, in a direction common to all attackers.

    Parameters
    ----------
    standard_errors : float
        The multiple: 3 is visible in a site's distance from the others; 1 is within sampling error.
    seed : int
        Seed of the direction, the same for all colluding sites.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim, Collusion
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Collusion(3.0)(claim).B.ravel().round(2)
    array([5.6])
    """

    standard_errors: float
    seed: int = 0

    def __call__(self, claim: Claim) -> Claim:
        """Return the attacked claim."""
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], claim.B.shape)
        return replace(claim, B=claim.B + self.standard_errors * signs * claim.standard_errors())


@dataclass(frozen=True)
class MoreRows:
    """Attack that claims ``rows`` rows: all sums are scaled to that number.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Claim, MoreRows
    >>> claim = Claim(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> MoreRows()(claim).n
    array([1.e+09])
    """

    rows: float = 1e9

    def __call__(self, claim: Claim) -> Claim:
        """Return the attacked claim."""
        factor = self.rows / claim.n.sum()
        return replace(claim, n=factor * claim.n, S=factor * claim.S, scatter=factor * claim.scatter)


# ---------------------------------------------------------------- answers of an attacking site


def attack_answer(attack: Attack, question: Any, answer: Any) -> Any:
    """Apply an attack to an answer about experts, or to each of several answers; return other answers unchanged."""
    match answer, attack:
        case Answers(), _ if isinstance(question, Several):
            both = zip(question.questions, answer.items, strict=True)
            return Answers(tuple(attack_answer(attack, asked, given) for asked, given in both))
        case Statistics(), Replay():
            return attack.instead_of(answer)
        case _, Replay():
            return answer
        case Statistics(), _ if isinstance(question, Expect):
            return _attacked_statistics(attack, question.mixture, answer)
        case LocalFit(), _ if answer.model is not None:
            return _attacked_fit(attack, answer)
        case _:
            return answer


def _attacked_statistics(attack: Callable[[Claim], Claim], mixture: Mixture, statistics: Statistics) -> Statistics:
    """Return statistics whose M-step at ``mixture`` gives the attacked estimate."""
    experts = gaussian(mixture.experts)
    honest = experts.solution(statistics.experts)
    claim = attack(Claim(honest.n, honest.S, honest.B, honest.scatter))
    lied = LeastSquares(claim.n, claim.S, claim.B, claim.scatter)
    times = _times(claim, honest.n)
    gate = Moments(*(times * part for part in (statistics.gate.plain, statistics.gate.first, statistics.gate.second)))
    if not mixture.gate.reads_covariates:
        gate = replace(gate, plain=claim.n * float(statistics.gate.plain.sum() / honest.n.sum()))
    return Statistics(
        gate,
        lied.moments(experts.B),
        times * statistics.log_likelihood,
        times * statistics.absolute,
        times * statistics.weight,
        None if statistics.information is None else times * statistics.information,
    )


def _times(claim: Claim, n: Array) -> float:
    """Return the claimed multiple of the number of rows; 1 if experts were left out."""
    return float(claim.n.sum() / n.sum()) if len(claim.n) == len(n) else 1.0


def _attacked_fit(attack: Callable[[Claim], Claim], fit: LocalFit) -> LocalFit:
    """Apply an attack to a site's fit: its labels, moments and coefficients."""
    model = fit.model
    assert model is not None  # asked before  # noqa: S101
    experts = gaussian(model.mixture.experts)
    scatter = model.label_counts[:, None, None] * experts.matrices
    claim = attack(Claim(model.label_counts, unpack(model.second), experts.B, scatter, model.precision))
    times = _times(claim, model.label_counts)
    gate = model.mixture.gate
    gate = gate if gate.reads_covariates else gate.with_shares(claim.n / claim.n.sum())
    covariances = claim.scatter / np.maximum(claim.n, 1e-300)[:, None, None]
    told = replace(experts.permuted(np.arange(len(claim.n))), B=claim.B)
    lied = told.with_shape_values(covariances.reshape(len(claim.n), -1))
    scaled = {name: times * getattr(fit.summary, name) for name in ("weight", "x_products", "y_products")}
    lied_model = replace(
        model,
        mixture=replace(model.mixture, gate=gate, experts=lied),
        weight=times * model.weight,
        label_counts=claim.n,
        mass=claim.n * float(model.mass.sum() / model.label_counts.sum()),
        second=pack(claim.S),
        log_likelihood=times * model.log_likelihood,
        precision=times * claim.precision,
    )
    return replace(fit, summary=replace(fit.summary, **scaled), model=lied_model)


# ---------------------------------------------------------------- the engine


class Drill:
    """Engine in which some sites attack.

    Parameters
    ----------
    attacks : mapping of str to Attack
        Attack of each attacking site.
    engine : Engine, optional
        Engine that carries the questions; in-process by default. It is closed with the drill.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Drill
    >>> import warnings
    >>> from consilience import Federation, GaussianMixture, SharedCentre
    >>> from consilience.datasets.attacks import Blown
    >>> rng = np.random.default_rng(0)
    >>> def rows():
    ...     return np.r_[rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (40, 2))]
    >>> sites = Federation({name: (rows(),) for name in "abcde"}, engine=Drill({"b": Blown()}))
    >>> with warnings.catch_warnings(action="ignore"):  # that b is not used
    ...     result = sites.fit(GaussianMixture(2, n_init=1, random_state=0), method=SharedCentre(), on_drop="continue")
    >>> [site.name for site in result.sites if site.reasons]
    ['b']
    """

    def __init__(self, attacks: Mapping[str, Attack], engine: Engine | None = None) -> None:
        self.attacks = dict(attacks)
        self.engine: Engine = InProcess() if engine is None else engine

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> Attacked:
        """Return the engine for ``sites``."""
        return Attacked(self.engine.over(sites, in_memory=in_memory), self.attacks)

    def each(self, work: Callable[[T, bytes], R], items: Sequence[T], shared: bytes) -> Iterator[tuple[int, R | None]]:
        """Yield ``work(item, shared)`` of each item with its position, as they end."""
        return self.engine.each(work, items, shared)

    def close(self) -> None:
        """Close the engine that carries the questions."""
        self.engine.close()


class Attacked:
    """Wraps an engine and changes the replies of some sites.

    Parameters
    ----------
    engine : EngineOverSites
    attacks : mapping of str to Attack

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets.attacks import Attacked
    >>> from consilience.site import Site
    >>> from consilience.datasets.attacks import sign_flip
    >>> from consilience.engines import InProcess
    >>> from consilience.model import Rows
    >>> sites = [Site("north", Rows(np.zeros((5, 2)), np.zeros((5, 1))))]
    >>> Attacked(InProcess().over(sites), {"north": sign_flip}).sites
    ('north',)
    """

    def __init__(self, engine: EngineOverSites, attacks: Mapping[str, Attack]) -> None:
        unknown = sorted(set(attacks) - set(engine.sites))
        if unknown:
            raise InvalidInputError(f"attacks: unknown sites {', '.join(unknown)}")
        self._engine, self._attacks = engine, attacks
        self._places = {site: place for place, site in enumerate(engine.sites)}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return self._engine.sites

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield replies of single sites as they arrive: sums are formed after the attack."""
        asked = decode(question)
        for replies in self._engine.ask(number, question, sites, total=False, timeout=timeout):
            yield [self._changed(asked, reply) if reply.number == number else reply for reply in replies]

    def close(self) -> None:
        """Close the engine over these sites."""
        self._engine.close()

    def _changed(self, asked: Any, reply: Reply) -> Reply:
        site = reply.sites[0]
        if site not in self._attacks:
            return reply
        question, honest = question_for(asked, self._places[site]), decode(reply.message)
        with np.errstate(invalid="ignore", over="ignore"):
            message = encode(attack_answer(self._attacks[site], question, honest), message_fingerprint(reply.message))
        return replace(reply, message=message, digests=(digest(message),))

"""Sites that lie, for drills: what they send in place of their honest answers.

An attack is a function from what a site would say of its experts (:class:`Told`) to what it does say. :class:`Drill` is
an engine some of whose sites attack::

    Federation(sites, engine=Drill({"north": sign_flip, "south": Collusion(3.0)}))

so that you can see what a method, or a study of yours, makes of them. The lies are told in the sites' own fits and in
the sums of every round, for Gaussian experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from consilience.engines.inprocess import InProcess
from consilience.errors import InvalidInputError
from consilience.fit.climb import Expect
from consilience.model import covariance as cov
from consilience.model.gates import ConstantGate
from consilience.model.gaussian import GaussianExperts
from consilience.model.mixture import Mixture
from consilience.model.moments import Moments
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, Labels, pack, unpack
from consilience.numerics.linalg import solve_symmetric
from consilience.protocols.engine import Engine, Reply, digest
from consilience.protocols.questions import LocalFit, question_for
from consilience.protocols.table import decode, encode
from consilience.site.site import Site


@dataclass(frozen=True, eq=False)
class Told:
    """What a site says of its experts, in its own fit or in the sums of a round.

    Parameters
    ----------
    n : (K,) array
        Rows of each expert.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients: of the fit, or those to which the sums lead.
    scatter : (K, q, q) or (K, q) array
        Of the residuals from ``B``, or its diagonal.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> told.standard_errors().ravel()
    array([0.2, 0.2])
    """

    n: Array
    S: Array
    B: Array
    scatter: Array
    precision: Array = field(default_factory=lambda: np.empty((0, 0)))

    def standard_errors(self) -> Array:
        """Of the coefficients where labels are known, ``(K, q, p)``."""
        diagonal = np.diagonal(self.scatter, axis1=1, axis2=2) if self.scatter.ndim > 2 else self.scatter
        variances = diagonal / np.maximum(self.n, 1.0)[:, None]  # (K, q)
        inverse = np.array([np.diagonal(solve_symmetric(S, np.eye(len(S)))[0]) for S in self.S])  # (K, p)
        errors: Array = np.sqrt(variances[:, :, None] * np.maximum(inverse, 0.0)[:, None])
        return errors

    def permuted(self, order: Labels) -> Told:
        """The same under other labels."""
        precision = self.precision[order] if len(self.precision) else self.precision
        return Told(self.n[order], self.S[order], self.B[order], self.scatter[order], precision)


@dataclass
class Replay:
    """Answer every round with the sums of the first; one such value for each site.

    Examples
    --------
    >>> from consilience.model.moments import Moments
    >>> none = Moments(np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    >>> replay = Replay()
    >>> [replay.instead_of(Statistics(none, none, ll, 1.0, 1.0)).log_likelihood for ll in (-7.0, -5.0)]
    [-7.0, -7.0]
    """

    first: Statistics | None = field(default=None)

    def instead_of(self, answer: Statistics) -> Statistics:
        """What is sent."""
        self.first = self.first or answer
        return replace(self.first, information=answer.information)


Attack = Callable[[Told], Told] | Replay
"""From what a site would say to what it does say."""


def label_flip(told: Told) -> Told:
    """Name every expert by the label of the next.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> label_flip(told).B.ravel()
    array([5., 0.])
    """
    return told.permuted(np.roll(np.arange(len(told.n)), -1))


def sign_flip(told: Told) -> Told:
    """Send all coefficients with the other sign.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[1.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> sign_flip(told).B.ravel()
    array([-1., -5.])
    """
    return replace(told, B=-told.B)


def not_a_number(told: Told) -> Told:
    """Send NaN for all coefficients.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> not_a_number(told).B.ravel()
    array([nan])
    """
    return replace(told, B=np.full_like(told.B, np.nan))


def fewer_experts(told: Told) -> Told:
    """Leave the last expert out, whatever was asked.

    Examples
    --------
    >>> told = Told(np.full(2, 50.0), np.full((2, 1, 1), 50.0), np.array([[[0.0]], [[5.0]]]), np.full((2, 1), 100.0))
    >>> fewer_experts(told).B.ravel()
    array([0.])
    """
    return told.permuted(np.arange(len(told.n) - 1))


@dataclass(frozen=True)
class Blown:
    """Send coefficients ``factor`` times as large.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Blown()(told).B.ravel()
    array([5000.])
    """

    factor: float = 1e3

    def __call__(self, told: Told) -> Told:
        """What is sent."""
        return replace(told, B=self.factor * told.B)


@dataclass(frozen=True)
class Collusion:
    """Move every coefficient by so many of its standard errors, in a direction on which the liars agree.

    Parameters
    ----------
    standard_errors : float
        3 shows in a site's distance from the others; 1 is hidden in chance.
    seed : int
        Of the direction: the same for all who collude.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> Collusion(3.0)(told).B.ravel().round(2)
    array([5.6])
    """

    standard_errors: float
    seed: int = 0

    def __call__(self, told: Told) -> Told:
        """What is sent."""
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], told.B.shape)
        return replace(told, B=told.B + self.standard_errors * signs * told.standard_errors())


@dataclass(frozen=True)
class MoreRows:
    """Claim ``rows`` rows: all sums are blown up to that number.

    Examples
    --------
    >>> told = Told(np.full(1, 50.0), np.full((1, 1, 1), 50.0), np.full((1, 1, 1), 5.0), np.full((1, 1), 100.0))
    >>> MoreRows()(told).n
    array([1.e+09])
    """

    rows: float = 1e9

    def __call__(self, told: Told) -> Told:
        """What is sent."""
        factor = self.rows / told.n.sum()
        return replace(told, n=factor * told.n, S=factor * told.S, scatter=factor * told.scatter)


# ---------------------------------------------------------------------- from answers and back


def _attacked(attack: Attack, question: Any, answer: Any) -> Any:
    """The answer with another story about its experts; answers that tell none stay."""
    match answer, attack:
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


def _gaussian(mixture: Mixture) -> GaussianExperts:
    if not isinstance(mixture.experts, GaussianExperts):
        raise InvalidInputError("attacks are made for Gaussian experts")
    return mixture.experts


def _attacked_statistics(attack: Callable[[Told], Told], mixture: Mixture, statistics: Statistics) -> Statistics:
    """Statistics from which the step at ``mixture`` leads to the other story."""
    experts, moments = _gaussian(mixture), statistics.experts
    K, q, p = experts.B.shape
    S, Sxr = unpack(moments.second), moments.first.reshape(K, q, p)
    delta = np.array([solve_symmetric(a, b.T)[0].T for a, b in zip(S, Sxr, strict=True)])
    matrices, packed = cov.has_matrices(experts.structure), moments.plain[K:].reshape(K, -1)
    scatter = (unpack(packed) if matrices else packed) - _explained(delta, S, matrices)
    told = attack(Told(moments.plain[:K], S, experts.B + delta, scatter))
    back = told.B - experts.B[: len(told.B)]
    about_asked = told.scatter + _explained(back, told.S, matrices)
    times = _times(told, moments.plain[:K])
    gate = Moments(*(times * part for part in (statistics.gate.plain, statistics.gate.first, statistics.gate.second)))
    if isinstance(mixture.gate, ConstantGate):
        gate = replace(gate, plain=told.n * float(statistics.gate.plain.sum() / moments.plain[:K].sum()))
    return Statistics(
        gate,
        replace(
            moments,
            plain=np.concatenate([told.n, (pack(about_asked) if matrices else about_asked).ravel()]),
            first=(back @ told.S).reshape(-1, p),
            second=pack(told.S),
        ),
        times * statistics.log_likelihood,
        times * statistics.absolute,
        times * statistics.weight,
        None if statistics.information is None else times * statistics.information,
    )


def _explained(delta: Array, S: Array, matrices: bool) -> Array:
    """``δ S δᵀ`` of each expert, ``(K, q, q)``, or its diagonal ``(K, q)``."""
    full: Array = delta @ S @ delta.transpose(0, 2, 1)
    return full if matrices else np.diagonal(full, axis1=1, axis2=2)


def _times(told: Told, n: Array) -> float:
    """How many times the rows that there are; a site that leaves experts out has as many as before."""
    return float(told.n.sum() / n.sum()) if len(told.n) == len(n) else 1.0


def _attacked_fit(attack: Callable[[Told], Told], fit: LocalFit) -> LocalFit:
    """A site's fit, as a story of its labels, moments and coefficients."""
    model = fit.model
    assert model is not None  # asked before  # noqa: S101
    experts = _gaussian(model.mixture)
    told = attack(
        Told(
            model.labels,
            unpack(model.second),
            experts.B,
            model.labels[:, None, None] * experts.matrices,
            model.precision,
        )
    )
    times = _times(told, model.labels)
    gate = ConstantGate(told.n / told.n.sum()) if isinstance(model.mixture.gate, ConstantGate) else model.mixture.gate
    covariances = told.scatter / np.maximum(told.n, 1e-300)[:, None, None]
    lied = GaussianExperts(told.B, cov.stored(covariances, experts.structure), experts.structure)
    summary = fit.summary
    return replace(
        fit,
        summary=replace(
            summary,
            weight=times * summary.weight,
            x_squares=times * summary.x_squares,
            y_products=times * summary.y_products,
        ),
        model=replace(
            model,
            mixture=Mixture(model.mixture.design, gate, lied),
            weight=times * model.weight,
            labels=told.n,
            mass=told.n * float(model.mass.sum() / model.labels.sum()),
            second=pack(told.S),
            log_likelihood=times * model.log_likelihood,
            precision=times * told.precision,
        ),
    )


# ---------------------------------------------------------------------- the drill


class Drill:
    """An engine some of whose sites attack.

    Parameters
    ----------
    attacks : mapping of str to Attack
        What each lying site makes of what it would say.
    engine : InProcess or DaskCluster, optional
        Who carries the questions; this process by default.

    Examples
    --------
    >>> import warnings
    >>> from consilience import Federation, GaussianMixture, SharedCentre
    >>> rng = np.random.default_rng(0)
    >>> def rows():
    ...     return np.r_[rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (40, 2))]
    >>> sites = Federation({name: (rows(),) for name in "abcde"}, engine=Drill({"b": Blown()}))
    >>> with warnings.catch_warnings(action="ignore"):  # that b is not used
    ...     result = sites.fit(GaussianMixture(2, random_state=0), method=SharedCentre())
    >>> [site.name for site in result.sites if site.reasons]
    ['b']
    """

    def __init__(self, attacks: Mapping[str, Attack], engine: Any = None) -> None:
        self.attacks = dict(attacks)
        self.engine = InProcess() if engine is None else engine

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> Attacked:
        """The engine that carries questions to ``sites``."""
        return Attacked(self.engine.over(sites, in_memory=in_memory), self.attacks)


class Attacked:
    """Between an engine and the run: changes what some sites send.

    Parameters
    ----------
    engine : Engine
    attacks : mapping of str to Attack

    Examples
    --------
    >>> from consilience.engines import InProcess
    >>> from consilience.model import Rows
    >>> sites = [Site("north", Rows(np.zeros((5, 2)), np.zeros((5, 1))))]
    >>> Attacked(InProcess().over(sites), {"north": sign_flip}).sites
    ('north',)
    """

    def __init__(self, engine: Engine, attacks: Mapping[str, Attack]) -> None:
        unknown = sorted(set(attacks) - set(engine.sites))
        if unknown:
            raise InvalidInputError(f"there is no site called {', '.join(unknown)}")
        self._engine, self._attacks = engine, attacks
        self._places = {site: place for place, site in enumerate(engine.sites)}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of every sum."""
        return self._engine.sites

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Replies as they come, of each site by itself: no sum on the way comes before the attack."""
        asked = decode(question)
        for replies in self._engine.ask(number, question, sites, total=False, timeout=timeout):
            yield [self._changed(asked, reply) if reply.number == number else reply for reply in replies]

    def _changed(self, asked: Any, reply: Reply) -> Reply:
        site = reply.sites[0]
        if site not in self._attacks:
            return reply
        question, honest = question_for(asked, self._places[site]), decode(reply.message)
        with np.errstate(invalid="ignore", over="ignore"):
            message = encode(_attacked(self._attacks[site], question, honest))
        return replace(reply, message=message, digests=(digest(message),))

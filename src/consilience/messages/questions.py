"""Questions to a site and their answers.

Every question describes what its answer discloses. The question of the EM loop is :class:`~consilience.fit.Expect`.
Which questions there are is said by :mod:`consilience.messages.table`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from consilience.aggregate import SiteModel
from consilience.fit import Expect, Specification, StopReason
from consilience.fit.starts import CONTENDERS
from consilience.model import ColumnSummary, Design, Mixture
from consilience.model.statistics import Additive
from consilience.model.tails import EDGES
from consilience.numerics.arrays import Array


class Question(Protocol):
    """A frozen record that asks for something; the table of messages names its codec and its answer."""

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""


Answer = Any
"""The record with which a site answers; which one, the table of messages says."""


@dataclass(frozen=True)
class Summarise:
    """Ask for the weight, and for means and covariances of ``d`` covariates and of ``q`` responses: ``ColumnSummary``.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> Summarise(d=2, q=1).d
    2
    """

    d: int
    q: int

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return (
            f"the total weight, the means and covariances of {self.d} covariates, "
            f"the means and covariances of {self.q} response(s)"
        )


@dataclass(frozen=True)
class Identify:
    """Ask for the total weight of the rows; the answer carries their fingerprint: :class:`TotalWeight`.

    Examples
    --------
    >>> from consilience.messages import Identify
    >>> Identify().disclosed
    'the total weight'
    """

    disclosed = "the total weight"
    """Description of what an answer discloses."""


@dataclass(frozen=True)
class TotalWeight(Additive):
    """Total weight of the rows, in a message with their fingerprint."""

    weight: float


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Ask for the statistics at a mixture without second moments ``x xᵀ``, for gradient steps: ``Statistics``.

    Examples
    --------
    >>> from consilience.messages import ScoreSums
    >>> from consilience.datasets import soft
    >>> ScoreSums(soft(10, random_state=0).truth).mixture.K
    4
    """

    mixture: Mixture

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        sums = "sums over rows, weighted by responsibilities, of 1, residuals, squared residuals and residuals times x"
        return f"{sums} for {self.mixture.K} experts, and the log-likelihood"


@dataclass(frozen=True, eq=False)
class ScoreProducts:
    """Ask for the products of scores at a mixture, the meat of the sandwich: ``Meat``.

    The question shows every site the experts' second moments over all of them, which give the leverage of a row.

    Parameters
    ----------
    mixture : Mixture
    second : (h, p (p + 1) / 2) array
        As in :func:`~consilience.model.expectation.score_products`.

    Examples
    --------
    >>> from consilience.messages import ScoreProducts
    >>> from consilience.datasets import soft
    >>> from consilience.model import layout_of
    >>> truth = soft(10, random_state=0).truth
    >>> ScoreProducts(truth, layout_of(truth).zeros(information=False).experts.second).second.shape
    (4, 231)
    """

    mixture: Mixture
    second: Array

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        P = self.mixture.parameter_count
        return f"the products of the scores of {P} parameters, summed over rows, or over clusters if rows have them"


@dataclass(frozen=True, eq=False)
class CountTails:
    """Ask how far out the responses of rows are under a mixture, in classes: ``TailCounts``.

    Examples
    --------
    >>> from consilience.messages import CountTails
    >>> from consilience.datasets import soft
    >>> CountTails(soft(10, random_state=0).truth).mixture.K
    4
    """

    mixture: Mixture

    disclosed = f"the number of rows in each of {len(EDGES) + 1} classes of how far out their response is under a model"
    """Description of what an answer discloses."""


@dataclass(frozen=True, eq=False)
class LogLikelihood:
    """Ask for the log-likelihood of the site's rows under a mixture: :class:`Likelihood`.

    Examples
    --------
    >>> from consilience.messages import LogLikelihood
    >>> from consilience.datasets import soft
    >>> LogLikelihood(soft(10, random_state=0).truth).mixture.K
    4
    """

    mixture: Mixture

    disclosed = "the total weight and the log-likelihood of one mixture"
    """Description of what an answer discloses."""


@dataclass(frozen=True)
class Likelihood(Additive):
    """Log-likelihood ``Σ w log p(y | x)`` at a mixture, and weight ``Σ w`` (or the number of groups).

    Examples
    --------
    >>> from consilience.messages import Likelihood
    >>> Likelihood(-3.0, 2.0) + Likelihood(-1.0, 1.0)
    Likelihood(log_likelihood=-4.0, weight=3.0)
    """

    log_likelihood: float
    weight: float


@dataclass(frozen=True, eq=False)
class ProposeStart:
    """Ask for mixtures fitted to at most 3,000 of the site's rows, as starts: :class:`StartCandidates`.

    Parameters
    ----------
    specification : Specification
    summary : ColumnSummary
        Summary over all sites, which gives the coordinates and the variance floor of the fit.
    seed : int
    n_init : int
        Number of starts at the site.

    Examples
    --------
    >>> from consilience.fit import Specification
    >>> from consilience.messages import ProposeStart
    >>> from consilience.model import ColumnSummary
    >>> import numpy as np
    >>> summary = ColumnSummary(9.0, np.zeros(1), np.eye(1), np.zeros(1), np.eye(1))
    >>> ProposeStart(Specification(K=2), summary, seed=0, n_init=4).specification.K
    2
    """

    specification: Specification
    summary: ColumnSummary
    seed: int
    n_init: int

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        K = self.specification.K
        return (
            f"the parameters of at most {CONTENDERS} mixtures of {K} experts fitted to at most 3,000 rows of the site"
        )


@dataclass(frozen=True, eq=False)
class StartCandidates:
    """Different mixtures that a site fitted, at most three, best first; empty if it has too few rows.

    Examples
    --------
    >>> from consilience.messages import StartCandidates
    >>> StartCandidates(()).mixtures
    ()
    """

    mixtures: tuple[Mixture, ...]


@dataclass(frozen=True, eq=False)
class FitSite:
    """Ask for a site's own fit to all of its rows: :class:`LocalFit`.

    Parameters
    ----------
    specification : Specification
    orders : tuple of int
        Numbers of experts to try; the site answers with the fit of least BIC on its rows.
    seed, n_init : int
        Seed and number of the starts at the site.
    tol, max_iter
        As in :func:`~consilience.fit.climb`.
    start : Mixture or None
        Start for fits with its number of experts, instead of the site's own starts.
    columns : tuple of int or None
        Required numbers of covariates and responses of the site's rows; None for no requirement.
    describe : bool
        Whether the answer includes a summary of the covariates' distribution, if combining the fits needs it.

    Examples
    --------
    >>> from consilience.fit import Specification
    >>> from consilience.messages import FitSite
    >>> FitSite(Specification(K=2), orders=(2, 3), seed=0).orders
    (2, 3)
    """

    specification: Specification
    orders: tuple[int, ...]
    seed: int
    n_init: int = 6
    tol: float = 1e-9
    max_iter: int = 500
    start: Mixture | None = None
    columns: tuple[int, ...] | None = None
    describe: bool = True

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        orders = self.orders
        most = f"at most {max(orders)} experts" if len(orders) > 1 else f"{orders[0]} experts"
        described = (
            "a small mixture that summarises the covariates, and for columns with at most 8 distinct values the "
            "shares of those that occur in at least 5 rows; "
        )
        return (
            f"the parameters of a mixture of {most} fitted to all rows of the site, and for each expert the number "
            "of rows (and groups), the second moments of the covariates and the precision of the coefficients; the "
            f"log-likelihood and the stop reason; {described if self.describe else ''}the mean exposure; means "
            "and covariances of the covariates and of the responses"
        )


@dataclass(frozen=True, eq=False)
class LocalFit:
    """Answer to :class:`FitSite`: the site's model, or None if it has too few rows for a fit.

    Parameters
    ----------
    summary : ColumnSummary
        Weight, means and covariances of the site's columns, which give the coordinates and the variance floor of the
        combined fit.
    model : SiteModel or None
    stop : StopReason or None
        Stop reason of the site's fit.

    Examples
    --------
    >>> from consilience.messages import LocalFit
    >>> from consilience.model import ColumnSummary
    >>> import numpy as np
    >>> LocalFit(ColumnSummary(9.0, np.zeros(1), np.eye(1), np.zeros(1), np.eye(1)), None, None).model is None
    True
    """

    summary: ColumnSummary
    model: SiteModel | None
    stop: StopReason | None


@dataclass(frozen=True, eq=False)
class Several:
    """Ask several questions in one message: :class:`Answers`. If all answers add, the data are read once.

    Examples
    --------
    >>> from consilience.messages import Several, Summarise
    >>> len(Several((Summarise(1, 1), Summarise(2, 1))).questions)
    2
    """

    questions: tuple[Question, ...]

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        times = Counter(part.disclosed for part in self.questions)
        return "; ".join(what if n == 1 else f"{n} times {what}" for what, n in times.items())


@dataclass(frozen=True, eq=False)
class Sample:
    """Ask a question about a random sample of the site's rows or clients. Sums are divided by the sampling probability.

    The expected answer is therefore the answer for all rows or clients. The site draws the sample, anew for every seed.

    Parameters
    ----------
    question : Expect or ScoreSums
    share : float
        Sampling probability of a row or client.
    seed : int

    Examples
    --------
    >>> from consilience.fit import Expect
    >>> from consilience.messages import Sample
    >>> from consilience.datasets import soft
    >>> Sample(Expect(soft(10, random_state=0).truth), share=0.5, seed=3).share
    0.5
    """

    question: Expect | ScoreSums
    share: float
    seed: int

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return f"for a random sample of {100 * self.share:.3g} % of the rows or clients: {self.question.disclosed}"


@dataclass(frozen=True, eq=False)
class Bundle:
    """One question for each of some sites, as sent to an engine; a site receives its own question only.

    Parameters
    ----------
    places : tuple of int
        Indices of the sites in the order of the engine.
    questions : tuple of Question
    """

    places: tuple[int, ...]
    questions: tuple[Question, ...]

    @cached_property
    def index(self) -> dict[int, int]:
        """Return where the question of each place is."""
        return {place: i for i, place in enumerate(self.places)}


def question_for(asked: Question | Bundle, place: int) -> Question:
    """Return the question for one site: its own, if each has one, else that of all.

    Parameters
    ----------
    asked : decoded question
        What an engine is given.
    place : int
        Position of the site in the order of summation.

    Examples
    --------
    >>> from consilience.messages import Summarise, question_for
    >>> question_for(Summarise(1, 1), 3)
    Summarise(d=1, q=1)
    """
    return asked.questions[asked.index[place]] if isinstance(asked, Bundle) else asked


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers to :class:`Several`, in its order; addition is item by item.

    Examples
    --------
    >>> from consilience.messages import Answers, Likelihood
    >>> a = Answers((Likelihood(-1.0, 1.0),))
    >>> (a + a).items
    (Likelihood(log_likelihood=-2.0, weight=2.0),)
    """

    items: tuple[Any, ...]

    def __add__(self, other: Answers) -> Answers:
        return Answers(tuple(a + b for a, b in zip(self.items, other.items, strict=True)))


# ---------------------------------------------------------------- private sums


@dataclass(frozen=True, eq=False)
class PrivateScores:
    """Ask for a noisy sum of clipped scores at a mixture: :class:`NoisySums`.

    How much noise is added, and how often, is decided by the site.

    Parameters
    ----------
    mixture : Mixture
    factor : (P, P) array
        As in :func:`~consilience.model.contributions.contributions`.
    clip : float
        Bound on the length of a row's contribution.
    place : int
        Which part of the site's budget the answer is charged to; each is spent once.

    Examples
    --------
    >>> from consilience.messages import PrivateScores
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> truth = soft(10, random_state=0).truth
    >>> PrivateScores(truth, np.eye(truth.parameter_count), 1.0, place=0).place
    0
    """

    mixture: Mixture
    factor: Array
    clip: float
    place: int

    @property
    def size(self) -> int:
        """Number of sums."""
        return self.mixture.parameter_count

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        P = self.mixture.parameter_count
        return f"the number of rows and a sum of clipped scores of {P} parameters, with the noise of the site's budget"


@dataclass(frozen=True, eq=False)
class PrivateSquares:
    """Ask for a noisy sum of clipped squared residuals times products of covariates: :class:`NoisySums`.

    Parameters
    ----------
    mixture : Mixture
        One Gaussian expert with one response.
    factor : (p (p + 1) / 2, k) array
        As in :func:`~consilience.model.squares.squares`.
    clip : float
    place : int
        As in :class:`PrivateScores`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import ConstantGate, GaussianExperts
    >>> one = Mixture(Design.raw(1), ConstantGate(np.ones(1)), GaussianExperts(np.zeros((1, 1, 2)), np.ones((1, 1, 1))))
    >>> PrivateSquares(one, np.eye(3), 1.0, place=0).size
    3
    """

    mixture: Mixture
    factor: Array
    clip: float
    place: int

    @property
    def size(self) -> int:
        """Number of sums."""
        return int(self.factor.shape[1])

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return (
            f"the number of rows and {self.size} sums of clipped squared residuals times products of covariates, with "
            "the noise of the site's budget"
        )


MOST_COMPARED = 100
"""Maximum number of mixtures whose likelihoods are compared by one question."""


@dataclass(frozen=True, eq=False)
class PrivateLikelihoods:
    """Ask for noisy sums of the log densities at some mixtures, centred over them and clipped: :class:`NoisySums`.

    Parameters
    ----------
    mixtures : tuple of Mixture
        At least two, at most :data:`MOST_COMPARED`, of one layout.
    clip : float
    place : int
        As in :class:`PrivateScores`.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> truth = soft(10, random_state=0).truth
    >>> PrivateLikelihoods((truth, truth), 2.0, place=0).size
    2
    """

    mixtures: tuple[Mixture, ...]
    clip: float
    place: int

    @property
    def mixture(self) -> Mixture:
        """The first mixture, of the layout of all."""
        return self.mixtures[0]

    @property
    def size(self) -> int:
        """Number of sums."""
        return len(self.mixtures)

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return (
            f"the number of rows and how well {self.size} mixtures fit the rows compared with each other, as sums of "
            "clipped log densities, with the noise of the site's budget"
        )


PrivateSum = PrivateScores | PrivateSquares | PrivateLikelihoods
"""Questions for sums over rows that leave with noise."""


@dataclass(frozen=True)
class NoisySums:
    """Integers of all rows, with noise: the contributions of rows and a multiple of their number.

    Parameters
    ----------
    values : tuple of int
        The sums, of which the last is the number of rows times :data:`~consilience.model.contributions.COUNTED`.
    clip : float
        Bound on the length of a row's contribution, :data:`~consilience.model.contributions.GRID` units.
    variance : int
        Variance of the noise of each value.

    Examples
    --------
    >>> from consilience.messages import NoisySums
    >>> NoisySums((5, 2), 1.0, 7) + NoisySums((1, 1), 1.0, 9)
    NoisySums(values=(6, 3), clip=1.0, variance=16)
    """

    values: tuple[int, ...]
    clip: float
    variance: int

    def __add__(self, other: NoisySums) -> NoisySums:
        if self.clip != other.clip:
            raise ValueError("noisy sums on different grids do not add")
        values = tuple(a + b for a, b in zip(self.values, other.values, strict=True))
        return NoisySums(values, self.clip, self.variance + other.variance)


@dataclass(frozen=True, eq=False)
class Masked:
    """Ask for a private sum in a form of which only the sum over all named sites can be read: :class:`MaskedSums`.

    Parameters
    ----------
    question : PrivateScores, PrivateSquares or PrivateLikelihoods
    sites : tuple of str
        Names of the sites whose answers are added, this one among them.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> truth = soft(10, random_state=0).truth
    >>> asked = PrivateScores(truth, np.eye(truth.parameter_count), 1.0, place=0)
    >>> Masked(asked, ("north", "south")).place
    0
    """

    question: PrivateSum
    sites: tuple[str, ...]

    @property
    def place(self) -> int:
        """Which part of the site's budget the answer is charged to."""
        return self.question.place

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return f"as a sum over {len(self.sites)} sites that is opened only if all answer: {self.question.disclosed}"


WORD = 2**64
"""Masked integers are added modulo this."""


@dataclass(frozen=True)
class MaskedSums:
    """Integers of one site with noise and masks: each is uniform on its own, and the masks of all sites cancel.

    Parameters
    ----------
    values : tuple of int
        Numbers from -2^63 to 2^63 - 1, that is modulo 2^64.
    clip : float
        As in :class:`NoisySums`.
    variance : int
        Variance of the noise of each value, of this site alone.

    Examples
    --------
    >>> MaskedSums.opened([MaskedSums((2**63 - 1, 4), 1.0, 7), MaskedSums((-(2**63) + 8, 1), 1.0, 7)])
    NoisySums(values=(7, 5), clip=1.0, variance=14)
    """

    values: tuple[int, ...]
    clip: float
    variance: int

    @staticmethod
    def opened(parts: Sequence[MaskedSums]) -> NoisySums:
        """Return the sum over all sites, in which the masks cancel."""
        if len({part.clip for part in parts}) != 1:
            raise ValueError("masked sums on different grids do not add")
        values = tuple(signed(sum(each)) for each in zip(*(part.values for part in parts), strict=True))
        return NoisySums(values, parts[0].clip, sum(part.variance for part in parts))


def signed(value: int) -> int:
    """Return the number from -2^63 to 2^63 - 1 that is ``value`` modulo 2^64.

    Examples
    --------
    >>> signed(2**64 - 3)
    -3
    """
    return (value + WORD // 2) % WORD - WORD // 2


@dataclass(frozen=True, eq=False)
class PrivateSteps:
    """Ask a site to take steps alone, each from a noisy sum of clipped scores of its rows: :class:`NoisySteps`.

    How much noise is added, and how often, is decided by the site.

    Parameters
    ----------
    start : Mixture
    covariates : (m, d) array
        Public or simulated rows of covariates, from which the steps are computed.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> PrivateSteps(soft(10, random_state=0).truth, np.zeros((5, 2))).covariates.shape
    (5, 2)
    """

    start: Mixture
    covariates: Array

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        P = self.start.parameter_count
        return (
            f"the number of rows and a few sums of clipped scores of {P} parameters, at mixtures that follow from "
            "these sums, with the noise of the site's budget"
        )


@dataclass(frozen=True, eq=False)
class NoisySteps:
    """Noisy sums at mixtures that follow from a public start and from the sums before.

    Parameters
    ----------
    mixtures : tuple of Mixture
        Where each sum was asked; the first is the start.
    dampings : (T,) array
        λ of each, see :mod:`consilience.fit.private_step`.
    shares : tuple of int
        Number of parts of the budget of each.
    sums : tuple of NoisySums
        Each over its parts.

    Examples
    --------
    >>> import numpy as np
    >>> NoisySteps((), np.zeros(0), (), ()).shares
    ()
    """

    mixtures: tuple[Mixture, ...]
    dampings: Array
    shares: tuple[int, ...]
    sums: tuple[NoisySums, ...]


PRIVATE = (PrivateScores, PrivateSquares, PrivateLikelihoods, Masked, PrivateSteps)
"""Questions that are answered with noise."""


# ---------------------------------------------------------------- clients: groups of rows with one label


@dataclass(frozen=True, eq=False)
class Pairs:
    """Ask for the sum over clients of products of residual vectors of pairs of rows: ``PairSums``.

    Parameters
    ----------
    design : Design
    theta : (p,) array
        Coefficients at which residuals are computed.
    basis : (p, K) array or None
        If given, the answer is the sum times the basis: ``p K`` numbers instead of ``p²``.

    Examples
    --------
    >>> from consilience.messages import Pairs
    >>> from consilience.model import Design
    >>> import numpy as np
    >>> Pairs(Design.raw(2), np.zeros(3)).basis is None
    True
    """

    design: Design
    theta: Array
    basis: Array | None = None

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        times = "" if self.basis is None else f", times a basis of {self.basis.shape[1]} directions"
        return f"the sum over clients and pairs of a client's rows of products of residual times x{times}"


@dataclass(frozen=True, eq=False)
class Clients:
    """Ask for the moments of each client, in all coefficients or in the directions of a basis: ``ClientMoments``.

    Parameters
    ----------
    design : Design
    theta : (p,) array
        Coefficients at which residuals are computed.
    basis : (p, f) array or None

    Examples
    --------
    >>> from consilience.messages import Clients
    >>> from consilience.model import Design
    >>> import numpy as np
    >>> Clients(Design.raw(2), np.zeros(3), np.eye(3)[:, :1]).basis.shape
    (3, 1)
    """

    design: Design
    theta: Array
    basis: Array | None = None

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        f = self.design.p if self.basis is None else self.basis.shape[1]
        of = "covariates" if self.basis is None else "combinations of covariates"
        return (
            f"for each client, its number of rows, the sum of squared residuals, and the second moments of {f} {of} "
            "with each other and with residuals"
        )

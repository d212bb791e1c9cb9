"""The questions that can be asked of a site, and their answers: a closed list.

Every question says what its answer discloses. :class:`~consilience.fit.Expect`, which the EM loop itself asks, is the
fourth of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from consilience.aggregate.combine.site_model import SiteModel
from consilience.fit.climb import Expect
from consilience.fit.specification import Specification
from consilience.fit.spectral import SquaredMoments
from consilience.fit.stop import StopReason
from consilience.messages.anchor_questions import Anchors, LocalSteps, Sizes
from consilience.messages.client_questions import Clients, Pairs
from consilience.model.clients.anchors import AnchorSteps, ClientSizes
from consilience.model.clients.local_steps import ClusterSums
from consilience.model.clients.moments import ClientMoments
from consilience.model.clients.pairs import PairSums
from consilience.model.critic import MinimaxSums
from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.model.moments import Additive
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array


@dataclass(frozen=True)
class Summarise:
    """Asks for the weight, means and spreads of ``d`` covariates and ``q`` responses: a ``ColumnSummary``.

    Examples
    --------
    >>> Summarise(d=2, q=1).d
    2
    """

    d: int
    q: int

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        return (
            f"the total weight, the means and variances of {self.d} covariates, "
            f"the means and covariances of {self.q} response(s)"
        )


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Asks for the statistics at a mixture without any ``x xᵀ``: ``Statistics`` with few numbers, for gradient steps.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> ScoreSums(soft(10, random_state=0).truth).mixture.K
    4
    """

    mixture: Mixture

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        sums = f"sums over rows, weighted by responsibilities, of 1, residuals and their squares for {self.mixture.K}"
        return f"{sums} experts, each residual times x, and the log-likelihood"


@dataclass(frozen=True, eq=False)
class LogLikelihood:
    """Asks how well a mixture explains the site's rows: a :class:`Likelihood`.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> LogLikelihood(soft(10, random_state=0).truth).mixture.K
    4
    """

    mixture: Mixture

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        return "the total weight and the log-likelihood of one mixture"


@dataclass(frozen=True)
class Likelihood(Additive):
    """``Σ w log p(y | x)`` and ``Σ w`` (or the number of groups) at a mixture.

    Examples
    --------
    >>> Likelihood(-3.0, 2.0) + Likelihood(-1.0, 1.0)
    Likelihood(log_likelihood=-4.0, weight=3.0)
    """

    log_likelihood: float
    weight: float


@dataclass(frozen=True, eq=False)
class ProposeStart:
    """Asks for a mixture fitted to at most 3,000 of the site's rows: :class:`StartCandidates`.

    Parameters
    ----------
    specification : Specification
    summary : ColumnSummary
        Over all sites: the coordinates and the floor of the fit.
    seed : int
    n_init : int
        Starts at the site.

    Examples
    --------
    >>> import numpy as np
    >>> summary = ColumnSummary(9.0, np.zeros(1), np.ones(1), np.zeros(1), np.eye(1))
    >>> ProposeStart(Specification(K=2), summary, seed=0, n_init=4).specification.K
    2
    """

    specification: Specification
    summary: ColumnSummary
    seed: int
    n_init: int

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        K = self.specification.K
        return f"the parameters of a mixture of {K} experts fitted to at most 3,000 rows of the site"


@dataclass(frozen=True, eq=False)
class StartCandidates:
    """The mixture a site found, or none where it has too little to find one.

    Examples
    --------
    >>> StartCandidates(()).mixtures
    ()
    """

    mixtures: tuple[Mixture, ...]


@dataclass(frozen=True, eq=False)
class FitSite:
    """Asks for a site's own fit to all of its rows: :class:`LocalFit`, the one answer of a one-shot study.

    Parameters
    ----------
    specification : Specification
    orders : tuple of int
        Numbers of experts to try; the site answers with the fit that has the least BIC on its rows.
    seed, n_init : int
        Of the starts at the site.
    tol, max_iter
        As in :func:`~consilience.fit.climb`.
    start : Mixture or None
        A start for fits of its order, in place of the site's own.
    columns : tuple of int or None
        Numbers of covariates and responses that the site's rows must have; None takes them as they are.
    describe : bool
        Whether the answer describes how the covariates are spread, where combining fits needs it.

    Examples
    --------
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
        """What an answer discloses."""
        orders = self.orders
        most = f"at most {max(orders)} experts" if len(orders) > 1 else f"{orders[0]} experts"
        described = (
            "a small mixture that describes the covariates, with shares of the values that columns with at most 8 "
            "of them have in at least 5 rows; "
        )
        return (
            f"the parameters of a mixture of {most} fitted to all rows of the site, and for each expert its number "
            "of rows (and groups), the second moments of the covariates and the precision of the coefficients; the "
            f"log-likelihood, and why the fit stopped; {described if self.describe else ''}the mean exposure; means "
            "and variances of the covariates, means and covariances of the responses"
        )


@dataclass(frozen=True, eq=False)
class LocalFit:
    """A site's answer to :class:`FitSite`: its model, or none where it has too few rows for one.

    Parameters
    ----------
    summary : ColumnSummary
        Weight, means and spreads of the site's columns: the coordinates and the floor of the combined fit.
    model : SiteModel or None
    stop : StopReason or None
        Why the site's fit ended.

    Examples
    --------
    >>> import numpy as np
    >>> LocalFit(ColumnSummary(9.0, np.zeros(1), np.ones(1), np.zeros(1), np.eye(1)), None, None).model is None
    True
    """

    summary: ColumnSummary
    model: SiteModel | None
    stop: StopReason | None


@dataclass(frozen=True, eq=False)
class SquaredResponses:
    """Asks for ``Σ w y² x̃ x̃ᵀ`` on a design, with one response: :class:`~consilience.fit.spectral.SquaredMoments`.

    Examples
    --------
    >>> SquaredResponses(Design.raw(2)).design.p
    3
    """

    design: Design

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        return "the total weight, and the sum over rows of y² xxᵀ"


@dataclass(frozen=True, eq=False)
class CriticSums:
    """Asks how a critic tells the site's rows from a mixture of regressions: ``MinimaxSums``.

    Parameters
    ----------
    mixture : Mixture
        Gaussian, with constant shares, one response and one variance.
    above, below : (K, p) array
        The two mixtures whose log ratio the critic is (:func:`~consilience.model.critic.minimax_sums`).

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import ConstantGate, GaussianExperts
    >>> B = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]])
    >>> mixture = Mixture(Design.raw(1), ConstantGate(np.full(2, 0.5)), GaussianExperts(B, np.ones((2, 1, 1))))
    >>> CriticSums(mixture, B[:, 0], B[:, 0]).above.shape
    (2, 2)
    """

    mixture: Mixture
    above: Array
    below: Array

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        K = self.mixture.K
        return (
            f"for {K} experts and two critics of each, sums over rows of x weighted by how the rows differ from the "
            "mixture; sums of responsibilities, the squared residuals, the total weight and the log-likelihood"
        )


@dataclass(frozen=True, eq=False)
class Several:
    """Asks several questions in one message: :class:`Answers`. Where all of them add, one reading of the data serves.

    Examples
    --------
    >>> len(Several((Summarise(1, 1), Summarise(2, 1))).questions)
    2
    """

    questions: tuple[Question, ...]

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        times = Counter(part.disclosed for part in self.questions)
        return "; ".join(what if n == 1 else f"{n} times {what}" for what, n in times.items())


@dataclass(frozen=True, eq=False)
class Sample:
    """Asks a question of a random share of the site's labels: rows, or clients. Sums are divided by the share.

    So the expected answer is the answer of all of them. Who is drawn is decided at the site, anew for every seed.

    Parameters
    ----------
    question : Expect or Score
    share : float
        Probability with which a label is drawn.
    seed : int

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> Sample(Expect(soft(10, random_state=0).truth), share=0.5, seed=3).share
    0.5
    """

    question: Expect | ScoreSums
    share: float
    seed: int

    @property
    def disclosed(self) -> str:
        """What an answer discloses."""
        return f"of a share of {100 * self.share:.3g} % of the rows or clients, at random: {self.question.disclosed}"


@dataclass(frozen=True, eq=False)
class Bundle:
    """A question for each of some sites, as engines carry it; a site is shown its own.

    Parameters
    ----------
    places : tuple of int
        Of the sites in the order of the engine.
    questions : tuple of Question

    Examples
    --------
    >>> question_for(Bundle((0, 4), (Summarise(1, 1), Summarise(2, 1))), 4)
    Summarise(d=2, q=1)
    """

    places: tuple[int, ...]
    questions: tuple[Question, ...]


def question_for(asked: Question | Bundle, place: int) -> Question:
    """The question that the site at a place is asked.

    Examples
    --------
    >>> question_for(Summarise(1, 1), 3)
    Summarise(d=1, q=1)
    """
    return asked.questions[asked.places.index(place)] if isinstance(asked, Bundle) else asked


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to :class:`Several`, in its order; they add one by one.

    Examples
    --------
    >>> a = Answers((Likelihood(-1.0, 1.0),))
    >>> (a + a).items
    (Likelihood(log_likelihood=-2.0, weight=2.0),)
    """

    items: tuple[Any, ...]

    def __add__(self, other: Answers) -> Answers:
        return Answers(tuple(a + b for a, b in zip(self.items, other.items, strict=True)))


Question = (
    Summarise
    | Expect
    | ScoreSums
    | Sample
    | LogLikelihood
    | Pairs
    | Clients
    | Sizes
    | Anchors
    | LocalSteps
    | ProposeStart
    | FitSite
    | SquaredResponses
    | CriticSums
    | Several
)
Answer = (
    ColumnSummary
    | Statistics
    | PairSums
    | ClientMoments
    | ClientSizes
    | AnchorSteps
    | ClusterSums
    | Likelihood
    | StartCandidates
    | LocalFit
    | SquaredMoments
    | MinimaxSums
    | Answers
)

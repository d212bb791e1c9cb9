"""Task of a federated method, and the interface that every method implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

from consilience.errors import InvalidInputError
from consilience.fit import Fit, Problem, Specification
from consilience.messages import Dialogue, FitSite
from consilience.model import ColumnSummary, Mixture
from consilience.numerics.budget import Budget

OTHER_ROUNDS = 100
"""Rounds for summaries, starts and reports in the budget of a method."""
ROUNDS_PER_ITERATION = 10
"""Rounds for each iteration in the budget of a method: shortened steps, and climbs that end one after another."""


@dataclass(frozen=True, eq=False)
class Task:
    """Models to fit, numbers of columns, and budgets of the fit.

    Parameters
    ----------
    specifications : sequence of Specification
        One for each number of experts.
    d, q : int
        Numbers of covariates and responses.
    start : Mixture or None
        Start that replaces the method's own.
    seed, n_init : int
        Seed and number of the starts.
    tol : float
        Gain in penalised log-likelihood per unit of weight at which a full EM step counts as converged.
    max_iter : int
        Maximum number of iterations.
    names : tuple of str
        Names of the columns of ``X``, for remarks on sites; empty if they have none.
    responses : tuple of str
        Names of the responses, for the same.
    clustered : bool
        Whether the rows of sites have clusters.
    sandwich : bool
        Whether sites may be asked for products of scores, so that standard errors are those of one table.
    institutions : mapping of str to str
        Institution of each site that shares one with others; other sites stand for themselves.
    sites : tuple of str
        Names of the sites, for a method that names them in its questions.

    Examples
    --------
    >>> from consilience import Task
    >>> from consilience.fit import Specification
    >>> Task([Specification(K=2)], d=3, q=1).only("MyMethod").K
    2
    """

    specifications: Sequence[Specification]
    d: int
    q: int
    start: Mixture | None = None
    seed: int = 0
    n_init: int = 6
    tol: float = 1e-9
    max_iter: int = 500
    names: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    clustered: bool = False
    sandwich: bool = True
    institutions: Mapping[str, str] = field(default_factory=dict)
    sites: tuple[str, ...] = field(default=(), repr=False)

    def only(self, method: str) -> Specification:
        """Return the only specification; raise an error that names the method if there are several."""
        if len(self.specifications) != 1:
            raise InvalidInputError(
                f"{method} fits one number of experts at a time: choose it with FederatedEM or OneShot"
            )
        return self.specifications[0]

    def fit_site(self, *, describe: bool) -> FitSite:
        """Return the question for each site's own fit; the site selects the number of experts by BIC."""
        orders = tuple(specification.K for specification in self.specifications)
        first, columns = self.specifications[0], (self.d, self.q)
        return FitSite(first, orders, self.seed, self.n_init, self.tol, self.max_iter, self.start, columns, describe)

    def problem(self, specification: Specification, summary: ColumnSummary, *, newton: bool = True) -> Problem:
        """Return the maximum likelihood problem of a specification, with the budgets of the task."""
        return Problem(specification, summary, self.tol, self.max_iter, newton)


def check_whole(name: str, value: object, expected: str = "a whole number of at least 1", *, least: int = 1) -> None:
    """Raise an error for a parameter of a method that is not a whole number, or below ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InvalidInputError(f"{name}={value!r}: expected {expected}")


def check_participation(share: float) -> None:
    """Raise an error for a share of participants that is none."""
    if not 0 < share <= 1:
        raise InvalidInputError(f"participation={share!r}: expected a share above 0, at most 1")


@dataclass(frozen=True)
class QuestionKind:
    """A kind of question of a method, and how often a site is asked it, for people who decide on the answers.

    Parameters
    ----------
    question : type
        A question of the table.
    when : str
        When it is asked, in words.
    most : int or None
        Maximum number of rounds in which a site is asked it; None for no limit but that of the run.

    Examples
    --------
    >>> print(QuestionKind(FitSite, "first", 1))
    once, first
    """

    question: type[Any]
    when: str
    most: int | None = None

    def __str__(self) -> str:
        if self.most is None:
            return self.when
        return f"{'once' if self.most == 1 else f'in at most {self.most} rounds'}, {self.when}"


class Method(ABC):
    """Base class of federated methods: settings, and the dialogue that they define.

    Subclass it, as a frozen dataclass of the method's settings, and pass an instance to
    :meth:`consilience.Federation.fit`. A dialogue returns one :class:`~consilience.fit.Fit` for each specification of
    the task, or None if it cannot be fitted. A method with results for single sites returns a subclass of ``Fit``
    with these results: see :meth:`~consilience.fit.Fit.evidence`, :meth:`~consilience.fit.Fit.site_fits` and
    :attr:`~consilience.fit.Fit.doubts`.

    Examples
    --------
    >>> from consilience import Method, Task
    >>> from consilience.fit import Specification
    >>> from dataclasses import dataclass
    >>> from consilience.fit import Expect
    >>> from consilience.messages import Summarise, Total
    >>> @dataclass(frozen=True)
    ... class OneStep(Method):
    ...     def dialogue(self, task):
    ...         problem = task.problem(task.only("OneStep"), (yield Total(Summarise(task.d, task.q))))
    ...         statistics = yield Total(Expect(problem.blank))
    ...         return problem.blank.maximise(statistics, problem.penalty)
    >>> next(OneStep().dialogue(Task([Specification(K=2)], d=1, q=1))).question
    Summarise(d=1, q=1)
    """

    by_client: ClassVar[bool] = False
    """Whether the latent label belongs to a client; sites then treat each client as a group of rows."""
    partial: ClassVar[bool] = False
    """Whether sites may be absent in some rounds, so that ``on_drop="skip"`` is allowed."""

    def check_shared(self, specifications: Sequence[Specification]) -> None:
        """Raise an error if experts share coefficients, which a method can fit that overrides this."""
        if any(specification.shared for specification in specifications):
            name = type(self).__name__
            raise InvalidInputError(f"{name} fits no shared coefficients: leave shared out, or use FederatedEM()")

    @property
    def budget(self) -> Budget | None:
        """What each site may spend on noisy answers; None without noise."""
        return None

    @property
    def masked(self) -> int | None:
        """Number of colluding sites that masked sums tolerate; None if the answers of sites are not masked."""
        return None

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return the kinds of questions that a site may be asked; none if the method does not say."""
        return ()

    def most_rounds(self, task: Task) -> int:
        """Return the number of rounds after which a run is ended with an error; far more than any fit needs."""
        own = getattr(self, "rounds", 0) + getattr(self, "refine", 0)
        return OTHER_ROUNDS + ROUNDS_PER_ITERATION * max(task.max_iter, own)

    @abstractmethod
    def dialogue(self, task: Task) -> Dialogue[Sequence[Fit | None]]:
        """Return the dialogue that fits the specifications of a task."""

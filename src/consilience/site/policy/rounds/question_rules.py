"""Rules on a question itself, before any row is read: its kind, its settings, its cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from consilience.fit.climb import Expect
from consilience.messages.codec import is_same_question
from consilience.messages.questions import FitSite, ProposeStart, Question, Sample, ScoreSums, Several
from consilience.messages.table import encode
from consilience.numerics.arrays import triangle_size
from consilience.site.policy.policy import Policy
from consilience.site.policy.rounds.leverage import BLOCK
from consilience.site.policy.rounds.refusal import RefusedQuestionError
from consilience.site.policy.rounds.weightings import Weighting

PASSES = 8
"""Passes over the rows for the leverages, about."""
WHY_OFF = {
    "Sample": "sums over a part of the rows differ by single rows from sums over another part",
    "ProposeStart": "mixtures that a site fits to some of its rows at a coordinator's wish can hold single rows",
    "SquaredResponses": "fourth moments with second moments give all rows if there are few rows for each column",
    "Pairs": "products of pairs of rows give all rows if there are few rows for each column",
    "Clients": "it shows the moments of each client, and of single rows if a client has one",
    "Anchors": "it shows steps of chosen clients, from which the responses of clients with few rows follow",
    "Sizes": "it shows the number of rows of each client",
    "LocalSteps": "it shows sums over the clients of each cluster, which can be one client",
    "CriticSums": "it weighs rows by the responsibilities of three mixtures at once, and not all are in the leverage",
    "Identify": "it shows the number of rows, and whether they have changed",
}
"""Why a question is not answered unless the site's policy lists it."""


def parts_of(question: Question) -> Iterator[Question]:
    """Yield the questions in a question, and itself unless it is several: batches count by what is in them.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> [type(part).__name__ for part in parts_of(Several((Summarise(1, 1), Several((Summarise(2, 1),)))))]
    ['Summarise', 'Summarise']
    """
    if isinstance(question, Several):
        for part in question.questions:
            yield from parts_of(part)
        return
    yield question
    if isinstance(question, Sample):
        yield question.question


def check_kind(question: Question, policy: Policy) -> None:
    """Raise an error unless the policy lists every question in a question.

    Examples
    --------
    >>> from consilience.messages.questions import Identify
    >>> try:
    ...     check_kind(Identify(), Policy.of_profile())
    ... except RefusedQuestionError as refusal:
    ...     print(refusal)
    the policy does not list Identify: it shows the number of rows, and whether they have changed
    """
    for part in parts_of(question):
        name = type(part).__name__
        listed = {name, "Expect"} if isinstance(part, ScoreSums) else {name}  # a part of the sums of Expect
        if not listed & set(policy.rounds.questions):
            why = WHY_OFF.get(name, "the site has taken it off the list")
            raise RefusedQuestionError("questions", f"the policy does not list {name}: {why}")


def check_settings(question: Question, study: FitSite | None) -> None:
    """Raise an error unless a site's own fit is the one of the study: its orders, seed, starts and iterations.

    No start crosses the border: a start chosen for a site makes its experts hold single rows.
    """
    for part in parts_of(question):
        if isinstance(part, FitSite | ProposeStart):
            if study is None:
                raise RefusedQuestionError(
                    "settings", "there is no study to compare a fit with: state the study of the run"
                )
            if isinstance(part, FitSite):
                wanted: Question = replace(study, start=None, describe=part.describe)
            else:
                orders = [study.specification.with_order(K) for K in study.orders]
                own = [each for each in orders if each.K == part.specification.K] or orders[:1]
                wanted = ProposeStart(own[0], part.summary, study.seed, study.n_init)
            if not is_same_question(encode(wanted), encode(part)):
                raise RefusedQuestionError(
                    "settings", "orders, seed, starts, iterations and penalties are the study's, and no start is taken"
                )


def check_cost(weightings: Sequence[Weighting], rank: int, n: int, policy: Policy) -> None:
    """Raise an error if the sums at some mixtures, and their leverages, take too much work or memory.

    With n rows, c new vectors, a span of dimension r and p covariates, the work is about ``n (K p² + 8 (r + c) c +
    (r + c)²)`` multiplications, and the memory ``(r + c)² + b (r + c)`` numbers for blocks of b rows.
    """
    vectors = sum(_vectors(each) for each in weightings)
    sums = sum(_sums(each) for each in weightings)
    r = rank + vectors
    work = n * (sums + PASSES * r * vectors + r * r)
    memory = 8 * (2 * r * r + 2 * BLOCK * r) / 1e6
    if work > policy.rounds.max_operations:
        raise RefusedQuestionError(
            "max_operations", f"the question takes about {work:.0e} multiplications: ask fewer mixtures"
        )
    if memory > policy.rounds.max_memory:
        raise RefusedQuestionError(
            "max_memory", f"the question takes about {memory:,.0f} MB: ask fewer mixtures at a time"
        )


def _vectors(weighting: Weighting) -> int:
    """Return an upper bound on the vectors of a weighting."""
    K, channels = weighting.mixture.K, weighting.mixture.experts.channels
    return 2 + 2 * K + (1 + weighting.information) * triangle_size(K * channels) + 2 * K * channels


def _sums(weighting: Weighting) -> int:
    """Return about the multiplications of the sums, for each row."""
    mixture = weighting.mixture
    p, K = mixture.design.p, mixture.K
    gate = triangle_size(K - 1) if mixture.gate.reads_covariates else 0
    missing = triangle_size(2 * K) if weighting.information else 0
    return (K * mixture.experts.channels + gate + missing) * triangle_size(p)


def order_of(question: Question) -> int:
    """Return the order of the moments that a question asks for: 4 if products of four columns are in the sums.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> order_of(Summarise(1, 1))
    2
    """
    fourth = {"SquaredResponses", "Pairs"}
    informed = [part for part in parts_of(question) if isinstance(part, Expect) and part.information]
    return 4 if informed or any(type(part).__name__ in fourth for part in parts_of(question)) else 2

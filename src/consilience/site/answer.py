"""Answer questions from the rows of a site: decoded questions in, encoded answers or failure codes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any
from zlib import crc32

import numpy as np

from consilience.errors import InvalidInputError, MessageError
from consilience.fit.climb import Expect
from consilience.fit.criteria import label_count, log_likelihood
from consilience.fit.fitting import best_start
from consilience.fit.spectral import squared_moments
from consilience.messages.anchor_questions import Anchors, LocalSteps, Sizes
from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.codec import OtherFormatError
from consilience.messages.failures import Failure, FailureCode, SiteError
from consilience.messages.questions import (
    Answer,
    Answers,
    CriticSums,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    ProposeStart,
    Question,
    Sample,
    ScoreSums,
    Several,
    SquaredResponses,
    StartCandidates,
    Summarise,
)
from consilience.messages.table import decode, encode
from consilience.model.clients.anchors import AnchorSteps, anchor_steps, client_sizes
from consilience.model.clients.local_steps import local_steps
from consilience.model.clients.moments import client_moments
from consilience.model.clients.pairs import pair_sums
from consilience.model.critic import minimax_sums
from consilience.model.expectation import expect, score_sums
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows, sampled
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary, column_summary
from consilience.site.local_fit import local_fit
from consilience.site.site import Site


def answer(question: Question, site: Site, policy: None = None) -> Answer:
    """Answer a question from the rows of a site: the only function of the library that reads a site's data.

    Parameters
    ----------
    question : Question
    site : Site
    policy : None
        Reserved for disclosure policies; None for data of a single owner.

    Returns
    -------
    Answer

    Raises
    ------
    SiteError
        Has the :class:`FailureCode` that may leave the site.

    Examples
    --------
    >>> site = Site("north", Rows(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    >>> answer(Summarise(d=1, q=1), site).y_mean
    array([2.])
    """
    if isinstance(question, ProposeStart):
        return _candidates(question, site)
    if isinstance(question, FitSite):
        return _local_fit(question, site)
    if isinstance(question, Sample):
        return _sampled(question, site)
    if isinstance(question, Anchors):
        return _anchored(question, site)
    if isinstance(question, Several) and not all(type(part) in CONTRIBUTIONS for part in question.questions):
        return Answers(tuple(answer(part, site, policy) for part in question.questions))
    return reduce(_add, (_contribution(question, rows) for rows in site.chunks()))


def _add(a: Answer, b: Answer) -> Answer:
    total: Answer = add(a, b)
    return total


def _contribution(question: Question, rows: Rows) -> Answer:
    """Compute the contribution of ``rows`` to the answer."""
    if isinstance(question, Several):
        return Answers(tuple(_contribution(part, rows) for part in question.questions))
    if type(question) not in CONTRIBUTIONS:
        raise SiteError(FailureCode.NO_ANSWER_TO_KIND, type(question).__name__)
    readable, contribution = CONTRIBUTIONS[type(question)]
    readable(question, rows)
    part: Answer = contribution(question, rows)
    return part


def _sampled(question: Sample, site: Site) -> Statistics:
    """Answer from a random sample of labels, divided by the sampling fraction."""
    rng = np.random.default_rng([question.seed, crc32(site.name.encode())])
    parts = (_contribution(question.question, sampled(rows, question.share, rng)) for rows in site.chunks())
    total: Statistics = reduce(_add, parts)  # type: ignore[assignment]
    return total.scaled(1 / question.share)


def _anchored(question: Anchors, site: Site) -> AnchorSteps:
    """Compute the steps of some clients, numbered over all pieces of the data."""
    for rows in site.chunks():
        _reads_design(question, rows)
    found = anchor_steps(site.chunks(), question.places, question.design, question.theta, question.basis)
    if np.any(np.isnan(found.step)):
        raise MessageError("the question names a client that the site does not have")
    return found


def _candidates(question: ProposeStart, site: Site) -> StartCandidates:
    """Fit a mixture to a sample of the rows; return none if there are fewer labels than experts."""
    rng = np.random.default_rng(question.seed)
    rows, summary = site.sample(rng), question.summary
    _check_rows(rows, question.specification.blank(summary))
    if _labels(rows) < question.specification.K:
        return StartCandidates(())
    try:
        mixture, _ = best_start(rows, question.specification, summary, rng, n_init=question.n_init, progress=None)
    except (InvalidInputError, np.linalg.LinAlgError):
        return StartCandidates(())
    return StartCandidates((mixture,))


def _local_fit(question: FitSite, site: Site) -> LocalFit:
    """Fit the site's own mixture, after checking its rows."""
    (d, q), specification = question.columns or site.shape, question.specification
    for rows in site.chunks():
        _check_rows(rows, specification.blank(ColumnSummary.unit(d, q)))
    return local_fit(question, site)


def _labels(rows: Rows) -> int:
    """Count the labels with positive weight: rows, or groups."""
    present = np.ones(rows.n, dtype=bool) if rows.weight is None else rows.weight > 0
    return int(present.sum()) if rows.groups is None else len(np.unique(rows.groups.codes[present]))


# ---------------------------------------------------------------- checks


def _check_shape(rows: Rows, d: int, q: int) -> None:
    if rows.X.shape[1] != d or rows.Y.shape[1] != q:
        raise SiteError(FailureCode.OTHER_COLUMNS, f"{rows.X.shape[1]} covariates, {rows.Y.shape[1]} responses")


def _check_rows(rows: Rows, mixture: Mixture) -> None:
    """Raise a failure code for rows that the mixture cannot take."""
    experts = mixture.experts
    _check_shape(rows, mixture.design.d, experts.q)
    if not experts.in_range(rows):
        raise SiteError(FailureCode.OUT_OF_RANGE, experts.range_sentence)


def _reads_mixture(asked: Any, rows: Rows) -> None:
    _check_rows(rows, asked.mixture)


def _reads_design(asked: Any, rows: Rows) -> None:
    _check_shape(rows, asked.design.d, 1)


def _reads_rows_alone(asked: Any, rows: Rows) -> None:
    _check_rows(rows, asked.mixture)
    if rows.groups is not None:
        raise SiteError(FailureCode.GROUPED)


CONTRIBUTIONS: dict[type, tuple[Callable[[Any, Rows], None], Callable[[Any, Rows], Answer]]] = {
    Summarise: (lambda asked, rows: _check_shape(rows, asked.d, asked.q), lambda _, rows: column_summary(rows)),
    Expect: (_reads_mixture, lambda asked, rows: expect(asked.mixture, rows, information=asked.information)),
    ScoreSums: (_reads_mixture, lambda asked, rows: score_sums(asked.mixture, rows)),
    LogLikelihood: (
        _reads_mixture,
        lambda asked, rows: Likelihood(log_likelihood(asked.mixture, rows), label_count(rows)),
    ),
    Pairs: (_reads_design, lambda asked, rows: pair_sums(rows, asked.design, asked.theta, asked.basis)),
    Clients: (_reads_design, lambda asked, rows: client_moments(rows, asked.design, asked.theta, asked.basis)),
    SquaredResponses: (_reads_design, lambda asked, rows: squared_moments(asked.design, rows)),
    Sizes: (lambda *_: None, lambda _, rows: client_sizes(rows)),
    LocalSteps: (
        _reads_mixture,
        lambda asked, rows: local_steps(asked.mixture, rows, steps=asked.steps, rate=asked.rate, prox=asked.prox),
    ),
    CriticSums: (_reads_rows_alone, lambda asked, rows: minimax_sums(asked.mixture, asked.above, asked.below, rows)),
}
"""For each question with additive answers: the check of the rows, and their contribution to the answer."""

# ---------------------------------------------------------------- encoded questions and answers


def respond(question: bytes | Question, site: Site, policy: None = None) -> bytes:
    """Answer an encoded question with an encoded answer or failure; never raises, and no traceback leaves the site.

    Examples
    --------
    >>> site = Site("north", Rows(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    >>> decode(respond(encode(Summarise(d=1, q=1)), site)).weight
    2.0
    >>> print(decode(respond(b"noise", site)))
    the question could not be read (reference 1)
    """
    try:
        asked = decode(question) if isinstance(question, bytes) else question
        return encode(answer(asked, site, policy))
    except Exception as error:  # noqa: BLE001 - whatever happens at a site stays there: the trace is kept, a code leaves
        return encode(Failure(_code(error), site.keep_trace(error)))


def _code(error: Exception) -> FailureCode:
    match error:
        case SiteError():
            return error.code
        case OtherFormatError():
            return FailureCode.OTHER_FORMAT
        case MessageError():
            return FailureCode.UNREADABLE_QUESTION
    return FailureCode.INTERNAL

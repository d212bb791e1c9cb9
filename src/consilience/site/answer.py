"""Answer questions from the rows of a site: decoded questions in, encoded answers or failure codes out."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any
from zlib import crc32

import numpy as np

from consilience.errors import InvalidInputError, MessageError
from consilience.fit.noisy_totals import NoisyTotal
from consilience.fit.own_steps import Asked, own_steps
from consilience.fit.starts import search
from consilience.messages import Answers, Failure, FailureCode, Question, Several, SiteError, encode, questions
from consilience.messages.checks import TooCostlyError, check_rows, check_work
from consilience.messages.codec import OtherFormatError
from consilience.messages.questions import Answer
from consilience.messages.table import decode_question, receive, row_of
from consilience.model import ColumnSummary, Rows, Statistics
from consilience.model.contributions import private_total
from consilience.model.group_contributions import Seen, group_total
from consilience.model.likelihoods import likelihood_total
from consilience.model.rows import sample_labels
from consilience.model.squares import square_total
from consilience.numerics.budget import noise_variance, shared_variance
from consilience.numerics.discrete_gaussian import discrete_gaussian
from consilience.site.local_fit import local_fit
from consilience.site.masks import masked
from consilience.site.site import Site


def answer(question: Question, site: Site) -> Answer:
    """Answer a question from the rows of a site: the only function of the library that reads a site's data.

    Parameters
    ----------
    question : Question
    site : Site

    Returns
    -------
    Answer

    Raises
    ------
    SiteError
        Has the :class:`FailureCode` that may leave the site.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows
    >>> from consilience.site import Site, answer
    >>> from consilience.messages import Summarise
    >>> site = Site("north", Rows(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    >>> answer(Summarise(d=1, q=1), site).y_mean
    array([2.])
    """
    check_private(question, site)
    own = OWN.get(type(question))
    if own is not None:
        return own(question, site)
    if isinstance(question, Several):
        if not is_sum(question):
            return Answers(tuple(answer(part, site) for part in question.questions))
    elif (whole := row_of(question).whole) is not None:
        return whole(question, site.chunks)
    return reduce(_add, (_contribution(question, rows) for rows in site.chunks()))


def check_private(question: Question, site: Site) -> None:
    """Raise an error unless a site with an account is asked for noise, one with masks for masked noise, others not."""
    asked = question.questions if isinstance(question, Several) else (question,)
    if any(isinstance(part, questions.PRIVATE) == (site.account is None) for part in asked):
        raise SiteError(FailureCode.REFUSED, "a site answers with noise if it has a budget for it, and then only so")
    if any(isinstance(part, questions.Masked) == (site.masks is None) for part in asked):
        raise SiteError(FailureCode.REFUSED, "a site masks its answers if the study says so, and then all of them")


def is_sum(question: Question) -> bool:
    """Whether the answer is a sum of contributions of rows, whoever holds them."""
    parts = question.questions if isinstance(question, Several) else (question,)
    return all(row_of(part).contribution for part in parts)


def _add(a: Answer, b: Answer) -> Answer:
    total: Answer = add(a, b)
    return total


def _contribution(question: Question, rows: Rows) -> Answer:
    """Compute the contribution of ``rows`` to the answer."""
    if isinstance(question, Several):
        return Answers(tuple(_contribution(part, rows) for part in question.questions))
    row = row_of(question)
    if row.contribution is None:
        raise SiteError(FailureCode.NO_ANSWER_TO_KIND, type(question).__name__)
    row.reads(question, rows)
    part: Answer = row.contribution(question, rows)
    return part


def _sampled(question: questions.Sample, site: Site) -> Statistics:
    """Answer from a random sample of labels, divided by the sampling fraction."""
    rng = np.random.default_rng([question.seed, crc32(site.name.encode())])
    parts = (_contribution(question.question, sample_labels(rows, question.share, rng)) for rows in site.chunks())
    total: Statistics = reduce(_add, parts)
    return total.scaled(1 / question.share)


def _private_sum(question: questions.PrivateSum, site: Site) -> questions.NoisySums:
    """Add up the contributions of all rows, and add discrete Gaussian noise of the site's budget."""
    assert site.account is not None  # noqa: S101 - for the type checker: check_private has looked
    sensitivity = site.account.sensitivity(question.size)

    def draw(rho: Fraction) -> questions.NoisySums:
        total = total_over(question, site)
        variance = noise_variance(sensitivity, rho)
        noise = discrete_gaussian(variance, len(total))
        return questions.NoisySums(tuple(map(add, total, noise)), question.clip, variance)

    return site.account.answer(question.place, encode(question), draw)


def _masked(question: questions.Masked, site: Site) -> questions.MaskedSums:
    """Add this site's share of the noise to its sums, and mask them."""
    assert site.account is not None and site.masks is not None  # noqa: S101, PT018 - for the type checker, as above
    asked, sites, colluding = question.question, question.sites, site.masks.colluding
    sensitivity = site.account.sensitivity(asked.size)
    masks = site.masks.drawn(asked.size + 1, sites, encode(question))  # what fails is not charged

    def draw(rho: Fraction) -> questions.MaskedSums:
        total = total_over(asked, site)
        share = shared_variance(sensitivity, rho, len(sites), colluding)
        noisy = list(map(add, total, discrete_gaussian(share, len(total))))
        return questions.MaskedSums(masked(noisy, masks, len(sites)), asked.clip, share)

    return site.account.answer(question.place, encode(question), draw)


def _private_steps(question: questions.PrivateSteps, site: Site) -> questions.NoisySteps:
    """Take steps on the rows of the site alone; each sum is charged to its budget before its noise is drawn."""
    walk = own_steps(question.start, question.covariates)
    asked, found = next(walk, None), list[tuple[Asked, questions.NoisySums]]()
    while asked is not None:
        step = asked.step
        places = range(asked.place, asked.place + asked.share)
        parts = (questions.PrivateScores(step.mixture, step.factor, step.clip, place) for place in places)
        sums: questions.NoisySums = reduce(add, (_private_sum(part, site) for part in parts))
        found.append((asked, sums))
        try:
            asked = walk.send(NoisyTotal.of(step, sums.values, sums.variance, asked.share))
        except StopIteration:
            break
    return questions.NoisySteps(
        tuple(each.step.mixture for each, _ in found),
        np.array([each.step.damping for each, _ in found]),
        tuple(each.share for each, _ in found),
        tuple(sums for _, sums in found),
    )


def total_over(question: questions.PrivateSum, site: Site) -> list[int]:
    """Add up the contributions of the rows of a site, without noise."""
    total, seen = [0] * (question.size + 1), Seen()
    for rows in site.chunks():
        row_of(question).reads(question, rows)
        total = list(map(add, total, contributed(question, rows, seen)))
    return total


def contributed(question: questions.PrivateSum, rows: Rows, seen: Seen) -> list[int]:
    """Add up the contributions of some rows, or of their groups, without noise."""
    if isinstance(question, questions.PrivateLikelihoods):
        return likelihood_total(question.mixtures, rows, question.clip)
    if isinstance(question, questions.PrivateScores) and rows.groups is not None:
        return group_total(question.mixture, rows, question.factor, question.clip, seen)
    summed = private_total if isinstance(question, questions.PrivateScores) else square_total
    return summed(question.mixture, rows, question.factor, question.clip)


def _candidates(question: questions.ProposeStart, site: Site) -> questions.StartCandidates:
    """Fit mixtures to a sample of the rows; return none if there are fewer labels than experts."""
    rng = np.random.default_rng(question.seed)
    rows, summary = site.sample(rng), question.summary
    check_rows(rows, question.specification.blank(summary))
    if _labels(rows) < question.specification.K:
        return questions.StartCandidates(())
    try:
        found = search(rows, question.specification, summary, rng, n_init=question.n_init)
    except (InvalidInputError, np.linalg.LinAlgError):
        return questions.StartCandidates(())
    return questions.StartCandidates(found.contenders)


def _local_fit(question: questions.FitSite, site: Site) -> questions.LocalFit:
    """Fit the site's own mixture, after checking its rows."""
    (d, q), specification = question.columns or site.shape, question.specification
    check_work(question, question.orders, d, q)
    for rows in site.chunks():
        check_rows(rows, specification.blank(ColumnSummary.unit(d, q)))
    return local_fit(question, site)


def _labels(rows: Rows) -> int:
    """Count the labels with positive weight: rows, or groups."""
    present = np.ones(rows.n, dtype=bool) if rows.weight is None else rows.weight > 0
    return int(present.sum()) if rows.groups is None else len(np.unique(rows.groups.codes[present]))


OWN: dict[type, Callable[[Any, Site], Answer]] = {
    questions.ProposeStart: _candidates,
    questions.FitSite: _local_fit,
    questions.Sample: _sampled,
    questions.PrivateScores: _private_sum,
    questions.PrivateSquares: _private_sum,
    questions.PrivateLikelihoods: _private_sum,
    questions.Masked: _masked,
    questions.PrivateSteps: _private_steps,
}
"""What answers the questions that need a site: its sample of rows, its name or its own fit."""

# ---------------------------------------------------------------- encoded questions and answers


def respond(question: bytes | Question, site: Site) -> bytes:
    """Answer an encoded question with an encoded answer or failure; never raises, and no traceback leaves the site.

    A site that receives bytes checks its own answer before it leaves. Sites of the coordinator's own process receive
    the question decoded, and the coordinator checks their answers.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.messages import encode
    >>> from consilience.model import Rows
    >>> from consilience.site import Site, respond
    >>> from consilience.messages import Summarise
    >>> site = Site("north", Rows(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    >>> from consilience.messages.table import decode
    >>> decode(respond(encode(Summarise(d=1, q=1)), site)).weight
    2.0
    >>> print(decode(respond(b"noise", site)))
    the question could not be read (reference 1 in the site's log)
    """
    try:
        asked = decode_question(question) if isinstance(question, bytes) else question
        watched = site.watched()
        message = encode(answer(asked, watched), watched.fingerprint)
        return _checked(asked, message) if isinstance(question, bytes) else message
    except Exception as error:  # noqa: BLE001 - whatever happens at a site stays there: the trace is kept, a code leaves
        return encode(Failure(_code(error), site.keep_trace(error)))


def _checked(asked: Question, message: bytes) -> bytes:
    """Return an encoded answer; raise an error if no data can give it. Numbers that overflow are left as they are."""
    found = receive(message, asked)
    if isinstance(found, Failure) and found.code in (FailureCode.IMPOSSIBLE, FailureCode.UNREADABLE_ANSWER):
        raise SiteError(FailureCode.IMPOSSIBLE, found.detail)
    return message


def _code(error: Exception) -> FailureCode:
    match error:
        case SiteError():
            return error.code
        case TooCostlyError():
            return FailureCode.TOO_COSTLY
        case OtherFormatError():
            return FailureCode.OTHER_FORMAT
        case MessageError():
            return FailureCode.UNREADABLE_QUESTION
    return FailureCode.INTERNAL

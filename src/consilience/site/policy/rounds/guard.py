"""The guard of a site in rounds: a question and what was asked so far in, a reply and what was asked since out.

Whatever goes wrong, one failure code leaves the site, without a reference; the reason stays there. A refusal is
charged, and ends the run: where a sequence of refusals begins is a fact about single rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from consilience.files.study import Study
from consilience.messages.failures import Failure, FailureCode
from consilience.messages.questions import Answer, Answers, FitSite, LocalFit, Question, Sample
from consilience.messages.table import decode, decode_question, encode
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.site.answer import respond
from consilience.site.policy.level_rules import level_rules
from consilience.site.policy.policy import Policy
from consilience.site.policy.release import checked
from consilience.site.policy.rounds.asked import Asked, own_weightings
from consilience.site.policy.rounds.leverage import Span, extended
from consilience.site.policy.rounds.question_rules import check_cost, check_kind, check_settings
from consilience.site.policy.rounds.refusal import RefusedQuestionError
from consilience.site.policy.rounds.replay import MakeDialogue, checked_question
from consilience.site.policy.rounds.row_rules import check_numbers, check_weights, weighs
from consilience.site.policy.rounds.weightings import Weighting, weightings_of
from consilience.site.policy.site_rules import site_rules
from consilience.site.site import Site

REFUSAL = encode(Failure(FailureCode.REFUSED))
"""The one reply to a question that is refused, whatever the rule."""
ENDED = "ended"
"""The rule that refuses what comes after the end of a run."""


@dataclass(frozen=True, eq=False)
class RoundsOf:
    """What a site knows of a run before its first question.

    Parameters
    ----------
    policy : Policy
        The site's own, tightened by the study.
    study : Study or None
        The data dictionary, for rules on columns and levels; without it no fit of the site's own is answered.
    fit : FitSite or None
        The study's question for a site's own fit.
    dialogue : callable or None
        Begins the study's dialogue, for the replay check of a method that asks for totals only.
    released : LocalFit or None
        The site's own fit as it was released in its file, which answers the study's question for it. Without one the
        site fits, and refuses if its fit does not keep the rules of the file.

    Examples
    --------
    >>> RoundsOf(Policy.of_profile()).policy.rounds.max_leverage
    0.5
    """

    policy: Policy
    study: Study | None = None
    fit: FitSite | None = None
    dialogue: MakeDialogue | None = None
    released: LocalFit | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a guard decided on one question.

    Parameters
    ----------
    reply : bytes
        What leaves the site: an encoded answer, or the one failure.
    asked : Asked
        What was asked so far, to be stored before the reply leaves.
    refusal : RefusedQuestionError or None
        Rule and reason of a refusal, for the site's ledger.
    """

    reply: bytes
    asked: Asked
    refusal: RefusedQuestionError | None = None


def guarded(question: bytes, site: Site, run: RoundsOf, asked: Asked, totals: Sequence[bytes] = ()) -> Outcome:
    """Answer a question in a round, or refuse it.

    Parameters
    ----------
    question : bytes
        Encoded question.
    site : Site
    run : RoundsOf
    asked : Asked
        What was asked so far over the rows of the site, in this run and in earlier ones.
    totals : sequence of bytes
        Encoded totals of the earlier rounds of the run, for the replay check.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.messages import Summarise
    >>> from consilience.model.rows import Rows
    >>> rng = np.random.default_rng(0)
    >>> site = Site("north", Rows(rng.normal(size=(60, 2)), rng.normal(size=(60, 1))))
    >>> run = RoundsOf(Policy.of_profile())
    >>> first = guarded(encode(Summarise(d=2, q=1)), site, run, Asked())
    >>> decode(first.reply).weight
    60.0
    >>> second = guarded(b"noise", site, run, first.asked)
    >>> second.refusal.rule, second.asked.ended, decode(second.reply).code.name
    ('unreadable', True, 'REFUSED')
    """
    try:
        return _answered(question, site, run, asked, totals)
    except RefusedQuestionError as error:
        refusal = error
    except Exception as error:  # noqa: BLE001 - whatever happens at a site stays there: one code leaves
        refusal = RefusedQuestionError("unreadable", f"the question could not be answered: {type(error).__name__}")
        site.keep_trace(error)
    return Outcome(REFUSAL, asked if refusal.rule == ENDED else asked.refused(), refusal)


def _answered(question: bytes, site: Site, run: RoundsOf, asked: Asked, totals: Sequence[bytes]) -> Outcome:
    policy = run.policy
    if asked.ended or asked.refusals >= policy.rounds.max_refusals:
        raise RefusedQuestionError(ENDED, "a question of this run, or too many in all, was refused: the run has ended")
    told = decode_question(question)
    check_kind(told, policy)
    check_settings(told, run.fit)
    if run.dialogue is not None and policy.rounds.replay_check:
        told = checked_question(told, run.dialogue, asked.told(totals), site.name)
    n = sum(rows.n for rows in site.chunks())
    check_numbers(told, n, site.shape[0] + 1, policy)
    _check_columns(site, run, asked)
    span, weightings = _span(asked, site, policy), weightings_of(told)
    check_cost(weightings, span.rank, n, policy)
    span = check_weights(span, weightings, site.chunks, policy)
    reply = _reply(told, site, run)
    own = _own_mixtures(decode(reply), site, run)
    span, _ = extended(
        span, _counted([each for mixture in own for each in own_weightings(mixture)], policy), site.chunks
    )
    later = asked.answered(encode(told), totals, own, span if weighs(policy) else None)
    return Outcome(reply, replace(later, fingerprint=site.fingerprint))


def _reply(told: Question, site: Site, run: RoundsOf) -> bytes:
    """Return the encoded answer; the fit of the site's file, if there is one, where it is asked for its own fit."""
    if isinstance(told, FitSite) and run.released is not None:
        return encode(run.released, site.watched().fingerprint)
    return respond(encode(_own_draw(told, site)), site)


def _rows(site: Site) -> Rows:
    """Return all rows of a site, in memory."""
    data = site.loaded().data
    if not isinstance(data, Rows):
        raise TypeError("the rows of a site were not loaded")
    return data


def _check_columns(site: Site, run: RoundsOf, asked: Asked) -> None:
    """Raise an error if the rows have changed in the run, or if columns or levels break a rule; once in a run."""
    if asked.fingerprint is not None:
        if asked.fingerprint != site.watched().fingerprint:
            raise RefusedQuestionError("data_changed", "the rows have changed since the first answer of the run")
        return
    if run.study is not None:
        rows = _rows(site)
        checks = site_rules(rows, None, run.study, run.policy) + level_rules(rows, run.study, run.policy)
        for check in checks:
            if not check.kept:
                raise RefusedQuestionError(check.rule, f"{check.scope}: the limit of {check.rule} is {check.limit:g}")


def _span(asked: Asked, site: Site, policy: Policy) -> Span:
    """Return the span of all weights so far, computed again if only the questions were stored."""
    if asked.span is not None or not weighs(policy):
        return asked.span or Span()
    return extended(Span(), _counted(asked.weightings, policy), site.chunks)[0]


def _counted(weightings: Sequence[Weighting], policy: Policy) -> Sequence[Weighting]:
    if policy.rounds.count_information:
        return weightings
    return [replace(each, information=False) for each in weightings]


def _own_draw(question: Question, site: Site) -> Question:
    """Return a question about a sample with a seed that only the site knows."""
    if not isinstance(question, Sample):
        return question
    if not site.key:
        raise RefusedQuestionError("settings", "a sample needs a secret of the site, from which it is drawn")
    mark = blake2b(str(question.seed).encode(), digest_size=4, key=site.key[:64])
    return replace(question, seed=int.from_bytes(mark.digest()))


def _own_mixtures(value: Answer | Failure, site: Site, run: RoundsOf) -> list[Mixture]:
    """Return the mixtures that a site fitted itself and that are in its answer, after the rules of the one file."""
    if isinstance(value, Failure):
        raise RefusedQuestionError("unreadable", f"the question could not be answered: {value}")
    parts = value.items if isinstance(value, Answers) else (value,)
    fits = [part for part in parts if isinstance(part, LocalFit)]
    for fit in fits:
        if run.study is None:
            raise RefusedQuestionError("settings", "there is no study whose columns a fit can be held against")
        for check in checked(fit, _rows(site), run.study, run.policy).failed:
            raise RefusedQuestionError(
                check.rule,
                f"the site's own fit: {check.scope}: the limit of {check.rule} is {check.limit:g}. To do: use one "
                "exchange by files, in which the site may merge experts before anything leaves",
            )
    return [fit.model.mixture for fit in fits if fit.model is not None]

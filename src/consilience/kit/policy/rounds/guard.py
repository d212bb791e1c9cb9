"""The guard of a site in rounds: the kind of a question, its rows, and whether the study asks it next.

The replay check: a site that is shown the totals of the earlier rounds computes itself what comes next.

A dialogue is a function of its arguments, which the study states, and of the answers. For a method that asks for totals
only, a site can run it and answer its own next question. A coordinator who wants to ask anything else must show false
totals. The check does not change what an honest run discloses.

The guard of a site in rounds: a question and what was asked so far in, a reply and what was asked since out.

Whatever goes wrong, one failure code leaves the site, without a reference; the reason stays there. A refusal is
charged, and ends the run: where a sequence of refusals begins is a fact about single rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from consilience.fit import Expect
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import check_release
from consilience.kit.policy.rounds.asked import Asked, RefusedQuestionError, own_weightings
from consilience.kit.policy.rounds.leverage import (
    BLOCK,
    Chunks,
    Span,
    Weighting,
    extend_span,
    largest_leverage,
    weightings_of,
)
from consilience.kit.policy.rules import dominance, level_rules, site_rules
from consilience.kit.study import Study
from consilience.messages import (
    Answers,
    Dialogue,
    Failure,
    FailureCode,
    FitSite,
    LocalFit,
    Pairs,
    ProposeStart,
    Question,
    Sample,
    ScoreSums,
    Several,
    Total,
    decode,
    encode,
)
from consilience.messages.codec import is_same_question
from consilience.messages.questions import Answer
from consilience.messages.table import decode_question
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import triangle_size
from consilience.site import Site, respond

MakeDialogue = Callable[[], Dialogue[Any]]
"""Begins the dialogue of the study."""


def own_question(make: MakeDialogue, totals: Sequence[bytes], site: str) -> Question:
    """Return what the study asks a site after some rounds with these totals."""
    dialogue = make()
    request = next(dialogue)
    try:
        for total in totals:
            request = dialogue.send(decode(total))
    except StopIteration as end:
        raise RefusedQuestionError(
            "replay_check", "the run of the study has ended, and nothing more is asked in it"
        ) from end
    if not isinstance(request, Total) or (request.sites is not None and site not in request.sites):
        raise RefusedQuestionError("replay_check", "the study does not ask this site for a part of a total now")
    return request.question


def verify_question(question: Question, make: MakeDialogue, totals: Sequence[bytes], site: str) -> Question:
    """Return the site's own next question, if the question that arrived is the same up to rounding.

    Parameters
    ----------
    question : Question
        The question that arrived.
    make : callable
        Begins the dialogue of the study.
    totals : sequence of bytes
        Encoded totals of all earlier rounds of the run.
    site : str
        Name of the site.
    """
    wanted = own_question(make, totals, site)
    if not is_same_question(encode(wanted), encode(question)):
        raise RefusedQuestionError(
            "replay_check", "this is not what the study asks after these totals: ask the coordinator why"
        )
    return wanted


# ---------------------------------------------------------------- question rules

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
    "ScoreProducts": "with the information, products of scores divided by 1 - leverage single out extreme rows",
}
"""Why a question is not answered unless the site's policy lists it."""


def parts_of(question: Question) -> Iterator[Question]:
    """Yield the questions in a question, and itself unless it is several: batches count by what is in them."""
    if isinstance(question, Several):
        for part in question.questions:
            yield from parts_of(part)
        return
    yield question
    if isinstance(question, Sample):
        yield question.question


def check_kind(question: Question, policy: Policy) -> None:
    """Raise an error unless the policy lists every question in a question."""
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
    """Return the order of the moments that a question asks for: 4 if products of four columns are in the sums."""
    fourth = {"SquaredResponses", "Pairs", "ScoreProducts"}
    informed = [part for part in parts_of(question) if isinstance(part, Expect) and part.information]
    return 4 if informed or any(type(part).__name__ in fourth for part in parts_of(question)) else 2


# ---------------------------------------------------------------- row rules

INSTEAD = (
    "To do: use one exchange instead (the one file, combined by OneShot(refine=0)), for which the site chooses its own "
    "weights; or wait for more rows, or ask the other sites for sums over more rows in all. Noise, which would allow "
    "more rounds, is not in this version"
)
"""What to do where rounds weigh single rows too much."""


def check_numbers(question: Question, n: int, columns: int, policy: Policy) -> None:
    """Raise an error if there are too few rows: in all, for fourth moments, for pairs, or for a sample.

    Parameters
    ----------
    question : Question
    n : int
        Rows of the site.
    columns : int
        Covariates, with the intercept: p.
    policy : Policy
    """
    limits = policy.rounds
    if n < policy.site.min_rows:
        raise RefusedQuestionError("min_rows", f"the policy asks for at least {policy.site.min_rows} rows")
    if order_of(question) == 4 and n < limits.rows_per_column * columns:
        least = limits.rows_per_column * columns
        raise RefusedQuestionError(
            "rows_per_column", f"fourth moments of {columns} columns need {least:g} rows: use fewer columns"
        )
    for part in parts_of(question):
        if isinstance(part, Pairs) and limits.rows_per_column > 0 and n < columns**2:
            raise RefusedQuestionError(
                "rows_per_column", f"pairs of rows with {columns} columns need {columns**2} rows"
            )
        if isinstance(part, Sample) and part.share * n < policy.site.min_rows:
            raise RefusedQuestionError("min_rows", "the sample would have too few rows")


def check_weights(span: Span, weightings: Sequence[Weighting], chunks: Chunks, policy: Policy) -> Span:
    """Return the span with the vectors of a question; raise an error if they rest on few rows, alone or together.

    Products of responsibilities, which the observed information needs, are held to the limit of the one file on the few
    rows that dominate them; whether they also count in the span is the policy's choice.
    """
    if not weightings or not weighs(policy):
        return span
    counted = weightings
    if not policy.rounds.count_information:
        check_information(weightings, chunks, policy)
        counted = [replace(each, information=False) for each in weightings]
    wider, thin = extend_span(span, counted, chunks, policy.experts.effective_rows)
    if thin.effective < policy.experts.effective_rows:
        raise RefusedQuestionError(
            "effective_rows",
            f"the {thin.name} rest on few rows: the limit of effective_rows is {policy.experts.effective_rows}, as "
            f"happens with a sharp gate or a small expert. {INSTEAD}",
        )
    if (h := largest_leverage(wider, chunks)) > policy.rounds.max_leverage:
        raise RefusedQuestionError(
            "max_leverage",
            f"all answers so far and this one together would rest on single rows, with a leverage of {h:.2f}: the "
            f"limit of max_leverage is {policy.rounds.max_leverage:g}; a sharp gate, many rounds or few rows "
            f"exceed it. {INSTEAD}",
        )
    return wider


def weighs(policy: Policy) -> bool:
    """Whether a policy limits the weights of rows at all."""
    return policy.rounds.max_leverage < 1 or policy.experts.effective_rows > 1


def check_information(weightings: Sequence[Weighting], chunks: Chunks, policy: Policy) -> None:
    """Raise an error if few rows dominate a product of responsibilities of two experts."""
    limits = policy.experts
    for each in weightings:
        if not each.information:
            continue
        tau = np.concatenate([each.mixture.responsibilities(rows) for rows in chunks()])  # (n, K)
        for k in range(each.mixture.K):
            for m in range(k):
                share = dominance(tau[:, k] * tau[:, m], limits.dominance_rows)
                if share > limits.missing_information_percent:
                    raise RefusedQuestionError(
                        "missing_information_percent",
                        f"few rows lie between experts {m + 1} and {k + 1}, and standard errors would show them. "
                        f"{INSTEAD}",
                    )


# ---------------------------------------------------------------- guard

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


def answer_guarded(question: bytes, site: Site, run: RoundsOf, asked: Asked, totals: Sequence[bytes] = ()) -> Outcome:
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
        told = verify_question(told, run.dialogue, asked.told(totals), site.name)
    n = sum(rows.n for rows in site.chunks())
    check_numbers(told, n, site.shape[0] + 1, policy)
    _check_columns(site, run, asked)
    span, weightings = _span(asked, site, policy), weightings_of(told)
    check_cost(weightings, span.rank, n, policy)
    span = check_weights(span, weightings, site.chunks, policy)
    reply = _reply(told, site, run)
    own = _own_mixtures(decode(reply), site, run)
    span, _ = extend_span(
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
    return extend_span(Span(), _counted(asked.weightings, policy), site.chunks)[0]


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
        for check in check_release(fit, _rows(site), run.study, run.policy).failed:
            raise RefusedQuestionError(
                check.rule,
                f"the site's own fit: {check.scope}: the limit of {check.rule} is {check.limit:g}. To do: use one "
                "exchange by files, in which the site may merge experts before anything leaves",
            )
    return [fit.model.mixture for fit in fits if fit.model is not None]


# ---------------------------------------------------------------- guarded site

Keep = Callable[[Outcome], None]
"""Records an answer or a refusal at the site."""


@dataclass
class GuardedSite:
    """A site that answers through its guard.

    Parameters
    ----------
    site : Site
    run : RoundsOf
    asked : Asked
        What was asked so far; it changes with every question.
    keep : callable or None
        Called with the outcome of every question, before the reply leaves; not for questions of a run that has ended.
    refusals : list of RefusedQuestionError
        The refusals, with their reasons, which stay at the site.
    """

    site: Site
    run: RoundsOf
    asked: Asked = field(default_factory=Asked)
    keep: Keep | None = None
    refusals: list[RefusedQuestionError] = field(default_factory=list)

    def reply(self, question: bytes, totals: Sequence[bytes] = ()) -> bytes:
        """Return the reply to an encoded question; ``totals`` are those of the earlier rounds of the run."""
        return self.accept(self.considered(question, totals))

    def considered(self, question: bytes, totals: Sequence[bytes] = ()) -> Outcome:
        """Return what the guard decides on a question; nothing is recorded."""
        return answer_guarded(question, self.site, self.run, self.asked, totals)

    def accept(self, found: Outcome) -> bytes:
        """Record the outcome of a question, and return the reply that leaves."""
        if self.keep is not None and (found.refusal is None or found.refusal.rule != ENDED):
            self.keep(found)
        if found.refusal is not None:
            self.refusals.append(found.refusal)
        self.asked = found.asked
        return found.reply

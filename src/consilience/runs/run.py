"""Run a dialogue over an engine: rounds, failures, drop-outs, the journal and the record."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from operator import add
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, get_args

import numpy as np

from consilience.errors import InvalidInputError, JournalError, MessageError, RoundStoppedError
from consilience.messages import (
    Answers,
    Dialogue,
    Each,
    Failure,
    FailureCode,
    Identify,
    PerSite,
    Question,
    Request,
    Total,
    decode,
    encode,
    question_for,
)
from consilience.messages.codec import message_fingerprint
from consilience.messages.questions import Bundle, TotalWeight
from consilience.messages.table import answers, receive
from consilience.runs.consistency import UNLIMITED, Consistency, Limits, sum_of
from consilience.runs.engine import EngineOverSites, Reply
from consilience.runs.journal import ClosedRound, Journal
from consilience.runs.record import ANSWERED, FROM_JOURNAL, LATE, Exchange, Record, Round
from consilience.runs.tree_sum import RunningSum, Span

_log = logging.getLogger("consilience")
_log.addHandler(logging.NullHandler())
R = TypeVar("R")
OnDrop = Literal["stop", "continue", "skip"]
LONGEST_WORDS = 100
MOST_ROUNDS = 100_000
"""Number of rounds after which a run is ended, unless its method states another."""
Progress = Callable[[str, int, int], None]
Explain = Callable[[str, Failure], Failure]


@dataclass(frozen=True, eq=False)
class Run(Generic[R]):
    """Result of a dialogue, with the record of its rounds.

    Examples
    --------
    >>> from consilience.runs import Run
    >>> from consilience.runs import Record
    >>> Run(1.5, Record((), {})).value
    1.5
    """

    value: R
    record: Record


@dataclass(frozen=True)
class RunOptions:
    """How a run is kept, limited and shown; :meth:`consilience.Federation.fit` takes these as keywords.

    Parameters
    ----------
    journal : path or Journal, optional
        File in which answers are stored, so that an interrupted run can be resumed: run it again with the same
        arguments. Its rounds are replayed, and only answers that had not been written are requested again. A fit then
        needs a whole number as ``random_state``.
    deadline : float, optional
        Maximum duration of a round in seconds; no limit by default.
    on_drop : {"stop", "continue", "skip"}
        What to do if a site fails or misses the deadline. ``"stop"``: stop with an error that names the site; with a
        journal the run can be resumed. ``"continue"``: drop the site; likelihood, BIC and standard errors are those of
        the remaining sites. ``"skip"``: leave it out of this round and ask it again in the next, for methods with
        partial participation (:class:`~consilience.ClusteredClients`).
    limits : Limits
        Maximum number of rows of a site, and maximum share of a site in all rows; a site that states more is a failure
        as above. None by default; a site with more than 90 % of all rows is named in any case.
    progress : callable, optional
        Called as replies arrive, with the question, the number of sites that replied and the number asked; and, with
        no site asked, when the dialogue computes with the answers of a round. A fit shows its progress if the
        estimator is ``verbose``.
    most_rounds : int, optional
        Number of rounds after which the run is ended with an error; by default far more than the method needs.
    explain : callable, optional
        Adds the reason to the failure of a site, where the sites are the caller's own.

    Examples
    --------
    >>> from consilience import RunOptions
    >>> RunOptions(on_drop="continue").deadline is None
    True
    """

    journal: str | Path | Journal | None = None
    deadline: float | None = None
    on_drop: OnDrop = "stop"
    limits: Limits = UNLIMITED
    progress: Progress | None = None
    most_rounds: int | None = None
    explain: Explain | None = None

    def __post_init__(self) -> None:
        if self.on_drop not in get_args(OnDrop):
            raise InvalidInputError(f"on_drop={self.on_drop!r}: expected 'stop', 'continue' or 'skip'")


class RunKeywords(TypedDict, total=False):
    """The fields of :class:`RunOptions` as keywords."""

    journal: str | Path | Journal | None
    deadline: float | None
    on_drop: OnDrop
    limits: Limits
    progress: Progress | None
    most_rounds: int | None
    explain: Explain | None


def run(
    dialogue: Dialogue[R],
    engine: EngineOverSites,
    options: RunOptions | None = None,
    **keywords: Unpack[RunKeywords],
) -> Run[R]:
    """Run ``dialogue``: send each request over ``engine`` and return the answer to it, until it ends.

    Parameters
    ----------
    dialogue : Dialogue
    engine : EngineOverSites
    options : RunOptions, optional
    **keywords
        Single options, as in :class:`RunOptions`.

    Returns
    -------
    Run

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.engines import InProcess
    >>> from consilience.model import Rows
    >>> from consilience.messages import Summarise, Total
    >>> from consilience.runs import run
    >>> from consilience.site import Site
    >>> def mean_response():
    ...     summary = yield Total(Summarise(d=0, q=1))
    ...     return summary.y_mean
    >>> sites = [
    ...     Site(name, Rows(np.empty((2, 0)), np.array(y)))
    ...     for name, y in (("north", [[1.0], [2.0]]), ("south", [[3.0], [6.0]]))
    ... ]
    >>> run(mean_response(), InProcess().over(sites)).value
    array([3.])
    """
    if not isinstance(dialogue, Generator):
        raise InvalidInputError("expected a dialogue, as returned by a generator function: call the function")
    talk = _Conversation(engine, replace(options or RunOptions(), **keywords))
    with nullcontext() if talk.journal is None else talk.journal.opened(engine.sites):
        try:
            talk.check_data()
            request = next(dialogue)
            while True:
                answer = talk.answer(request)
                talk.computing()
                request = dialogue.send(answer)
        except StopIteration as finished:
            return Run(finished.value, talk.record())
        except KeyboardInterrupt as interrupt:
            interrupt.args = (talk.interrupted(),)
            raise


@dataclass
class _Gathered:
    """Answers of one round, collected as they arrive.

    Parameters
    ----------
    question : Question or Bundle
    total : RunningSum
        Sum of the answers that were added as they came, for a request for a sum.
    added : set of str
        The sites whose answers are in it, with ``fingerprint``, that of their rows.
    answers : dict
        The other answers, by their places.
    failures : dict
    exchanges : list of Exchange
    """

    question: Question | Bundle
    total: RunningSum[Any]
    added: set[str] = field(default_factory=set)
    fingerprint: int = 0
    answers: dict[Span, tuple[Any, Reply]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)

    def answered(self) -> set[str]:
        """Return the sites that have answered."""
        return self.added.union(*(reply.sites for _, reply in self.answers.values()))

    def settled(self) -> set[str]:
        """Return the sites that have answered or failed."""
        return self.answered() | set(self.failures)

    def add(self, span: Span, value: Any, reply: Reply) -> None:
        """Add an answer to the sum."""
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is the dialogue's to judge
            self.total.put(span, value)
        self.added.update(reply.sites)
        self.fingerprint = sum_of((self.fingerprint, message_fingerprint(reply.message)))


class _Conversation:
    """State of a run: the rounds so far."""

    def __init__(self, engine: EngineOverSites, options: RunOptions) -> None:
        kept = options.journal
        self.journal = kept if kept is None or isinstance(kept, Journal) else Journal(kept)
        self._engine, self._options = engine, options
        self._most_rounds = options.most_rounds or MOST_ROUNDS
        self._roster = {site: place for place, site in enumerate(engine.sites)}
        self._participants = list(engine.sites)
        self._rounds: list[tuple[Request, list[Exchange]]] = []
        self._dropped: dict[str, str] = {}
        self._stated = Consistency()

    # ------------------------------------------------------------------ a round

    def answer(self, request: Request) -> Any:
        """Return the answer to a request, from the journal or from the sites."""
        if not isinstance(request, Total | Each | PerSite):
            raise InvalidInputError(
                "a dialogue yields Total(question), Each(question) or PerSite({site: question}), "
                f"got {type(request).__name__}"
            )
        number, kind = len(self._rounds) + 1, type(request).__name__
        if number > self._most_rounds:
            raise RoundStoppedError(
                f"stopped after {self._most_rounds} rounds, the most that this method needs: it does not end with "
                "these answers; leave out sites that drop out and return",
                (),
                self.record(),
            )
        began, asked = time.perf_counter(), self._asked(request)
        gathered = _Gathered(self._carried(request, asked), RunningSum(len(self._roster), add))
        question = encode(gathered.question)
        self._rounds.append((request, gathered.exchanges))
        if self.journal is not None:
            question = self.journal.begin(number, kind, asked, question)
            if number <= len(self.journal.rounds):
                value = self._replayed(request, self.journal.rounds[number - 1], gathered)
                _log.info("round %d, %s: from the journal%s", number, _words(request), _likelihood(value))
                return value
            for reply in self.journal.open_replies:
                self._take(reply, gathered, sent=0, outcome=FROM_JOURNAL, total=isinstance(request, Total))
        self._gather(number, question, asked, request, gathered)
        self._refuse_rows(asked, gathered)
        if gathered.failures:
            self._drop(number, gathered.failures)
        value = self._closed(number, request, asked, gathered)
        answered, seconds = len(asked) - len(gathered.failures), time.perf_counter() - began
        line = "round %d, %s: %d of %d sites answered in %.1f s%s"
        _log.info(line, number, _words(request), answered, len(asked), seconds, _likelihood(value))
        return value

    def computing(self) -> None:
        """Show that the dialogue computes with the answers of a round."""
        if self._options.progress is not None:
            self._options.progress("computing with the answers", 0, 0)

    def interrupted(self) -> str:
        """Return what to do after an interrupt from the keyboard."""
        where = f"interrupted in round {max(len(self._rounds), 1)}"
        if self.journal is None:
            return (
                f"{where}, and no answer was kept: with journal='run.journal' and a whole number as random_state, an "
                "interrupted run can be resumed"
            )
        path = str(self.journal.path)
        return f"{where}: run the same call again, with journal={path!r}, to resume; its answers are not asked again"

    def _asked(self, request: Request) -> list[str]:
        if request.sites is None:
            return list(self._participants)
        chosen = frozenset(request.sites)
        return [site for site in self._participants if site in chosen]

    def _carried(self, request: Request, asked: Sequence[str]) -> Question | Bundle:
        """Return the message for the engine: the question, or one for each site asked."""
        if not isinstance(request, PerSite):
            return request.question
        places = tuple(self._roster[site] for site in asked)
        return Bundle(places, tuple(request.questions[site] for site in asked))

    def _sent(self, sites: Sequence[str], question: bytes, gathered: _Gathered) -> int:
        """Count the bytes sent to these sites."""
        if not isinstance(gathered.question, Bundle):
            return len(question)
        return len(encode(question_for(gathered.question, self._roster[sites[0]])))

    def _gather(
        self, number: int, question: bytes, asked: Sequence[str], request: Request, gathered: _Gathered
    ) -> None:
        """Ask the sites that have not answered yet; those that still have not answered count as failures."""
        settled = gathered.settled()
        missing = [site for site in asked if site not in settled]
        if missing:
            total, deadline = isinstance(request, Total), self._options.deadline
            added = total and self._options.limits == UNLIMITED  # in all rounds: a resumed run must have the same bits
            done = len(asked) - len(missing)
            for replies in self._engine.ask(number, question, missing, total=added, timeout=deadline):
                kept = [reply for reply in replies if self._arrived(number, reply, question, gathered, total=total)]
                if kept and self.journal is not None:
                    self.journal.answered(kept)
                done += sum(len(reply.sites) for reply in replies if reply.number == number)
                if self._options.progress is not None:
                    self._options.progress(type(request.question).__name__, done, len(asked))
        settled = gathered.settled()
        for site in asked:
            if site not in settled:
                gathered.failures[site] = Failure(FailureCode.NO_ANSWER)
                sent, seconds = self._sent((site,), question, gathered), self._options.deadline or 0.0
                gathered.exchanges.append(Exchange((site,), sent, 0, seconds, str(FailureCode.NO_ANSWER)))

    def _refuse_rows(self, asked: Sequence[str], gathered: _Gathered) -> None:
        """Count a site as failed that has the rows of a site before it, or more rows than the run allows."""
        refused = self._stated.oversized(asked, self._options.limits) | self._stated.copies(asked)
        for site, failure in refused.items():
            place = self._roster[site]
            if gathered.answers.pop((place, place + 1), None) is not None:
                gathered.failures[site] = failure
                gathered.exchanges.append(Exchange((site,), 0, 0, 0.0, str(failure)))

    def check_data(self) -> None:
        """Raise an error if the data of a site are not those of the journal's answers; silent sites are not compared.

        A finished journal asks no question, so the sites are asked here.
        """
        if self.journal is None or not self.journal.rounds:
            return
        now: dict[str, int] = {}
        question = encode(Identify())
        for replies in self._engine.ask(0, question, self._engine.sites, total=False, timeout=self._options.deadline):
            good = [each for each in replies if isinstance(receive(each.message, Identify()), TotalWeight)]
            now |= {each.sites[0]: message_fingerprint(each.message) for each in good}
        for sites, then in self.journal.fingerprints():
            if set(sites) <= set(now) and sum_of(now[site] for site in sites) != then:
                who = sites[0] if len(sites) == 1 else f"one of {', '.join(sites)}"
                raise JournalError(
                    f"{who}: {FailureCode.DATA_CHANGED}; {self.journal.path} has answers from the data before"
                )

    def _arrived(self, number: int, reply: Reply, question: bytes, gathered: _Gathered, *, total: bool) -> bool:
        """Process a reply; return whether it is an answer of this round."""
        if reply.number != number:
            exchanges = self._rounds[reply.number - 1][1]
            exchanges.append(Exchange(reply.sites, 0, len(reply.message), reply.seconds, LATE))
            return False
        sent = self._sent(reply.sites, question, gathered)
        return self._take(reply, gathered, sent=sent, outcome=ANSWERED, total=total)

    def _take(self, reply: Reply, gathered: _Gathered, *, sent: int, outcome: str, total: bool) -> bool:
        question = question_for(gathered.question, self._roster[reply.sites[0]])
        value = receive(reply.message, question)
        final = total and self._is_final(reply.sites)
        if not isinstance(value, Failure):
            found = self._stated.failure(reply.sites, question, value, message_fingerprint(reply.message))
            value = value if found is None else found
        failed = isinstance(value, Failure)
        if failed and self._options.explain is not None:
            value = self._options.explain(reply.sites[0], value)
        if failed:
            gathered.failures.update(dict.fromkeys(reply.sites, value))
        else:
            span = self._roster[reply.sites[0]], self._roster[reply.sites[-1]] + 1
            if not final:
                gathered.answers[span] = value, reply
            elif gathered.added.isdisjoint(reply.sites):
                gathered.add(span, value, reply)
        outcome = str(value) if failed else outcome
        gathered.exchanges.append(Exchange(reply.sites, sent, len(reply.message), reply.seconds, outcome))
        return not failed

    def _is_final(self, sites: tuple[str, ...]) -> bool:
        """Return whether an answer that is valid stays in the sum: a site that is new may be refused after the round.

        A limit of a site's share depends on who answers, so that answers are then kept apart.
        """
        return self._options.limits == UNLIMITED and (len(sites) > 1 or self._stated.has_checked(sites[0]))

    def _drop(self, number: int, failures: dict[str, Failure]) -> None:
        """Stop, or continue without the sites that failed."""
        named = "; ".join(f"{site}: {failure}" for site, failure in failures.items())
        if self._options.on_drop == "stop":
            resumed = "" if self.journal is None else f"; run again with the journal {self.journal.path} to resume"
            raise RoundStoppedError(f"round {number} stopped: {named}{resumed}", tuple(failures), self.record())
        self._leave_out(failures)
        if not self._participants:
            raise RoundStoppedError(f"round {number}: no site is left ({named})", tuple(failures), self.record())

    def _leave_out(self, failures: dict[str, Failure]) -> None:
        if self._options.on_drop == "skip":
            return
        self._dropped.update({site: str(failure) for site, failure in failures.items()})
        self._participants = [site for site in self._participants if site not in failures]

    # ------------------------------------------------------------------ the end of a round

    def _closed(self, number: int, request: Request, asked: Sequence[str], gathered: _Gathered) -> Any:
        """Return the answer to the request, and write the round to the journal as one record."""
        if isinstance(request, Total) and not gathered.answered():
            gone = tuple(request.sites or self._roster)
            raise RoundStoppedError(f"round {number}: no site is left of those asked", gone, self.record())
        value, kept = self._sum(gathered) if isinstance(request, Total) else _each(gathered)
        if self.journal is not None:
            self.journal.close_round(number, type(request).__name__, asked, kept, gathered.failures)
        return value

    def _sum(self, gathered: _Gathered) -> tuple[Any, list[tuple[tuple[str, ...], bytes]]]:
        for span, (value, reply) in sorted(gathered.answers.items(), key=lambda item: item[0]):
            gathered.add(span, value, reply)
        gathered.answers.clear()
        with np.errstate(over="ignore", invalid="ignore"):
            total = gathered.total.value()
        if self.journal is None:
            return total, []
        sites = tuple(site for site in self._roster if site in gathered.added and site not in gathered.failures)
        return total, [(sites, encode(total, gathered.fingerprint))]

    def _replayed(self, request: Request, closed: ClosedRound, gathered: _Gathered) -> Any:
        for sites, message in closed.answers:
            gathered.exchanges.append(Exchange(sites, 0, len(message), 0.0, FROM_JOURNAL))
        for site, failure in closed.failures.items():
            gathered.exchanges.append(Exchange((site,), 0, 0, 0.0, str(failure)))
        self._leave_out(closed.failures)
        values = [self._journaled(message, sites, gathered.question) for sites, message in closed.answers]
        if isinstance(request, Total):
            return values[0]
        return {sites[0]: value for (sites, _), value in zip(closed.answers, values, strict=True)}

    def _journaled(self, message: bytes, sites: tuple[str, ...], question: Question | Bundle) -> Any:
        """Decode an answer of the journal; raise an error if it does not answer its question."""
        with suppress(MessageError):
            value, asked = decode(message), question_for(question, self._roster[sites[0]])
            fits = answers(asked, value)
            if fits and self._stated.failure(sites, asked, value, message_fingerprint(message)) is None:
                return value
        raise JournalError(
            f"an answer of round {len(self._rounds)} in the journal does not fit its question: restore it"
        )

    def record(self) -> Record:
        """Return the rounds so far."""
        rounds = tuple(_round(number, *found) for number, found in enumerate(self._rounds, start=1))
        return Record(rounds, dict(self._dropped), self._options.limits)


def _round(number: int, request: Request, exchanges: Sequence[Exchange]) -> Round:
    kind, question = type(request).__name__, type(request.question).__name__
    return Round(number, kind, question, _disclosed(request), tuple(exchanges))


def _words(request: Request) -> str:
    """Return the type of the question and what its answers disclose, in a short text without data."""
    said = _disclosed(request)
    short = said if len(said) <= LONGEST_WORDS else f"{said[: LONGEST_WORDS - 1]}…"
    return f"{type(request.question).__name__} ({short})"


def _likelihood(value: Any) -> str:
    """Return the log-likelihood in the answers of a round, the highest of several mixtures; empty if there is none."""
    parts = value.items if isinstance(value, Answers) else (value,)
    found = [each for part in parts if isinstance(each := getattr(part, "log_likelihood", None), float)]
    return f", log-likelihood {max(found):.3f}" if found else ""


def _disclosed(request: Request) -> str:
    """Describe what the answers to a request disclose; for questions per site, the union over sites."""
    questions = request.questions.values() if isinstance(request, PerSite) else (request.question,)
    return "; ".join(dict.fromkeys(question.disclosed for question in questions))


def _each(gathered: _Gathered) -> tuple[dict[str, Any], list[tuple[tuple[str, ...], bytes]]]:
    ordered = [gathered.answers[span] for span in sorted(gathered.answers)]
    values = {reply.sites[0]: value for value, reply in ordered}
    return values, [(reply.sites, reply.message) for _, reply in ordered]

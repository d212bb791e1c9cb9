"""Dialogues: federated methods as generators that yield requests and receive answers.

A dialogue is a pure function of its arguments, including the seed, and of the answers: it reads no clock, file or data.
An interrupted run can therefore be resumed by replaying the answers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from consilience.errors import InvalidInputError
from consilience.messages.questions import Answers, Question, Several
from consilience.messages.table import is_additive

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Total:
    """Request for the sum over sites of the answers to ``question``.

    The coordinator's process receives each answer and adds them; the dialogue receives only the sum.

    Parameters
    ----------
    question : Question
    sites : tuple of str or None
        Sites to ask; None asks all.

    Examples
    --------
    >>> from consilience.messages import Total
    >>> from consilience.messages import Summarise
    >>> Total(Summarise(d=2, q=1)).question
    Summarise(d=2, q=1)
    """

    question: Question
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not is_additive(self.question):
            raise InvalidInputError(f"answers to {type(self.question).__name__} do not add: request Each")


@dataclass(frozen=True, eq=False)
class Each:
    """Request for each site's answer to ``question``: a mapping from site to answer, in site order.

    Parameters
    ----------
    question : Question
    sites : tuple of str or None
        Sites to ask; None asks all.

    Examples
    --------
    >>> from consilience.messages import Each
    >>> from consilience.messages import Summarise
    >>> Each(Summarise(d=2, q=1), sites=("north",)).sites
    ('north',)
    """

    question: Question
    sites: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class PerSite:
    """Request for answers to one question per site: a mapping from site to answer, in site order.

    A site receives its own question only.

    Parameters
    ----------
    questions : mapping of str to Question
        Questions of one type; other sites are not asked.

    Examples
    --------
    >>> from consilience.messages import PerSite
    >>> from consilience.messages import Summarise
    >>> PerSite({"north": Summarise(d=2, q=1), "south": Summarise(d=1, q=1)}).sites
    ('north', 'south')
    """

    questions: Mapping[str, Question]

    def __post_init__(self) -> None:
        if len({type(question) for question in self.questions.values()}) != 1:
            raise InvalidInputError("expected at least one question, and all questions of one type")

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the sites that are asked."""
        return tuple(self.questions)

    @property
    def question(self) -> Question:
        """Return the first question; the others have the same type."""
        return next(iter(self.questions.values()))


Request = Total | Each | PerSite
Dialogue = Generator[Request, Any, R]


def together(dialogues: Sequence[Dialogue[R]]) -> Dialogue[tuple[R, ...]]:
    """Run several dialogues in parallel; requests of the same round are sent in one message.

    Examples
    --------
    >>> from consilience.messages import Total, together
    >>> from consilience.messages import Likelihood, Summarise
    >>> def ask(d):
    ...     return (yield Total(Summarise(d=d, q=1)))
    >>> both = together([ask(1), ask(2)])
    >>> [question.d for question in next(both).question.questions]
    [1, 2]
    """
    results: dict[int, R] = {}
    waiting: dict[int, Request] = {}
    for i, dialogue in enumerate(dialogues):
        _advance(i, dialogue, None, waiting, results)
    while waiting:
        group = _alike(waiting)
        asked = [waiting.pop(i) for i in group]
        if len(asked) == 1:
            parts = [(yield asked[0])]
        else:
            question = Several(tuple(part for request in asked for part in _parts(request.question)))
            first: Any = asked[0]
            answer = yield type(first)(question, first.sites)
            parts = _separated(answer, [request.question for request in asked])
        for i, part in zip(group, parts, strict=True):
            _advance(i, dialogues[i], part, waiting, results)
    return tuple(results[i] for i in range(len(dialogues)))


def _advance(i: int, dialogue: Dialogue[R], answer: Any, waiting: dict[int, Request], results: dict[int, R]) -> None:
    try:
        waiting[i] = next(dialogue) if answer is None else dialogue.send(answer)
    except StopIteration as finished:
        results[i] = finished.value


def _alike(waiting: dict[int, Request]) -> list[int]:
    """Return the dialogues that wait for the same kind of request as the first; ``PerSite`` is never combined."""
    kinds = {i: (type(r), r.sites, i if isinstance(r, PerSite) else None) for i, r in sorted(waiting.items())}
    first = next(iter(kinds.values()))
    return [i for i, kind in kinds.items() if kind == first]


def _parts(question: Question) -> tuple[Question, ...]:
    return question.questions if isinstance(question, Several) else (question,)


def _separated(answer: Any, questions: Sequence[Question]) -> list[Any]:
    """Split the answer to a combined message into the answers to its questions."""
    if not isinstance(answer, Answers):
        by_site = {site: _separated(each, questions) for site, each in answer.items()}
        return [{site: parts[i] for site, parts in by_site.items()} for i in range(len(questions))]
    items = iter(answer.items)
    taken = [tuple(islice(items, len(_parts(question)))) for question in questions]
    return [Answers(part) if isinstance(q, Several) else part[0] for q, part in zip(questions, taken, strict=True)]

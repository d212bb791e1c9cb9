"""A federated method is a dialogue: a generator that yields requests and receives answers.

It is a pure function of its arguments (a seed among them) and of the answers: it reads no clock, no file, no data.
That is what lets a killed run resume by replay.
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
    """The sum over sites of the answers to ``question``.

    With plain sums the coordinator's machine still receives each answer; the dialogue sees only the sum.

    Parameters
    ----------
    question : Question
    sites : tuple of str or None
        The sum over these only; None is over all.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> Total(Summarise(d=2, q=1)).question
    Summarise(d=2, q=1)
    """

    question: Question
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not is_additive(self.question):
            raise InvalidInputError(f"answers to {type(self.question).__name__} do not add: ask for Each")


@dataclass(frozen=True, eq=False)
class Each:
    """Every site's own answer to ``question``, as a mapping from site to answer in site order.

    Parameters
    ----------
    question : Question
    sites : tuple of str or None
        Ask only these; None asks all.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> Each(Summarise(d=2, q=1), sites=("north",)).sites
    ('north',)
    """

    question: Question
    sites: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class PerSite:
    """Every site's answer to a question of its own, as a mapping from site to answer in site order.

    A site is shown its question only.

    Parameters
    ----------
    questions : mapping of str to Question
        All of one kind; who is not in it is not asked.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> PerSite({"north": Summarise(d=2, q=1), "south": Summarise(d=1, q=1)}).sites
    ('north', 'south')
    """

    questions: Mapping[str, Question]

    def __post_init__(self) -> None:
        if len({type(question) for question in self.questions.values()}) != 1:
            raise InvalidInputError("expected at least one question, and all of them of one kind")

    @property
    def sites(self) -> tuple[str, ...]:
        """Who is asked."""
        return tuple(self.questions)

    @property
    def question(self) -> Question:
        """The first of the questions: the others are of its kind."""
        return next(iter(self.questions.values()))


Request = Total | Each | PerSite
Dialogue = Generator[Request, Any, R]


def together(dialogues: Sequence[Dialogue[R]]) -> Dialogue[tuple[R, ...]]:
    """Several dialogues side by side: what they ask in the same turn goes out in one message.

    Examples
    --------
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
    """The dialogues that wait for the same kind of request as the first, in their order; ``PerSite`` goes alone."""
    kinds = {i: (type(r), r.sites, i if isinstance(r, PerSite) else None) for i, r in sorted(waiting.items())}
    first = next(iter(kinds.values()))
    return [i for i, kind in kinds.items() if kind == first]


def _parts(question: Question) -> tuple[Question, ...]:
    return question.questions if isinstance(question, Several) else (question,)


def _separated(answer: Any, questions: Sequence[Question]) -> list[Any]:
    """The answer to each question, from the answer to all their parts in one message."""
    if not isinstance(answer, Answers):
        by_site = {site: _separated(each, questions) for site, each in answer.items()}
        return [{site: parts[i] for site, parts in by_site.items()} for i in range(len(questions))]
    items = iter(answer.items)
    taken = [tuple(islice(items, len(_parts(question)))) for question in questions]
    return [Answers(part) if isinstance(q, Several) else part[0] for q, part in zip(questions, taken, strict=True)]

"""An engine of this process in which some sites lie: in their data, or in their answers only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.lib.remembering import Remembering
from consilience.fit import Expect
from consilience.messages import Answers, Likelihood, LocalFit, Several, decode, encode
from consilience.messages.questions import question_for
from consilience.model import Rows
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.runs import EngineOverSites, Reply
from consilience.site import Site, answer


@dataclass
class Liar:
    """A site and what it does with a question in a round; ``memory`` is its own."""

    site: Site
    lie: Callable[[Liar, Any, Any, int], Any]
    memory: list[Any]

    def tell(self, question: Any, honest: Any, number: int) -> Any:
        if isinstance(question, Several):
            pairs = zip(question.questions, honest.items, strict=True)
            return Answers(tuple(self.tell(asked, given, number) for asked, given in pairs))
        return self.lie(self, question, honest, number)

    def from_shifted(self, question: Any, shift: float) -> Any:
        """The answer as if all responses were larger."""
        rows: Rows = self.site.data
        return answer(question, replace(self.site, data=replace(rows, Y=rows.Y + shift)))


class Lying:
    """Engine in which the sites named in ``lies`` lie."""

    def __init__(self, engine: Remembering, lies: dict[str, Callable[[Liar, Any, Any, int], Any]]) -> None:
        self.engine, self.lies = engine, lies

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> _Lying:
        given = list(sites)
        liars = {site.name: Liar(site, self.lies[site.name], []) for site in given if site.name in self.lies}
        return _Lying(self.engine.over(given, in_memory=in_memory), liars)

    def each(self, work: Any, items: Any, shared: bytes) -> Any:
        return self.engine.each(work, items, shared)

    def close(self) -> None:
        self.engine.close()


class _Lying:
    def __init__(self, engine: EngineOverSites, liars: dict[str, Liar]) -> None:
        self._engine, self._liars, self.sites = engine, liars, engine.sites

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        asked = decode(question)
        for replies in self._engine.ask(number, question, sites, total=False, timeout=timeout):
            yield [self._told(asked, reply) for reply in replies]

    def close(self) -> None:
        self._engine.close()

    def _told(self, asked: Any, reply: Reply) -> Reply:
        liar = self._liars.get(reply.sites[0])
        if liar is None:
            return reply
        question = question_for(asked, self.sites.index(liar.site.name))
        with np.errstate(all="ignore"):
            told = liar.tell(question, decode(reply.message), reply.number)
        return replace(reply, message=encode(told, liar.site.fingerprint))


# ---------------------------------------------------------------------- lies in answers


def honest(_: Liar, __: Any, given: Any, ___: int) -> Any:
    """Tell the truth about data that may be a lie."""
    return given


def scaled_sums(_: Liar, __: Any, given: Any, ___: int) -> Any:
    """Multiply the statistics of every pass by 1.5."""
    return given.scaled(1.5) if isinstance(given, Statistics) else given


def scaled_everything(_: Liar, __: Any, given: Any, ___: int) -> Any:
    """Claim a million times the rows, in every answer alike."""
    times = 1e6
    match given:
        case Statistics():
            return given.scaled(times)
        case Likelihood():
            return Likelihood(times * given.log_likelihood, times * given.weight)
        case ColumnSummary():
            return _more(given, times)
        case LocalFit() if given.model is not None:
            names = ("weight", "label_counts", "mass", "second", "log_likelihood", "precision")
            model = replace(given.model, **{name: times * getattr(given.model, name) for name in names})
            return replace(given, summary=_more(given.summary, times), model=model)
    return given


def _more(summary: ColumnSummary, times: float) -> ColumnSummary:
    squares = {name: times * getattr(summary, name) for name in ("weight", "x_products", "y_products")}
    return replace(summary, **squares)


def halved_information(_: Liar, __: Any, given: Any, ___: int) -> Any:
    """Halve the observed information."""
    if isinstance(given, Statistics) and given.information is not None:
        return replace(given, information=0.5 * given.information)
    return given


def drift(liar: Liar, question: Any, _: Any, number: int) -> Any:
    """Answer as if responses grew by 0.02 in every round."""
    return liar.from_shifted(question, 0.02 * number)


def late(liar: Liar, question: Any, given: Any, _: int) -> Any:
    """Tell the truth until the first pass at a mixture, and answer from other responses from then on."""
    return liar.from_shifted(question, 1.0) if isinstance(given, Statistics) else given


def replayed(liar: Liar, question: Any, given: Any, _: int) -> Any:
    """Repeat the statistics of the first pass of the same kind."""
    if not isinstance(given, Statistics):
        return given
    kind = (type(question), isinstance(question, Expect) and question.information, given.experts.first.shape)
    earlier = [each for same, each in liar.memory if same == kind]
    liar.memory.append((kind, given))
    return earlier[0] if earlier else given

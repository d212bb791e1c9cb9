"""Engines and sites for tests of runs: sites that misbehave, and a count of what was asked of whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from consilience.engines import inprocess
from consilience.messages import Failure, FailureCode, Summarise, Total, encode
from consilience.messages.questions import Identify
from consilience.model import Rows
from consilience.site import Site, respond

Misbehaviour = Callable[[Any, Site], bytes]


def small_sites(names: Iterable[str] = ("east", "north", "south"), n: int = 40, seed: int = 0) -> list[Site]:
    """Sites with two covariates and one response."""
    rng = np.random.default_rng(seed)
    return [Site(name, Rows(rng.normal(size=(n, 2)), rng.normal(size=(n, 1)))) for name in names]


def summaries(times: int):
    """A dialogue that asks for the same sum several times and returns the weights it saw."""
    weights = []
    for _ in range(times):
        summary = yield Total(Summarise(d=2, q=1))
        weights.append(summary.weight)
    return weights


def failing(question: Any, site: Site) -> bytes:
    """Answer with a failure."""
    return encode(Failure(FailureCode.INTERNAL, 1))


def slow(seconds: float) -> Misbehaviour:
    """Answer as asked, but only after some time."""

    def answer(question: Any, site: Site) -> bytes:
        time.sleep(seconds)
        return respond(question, site)

    return answer


class Calls:
    """Counts answers, and lets some sites misbehave in some rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self._misbehaviour: dict[tuple[str, int], Misbehaviour] = {}
        monkeypatch.setattr(inprocess, "respond", self.respond)

    def misbehave(self, site: str, how: Misbehaviour, *, time: int = 0) -> None:
        """From its ``time``-th answer on, ``site`` answers with ``how``."""
        self._misbehaviour[site, time] = how

    def respond(self, question: Any, site: Site) -> bytes:
        """Stands in for the function of the engine."""
        if isinstance(question, Identify):  # asked when a journal is resumed, before its first round
            return respond(question, site)
        time = self.asked.count(site.name)
        self.asked.append(site.name)
        for (name, since), how in self._misbehaviour.items():
            if name == site.name and time >= since:
                return how(question, site)
        return respond(question, site)

"""What a run says while it goes on: a line per round, what it computes, and what to do after an interrupt."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.engines import InProcess
from consilience.fit import Expect
from consilience.messages import Summarise, Total
from consilience.messages.dialogue import Dialogue
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, expect
from consilience.runs import Journal, run
from consilience.runs.engine import Reply
from consilience.site import Site

SECRET = 123.456
MIXTURE = Mixture(Design.raw(1), ConstantGate(np.ones(1)), GaussianExperts(np.full((1, 1, 2), SECRET), np.eye(1)[None]))


def sites() -> list[Site]:
    rng = np.random.default_rng(0)
    return [Site(name, Rows(rng.normal(size=(5, 1)) + SECRET, rng.normal(size=(5, 1)))) for name in ("north", "south")]


def two_rounds() -> Dialogue[float]:
    yield Total(Summarise(d=1, q=1))
    return (yield Total(Expect(MIXTURE))).log_likelihood


def test_each_round_is_one_line_without_data(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, "consilience")
    path = tmp_path / "run.journal"
    value = run(two_rounds(), InProcess().over(sites()), journal=Journal(path)).value
    assert value == pytest.approx(sum(expect(MIXTURE, site.data).log_likelihood for site in sites()))
    first, second = caplog.messages
    assert first.startswith("round 1, Summarise (the total weight, the means and ")
    assert re.search(r": 2 of 2 sites answered in \d+\.\d s$", first)
    assert second.startswith("round 2, Expect (sums over rows")
    assert re.search(rf": 2 of 2 sites answered in \d+\.\d s, log-likelihood {value:.3f}$", second)
    assert not any("123.4" in line or "north" in line for line in caplog.messages)
    caplog.clear()
    run(two_rounds(), InProcess().over(sites()), journal=Journal(path))
    assert caplog.messages[1].endswith(f": from the journal, log-likelihood {value:.3f}")


def test_progress_tells_rounds_and_what_is_computed_between_them() -> None:
    said: list[tuple[str, int, int]] = []
    run(two_rounds(), InProcess(threads=1).over(sites()), progress=lambda *each: said.append(each))
    assert ("Summarise", 2, 2) in said
    assert said.count(("computing with the answers", 0, 0)) == 2
    assert said[-1] == ("computing with the answers", 0, 0)


class Interrupted:
    """An engine whose user presses Ctrl-C in the second round."""

    def __init__(self) -> None:
        self._inner = InProcess().over(sites())
        self.sites = self._inner.sites

    def ask(self, number: int, question: bytes, sites: Sequence[str], **options: Any) -> Iterator[list[Reply]]:
        if number == 2:
            raise KeyboardInterrupt
        yield from self._inner.ask(number, question, sites, **options)


def test_an_interrupt_says_how_to_resume(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"^interrupted in round 2, and no answer was kept: with journal="):
        run(two_rounds(), Interrupted())
    path = tmp_path / "run.journal"
    said = f"^interrupted in round 2: run the same call again, with journal='{path}', to resume"
    with pytest.raises(KeyboardInterrupt, match=said):
        run(two_rounds(), Interrupted(), journal=Journal(path))
    resumed = run(two_rounds(), InProcess().over(sites()), journal=Journal(path))
    assert resumed.record.rounds[0].exchanges[0].outcome.startswith("from the journal")
    assert resumed.value == run(two_rounds(), InProcess().over(sites())).value

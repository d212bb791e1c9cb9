"""The share of the checks of answers in the CPU time of an iteration.

2,000,000 rows with 20 covariates in 16 sites of this process, four experts with a softmax gate; an iteration is one
round in which every site computes its statistics at a mixture and the coordinator adds them. The checks are those of
the site and of the coordinator: what no data can give, and what does not change between answers. Their CPU time is
divided by that of the rest of the same iteration. Informed iterations include the observed information. The fingerprint
of rows in memory is computed once; of files, once for each change. Aim: at most 3 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from unittest import mock

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, table
from consilience.datasets import soft
from consilience.engines import InProcess
from consilience.fit import Expect
from consilience.messages import Total
from consilience.messages import table as messages
from consilience.messages.dialogue import Dialogue
from consilience.model import Mixture, Rows
from consilience.runs import run
from consilience.runs.consistency import Consistency
from consilience.site import Site

SITES = 16


class Timer:
    """Adds up the CPU time of the outermost calls of the functions that it wraps."""

    def __init__(self) -> None:
        self.spent = 0.0
        self._inside = False

    def wrapped(self, function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        def timed(*args: object, **kwargs: object) -> object:
            if self._inside:
                return function(*args, **kwargs)
            self._inside, began = True, time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._inside, self.spent = False, self.spent + time.thread_time() - began

        return timed


@contextmanager
def timed_checks() -> Iterator[Timer]:
    timer = Timer()
    answers = import_module("consilience.site.answer")  # the name in the package is the function
    checks = [(messages, "impossible_part"), (answers, "_checked"), (Consistency, "failure")]
    with ExitStack() as patches:
        for owner, name in checks:
            patches.enter_context(mock.patch.object(owner, name, timer.wrapped(getattr(owner, name))))
        yield timer


def rounds(mixture: Mixture, information: bool) -> Dialogue[None]:
    yield Total(Expect(mixture, information=information))


def share_of_checks(engine: InProcess, mixture: Mixture, information: bool) -> tuple[float, float]:
    """The CPU time of the checks of an iteration over that of its rest, and the latter in seconds."""
    with timed_checks() as timer:
        began = time.process_time()
        run(rounds(mixture, information), engine)
        rest = time.process_time() - began - timer.spent
    return timer.spent / rest, rest


def main() -> None:
    study = Study(__file__, __doc__)
    n, times = (200_000, 3) if study.quick else (2_000_000, 31)
    data = soft(n, random_state=0)
    parts = np.array_split(np.arange(n), SITES)
    sites = [Site(f"site {m}", Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]
    engine = InProcess(1).over(sites)
    began = time.process_time()
    for site in sites:
        _ = site.fingerprint
    once = time.process_time() - began
    shown: list[Record] = []
    for information in (False, True):
        share_of_checks(engine, data.truth, information)  # the first loads what it needs
        share, rest = np.transpose([share_of_checks(engine, data.truth, information) for _ in range(times)])
        shown.append(
            {
                "iteration": "with information" if information else "plain",
                "checks / rest, median": f"{np.median(share):.1%}",
                "smallest": f"{share.min():.1%}",
                "largest": f"{share.max():.1%}",
                "aim": "≤ 3 %",
                "rest, CPU s": rounded(float(np.median(rest))),
                "fingerprint, once, CPU s": rounded(once),
            }
        )
    study.save(table(f"Checks of answers, {times} iterations", shown))


if __name__ == "__main__":
    main()

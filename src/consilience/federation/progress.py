"""Progress of a federated run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from consilience.display import displayed
from consilience.runs.run import Progress

LOG_SECONDS = 10.0
"""Least time between two lines in the log about files that are scored."""
_log = logging.getLogger("consilience")


@contextmanager
def shown(verbose: bool, title: str) -> Iterator[Progress | None]:
    """Yield a callback that shows the round and how many sites have answered, or None if not ``verbose``.

    Between two rounds, when a method computes with the answers, it shows that.
    """
    if not verbose:
        yield None
        return
    rounds = 0
    with displayed(title) as show:

        def advance(question: str, done: int, asked: int) -> None:
            nonlocal rounds
            if asked:
                show(f"round {rounds + 1}, {question}, sites", done, asked)
                rounds += done == asked
            else:
                show(f"after round {rounds}, {question}", None, None)

        yield advance


@contextmanager
def counted(verbose: bool, title: str, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that logs and, if ``verbose``, shows how many of ``total`` parts are done."""
    logged = [time.monotonic()]

    def log(done: int) -> None:
        if done == total or time.monotonic() - logged[0] > LOG_SECONDS:
            logged[0] = time.monotonic()
            _log.info("%s: %d of %d %s", title, done, total, what)

    if not verbose:
        yield log
        return
    with displayed(title) as show:

        def advance(done: int) -> None:
            log(done)
            show(what, done, total)

        yield advance

"""Progress display during a fit or a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from consilience.display import displayed
from consilience.fit.search import Progress

T = TypeVar("T")


@contextmanager
def shown(verbose: bool, title: str) -> Iterator[Progress | None]:
    """Yield a callback that displays the passes of a fit, or None if not ``verbose``."""
    if not verbose:
        yield None
        return
    passes = 0
    with displayed(title) as show:

        def advance(phase: str, log_likelihood: float) -> None:
            nonlocal passes
            passes += 1
            show(f"{phase}, pass {passes}, log-likelihood per row {log_likelihood:.6f}", None, None)

        yield advance


@contextmanager
def counted(verbose: bool, title: str, total: int) -> Iterator[Callable[[T], T]]:
    """Yield a function that returns its argument and, if ``verbose``, advances a bar of ``total`` steps."""
    if not verbose:
        yield lambda value: value
        return
    done = 0
    with displayed(title) as show:

        def advance(value: T) -> T:
            nonlocal done
            done += 1
            show("simulated data sets", done, total)
            return value

        yield advance

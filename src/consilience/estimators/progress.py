"""Progress display during a fit or a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from consilience.fit.search import Progress

T = TypeVar("T")


@contextmanager
def shown(verbose: bool, title: str) -> Iterator[Progress | None]:
    """Yield a callback that displays the passes of a fit, or None if not ``verbose``."""
    if not verbose:
        yield None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(title, total=None)
        passes = 0

        def advance(phase: str, log_likelihood: float) -> None:
            nonlocal passes
            passes += 1
            bar.update(
                task, description=f"{title}: {phase}, pass {passes}, log-likelihood per row {log_likelihood:.6f}"
            )

        yield advance
        bar.update(task, total=1, completed=1)


@contextmanager
def counted(verbose: bool, title: str, total: int) -> Iterator[Callable[[T], T]]:
    """Yield a function that returns its argument and, if ``verbose``, advances a bar of ``total`` steps."""
    if not verbose:
        yield lambda value: value
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=total)

        def advance(value: T) -> T:
            bar.advance(task)
            return value

        yield advance

"""Progress display during a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from consilience.fit.search import Progress


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

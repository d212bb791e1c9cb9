"""Progress bar of a federated run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from consilience.runs.run import Progress


@contextmanager
def shown(verbose: bool, title: str) -> Iterator[Progress | None]:
    """Yield a callback that shows how many sites have answered, or None if not ``verbose``."""
    if not verbose:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    rounds = 0
    with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task(title, total=None)

        def advance(question: str, done: int, asked: int) -> None:
            nonlocal rounds
            bar.update(task, description=f"{title}: round {rounds + 1}, {question}", completed=done, total=asked)
            rounds += done == asked

        yield advance

"""Progress of a long computation: a bar on a terminal or in a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

Show = Callable[[str, int | None, int | None], None]
"""Shows a text and, if they are known, how many of how many parts are done."""
FIRST_LINE = 5.0
LONGEST_WAIT = 60.0
"""Seconds before the first plain line; each wait is twice the one before, up to the longest."""


@contextmanager
def displayed(title: str) -> Iterator[Show]:
    """Yield a function that shows the state of a computation, on the error output.

    Examples
    --------
    >>> with displayed("fit") as show:
    ...     show("round 1", 3, 10)
    """
    from rich.console import Console

    console = Console(stderr=True)
    bar = console.is_terminal or console.is_jupyter
    with _bar(title, console) if bar else lines(title, console.file) as show:
        yield show


@contextmanager
def _bar(title: str, console: Any) -> Iterator[Show]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*parts, console=console) as bar:
        task = bar.add_task(title, total=None)

        def show(text: str, done: int | None, total: int | None) -> None:
            bar.update(task, description=f"{title}: {text}", completed=done or 0, total=total)

        yield show


@contextmanager
def lines(title: str, file: IO[str], first: float = FIRST_LINE) -> Iterator[Show]:
    """Yield a function that sets the text of a line, which a thread writes now and then, and at the end.

    Examples
    --------
    >>> import sys
    >>> with lines("fit", sys.stdout) as show:
    ...     show("round 1", 3, 10)
    fit: round 1, 3 of 10, 0 s
    """
    began, state = time.monotonic(), [""]
    over = threading.Event()

    def show(text: str, done: int | None, total: int | None) -> None:
        count = "" if total is None else f", {done:,} of {total:,}"
        state[0] = f"{text}{count}"

    def write() -> None:
        if state[0]:
            print(f"{title}: {state[0]}, {time.monotonic() - began:.0f} s", file=file, flush=True)

    def now_and_then() -> None:
        wait = first
        while not over.wait(wait):
            write()
            wait = min(2 * wait, LONGEST_WAIT)

    thread = threading.Thread(target=now_and_then, name="consilience-progress", daemon=True)
    thread.start()
    try:
        yield show
    finally:
        over.set()
        thread.join()
        write()

"""Progress of a long computation: a bar on a terminal or in a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.fit.starts import Progress as PassProgress
    from consilience.runs.run import Progress as RoundProgress

Show = Callable[[str, int | None, int | None], None]
"""Shows a text and, if they are known, how many of how many parts are done."""
FIRST_LINE = 5.0
LONGEST_WAIT = 60.0
"""Seconds before the first plain line; each wait is twice the one before, up to the longest."""
LOG_SECONDS = 10.0
"""Least time between two lines in the log about files that are scored."""
_log = logging.getLogger("consilience")


@contextmanager
def display_progress(title: str, *, verbose: bool = True) -> Iterator[Show]:
    """Yield a function that shows the state of a computation on the error output, or nothing if not ``verbose``."""
    if not verbose:
        yield lambda *_: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    bar = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)  # which rich needs there
    with _bar(title, console) if bar else write_lines(title, console.file) as show:
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
def write_lines(title: str, file: IO[str], first: float = FIRST_LINE) -> Iterator[Show]:
    """Yield a function that sets the text of a line, which a thread writes now and then, and at the end."""
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


# ---------------------------------------------------------------------- what is counted


@contextmanager
def show_passes(verbose: bool, title: str) -> Iterator[PassProgress | None]:
    """Yield a callback that shows the passes of a fit, or None if not ``verbose``."""
    if not verbose:
        yield None
        return
    passes = 0
    with display_progress(title) as show:

        def advance(phase: str, log_likelihood: float) -> None:
            nonlocal passes
            passes += 1
            show(f"{phase}, pass {passes}, log-likelihood per row {log_likelihood:.6f}", None, None)

        yield advance


@contextmanager
def show_rounds(verbose: bool, title: str) -> Iterator[RoundProgress | None]:
    """Yield a callback that shows the round and how many sites have answered, or None if not ``verbose``.

    Between two rounds, when a method computes with the answers, it shows that.
    """
    if not verbose:
        yield None
        return
    rounds = 0
    with display_progress(title) as show:

        def advance(question: str, done: int, asked: int) -> None:
            nonlocal rounds
            if asked:
                show(f"round {rounds + 1}, {question}, sites", done, asked)
                rounds += done == asked
            else:
                show(f"after round {rounds}, {question}", None, None)

        yield advance


@contextmanager
def count_files(verbose: bool, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that logs and, if ``verbose``, shows how many of ``total`` files are done."""
    logged = time.monotonic()
    with display_progress(title, verbose=verbose) as show:

        def advance(done: int) -> None:
            nonlocal logged
            if done == total or time.monotonic() - logged > LOG_SECONDS:
                logged = time.monotonic()
                _log.info("%s: %d of %d files", title, done, total)
            show("files", done, total)

        yield advance

"""Threads: many small matrix products are fastest on one thread each; blocks of rows can be shared out to several."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")
SINGLE_UP_TO = 64
"""Number of features up to which a block's products are computed on one thread."""
IN_FLIGHT = 2
"""Number of results per thread that may wait for their turn."""

_JOBS: ContextVar[int] = ContextVar("jobs", default=1)


@lru_cache(maxsize=1)
def _controller() -> Any:
    return ThreadpoolController()


class _Limit:
    """Limits BLAS to one thread while any user is inside; the limit holds for the process, users may be threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limited = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limited.enter_context(_controller().limit(limits=1, user_api="blas"))
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limited.close()


_LIMIT = _Limit()


@contextmanager
def threads_for(p: int) -> Iterator[None]:
    """Limit BLAS to one thread for blocks with at most ``SINGLE_UP_TO`` features, and where :func:`jobs` are several.

    Examples
    --------
    >>> with threads_for(21):
    ...     pass
    """
    if p > SINGLE_UP_TO and _JOBS.get() == 1:
        yield
        return
    with _LIMIT:
        yield


@contextmanager
def jobs(number: int) -> Iterator[None]:
    """Let a pass over rows use ``number`` threads; its result does not depend on how many.

    Examples
    --------
    >>> with jobs(2):
    ...     list(in_order(abs, [-1, -2, -3]))
    [1, 2, 3]
    """
    token = _JOBS.set(number)
    try:
        yield
    finally:
        _JOBS.reset(token)


_END = object()


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``work(item)`` of each item in their order, computed by as many threads as :func:`jobs` says."""
    number = _JOBS.get()
    if number == 1:
        yield from map(work, items)
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(number, thread_name_prefix="consilience-pass") as pool:
        for item in items:
            pending.append(pool.submit(copy_context().run, work, item))
            if len(pending) == IN_FLIGHT * number:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items, each of which another thread computes while the caller works with the one before.

    Examples
    --------
    >>> list(one_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, thread_name_prefix="consilience-ahead") as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield item  # type: ignore[misc]

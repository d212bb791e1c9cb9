"""Threads: blocks of rows are shared out to several, and the products of a block are computed on one.

Small matrix products are fastest so, and large ones would have other bits with another number of threads.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Any, NoReturn, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")
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
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread."""
    with _LIMIT:
        yield


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def jobs(number: int) -> Iterator[None]:
    """Let a pass over rows use ``number`` threads; its result does not depend on how many."""
    token = _JOBS.set(number)
    try:
        yield
    finally:
        _JOBS.reset(token)


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``work(item)`` of each item in their order, computed by as many threads as :func:`jobs` says."""
    number, rest = _JOBS.get(), iter(items)
    first = list(islice(rest, 2))
    if number == 1 or len(first) < 2:
        yield from map(work, chain(first, rest))
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(number, thread_name_prefix="consilience-pass") as pool:
        for item in chain(first, rest):
            pending.append(pool.submit(copy_context().run, work, item))
            if len(pending) == IN_FLIGHT * number:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


_END = object()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items, each of which another thread computes while the caller works with the one before.

    The thread is a daemon: a file that cannot be read to its end does not keep the process from ending.
    """
    wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
    done: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
    wanted.put(True)
    threading.Thread(target=_compute, args=(items, wanted, done), name="consilience-ahead", daemon=True).start()
    try:
        while (item := done.get()()) is not _END:
            wanted.put(True)
            yield item
    finally:
        wanted.put(False)


def _compute(
    items: Iterator[T], wanted: queue.SimpleQueue[bool], done: queue.SimpleQueue[Callable[[], object]]
) -> None:
    """Compute an item each time that one is wanted; an error is raised where the item is taken."""
    while wanted.get():
        try:
            done.put(partial(_same, next(items, _END)))
        except BaseException as error:  # noqa: BLE001 - not an error of this thread
            done.put(partial(_raise, error))


def _same(item: T) -> T:
    return item


def _raise(error: BaseException) -> NoReturn:
    raise error

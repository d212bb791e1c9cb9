"""BLAS threads: many small products are fastest on a single thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

SINGLE_UP_TO = 64
"""Number of features up to which a block's products are computed on one thread."""


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
    """Limit BLAS to one thread for blocks with at most ``SINGLE_UP_TO`` features.

    Examples
    --------
    >>> with threads_for(21):
    ...     pass
    """
    if p > SINGLE_UP_TO:
        yield
        return
    with _LIMIT:
        yield

"""Threads of the linear algebra library: many small products are fastest on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

SINGLE_UP_TO = 64
"""Features up to which a block's products are too small to share between threads."""


@lru_cache(maxsize=1)
def _controller() -> Any:
    return ThreadpoolController()


@contextmanager
def threads_for(p: int) -> Iterator[None]:
    """One BLAS thread inside, where blocks have at most ``SINGLE_UP_TO`` features; else as many as set.

    Examples
    --------
    >>> with threads_for(21):
    ...     pass
    """
    if p > SINGLE_UP_TO:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield

"""Functions that tests run on Dask workers: in a module that the workers can import by its name."""

from __future__ import annotations

import time


def len_of_both(item: bytes, shared: bytes) -> int:
    return len(item) + len(shared)


def slow_length(item: bytes, shared: bytes) -> int:
    time.sleep(0.5)
    return len_of_both(item, shared)

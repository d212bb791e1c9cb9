"""Submit the tasks of a round: one for each block of sites, and sums of large answers on workers.

Dask pickles tasks and results, which is acceptable on a cluster of one owner, who may run any code there anyway. The
functions at the end run on the workers, which import this module when they start.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count, cycle
from typing import Any
from uuid import uuid4

from consilience.engines import blocks
from consilience.engines.dask.connection import dask, distributed
from consilience.errors import EngineError
from consilience.messages import Failure, decode
from consilience.runs.tree_sum import Span, block_size, tree_blocks, tree_split
from consilience.site import Site

BLOCKS_PER_THREAD = 4
LARGE_QUESTION = 100_000
"""Size in bytes above which a question is sent once instead of with each task."""
LARGE_ANSWERS = 100_000_000
"""Total size in bytes of the blocks' sums above which workers add them."""
_worker_log = logging.getLogger("distributed.worker")

Workers = list[str] | None
"""Addresses of the workers that may run a task; None for all."""


class BlockTasks:
    """Blocks of sites, and the tasks about them on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    threads : dict of str to int
        Threads of each worker.
    sites : list of Site
        Sites with files that every worker can read.
    keep : bool
        Whether workers keep the rows in memory.
    """

    def __init__(self, client: Any, threads: dict[str, int], sites: list[Site], *, keep: bool) -> None:
        self.client, self._keep = client, keep
        self.names = tuple(site.name for site in sites)
        homes = [worker for worker, number in threads.items() for _ in range(number)]
        spans = tree_blocks(len(sites), block_size(len(sites), BLOCKS_PER_THREAD * len(homes)))
        self._blocks = {span: blocks.SiteBlock(span[0], sites[slice(*span)], keep) for span in spans}
        self._homes = dict(zip(spans, cycle(homes), strict=False))
        self._loaded: dict[Span, Any] = {}
        self._key, self._counter = f"consilience-{uuid4().hex}", count()

    # ------------------------------------------------------------------ what is asked

    def spans(self, asked: Collection[str]) -> list[Span]:
        """Return the blocks that have a site to be asked."""
        return [span for span in self._blocks if self.places(span, asked) != ()]

    def places(self, span: Span, asked: Collection[str]) -> tuple[int, ...] | None:
        """Return the positions of the sites of a block that are asked; None for all."""
        names = self.names[slice(*span)]
        places = tuple(i for i, site in enumerate(names) if site in asked)
        return None if len(places) == len(names) else places

    def are_large(self, question: bytes) -> bool:
        """Whether the answers of all blocks are too large to be added in this process."""
        return blocks.answer_bytes(decode(question)) * len(self._blocks) > LARGE_ANSWERS

    # ------------------------------------------------------------------ what is submitted

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send tasks without Dask's warning about their size; raise an error if the client is closed."""
        try:
            with dask().config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
                yield
        except Exception as error:
            if self.client.status == "running":
                raise
            raise EngineError("the connection to the cluster is closed: create another DaskCluster") from error

    def question(self, question: bytes, workers: Workers) -> Any:
        """Return the question as an argument of tasks: itself, or the result of one task."""
        if len(question) < LARGE_QUESTION:
            return question
        return self.client.submit(keep, question, key=self._next_key("question"), workers=workers, pure=False)

    def answers(
        self,
        spans: list[Span],
        question: Any,
        asked: Collection[str],
        *,
        total: bool,
        timeout: float | None,
        workers: Workers,
    ) -> dict[Span, Any]:
        """Submit one task for each of these blocks; return their futures."""
        if not spans:
            return {}
        key = self._next_key("round")
        limits = [blocks.time_limit(key, span, timeout) for span in spans]
        if self._keep:
            self._load(spans, limits, workers)
        futures = self.client.map(
            answer_on_worker,
            [self._loaded[span] if self._keep else self._blocks[span] for span in spans],
            [question] * len(spans),
            [self.places(span, asked) for span in spans],
            [total] * len(spans),
            limits,
            key=[f"{key}-answer-{lo}" for lo, _ in spans],
            workers=workers,
            pure=False,
        )
        return dict(zip(spans, futures, strict=True))

    def root(self, leaves: dict[Span, Any], question: Any, workers: Workers) -> Any:
        """Submit tasks that add the answers of blocks on workers, pairwise in the order of the tree."""

        def branch(lo: int, hi: int) -> Any:
            if (lo, hi) in leaves or hi - lo < 2:
                return leaves.get((lo, hi))
            middle = tree_split(lo, hi)
            left, right = branch(lo, middle), branch(middle, hi)
            if left is None or right is None:
                return right if left is None else left
            spans, key = ((lo, middle), (middle, hi)), self._next_key("sum")
            return self.client.submit(
                blocks.add_neighbours, left, right, question, spans, key=key, workers=workers, pure=False
            )

        return branch(0, len(self.names))

    # ------------------------------------------------------------------ rows in memory

    def loaded_keys(self) -> list[str]:
        """Return the keys of the blocks in the memory of workers."""
        return [future.key for future in self._loaded.values()]

    def forget(self, keys: Collection[str]) -> None:
        """Forget blocks in the memory of workers that do not answer: they are read again when they are needed."""
        self._loaded = {span: future for span, future in self._loaded.items() if future.key not in keys}

    def release(self) -> None:
        """Let the scheduler forget the blocks in the memory of workers."""
        for future in self._loaded.values():
            future.release()
        self._loaded = {}

    def _load(self, spans: list[Span], limits: list[blocks.Limit | None], workers: Workers) -> None:
        """Submit the reading of blocks that are not in memory, or that the scheduler has lost; spread evenly."""
        key = self._next_key("load")
        for span, limit in zip(spans, limits, strict=True):
            if span not in self._loaded or self._loaded[span].cancelled():
                self._loaded[span] = self.client.submit(
                    load_on_worker,
                    self._blocks[span],
                    limit,
                    key=f"{key}-{span[0]}",
                    workers=workers or [self._homes[span]],
                    allow_other_workers=workers is None,
                    pure=False,
                )

    def _next_key(self, kind: str) -> str:
        return f"{self._key}-{kind}-{next(self._counter)}"


# ---------------------------------------------------------------- on the workers


def load_on_worker(block: blocks.SiteBlock, limit: blocks.Limit | None) -> blocks.SiteBlock:
    """Read the rows of a block into the memory of a worker."""
    return blocks.load_block(block, limit, on_stall=_leave_place)


def answer_on_worker(
    block: blocks.SiteBlock, question: bytes, asked: tuple[int, ...] | None, total: bool, limit: blocks.Limit | None
) -> tuple[blocks.Part, ...]:
    """Answer for a block on a worker, as :func:`~consilience.engines.blocks.answer_block` does."""
    return blocks.answer_block(block, question, asked, total, limit, on_stall=_leave_place, on_failure=_log_trace)


def keep(question: bytes) -> bytes:
    """Return a large question as the result of a task, so that the scheduler can recompute it after a loss."""
    return question


def _log_trace(site: Site, failure: Failure) -> None:
    """Write the traceback of a failure to the log of the worker, since the site object ends with its task."""
    if failure.reference:
        _worker_log.error("site %s could not answer (reference %d)\n%s", site.name, failure.reference, site.traces[-1])


def _leave_place() -> None:
    """Release the task's slot so that the worker can start the next task; no effect outside a worker."""
    with suppress(ValueError):
        distributed().secede()


def dask_setup(worker: object) -> None:  # noqa: ARG001 - Dask's signature
    """Have the process of a worker ignore the interrupt, which a terminal sends to all; it ends with the cluster.

    Dask calls this when a worker is started on this machine, or started again.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

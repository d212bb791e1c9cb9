"""Send questions to sites whose files the workers of a cluster read: few large tasks, with partial sums."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

from consilience.engines.dask.library import dask, distributed
from consilience.engines.dask.tasks import Limit, Part, SiteBlock, add_neighbours, answer_block, keep, load_block
from consilience.errors import EngineError, InvalidInputError
from consilience.fit.climb import Expect
from consilience.messages.failures import Failure, FailureCode
from consilience.messages.questions import Question, Several
from consilience.messages.table import decode, encode
from consilience.model.mixture import layout_of
from consilience.runs.engine import Reply, digest
from consilience.runs.tree_sum import Span, block_size, blocks, split
from consilience.site.shards import Shard
from consilience.site.site import Site

BLOCKS_PER_THREAD = 4
RETURN = 0.1
"""Fraction of a round's time that is kept for returning the answers of a block with slow sites."""
LEAST_RETURN = 1.0
"""Least time in seconds kept for returning answers, up to a quarter of the round's time."""
GRACE = 10.0
"""Time in seconds to fetch finished results after the deadline."""
LARGE_QUESTION = 100_000
"""Size in bytes above which a question is sent once instead of with each task."""
LARGE_ANSWERS = 100_000_000
"""Total size in bytes of the blocks' sums above which workers add them."""
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


class DaskSites:
    """Engine that sends questions to sites on the workers of a Dask cluster.

    Neighbouring sites form blocks, about four for each thread, and a round is one task per block. Blocks are subtrees
    of the summation tree, so the total is bitwise equal to that of any other engine. Lost workers cost time only: Dask
    runs their tasks again, and reads their data again.

    With a deadline, a site alone in its block has all of it, and sites that share a block have 0.9 of it (or a second
    less than it, if it is short), reading into memory included, counted on each worker from its first task of the
    round: the rest is for returning the answers.
    Tasks end with their round, so late answers are dropped and not recorded.

    Parameters
    ----------
    client : distributed.Client
    threads : dict of str to int
        Threads of each worker.
    sites : iterable of Site
    in_memory : bool
    """

    def __init__(self, client: Any, threads: dict[str, int], sites: Iterable[Site], *, in_memory: bool) -> None:
        sites = list(sites)
        keep = in_memory or any(site.keep for site in sites)
        sites = [in_file(site) for site in sites]
        self._names = tuple(site.name for site in sites)
        if not sites:
            raise InvalidInputError("no sites: pass at least one")
        if len(set(self._names)) < len(sites):
            raise InvalidInputError("two sites have the same name: give each its own")
        self._client, self._keep = client, keep
        self._workers = [worker for worker, number in threads.items() for _ in range(number)]
        self._spans = blocks(len(sites), block_size(len(sites), BLOCKS_PER_THREAD * len(self._workers)))
        self._blocks = [SiteBlock(lo, sites[lo:hi], keep) for lo, hi in self._spans]
        self._loaded: list[Any] = []
        self._key, self._counter = f"consilience-{uuid4().hex}", count()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return self._names

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield replies as blocks finish; if the workers of a block are lost for good, its sites have failed."""
        asked = frozenset(sites)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._sending():
            key = f"{self._key}-round-{next(self._counter)}"
            sent = self._sent(question, key)
            futures = self._answers(key, sent, asked, total, timeout)
            root = self._root(futures, sent) if total and self._is_large(question) else None
        try:
            if root is not None:
                for [(_, result)] in self._arrivals([root], deadline):
                    if root.status == "finished":
                        yield self._replies(number, result)
                        return
            waiting = list(futures)
            if root is not None and deadline is not None and time.monotonic() >= deadline:
                waiting, deadline = [future for future in waiting if future.done()], deadline + GRACE
            for batch in self._arrivals(waiting, deadline):
                yield [reply for ended in batch for reply in self._settled(number, *ended, futures, asked)]
        finally:  # what no one holds, the scheduler forgets: done or not
            for future in (*futures, *(() if root is None else (root,))):
                future.release()

    # ------------------------------------------------------------------ sending

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Send tasks without Dask's warning about their size; raise an error if the client is closed."""
        try:
            with dask().config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
                yield
        except Exception as error:
            if self._client.status == "running":
                raise
            raise EngineError("the connection to the cluster is closed: create another DaskCluster") from error

    def _sent(self, question: bytes, key: str) -> Any:
        """Return the question as an argument of tasks: itself, or the result of one task."""
        if len(question) < LARGE_QUESTION:
            return question
        return self._client.submit(keep, question, key=f"{key}-question", pure=False)

    def _answers(
        self, key: str, question: Any, asked: frozenset[str], total: bool, timeout: float | None
    ) -> dict[Any, Span]:
        """Submit one task for each block with a site to be asked; return futures with the block's positions."""
        limits = [self._limit(key, span, timeout) for span in self._spans]
        homes = self._in_workers(limits) if self._keep else self._blocks
        places = [self._places(span, asked) for span in self._spans]
        chosen = [i for i, which in enumerate(places) if which != ()]
        futures = self._client.map(
            answer_block,
            [homes[i] for i in chosen],
            [question] * len(chosen),
            [places[i] for i in chosen],
            [total] * len(chosen),
            [limits[i] for i in chosen],
            key=[f"{key}-answer-{i}" for i in chosen],
            pure=False,
        )
        return {future: self._spans[i] for future, i in zip(futures, chosen, strict=True)}

    def _places(self, span: Span, asked: frozenset[str]) -> tuple[int, ...] | None:
        """Return the positions of the sites of a block that are asked; None for all."""
        names = self._names[slice(*span)]
        places = tuple(i for i, site in enumerate(names) if site in asked)
        return None if len(places) == len(names) else places

    def _limit(self, key: str, span: Span, timeout: float | None) -> Limit | None:
        """Return the time limit of a block: the full timeout for a single site, less for several."""
        if timeout is None:
            return None
        return Limit(key, timeout if span[1] - span[0] == 1 else timeout - time_to_return(timeout))

    def _in_workers(self, limits: list[Limit | None]) -> list[Any]:
        """Return blocks in the memory of workers, spread evenly; rebuilt if the scheduler has lost them."""
        if not self._loaded or any(future.cancelled() for future in self._loaded):
            key = f"{self._key}-load-{next(self._counter)}"
            self._loaded = [
                self._client.submit(
                    load_block,
                    block,
                    limit,
                    key=f"{key}-{block.first}",
                    workers=[worker],
                    allow_other_workers=True,
                    pure=False,
                )
                for block, limit, worker in zip(self._blocks, limits, cycle(self._workers), strict=False)
            ]
        return self._loaded

    def _is_large(self, question: bytes) -> bool:
        return answer_bytes(decode(question)) * len(self._blocks) > LARGE_ANSWERS

    def _root(self, futures: dict[Any, Span], question: Any) -> Any:
        """Submit tasks that add the answers of all blocks on workers, pairwise in the order of the tree."""
        leaves = {span: future for future, span in futures.items()}

        def branch(lo: int, hi: int) -> Any:
            if (lo, hi) in leaves or hi - lo < 2:
                return leaves.get((lo, hi))
            middle = split(lo, hi)
            left, right = branch(lo, middle), branch(middle, hi)
            if left is None or right is None:
                return right if left is None else left
            key, spans = f"{self._key}-sum-{next(self._counter)}", ((lo, middle), (middle, hi))
            return self._client.submit(add_neighbours, left, right, question, spans, key=key, pure=False)

        return branch(0, len(self._names))

    # ------------------------------------------------------------------ receiving

    def _arrivals(self, futures: list[Any], deadline: float | None) -> Iterator[list[tuple[Any, Any]]]:
        """Yield futures with their results as they arrive, until the deadline."""
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        arriving = distributed().as_completed(
            futures, self._client.loop, with_results=True, raise_errors=False, timeout=left
        )
        while True:
            try:
                batch = arriving.next_batch()
            except (StopIteration, TimeoutError):
                return
            yield batch

    def _settled(
        self, number: int, future: Any, result: Any, futures: dict[Any, Span], asked: frozenset[str]
    ) -> list[Reply]:
        """Return the result of a finished task: its answers, or failures of its sites."""
        if future.status == "finished":
            return self._replies(number, result)
        error = result[1] if future.status == "error" else result
        if self._client.status != "running" or getattr(error, "reason", "") == "scheduler-connection-lost":
            raise EngineError("the scheduler was lost: restart it; a run with a journal can be resumed") from error
        names = self._names[slice(*futures[future])]
        _log.error("a task for %d sites from %s on failed", len(names), names[0], exc_info=error)
        message = encode(Failure(FailureCode.WORKER_LOST if is_loss(error) else FailureCode.INTERNAL))
        digests = (digest(message),)
        return [Reply(number, (site,), message, digests, 0.0) for site in names if site in asked]

    def _replies(self, number: int, parts: tuple[Part, ...]) -> list[Reply]:
        return [
            Reply(number, self._names[lo:hi], message, digests, seconds) for lo, hi, message, digests, seconds in parts
        ]


def time_to_return(timeout: float) -> float:
    """Return the seconds of a round that are kept for returning the answers of blocks with slow sites.

    Examples
    --------
    >>> [time_to_return(timeout) for timeout in (1.0, 5.0, 60.0)]
    [0.25, 1.0, 6.0]
    """
    return max(RETURN * timeout, min(LEAST_RETURN, timeout / 4))


def answer_bytes(question: Question) -> int:
    """Estimate the size in bytes of the answer to a question, for questions with large answers.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> answer_bytes(Expect(soft(10, random_state=0).truth))
    19808
    """
    match question:
        case Expect(mixture, information):
            return 8 * layout_of(mixture).size(information=information)
        case Several(questions):
            return sum(answer_bytes(part) for part in questions)
    return 0


def is_loss(error: BaseException) -> bool:
    """Whether a task failed because its workers were lost."""
    library = distributed()
    return isinstance(error, (library.KilledWorker, library.CancelledError, OSError))


def in_file(site: Site) -> Site:
    """Check that a site is a file that a worker can read; make its address absolute.

    Examples
    --------
    >>> from consilience.site import Columns
    >>> in_file(Site("north", Shard("s3://bucket/north.parquet", Columns((), ("y",))))).data.uri
    's3://bucket/north.parquet'
    """
    if not isinstance(site.data, Shard):
        raise InvalidInputError(
            f"site {site.name!r} has its rows in memory, and they would be lost with the Dask worker that holds them: "
            "write them to Parquet and pass a Shard"
        )
    uri = site.data.uri if "://" in site.data.uri else str(Path(site.data.uri).absolute())
    return Site(site.name, replace(site.data, uri=uri))

"""Submit the tasks of a round: one for each block of sites, and sums of large answers on workers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

from consilience.engines.dask.library import dask
from consilience.engines.dask.tasks import Limit, SiteBlock, add_neighbours, answer_block, keep, load_block
from consilience.errors import EngineError, InvalidInputError
from consilience.fit.climb import Expect
from consilience.messages.questions import Question, Several
from consilience.messages.table import decode
from consilience.model.mixture import layout_of
from consilience.runs.tree_sum import Span, block_size, tree_blocks, tree_split
from consilience.site.shards import Shard
from consilience.site.site import Site

BLOCKS_PER_THREAD = 4
RETURN = 0.1
"""Fraction of a round's time that is kept for returning the answers of a block with slow sites."""
LEAST_RETURN = 1.0
"""Least time in seconds kept for returning answers, up to a quarter of the round's time."""
LARGE_QUESTION = 100_000
"""Size in bytes above which a question is sent once instead of with each task."""
LARGE_ANSWERS = 100_000_000
"""Total size in bytes of the blocks' sums above which workers add them."""

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
        self._blocks = {span: SiteBlock(span[0], sites[slice(*span)], keep) for span in spans}
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
        return answer_bytes(decode(question)) * len(self._blocks) > LARGE_ANSWERS

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
        limits = [time_limit(key, span, timeout) for span in spans]
        if self._keep:
            self._load(spans, limits, workers)
        futures = self.client.map(
            answer_block,
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
                add_neighbours, left, right, question, spans, key=key, workers=workers, pure=False
            )

        return branch(0, len(self.names))

    # ------------------------------------------------------------------ rows in memory

    def loaded_keys(self) -> list[str]:
        """Return the keys of the blocks in the memory of workers."""
        return [future.key for future in self._loaded.values()]

    def forget(self, keys: Collection[str]) -> None:
        """Forget blocks in the memory of workers that do not answer: they are read again when they are needed."""
        self._loaded = {span: future for span, future in self._loaded.items() if future.key not in keys}

    def _load(self, spans: list[Span], limits: list[Limit | None], workers: Workers) -> None:
        """Submit the reading of blocks that are not in memory, or that the scheduler has lost; spread evenly."""
        key = self._next_key("load")
        for span, limit in zip(spans, limits, strict=True):
            if span not in self._loaded or self._loaded[span].cancelled():
                self._loaded[span] = self.client.submit(
                    load_block,
                    self._blocks[span],
                    limit,
                    key=f"{key}-{span[0]}",
                    workers=workers or [self._homes[span]],
                    allow_other_workers=workers is None,
                    pure=False,
                )

    def _next_key(self, kind: str) -> str:
        return f"{self._key}-{kind}-{next(self._counter)}"


def time_limit(key: str, span: Span, timeout: float | None) -> Limit | None:
    """Return the time limit of a block: the full timeout for a single site, less for several.

    Examples
    --------
    >>> time_limit("round-1", (4, 8), 60.0)
    Limit(round='round-1', seconds=54.0)
    """
    if timeout is None:
        return None
    return Limit(key, timeout if span[1] - span[0] == 1 else timeout - time_to_return(timeout))


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
    return Site(site.name, replace(site.data, uri=uri), key=site.key)

"""Send questions to sites whose files the workers of a cluster read: few large tasks, with partial sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from consilience.engines.dask.rounds import Round
from consilience.engines.dask.submit import BlockTasks, in_file
from consilience.engines.dask.watch import Watch
from consilience.errors import InvalidInputError
from consilience.runs.engine import Reply
from consilience.site.site import Site


class DaskSites:
    """Engine that sends questions to sites on the workers of a Dask cluster.

    Neighbouring sites form blocks, about four for each thread, and a round is one task per block. Blocks are subtrees
    of the summation tree, so the total is bitwise equal to that of any other engine. Lost workers cost time only: Dask
    runs their tasks again, and reads their data again. So do workers that hang: a worker is silent after 30 s without a
    heartbeat, or after a quarter of the deadline if that is less, and its blocks are submitted to the others.

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
        if not sites:
            raise InvalidInputError("no sites: pass at least one")
        if len({site.name for site in sites}) < len(sites):
            raise InvalidInputError("two sites have the same name: give each its own")
        self._tasks = BlockTasks(client, threads, sites, keep=keep)
        self._watch = Watch(client)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return self._tasks.names

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield replies as blocks finish; if no worker could answer for a block, its sites have failed."""
        asked = Round(self._tasks, self._watch, number, question, frozenset(sites), total=total, timeout=timeout)
        yield from asked.replies()

"""In-process engine: sites answer in threads; every message is encoded and decoded as on a network.

A site of few rows costs mostly the call itself. If there are many such sites, the rows of neighbours in the order of
summation are joined, and one answer over all of them takes the place of the sum of their answers.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import cached_property
from typing import Generic, TypeVar

from consilience.errors import InvalidInputError
from consilience.messages import Failure, Question, decode, encode, question_for
from consilience.messages.table import receive
from consilience.model import Rows
from consilience.numerics.threads import one_blas_thread, processors
from consilience.runs import Reply, digest
from consilience.runs.consistency import sum_of
from consilience.runs.tree_sum import Span, tree_blocks
from consilience.site import Site, answer, respond
from consilience.site.answer import is_sum
from consilience.site.site import join_chunks

MANY = 100
"""Number of sites up to which each answers for itself."""
SMALL = 256
"""Maximum number of rows of a site that answers together with others."""
ROWS = 8_192
"""Number of rows that are answered for in one call."""
MOST = 512
"""Maximum number of sites that answer in one call."""


def neighbourhoods(sites: Sequence[Site]) -> list[Span]:
    """Return the subtrees whose sites may answer in one call; their size depends on the sites alone.

    Their rows are in memory and have the same columns. A site with the rows of another one answers for itself, so that
    it is found.
    """
    if len(sites) <= MANY or not any(map(_is_small, sites)):
        return []
    rows = [site.data.n for site in sites if isinstance(site.data, Rows) and _is_small(site)]
    usual = max(sum(rows) // len(rows), ROWS // MOST)
    size = 1 << (ROWS // usual).bit_length() - 1
    times = Counter(site.fingerprint for site in sites if _is_small(site))

    def may_join(span: Span) -> bool:
        own = sites[slice(*span)]
        small = all(_is_small(site) and times[site.fingerprint] == 1 for site in own)
        return small and len({_columns(site) for site in own}) == 1

    return [span for span in tree_blocks(len(sites), size) if span[1] - span[0] > 1 and may_join(span)]


def _is_small(site: Site) -> bool:
    return isinstance(site.data, Rows) and 0 < site.data.n <= SMALL and site.account is None


def _columns(site: Site) -> tuple[int, int, bool, bool, bool, bool]:
    """Return what the rows of sites that answer together have in common."""
    rows, (d, q) = next(site.chunks()), site.shape
    return d, q, rows.weight is None, rows.exposure is None, rows.groups is None, site.clustered


def respond_together(question: Question, sites: Sequence[Site]) -> bytes | None:
    """Answer for the sum over some sites; None if that is no valid answer, so that each must answer for itself.

    Questions that are not sums over rows are for single sites: a sample, for example, is drawn by each on its own.
    """
    if not is_sum(question):
        return None
    try:
        rows = join_chunks([part for site in sites for part in site.chunks()])
        message = encode(answer(question, Site("", rows)), sum_of(site.fingerprint for site in sites))
        return None if isinstance(receive(message, question), Failure) else message
    except Exception:  # noqa: BLE001 - which site it is, and why, is seen where each answers for itself
        return None


# ---------------------------------------------------------------- engine

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
PATIENCE = 0.25
"""Fraction of the time limit without a reply after which threads are added, since the existing ones may hang."""
GATHER = 0.01
"""Time in seconds that a reply waits for others while many are pending, to reduce thread switches."""


class InProcess:
    """Engine with sites in this process; the default.

    Of more than 100 sites, neighbours of at most 256 rows answer for a sum in one call.

    Parameters
    ----------
    threads : int or None
        Number of sites that answer at the same time; by default the number of processors.

    Examples
    --------
    >>> from consilience import InProcess
    >>> import numpy as np
    >>> from consilience.model import Rows
    >>> from consilience.site import Site
    >>> InProcess().over([Site("north", Rows(np.zeros((5, 2)), np.zeros((5, 1))))]).sites
    ('north',)
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InvalidInputError(f"threads={threads!r}: expected a whole number of at least 1")
        self.threads = threads or processors()

    def each(self, work: Callable[[T, bytes], R], items: Sequence[T], shared: bytes) -> Iterator[tuple[int, R]]:
        """Yield ``work(item, shared)`` of each item with its position, as they end.

        Examples
        --------
        >>> from consilience import InProcess
        >>> sorted(InProcess().each(lambda item, shared: item * len(shared), [1, 2], b"abc"))
        [(0, 3), (1, 6)]
        """
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="consilience")
        try:
            places = {pool.submit(work, item, shared): i for i, item in enumerate(items)}
            for done in as_completed(places):
                yield places[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> InProcessSites:
        """Return the engine for ``sites``; with ``in_memory`` their files are read once."""
        return InProcessSites([replace(site, keep=True) for site in sites] if in_memory else sites, self.threads)

    def close(self) -> None:
        """Do nothing: threads end with their questions."""


class NamedSites(Generic[S]):
    """Sites of this process by name."""

    def __init__(self, sites: Iterable[tuple[str, S]]) -> None:
        given = list(sites)
        self._sites = dict(given)
        if not given or len(self._sites) < len(given):
            raise InvalidInputError("expected at least one site, and distinct site names")
        self._places = {name: place for place, name in enumerate(self._sites)}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return tuple(self._sites)

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


class InProcessSites(NamedSites[Site]):
    """Sends questions to sites in this process."""

    def __init__(self, sites: Iterable[Site], threads: int) -> None:
        super().__init__((site.name, site) for site in sites)
        self._threads = threads
        self._replies: queue.SimpleQueue[tuple[int, Reply]] = queue.SimpleQueue()
        self._run = self._number = 0

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield replies as they arrive; a site that hangs blocks only its own thread."""
        if number <= self._number:  # another run: what an earlier one left behind is not its business
            self._run += 1
        self._number, this_run = number, self._run
        asked = decode(question)  # once: the sites of a process share it
        together = self._together(sites) if total else []
        alone = set(sites).difference(*together)
        parts = [*together, *((name,) for name in sites if name in alone)]
        places = self._places
        jobs = deque((names, question_for(asked, places[names[0]])) for names in parts)  # an error is the caller's

        def work() -> None:
            while jobs:
                try:
                    names, asked_for = jobs.popleft()
                except IndexError:  # another thread was faster
                    return
                for reply in self._answered(number, names, asked_for):
                    self._replies.put((this_run, reply))

        deadline = math.inf if timeout is None else time.monotonic() + timeout
        patience = None if timeout is None else PATIENCE * timeout
        waiting, replies = set(sites), list[Reply]()
        try:
            with one_blas_thread():
                while waiting and time.monotonic() < deadline:
                    if not replies:
                        for _ in range(min(self._threads, len(jobs))):
                            threading.Thread(target=work, name=f"consilience-round-{number}", daemon=True).start()
                    replies = self._arrived(patience, deadline, gather=bool(jobs))
                    waiting.difference_update(*(reply.sites for reply in replies if reply.number == number))
                    if replies:
                        yield replies
        finally:
            jobs.clear()  # who was not asked in time is not asked any more

    def _together(self, asked: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the sites that answer in one call: complete subtrees of small sites that are all asked."""
        names, chosen = self.sites, frozenset(asked)
        return [names[lo:hi] for lo, hi in self._neighbourhoods if chosen.issuperset(names[lo:hi])]

    @cached_property
    def _neighbourhoods(self) -> list[Span]:
        return neighbourhoods(list(self._sites.values()))

    def _answered(self, number: int, names: tuple[str, ...], question: Question) -> Iterator[Reply]:
        """Yield one reply of several sites, or the reply of each."""
        began = time.perf_counter()
        message = respond_together(question, [self._sites[name] for name in names]) if len(names) > 1 else None
        if message is None:
            yield from (self._reply(number, name, question) for name in names)
        else:
            yield Reply(number, names, message, (digest(message),) * len(names), time.perf_counter() - began)

    def _reply(self, number: int, name: str, question: Question) -> Reply:
        began = time.perf_counter()
        message = respond(question, self._sites[name])
        return Reply(number, (name,), message, (digest(message),), time.perf_counter() - began)

    def _arrived(self, patience: float | None, deadline: float, *, gather: bool) -> list[Reply]:
        """Return available replies, after waiting for the first; none if patience or time ran out."""
        left = None if patience is None else min(patience, max(deadline - time.monotonic(), 0.0))
        arrived = []
        with contextlib.suppress(queue.Empty):
            arrived.append(self._replies.get(timeout=left))
            if gather:
                time.sleep(GATHER)
            while True:
                arrived.append(self._replies.get_nowait())
        return [reply for run, reply in arrived if run == self._run]

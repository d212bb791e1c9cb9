"""What runs on a worker: blocks of sites are read, answer, and their answers are added.

Dask pickles tasks and results. That is its way on a cluster of one owner, who may run any code there anyway; what these
functions return is tuples of numbers and bytes all the same.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any, TypeVar

import numpy as np

from consilience.engines.dask.connection import distributed
from consilience.messages.failures import Failure
from consilience.messages.questions import Bundle, Question, question_for
from consilience.messages.table import decode, encode, received
from consilience.model.rows import Rows
from consilience.numerics.threads import threads_for
from consilience.runs.engine import digest
from consilience.runs.tree_sum import Span, tree_sum
from consilience.site.answer import respond
from consilience.site.site import Site, joined

T = TypeVar("T")
STALLED = 1 / 8
"""Share of the time for a block after which a site that says nothing is left behind in its thread."""
LOADING = 1 / 6
"""Share of it after which rows that are not in memory yet are no longer waited for before the question is read."""
KEPT_CLOCKS = 1_000
LARGEST_FAILURE = 1_000
"""Bytes: longer messages need not be read to know that they are answers."""
_worker_log = logging.getLogger("distributed.worker")

Part = tuple[int, int, bytes, tuple[bytes, ...], float]
"""First place, place after the last, message, digest of each site's own answer, seconds."""


@dataclass(frozen=True, eq=False)
class SiteBlock:
    """Sites that are neighbours in the order of sums.

    Parameters
    ----------
    first : int
        Place of the first of them.
    sites : list of Site
        Files; where rows are kept in memory, the worker puts them in their place.
    keep : bool
        Whether rows are kept in memory.
    """

    first: int
    sites: list[Site]
    keep: bool
    _reading: dict[int, threading.Lock] = field(default_factory=dict, init=False, repr=False)

    def load(self, i: int) -> None:
        """Bring the rows of one site into memory; a site that cannot be read stays a file, and says why when asked."""
        with self._reading.setdefault(i, threading.Lock()), suppress(Exception):
            if not isinstance(self.sites[i].data, Rows):
                self.sites[i] = replace(self.sites[i], data=joined(list(self.sites[i].chunks())))

    def site(self, i: int) -> Site:
        """One site; rows that are to be kept and are not there are read now, or waited for if they are being read."""
        if self.keep and not isinstance(self.sites[i].data, Rows):
            self.load(i)
        return self.sites[i]

    def give_up(self, i: int) -> None:
        """Wait no longer for whoever reads a site: the next question reads it itself."""
        self._reading.pop(i, None)

    def __sizeof__(self) -> int:
        """Bytes of the rows in memory: what Dask weighs before it moves a block."""
        arrays = [a for site in self.sites if isinstance(site.data, Rows) for a in (site.data.X, site.data.Y)]
        return object.__sizeof__(self) + sum(int(array.nbytes) for array in arrays)

    def __reduce__(self) -> tuple[Callable[[int, list[Site], bool], SiteBlock], tuple[int, list[Site], bool]]:
        return arrived, (self.first, self.sites, self.keep)


def arrived(first: int, sites: list[Site], keep: bool) -> SiteBlock:
    """A block from another process: its arrays may start at odd addresses there, which costs time and last bits."""
    return SiteBlock(first, [_aligned_site(site) for site in sites], keep)


def _aligned_site(site: Site) -> Site:
    if not isinstance(site.data, Rows):
        return site
    old = site.data
    rows = Rows(_aligned(old.X), _aligned(old.Y), _aligned(old.weight), _aligned(old.exposure), old.groups)
    return replace(site, data=rows)


def _aligned(array: Any) -> Any:
    """The array with its transpose contiguous, as a pass reads it; copied only if it is not so already."""
    return None if array is None else np.require(array.T, requirements=("C", "A")).T


# ---------------------------------------------------------------- time


@dataclass(frozen=True)
class Limit:
    """Seconds for a round, counted on each worker from its first task of the round: clocks of machines differ.

    Examples
    --------
    >>> Limit("round-1", 10.0).left()
    10.0
    >>> Limit("round-1", 10.0).left() < 10
    True
    """

    round: str
    seconds: float

    def left(self) -> float:
        """Seconds that are left here."""
        now = time.monotonic()
        with _clocks_lock:
            began = _clocks.setdefault(self.round, now)
            while len(_clocks) > KEPT_CLOCKS:
                del _clocks[next(iter(_clocks))]
        return began + self.seconds - now


_clocks: dict[str, float] = {}
_clocks_lock = threading.Lock()


# ---------------------------------------------------------------- the tasks


def load_block(block: SiteBlock, limit: Limit | None) -> SiteBlock:
    """The block with the rows of its sites in memory; those that take long are waited for when asked."""
    seconds = None
    if limit is not None:
        limit.left()  # starts the clock: reading is part of the round
        seconds = LOADING * limit.seconds  # of its own, since a block of lost workers is read again in later rounds
    each_within(block.load, range(len(block.sites)), seconds)
    return block


def answer_block(
    block: SiteBlock, question: bytes, asked: tuple[int, ...] | None, total: bool, limit: Limit | None
) -> tuple[Part, ...]:
    """Answers of the sites of a block, added where only the sum matters and all of them are there.

    Parameters
    ----------
    block : SiteBlock
    question : bytes
    asked : tuple of int or None
        Which sites of the block; None for all.
    total : bool
    limit : Limit or None
        Sites that have not answered by then are left out.

    Returns
    -------
    tuple of Part
    """
    decoded: Question | Bundle = decode(question)
    chosen = range(len(block.sites)) if asked is None else asked

    def work(i: int) -> Part:
        began = time.perf_counter()
        site = block.site(i)
        place = block.first + i
        own = question_for(decoded, place)
        message = respond(own, site)
        log_trace(site, received(message, own) if len(message) < LARGEST_FAILURE else None)
        return place, place + 1, message, (digest(message),), time.perf_counter() - began

    with threads_for(0):
        done = each_within(work, chosen, None if limit is None else limit.left())
    for i in chosen:
        if i not in done:
            block.give_up(i)
    parts = tuple(done[i] for i in sorted(done))
    if isinstance(decoded, Bundle) or not (total and len(parts) == len(block.sites)):
        return parts
    return added(parts, decoded)


def add_neighbours(
    left: tuple[Part, ...], right: tuple[Part, ...], question: bytes, spans: tuple[Span, Span]
) -> tuple[Part, ...]:
    """Two branches of the tree as one, where each came as one sum; else their parts side by side."""
    parts = (*left, *right)
    return added(parts, decode(question)) if tuple(part[:2] for part in parts) == spans else parts


def added(parts: tuple[Part, ...], question: Question) -> tuple[Part, ...]:
    """One part for neighbours, in the order of the tree; where one, or the sum, cannot be used they stay apart.

    Whoever receives a sum that cannot be used blames all its sites, so that none such is sent.
    """
    if len(parts) == 1:
        return parts
    values = {(lo, hi): received(message, question) for lo, hi, message, _, _ in parts}
    if any(isinstance(value, Failure) for value in values.values()):
        return parts
    lo, hi = parts[0][0], parts[-1][1]
    with np.errstate(over="ignore", invalid="ignore"):
        message = encode(tree_sum(values, lo, hi, add))
    if isinstance(received(message, question), Failure):
        return parts
    digests = tuple(digest for part in parts for digest in part[3])
    return ((lo, hi, message, digests, sum(part[4] for part in parts)),)


def log_trace(site: Site, said: Any) -> None:
    """Put the trace of a failure into the log of the worker: a site that was sent here ends with its task."""
    if isinstance(said, Failure) and said.reference:
        _worker_log.error("site %s could not answer (reference %d)\n%s", site.name, said.reference, site.traces[-1])


def keep(question: bytes) -> bytes:
    """A large question as the result of a task: the scheduler can make it again when a worker that held it is lost."""
    return question


# ---------------------------------------------------------------- threads


def each_within(work: Callable[[int], T], items: range | tuple[int, ...], seconds: float | None) -> dict[int, T]:
    """``work(item)`` for each item, of those that end within ``seconds``.

    One thread does them all. When it says nothing for a while, another takes the items that are left, and this task
    leaves its place on the worker to the next: an item that hangs keeps its thread and no one else's.

    Examples
    --------
    >>> each_within(lambda i: 10 * i, (1, 2), None)
    {1: 10, 2: 20}
    >>> each_within(lambda i: time.sleep(5 * (i == 1)), (0, 1, 2), 0.5)
    {0: None, 2: None}
    """
    if seconds is None:
        return {item: work(item) for item in items}
    jobs, ended = deque(items), queue.SimpleQueue[tuple[int, T]]()

    def in_turn() -> None:
        with suppress(IndexError):
            while True:
                item = jobs.popleft()
                ended.put((item, work(item)))

    done: dict[int, T] = {}
    deadline, patience, stalls = time.monotonic() + seconds, STALLED * seconds, 0
    threading.Thread(target=in_turn, daemon=True).start()
    while len(done) < len(items) and time.monotonic() < deadline:
        try:
            item, value = ended.get(timeout=min(patience, max(deadline - time.monotonic(), 0.0)))
            done[item] = value
        except queue.Empty:
            stalls += 1
            if stalls == 1:
                _leave_place()
            if jobs:
                threading.Thread(target=in_turn, daemon=True).start()
    jobs.clear()  # what has not begun by now would come too late
    return done


def _leave_place() -> None:
    """Let the worker start its next task; outside a worker there is no place to leave."""
    with suppress(ValueError):
        distributed().secede()

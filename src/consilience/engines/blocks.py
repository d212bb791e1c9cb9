"""Blocks of sites: read their rows, answer for them within a time limit, and add the answers.

For engines whose workers answer for several sites at once. A block is a subtree of the summation tree, so that a
worker may send one sum; the functions return only tuples of numbers and bytes.
"""

from __future__ import annotations

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

from consilience.data import Shard
from consilience.data.stores import absolute_uri
from consilience.errors import InvalidInputError
from consilience.fit import Expect
from consilience.messages import Failure, Question, Several, decode, encode, question_for
from consilience.messages.codec import message_fingerprint
from consilience.messages.questions import Bundle
from consilience.messages.table import receive
from consilience.model import Rows, layout_of
from consilience.numerics.threads import one_blas_thread
from consilience.runs import digest
from consilience.runs.consistency import sum_of
from consilience.runs.tree_sum import Span, tree_sum
from consilience.site import Site, respond

T = TypeVar("T")
STALLED = 1 / 8
"""Fraction of a block's time after which a site that does not respond is left in its thread."""
LOADING = 1 / 6
"""Fraction of a block's time after which rows that are not in memory are no longer waited for."""
KEPT_CLOCKS = 1_000
LARGEST_FAILURE = 1_000
"""Size in bytes above which a message is known to be an answer without reading it."""
RETURN = 0.1
"""Fraction of a round's time that is kept for returning the answers of a block with slow sites."""
LEAST_RETURN = 1.0
"""Least time in seconds kept for returning answers, up to a quarter of the round's time."""

Part = tuple[int, int, bytes, tuple[bytes, ...], float]
"""First position, end position, message, digest of each site's own answer, seconds."""


@dataclass(frozen=True, eq=False)
class SiteBlock:
    """Sites that are adjacent in the order of summation.

    Parameters
    ----------
    first : int
        Position of the first site.
    sites : list of Site
        Sites as files; replaced by rows in memory where they are kept.
    keep : bool
        Whether rows are kept in memory.
    """

    first: int
    sites: list[Site]
    keep: bool
    _reading: dict[int, threading.Lock] = field(default_factory=dict, init=False, repr=False)

    def load(self, i: int) -> None:
        """Read the rows of one site into memory; a site that cannot be read stays a file, and fails when asked."""
        with self._reading.setdefault(i, threading.Lock()), suppress(Exception):
            self.sites[i] = self.sites[i].loaded()

    def site(self, i: int) -> Site:
        """Return one site; read its rows if they are to be kept, or wait for them if they are being read."""
        if self.keep and not isinstance(self.sites[i].data, Rows):
            self.load(i)
        return self.sites[i]

    def give_up(self, i: int) -> None:
        """Stop waiting for the reader of a site: the next question reads it again."""
        self._reading.pop(i, None)

    def __sizeof__(self) -> int:
        """Return the bytes of the rows in memory, by which an engine decides whether to move a block."""
        arrays = [a for site in self.sites if isinstance(site.data, Rows) for a in (site.data.X, site.data.Y)]
        return object.__sizeof__(self) + sum(int(array.nbytes) for array in arrays)

    def __reduce__(self) -> tuple[Callable[[int, list[Site], bool], SiteBlock], tuple[int, list[Site], bool]]:
        return rebuild_block, (self.first, self.sites, self.keep)


def rebuild_block(first: int, sites: list[Site], keep: bool) -> SiteBlock:
    """Rebuild a block received from another process with aligned arrays, for speed and bitwise equal results."""
    return SiteBlock(first, [_aligned_site(site) for site in sites], keep)


def _aligned_site(site: Site) -> Site:
    if not isinstance(site.data, Rows):
        return site
    old = site.data
    arrays = {name: _aligned(getattr(old, name)) for name in ("X", "Y", "weight", "exposure")}
    return replace(site, data=replace(old, **arrays))


def _aligned(array: Any) -> Any:
    """Return the array with a contiguous transpose; copied only if necessary."""
    return None if array is None else np.require(array.T, requirements=("C", "A")).T


def in_file(site: Site) -> Site:
    """Check that a site is a file that a worker can read; make its address absolute."""
    if not isinstance(site.data, Shard):
        raise InvalidInputError(
            f"site {site.name!r} has its rows in memory, and they would be lost with the worker that holds them: write "
            "them to Parquet and pass a Shard"
        )
    return Site(site.name, replace(site.data, uri=absolute_uri(site.data.uri)), key=site.key, account=site.account)


# ---------------------------------------------------------------- time


@dataclass(frozen=True)
class Limit:
    """Time limit of a round in seconds, counted on each worker from its first task, since clocks of machines differ."""

    round: str
    seconds: float

    def left(self) -> float:
        """Return the seconds that are left on this worker."""
        now = time.monotonic()
        with _clocks_lock:
            began = _clocks.setdefault(self.round, now)
            while len(_clocks) > KEPT_CLOCKS:
                del _clocks[next(iter(_clocks))]
        return began + self.seconds - now


_clocks: dict[str, float] = {}
_clocks_lock = threading.Lock()


def time_limit(key: str, span: Span, timeout: float | None) -> Limit | None:
    """Return the time limit of a block: the full timeout for a single site, less for several."""
    if timeout is None:
        return None
    return Limit(key, timeout if span[1] - span[0] == 1 else timeout - time_to_return(timeout))


def time_to_return(timeout: float) -> float:
    """Return the seconds of a round that are kept for returning the answers of blocks with slow sites."""
    return max(RETURN * timeout, min(LEAST_RETURN, timeout / 4))


# ---------------------------------------------------------------- answers


def _ignore(*_: object) -> None:
    """Do nothing."""


def load_block(block: SiteBlock, limit: Limit | None, *, on_stall: Callable[[], None] = _ignore) -> SiteBlock:
    """Read the rows of a block's sites into memory; slow ones are waited for when asked."""
    seconds = None
    if limit is not None:
        limit.left()  # starts the clock: reading is part of the round
        seconds = LOADING * limit.seconds  # of its own, since a block of lost workers is read again in later rounds
    each_within(block.load, range(len(block.sites)), seconds, on_stall)
    return block


def answer_block(
    block: SiteBlock,
    question: bytes,
    asked: tuple[int, ...] | None,
    total: bool,
    limit: Limit | None,
    *,
    on_stall: Callable[[], None] = _ignore,
    on_failure: Callable[[Site, Failure], None] = _ignore,
) -> tuple[Part, ...]:
    """Answer a question for the sites of a block; add the answers if only the sum is needed and all are present.

    Parameters
    ----------
    block : SiteBlock
    question : bytes
    asked : tuple of int or None
        Sites of the block to ask; None for all.
    total : bool
    limit : Limit or None
        Time limit; sites that have not answered by then are left out.
    on_stall : callable
        Called once if a site does not respond for a while.
    on_failure : callable
        Called with a site that failed, and its failure.

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
        said = receive(message, own) if len(message) < LARGEST_FAILURE else None
        if isinstance(said, Failure):
            on_failure(site, said)
        return place, place + 1, message, (digest(message),), time.perf_counter() - began

    with one_blas_thread():
        done = each_within(work, chosen, None if limit is None else limit.left(), on_stall)
    for i in chosen:
        if i not in done:
            block.give_up(i)
    parts = tuple(done[i] for i in sorted(done))
    if isinstance(decoded, Bundle) or not (total and len(parts) == len(block.sites)):
        return parts
    return add_parts(parts, decoded)


def add_neighbours(
    left: tuple[Part, ...], right: tuple[Part, ...], question: bytes, spans: tuple[Span, Span]
) -> tuple[Part, ...]:
    """Add two subtrees if each is one sum; otherwise return their parts."""
    parts = (*left, *right)
    return add_parts(parts, decode(question)) if tuple(part[:2] for part in parts) == spans else parts


def add_parts(parts: tuple[Part, ...], question: Question) -> tuple[Part, ...]:
    """Add adjacent parts in the order of the tree; keep them apart if one, or the sum, is not valid.

    An invalid sum would count as a failure of all its sites, so none is sent.
    """
    if len(parts) == 1:
        return parts
    values = {(lo, hi): receive(message, question) for lo, hi, message, _, _ in parts}
    if any(isinstance(value, Failure) for value in values.values()):
        return parts
    lo, hi = parts[0][0], parts[-1][1]
    with np.errstate(over="ignore", invalid="ignore"):
        together = sum_of(message_fingerprint(part[2]) for part in parts)
        message = encode(tree_sum(values, lo, hi, add), together)
    if isinstance(receive(message, question), Failure):
        return parts
    digests = tuple(digest for part in parts for digest in part[3])
    return ((lo, hi, message, digests, sum(part[4] for part in parts)),)


def answer_bytes(question: Question) -> int:
    """Estimate the size in bytes of the answer to a question, for questions with large answers."""
    match question:
        case Expect(mixture, information):
            return 8 * layout_of(mixture).size(information=information)
        case Several(questions):
            return sum(answer_bytes(part) for part in questions)
    return 0


# ---------------------------------------------------------------- threads


def each_within(
    work: Callable[[int], T],
    items: range | tuple[int, ...],
    seconds: float | None,
    on_stall: Callable[[], None] = _ignore,
) -> dict[int, T]:
    """Compute ``work(item)`` for each item; return those that finish within ``seconds``.

    One thread processes all items. If it does not respond for a while, ``on_stall`` is called and another thread takes
    the remaining items: an item that hangs blocks only its own thread.
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
                on_stall()
            if jobs:
                threading.Thread(target=in_turn, daemon=True).start()
    jobs.clear()  # what has not begun by now would come too late
    return done

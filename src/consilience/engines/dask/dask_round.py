"""One round on a cluster: tasks are submitted, watched, submitted again elsewhere, and their results received."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from typing import Any

from consilience.engines.blocks import Part
from consilience.engines.dask.connection import distributed
from consilience.engines.dask.submit import BlockTasks
from consilience.engines.dask.watch import Watch, patience
from consilience.errors import EngineError
from consilience.messages import Failure, FailureCode, encode
from consilience.runs import Reply, digest
from consilience.runs.tree_sum import Span

LOOKS = 4
"""Number of looks at the workers in the time after which one is silent."""
LEAST_WAIT = 0.5
"""Least time in seconds between two looks."""
CALL_SECONDS = 3.0
LEAST_CALL = 0.1
"""Time for the scheduler to answer a look: the first at most, the second even if the deadline is near."""
GRACE = 1.5
"""Time in seconds to fetch finished results after the deadline."""
SCHEDULER_SECONDS = 300.0
"""Time after which a scheduler that does not answer is given up, also without a deadline."""
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


class DaskRound:
    """A question to sites on a cluster, until all have replied or the time is over.

    Each block is answered once, by the first complete answer. A block that waits for a silent worker is submitted
    again to the others; what arrives second is ignored.

    Parameters
    ----------
    tasks : BlockTasks
    watch : Watch
    number : int
    question : bytes
    asked : frozenset of str
    total : bool
    timeout : float or None
    """

    def __init__(
        self,
        tasks: BlockTasks,
        watch: Watch,
        number: int,
        question: bytes,
        asked: frozenset[str],
        *,
        total: bool,
        timeout: float | None,
    ) -> None:
        self._tasks, self._watch, self._client = tasks, watch, tasks.client
        self._number, self._question, self._asked, self._total = number, question, asked, total
        self._silence, self._heard = patience(timeout), time.monotonic()
        self._ends = math.inf if timeout is None else self._heard + timeout
        self._next_look = self._heard + self._between_looks()
        self._arriving = distributed().as_completed([], self._client.loop, with_results=True, raise_errors=False)
        self._submitted: list[Any] = []
        self._leaves: dict[Span, Any] = {}
        self._attempts: dict[Any, Span] = {}
        self._incomplete: dict[Span, list[Reply]] = {}
        self._spans = tasks.spans(asked)
        self._whole = (0, len(tasks.names)) if total and tasks.are_large(question) else None
        self._open = set(self._spans) if self._whole is None else {self._whole}

    def replies(self) -> Iterator[list[Reply]]:
        """Yield replies as blocks finish, until the time is over."""
        try:
            self._begin()
            while self._open:
                until = min(self._ends, self._next_look)
                replies = [reply for ended in self._arrived(until) for reply in self._settled(*ended)]
                if replies:
                    yield replies
                elif time.monotonic() >= self._ends and self._is_over():
                    break
                if time.monotonic() >= self._next_look:
                    self._look()
            yield from self._incomplete.values()
        finally:  # what no one holds, the scheduler forgets: done or not
            for future in self._submitted:
                future.release()

    # ------------------------------------------------------------------ sending

    def _begin(self) -> None:
        """Submit the tasks of the round; workers that were silent in the last one are looked at first."""
        if self._watch.workers is not None:
            self._tasks.forget(self._survey(CALL_SECONDS) or ())
        self._submit(self._spans)

    def _submit(self, spans: list[Span]) -> None:
        """Submit tasks for these blocks to workers that answer, and await their results, or the sum over all blocks."""
        left = None if self._ends == math.inf else max(self._ends - time.monotonic(), 0.0)
        tasks, workers = self._tasks, self._watch.workers
        with tasks.sending():
            question = tasks.question(self._question, workers)
            leaves = tasks.answers(spans, question, self._asked, total=self._total, timeout=left, workers=workers)
            self._leaves |= leaves
            if self._whole is None:
                attempts = {future: span for span, future in leaves.items()}
            else:
                attempts = {tasks.root(self._leaves, question, workers): self._whole}
        self._submitted += [each for each in (question, *leaves.values(), *attempts) if each is not self._question]
        self._await(attempts)

    def _await(self, attempts: dict[Any, Span]) -> None:
        self._attempts |= attempts
        self._arriving.update(attempts)

    # ------------------------------------------------------------------ watching

    def _between_looks(self) -> float:
        return max(self._silence / LOOKS, LEAST_WAIT)

    def _survey(self, seconds: float) -> frozenset[str] | None:
        """Return the tasks that wait for silent workers; None if the scheduler does not answer."""
        tasks = [*(leaf.key for leaf in self._leaves.values()), *self._tasks.loaded_keys()]
        results = [future.key for future in self._attempts]
        stuck = self._watch.look(tasks, results, silence=self._silence, seconds=seconds)
        if stuck is not None:
            self._heard = time.monotonic()
        return stuck

    def _look(self) -> None:
        """Submit blocks that wait for silent workers to the others."""
        stuck = self._survey(min(CALL_SECONDS, max(self._ends - time.monotonic(), LEAST_CALL)))
        self._next_look = time.monotonic() + self._between_looks()
        if stuck is None:
            self._check_scheduler(SCHEDULER_SECONDS)
            return
        waiting = self._open - {span for future, span in self._attempts.items() if future.key not in stuck}
        if waiting:
            leaves = [span for span, leaf in self._leaves.items() if leaf.key in stuck]
            _log.warning("%d blocks wait for silent workers and are submitted to others", len(leaves))
            self._tasks.forget(stuck)
            self._submit(sorted(waiting if self._whole is None else leaves))

    def _check_scheduler(self, seconds: float) -> None:
        silence = time.monotonic() - self._heard
        if silence > seconds:
            raise EngineError(
                f"the scheduler has not answered for {silence:.0f} s: restart it; a run with a journal can be resumed"
            )

    def _is_over(self) -> bool:
        """Whether nothing is left to be fetched at the deadline; raise an error if the scheduler does not answer."""
        if self._survey(CALL_SECONDS) is None:
            self._check_scheduler(0.0)
        if self._whole is not None:
            self._take_apart([span for span, leaf in self._leaves.items() if leaf.done()])
            self._ends, self._next_look = time.monotonic() + GRACE, math.inf
            return False
        return True

    # ------------------------------------------------------------------ receiving

    def _arrived(self, until: float) -> list[tuple[Any, Any]]:
        """Return finished tasks with their results, once there are any; an empty list if the time is over."""
        with self._arriving.thread_condition:
            while not self._arriving.has_ready() and (left := until - time.monotonic()) > 0:
                self._arriving.thread_condition.wait(left)
        batch: list[tuple[Any, Any]] = self._arriving.next_batch(block=False)
        if batch:
            self._heard = time.monotonic()
        return batch

    def _settled(self, future: Any, result: Any) -> list[Reply]:
        """Return what the end of a task adds to the round: its answers, failures of its sites, or nothing."""
        error = None if future.status == "finished" else self._error(future, result)
        span = self._attempts.pop(future, None)
        if span not in self._open:
            return []
        replies = self._replies(result) if error is None else []
        replies = max(self._incomplete.pop(span, []), replies, key=number_of_sites)
        if number_of_sites(replies) < self._number_asked(span) and span in self._attempts.values():
            self._incomplete[span] = replies
            return []
        self._open.discard(span)
        if error is None or replies:
            return replies
        if span == self._whole:
            self._take_apart(list(self._leaves))
            return []
        return self._failures(span, error)

    def _error(self, future: Any, result: Any) -> BaseException:
        """Return the error of a task; raise one if the scheduler was lost with it."""
        error: BaseException = result[1] if future.status == "error" else result
        if self._client.status != "running" or getattr(error, "reason", "") == "scheduler-connection-lost":
            raise EngineError("the scheduler was lost: restart it; a run with a journal can be resumed") from error
        return error

    def _take_apart(self, spans: list[Span]) -> None:
        """Await the answers of blocks instead of their sum over all blocks."""
        self._whole, self._open = None, set(spans)
        self._attempts.clear()
        self._incomplete.clear()
        self._await({self._leaves[span]: span for span in spans})

    def _number_asked(self, span: Span) -> int:
        return sum(site in self._asked for site in self._tasks.names[slice(*span)])

    def _replies(self, parts: tuple[Part, ...]) -> list[Reply]:
        names = self._tasks.names
        return [
            Reply(self._number, names[lo:hi], message, digests, seconds) for lo, hi, message, digests, seconds in parts
        ]

    def _failures(self, span: Span, error: BaseException) -> list[Reply]:
        """Return failures of the sites of a block whose task failed on every worker that tried it."""
        names = [site for site in self._tasks.names[slice(*span)] if site in self._asked]
        _log.error("a task for %d sites from %s on failed", len(names), names[0], exc_info=error)
        message = encode(Failure(FailureCode.WORKER_LOST if is_loss(error) else FailureCode.INTERNAL))
        return [Reply(self._number, (site,), message, (digest(message),), 0.0) for site in names]


def number_of_sites(replies: list[Reply]) -> int:
    """Count the sites in replies."""
    return sum(len(reply.sites) for reply in replies)


def is_loss(error: BaseException) -> bool:
    """Whether a task failed because its workers were lost."""
    library = distributed()
    return isinstance(error, (library.KilledWorker, library.CancelledError, OSError))

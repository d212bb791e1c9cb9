"""Watch the workers of a cluster: those that are silent, and the tasks that wait for them.

A worker that is stopped, or whose machine hangs, keeps its connections, and Dask waits five minutes for it. Its
heartbeats, which reach the scheduler every half second or, with many workers, every few seconds, end at once.
"""

from __future__ import annotations

from typing import Any

from consilience.engines.dask.connection import run_within

PATIENCE = 30.0
"""Time in seconds without a heartbeat after which a worker is silent; less in a round with a short deadline."""
MISSED = 4
"""Least number of heartbeats that a silent worker has missed."""


def patience(timeout: float | None) -> float:
    """Return the seconds after which a worker is silent: at most a quarter of the round's time."""
    return PATIENCE if timeout is None else min(PATIENCE, timeout / 4)


class Watch:
    """Knows which workers of a cluster answer.

    Parameters
    ----------
    client : distributed.Client

    Attributes
    ----------
    workers : list of str or None
        The workers that answer; None if none was silent at the last look.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.workers: list[str] | None = None

    def look(self, tasks: list[str], results: list[str], *, silence: float, seconds: float) -> frozenset[str] | None:
        """Ask the scheduler which tasks wait for silent workers; None if it does not answer within ``seconds``.

        Parameters
        ----------
        tasks : list of str
            Keys of tasks.
        results : list of str
            Keys of tasks whose results are being fetched.
        silence : float
            Seconds without a heartbeat after which a worker is silent.
        seconds : float
        """
        if self._client.status != "running":
            return None
        try:
            heard, silent, stuck = run_within(
                self._client, seconds, self._client.run_on_scheduler, survey_workers, tasks, results, silence
            )
        except OSError:  # includes TimeoutError
            return None
        self.workers = list(heard) if silent else None
        return frozenset(stuck)


# ---------------------------------------------------------------- on the scheduler


def survey_workers(
    tasks: list[str], results: list[str], silence: float, dask_scheduler: Any
) -> tuple[list[str], list[str], list[str]]:
    """Return the workers that are heard, those that are silent, and the tasks that wait for these.

    The transfer of several results can wait for one silent worker, so with a silent worker every result that has not
    arrived counts as waiting.
    """
    from distributed.scheduler import heartbeat_interval

    workers = dask_scheduler.workers
    least = MISSED * heartbeat_interval(len(workers))
    silent = silent_workers({address: worker.last_seen for address, worker in workers.items()}, max(silence, least))
    found = {key: dask_scheduler.tasks[key] for key in (*tasks, *results) if key in dask_scheduler.tasks}
    fetched = [key for key in results if silent and key in found and found[key].who_has]
    stuck = [key for key, task in found.items() if is_stuck(task, silent)]
    return sorted(workers.keys() - silent), sorted(silent), [*stuck, *fetched]


def silent_workers(last_seen: dict[str, float], silence: float) -> set[str]:
    """Return the workers that were last heard that much before the one that was heard last.

    A scheduler that was itself stopped has heard no one for a while: that makes no worker silent.
    """
    latest = max(last_seen.values(), default=0.0)
    return {address for address, seen in last_seen.items() if latest - seen > silence}


def is_stuck(task: Any, silent: set[str]) -> bool:
    """Whether a task, or one that it needs, is at a silent worker, or may run on no worker that is there."""
    if task.who_has:
        return any(worker.address in silent for worker in task.who_has)
    here = task.processing_on
    if task.state == "no-worker" or (here is not None and here.address in silent):
        return True
    return any(is_stuck(needed, silent) for needed in task.dependencies if here not in (needed.who_has or ()))

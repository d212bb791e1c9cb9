"""The Dask engine with processes that are stopped, continued or killed: the same bits, or a named error in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consilience.engines import DaskCluster, InProcess
from consilience.engines.dask import connection, submit, watch
from consilience.engines.dask import dask_round as rounds
from consilience.engines.dask.dask_round import DaskRound
from consilience.engines.dask.watch import is_stuck, survey_workers
from consilience.errors import EngineError, RoundStoppedError
from consilience.messages import FailureCode
from consilience.model import Mixture
from consilience.runs import run
from consilience.site import Site
from sharded import totals, write_sites

pytest.importorskip("distributed")

pytestmark = pytest.mark.slow
WAIT = 60.0  # for what must happen, however slow the machine


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Site], Mixture, bytes]:
    """Sites, two to a block, a mixture, and the bits of the sum over them in process."""
    sites, mixture = write_sites(tmp_path_factory.mktemp("sites"), 16, 2_000)
    (expected,) = run(totals(mixture, 1), InProcess().over(sites)).value
    return sites, mixture, expected


@pytest.fixture(scope="module")
def cluster(study: tuple[list[Site], Mixture, bytes]) -> Iterator[DaskCluster]:
    """Two workers that have answered before, and so have imported what they need."""
    with DaskCluster(n_workers=2) as opened:
        run(totals(study[1], 2), opened.over(study[0]))
        yield opened


@pytest.fixture
def stop() -> Iterator[Callable[[int], None]]:
    """A function that stops a process, which goes on at the end of the test."""
    stopped = []

    def one(pid: int) -> None:
        stopped.append(pid)
        os.kill(pid, signal.SIGSTOP)

    yield one
    for pid in stopped:
        go_on(pid)


def go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def a_worker(cluster: DaskCluster) -> int:
    """The process of one of two workers, when both are there."""
    cluster._client.wait_for_workers(2, timeout=WAIT)
    pids = cluster._client.run(os.getpid)
    return pids[min(pids)]


def at_first(action: Callable[[], Any]) -> Callable[[str, int, int], None]:
    """A callback that acts when the first answer of a run arrives, and then no more."""
    left = [action]
    return lambda *_: left.pop()() if left else None


# ---------------------------------------------------------------- workers


@pytest.mark.long
@pytest.mark.parametrize(
    ("deadline", "in_memory", "large"),
    [(12.0, False, False), (12.0, True, True), (None, True, False), (None, False, True)],
    ids=["deadline", "deadline, in memory, sums", "in memory", "sums"],
)
def test_blocks_of_a_worker_stopped_for_good_are_answered_by_the_other(
    cluster: DaskCluster,
    study: tuple[list[Site], Mixture, bytes],
    stop: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    deadline: float | None,
    in_memory: bool,
    large: bool,
) -> None:
    sites, mixture, expected = study
    monkeypatch.setattr(watch, "PATIENCE", 2.0 if deadline is None else watch.PATIENCE)
    monkeypatch.setattr(submit, "LARGE_ANSWERS", 0 if large else submit.LARGE_ANSWERS)
    engine, pid = cluster.over(sites, in_memory=in_memory), a_worker(cluster)
    ended = run(totals(mixture, 5), engine, deadline=deadline, on_drop="continue", progress=at_first(lambda: stop(pid)))
    assert ended.value == [expected] * 5
    assert not ended.record.dropped
    assert [sum(len(e.sites) for e in r.exchanges) for r in ended.record.rounds] == [16] * 5  # none counted twice
    assert engine._watch.workers is not None
    assert len(engine._watch.workers) == 1


@pytest.mark.parametrize(
    "in_memory", [False, pytest.param(True, marks=pytest.mark.long)], ids=["streamed", "in memory"]
)
def test_a_worker_that_goes_on_does_no_harm_and_is_used_again(
    cluster: DaskCluster,
    study: tuple[list[Site], Mixture, bytes],
    stop: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    in_memory: bool,
) -> None:
    sites, mixture, expected = study
    monkeypatch.setattr(watch, "PATIENCE", 2.0)
    engine, pid = cluster.over(sites, in_memory=in_memory), a_worker(cluster)
    begin = at_first(lambda: stop(pid))

    def stop_and_go_on(*news: Any) -> None:
        begin(*news)
        if engine._watch.workers is not None:
            go_on(pid)  # in the middle of the round in which it was found silent: both answer

    ended = run(totals(mixture, 10), engine, progress=stop_and_go_on)
    assert ended.value == [expected] * 10
    assert [sum(len(e.sites) for e in r.exchanges) for r in ended.record.rounds] == [16] * 10
    until = time.monotonic() + WAIT
    while engine._watch.workers is not None and time.monotonic() < until:
        assert run(totals(mixture, 1), engine).value == [expected]
    assert engine._watch.workers is None


@pytest.mark.long
def test_a_worker_killed_while_the_other_is_stopped_costs_time_only(
    study: tuple[list[Site], Mixture, bytes], stop: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, mixture, expected = study
    monkeypatch.setattr(watch, "PATIENCE", 2.0)
    with DaskCluster(n_workers=2) as cluster:
        engine = cluster.over(sites, in_memory=True)
        stopped, killed = cluster._client.run(os.getpid).values()
        first = run(totals(mixture, 2), engine, progress=at_first(lambda: stop(stopped)))
        second = run(totals(mixture, 2), engine, progress=at_first(lambda: os.kill(killed, signal.SIGKILL)))
        assert first.value == second.value == [expected] * 2
        began = time.monotonic()
    assert time.monotonic() - began < connection.CLOSE_SECONDS  # a worker that is stopped does not hold up the end
    assert not Path(f"/proc/{stopped}").exists()


def test_workers_that_are_all_stopped_are_named_failures_in_time(
    cluster: DaskCluster, study: tuple[list[Site], Mixture, bytes], stop: Callable[[int], None]
) -> None:
    sites, mixture, expected = study
    engine = cluster.over(sites)
    pids = list(cluster._client.run(os.getpid).values())
    for pid in pids:
        stop(pid)
    began = time.monotonic()
    with pytest.raises(RoundStoppedError, match=str(FailureCode.NO_ANSWER)):
        run(totals(mixture, 1), engine, deadline=2.0)
    assert time.monotonic() - began < 2.0 + 5.0
    for pid in pids:
        go_on(pid)
    assert run(totals(mixture, 2), engine).value == [expected] * 2


# ---------------------------------------------------------------- the scheduler


@pytest.mark.long
def test_a_stopped_scheduler_is_a_named_error_in_time(
    clusters: Any,
    study: tuple[list[Site], Mixture, bytes],
    stop: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sites, mixture, expected = study
    silent = pytest.raises(EngineError, match=r"the scheduler has not answered for \d+ s: restart it")
    monkeypatch.setattr("consilience.engines.dask.cluster.CONNECT_SECONDS", WAIT)
    cluster = DaskCluster(clusters.start(workers=1))
    engine, pid = cluster.over(sites), cluster._client.run_on_scheduler(os.getpid)
    for deadline, large in ((4.0, 10**9), (4.0, 0), (None, 10**9)):
        monkeypatch.setattr(submit, "LARGE_ANSWERS", large)
        monkeypatch.setattr(rounds, "SCHEDULER_SECONDS", 300.0 if deadline else 2.0)
        monkeypatch.setattr(watch, "PATIENCE", 2.0)
        assert run(totals(mixture, 1), engine).value == [expected]  # also after it went on
        began = time.monotonic()
        stop(pid)
        with silent:
            run(totals(mixture, 1), engine, deadline=deadline, on_drop="continue")
        assert time.monotonic() - began < (deadline or 2.0) + 5.0
        go_on(pid)
    stop(pid)
    monkeypatch.setattr("consilience.engines.dask.cluster.CONNECT_SECONDS", 1)
    with pytest.raises(EngineError, match="the cluster has not answered for 1 s"):
        cluster.over(sites)
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1)
    with pytest.raises(EngineError, match="cannot use the scheduler"):
        DaskCluster(cluster._client.scheduler.address)
    began = time.monotonic()
    cluster.close()
    assert time.monotonic() - began < 5.0


# ---------------------------------------------------------------- what counts as stuck


def worker(address: str, last_seen: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(address=address, last_seen=last_seen)


def task(key: str, **state: Any) -> SimpleNamespace:
    nothing = {"who_has": None, "processing_on": None, "state": "waiting", "dependencies": ()}
    return SimpleNamespace(key=key, **{**nothing, **state})


def test_tasks_are_stuck_with_what_they_need() -> None:
    heard, silent = worker("heard"), worker("silent")
    here, there = task("here", who_has=[heard]), task("there", who_has=[silent])
    both = task("both", who_has=[heard, silent])
    for stuck, each in (
        (False, here),
        (True, there),
        (True, both),  # it may be fetched from either
        (False, task("", processing_on=heard)),
        (True, task("", processing_on=silent)),
        (True, task("", state="no-worker")),
        (False, task("", processing_on=heard, dependencies=(here, both))),
        (True, task("", processing_on=heard, dependencies=(here, there))),
        (True, task("", dependencies=(here, task("", processing_on=silent)))),
    ):
        assert is_stuck(each, {"silent"}) is stuck


@pytest.mark.parametrize(
    ("last_seen", "expected"),
    [
        ((100.0, 99.0), (["a", "b"], [], [])),
        ((100.0, 97.0), (["a"], ["b"], ["running", "fetched"])),
    ],
)
def test_the_scheduler_says_who_is_silent_and_what_waits(last_seen: Any, expected: Any) -> None:
    a, b = (worker(name, seen) for name, seen in zip("ab", last_seen, strict=True))
    tasks = [task("running", processing_on=b), task("fetched", who_has=[a]), task("loaded", who_has=[a])]
    scheduler = SimpleNamespace(workers={"a": a, "b": b}, tasks={each.key: each for each in tasks})
    assert survey_workers(["running", "loaded", "unknown"], ["fetched", "unknown"], 2.5, scheduler) == expected


# ---------------------------------------------------------------- which answer counts


class Ended:
    """A future that has ended."""

    def __init__(self, status: str = "finished") -> None:
        self.status = status


def part(lo: int, hi: int) -> tuple[Any, ...]:
    return lo, hi, b"answer", (b"",) * (hi - lo), 0.0


@pytest.fixture
def asked() -> tuple[DaskRound, Ended, Ended]:
    """A round of one block of three sites, submitted twice."""
    client = SimpleNamespace(loop=object(), status="running")
    tasks = SimpleNamespace(client=client, names=("a", "b", "c"), spans=lambda asked: [(0, 3)])
    made = DaskRound(tasks, None, 1, b"", frozenset("abc"), total=False, timeout=None)  # type: ignore[arg-type]
    first, second = Ended(), Ended()
    made._attempts = {first: (0, 3), second: (0, 3)}
    return made, first, second


def sites_in(replies: list[Any]) -> list[str]:
    return [site for reply in replies for site in reply.sites]


def test_the_first_answer_counts_and_the_second_is_ignored(asked: tuple[DaskRound, Ended, Ended]) -> None:
    made, first, second = asked
    assert sites_in(made._settled(second, (part(0, 3),))) == ["a", "b", "c"]
    assert made._settled(first, (part(0, 3),)) == []
    assert not made._open


def test_an_incomplete_answer_waits_for_a_complete_one(asked: tuple[DaskRound, Ended, Ended]) -> None:
    made, first, second = asked
    assert made._settled(first, (part(0, 1),)) == []
    assert sites_in(made._settled(second, (part(0, 3),))) == ["a", "b", "c"]


@pytest.mark.parametrize("status", ["finished", "error"])
def test_an_incomplete_answer_counts_if_no_other_is_better(asked: tuple[DaskRound, Ended, Ended], status: str) -> None:
    made, first, second = asked
    assert made._settled(first, (part(0, 1), part(1, 2))) == []
    second.status = status
    result = (part(0, 1),) if status == "finished" else (OSError, OSError("lost"), None)
    assert sites_in(made._settled(second, result)) == ["a", "b"]


def test_a_block_without_an_answer_in_time_has_not_failed(asked: tuple[DaskRound, Ended, Ended]) -> None:
    made, first, second = asked
    assert made._settled(first, ()) == made._settled(second, ()) == []
    assert not made._open


def test_sites_have_failed_when_the_last_task_has(asked: tuple[DaskRound, Ended, Ended]) -> None:
    made, first, second = asked
    first.status = second.status = "error"
    assert made._settled(first, (OSError, OSError("lost"), None)) == []
    assert sites_in(made._settled(second, (OSError, OSError("lost"), None))) == ["a", "b", "c"]

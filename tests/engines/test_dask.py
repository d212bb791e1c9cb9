"""The Dask engine on this machine: what it refuses, what it survives, what it leaves behind."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.data import Columns, Shard
from consilience.engines import DaskCluster, InProcess, blocks
from consilience.engines.blocks import Part, SiteBlock, add_neighbours, add_parts, answer_block
from consilience.engines.dask import connection, submit
from consilience.errors import EngineError, InvalidInputError
from consilience.fit import Expect, Specification
from consilience.messages import Each, FailureCode, Likelihood, LogLikelihood, PerSite, Summarise, decode, encode
from consilience.messages.dialogue import Dialogue
from consilience.messages.questions import Bundle
from consilience.methods import FederatedEM, Task
from consilience.model import Mixture, Rows
from consilience.runs import run
from consilience.site import Site, respond
from dask_work import len_of_both, slow_length
from sharded import totals, write_sites

pytest.importorskip("distributed")
import dask
from distributed import Client, LocalCluster
from distributed.protocol import deserialize, serialize

pytestmark = pytest.mark.slow  # tests/contracts has this engine in the fast lane


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    with DaskCluster(n_workers=2) as opened:
        yield opened


def worker_pids(cluster: DaskCluster, number: int) -> list[int]:
    """Of all workers, when they are there: one that was just killed is on the scheduler's list for a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = cluster._client.run(os.getpid, on_error="ignore")
        if len(found) == number:
            return list(found.values())
        time.sleep(0.1)
    raise TimeoutError


# ---------------------------------------------------------------- clusters that are given


def test_a_cluster_or_a_client_that_is_given_is_used_and_stays_open(tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 3, 300)
    expected = run(totals(mixture), InProcess().over(sites)).value
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local:
        with DaskCluster(local) as opened:
            assert run(totals(mixture), opened.over(sites)).value == expected
        with Client(local, set_as_default=False) as client:
            with DaskCluster(client) as opened:
                assert run(totals(mixture), opened.over(sites)).value == expected
            assert client.status == "running"
            with pytest.raises(InvalidInputError, match="n_workers and memory_limit are for workers that are started"):
                DaskCluster(client, memory_limit="1GB")
        with pytest.raises(EngineError, match="the client is closed"):
            DaskCluster(client)
    with pytest.raises(EngineError, match="the LocalCluster is closed"):
        DaskCluster(local)


def test_what_is_no_cluster_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"address: got a int, expected the address of a scheduler, a distrib"):
        DaskCluster(8786)

    async def asynchronous() -> None:
        async with Client(processes=False, asynchronous=True, set_as_default=False, dashboard_address=None) as client:
            with pytest.raises(InvalidInputError, match="got an asynchronous Client"):
                DaskCluster(client)

    asyncio.run(asynchronous())


def test_workers_have_the_memory_that_they_are_given() -> None:
    with DaskCluster(n_workers=1, memory_limit="1GB") as opened:
        (worker,) = opened._client.scheduler_info()["workers"].values()
        assert worker["memory_limit"] == 10**9
    for limit in ("lots", 0, "5MB", [1]):
        with pytest.raises(InvalidInputError, match=r"memory_limit=.*: expected the memory of a worker, as in '2GB'"):
            DaskCluster(memory_limit=limit)


def test_each_yields_results_and_survives_a_lost_worker(cluster: DaskCluster) -> None:
    assert sorted(cluster.each(len_of_both, [b"a", b"bc"], b"xyz")) == [(0, 4), (1, 5)]
    with pytest.raises(TypeError):
        list(cluster.each(len_of_both, [None], b""))
    pids = worker_pids(cluster, 2)
    found = cluster.each(slow_length, [b"a"] * 6, b"xyz")
    next(found)
    os.kill(pids[0], signal.SIGKILL)
    assert sorted(value for _, value in found) == [4] * 5


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "address",
    ["tcp://scheduler:8786", "scheduler:8786", "tcp://10.1.2.3:8786", "10.1.2.3:8786", "ws://scheduler:8786",
     "tcp://[2001:db8::1]:8786", "tcp://0.0.0.0:8786", "tcp://127.0.0.1.example.org:8786"],
)  # fmt: skip
def test_plain_tcp_beyond_this_machine_is_refused(address: str) -> None:
    with pytest.raises(EngineError, match="neither encrypted nor on this machine"):
        DaskCluster(address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1", "tcp://127.8.9.10:1"])
def test_nobody_there_is_one_sentence_in_bounded_time(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1)
    with pytest.raises(EngineError, match=r"cannot use the scheduler at tcp://\S+: nothing answered in 1 s"):
        DaskCluster(address)


def test_insecure_is_a_choice_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1)
    with pytest.raises(EngineError, match=r"cannot use the scheduler at tcp://scheduler\.invalid"):
        DaskCluster("scheduler.invalid:8786", insecure=True)


def test_a_port_that_is_no_scheduler_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1)
    answered = "something answered that is not a scheduler"
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(EngineError, match=answered):
        DaskCluster(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize("address", ["tls://scheduler", "http://scheduler:80", "tls://:8786", "inproc://1/2/3"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(EngineError, match="is not the address of a scheduler: expected tls://host:port"):
        DaskCluster(address)


def test_tls_needs_security() -> None:
    with pytest.raises(EngineError, match="needs certificates: pass security="):
        DaskCluster("tls://scheduler:8786")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"address": "127.0.0.1:1", "n_workers": 2},
            "n_workers and memory_limit are for workers that are started here",
        ),
        ({"n_workers": 0}, "n_workers=0: expected"),
        ({"address": "tls://scheduler:1", "security": "cert.pem"}, "security='cert.pem': expected"),
        (
            {"address": "127.0.0.1:8786", "security": True},
            "security=True creates certificates for workers .* started here",
        ),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DaskCluster(**arguments)


def test_without_dask_the_error_has_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'consilience\[dask\]'"):
        DaskCluster(n_workers=1)


def test_importing_the_engines_does_not_import_dask() -> None:
    code = "import sys, consilience.engines; assert not {'dask', 'distributed'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sites_must_be_files(cluster: DaskCluster) -> None:
    rows = Site("north", Rows(np.zeros((2, 1)), np.zeros((2, 1))))
    with pytest.raises(InvalidInputError, match=r"site 'north' has its rows in memory.* write them to Parquet"):
        cluster.over([rows])
    with pytest.raises(InvalidInputError, match="no sites"):
        cluster.over([])
    shard = Site("north", Shard("north.parquet", Columns((), ("y",))))
    with pytest.raises(InvalidInputError, match="two sites have the same name"):
        cluster.over([shard, shard])


@pytest.mark.skipif(
    tuple(map(int, dask.__version__.split(".")[:2])) < (2026, 8), reason="Dask < 2026.8 starts such workers for ever"
)
def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from consilience.engines import DaskCluster\nDaskCluster(n_workers=1)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert "EngineError: the workers did not start" in done.stderr
    assert "__name__ == '__main__'" in done.stderr


# ---------------------------------------------------------------- what is left behind


def test_nothing_is_printed_changed_or_left(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    loggers = [logging.getLogger(name) for name in connection.LOGGERS]

    def state() -> Any:
        levels = [(logger.level, [handler.level for handler in logger.handlers]) for logger in loggers]
        return dask.config.get("distributed"), sorted(os.environ.items()), levels

    sites, mixture = write_sites(tmp_path, 3, 100)
    before, threads = state(), set(threading.enumerate())
    cluster = DaskCluster(n_workers=1)
    pids = worker_pids(cluster, 1)
    engine = cluster.over(sites)
    run(totals(mixture, 2), engine)
    cluster.close()
    cluster.close()
    assert state() == before
    assert not [t for t in set(threading.enumerate()) - threads if t.is_alive() and not t.daemon]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert capfd.readouterr() == ("", "")
    with pytest.raises(EngineError, match="closed"):
        cluster.over(sites)
    with pytest.raises(EngineError, match="closed"):
        run(totals(mixture, 1), engine)


def test_workers_start_as_they_should(cluster: DaskCluster) -> None:
    names = ["MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
    found = cluster._client.run(lambda: [os.environ.get(name) for name in names])
    inherited = os.environ.get(names[0])  # None, unless a cluster of Dask's own was started in this process before
    assert list(found.values()) == [[inherited, "1", "1", "1"]] * 2
    assert all(address.startswith("tcp://127.0.0.1:") for address in found)


def test_rounds_leave_nothing_with_the_scheduler(cluster: DaskCluster, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 16, 1_000)
    run(totals(mixture, 3), cluster.over(sites))
    deadline = time.monotonic() + 5
    while cluster._client.futures and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not cluster._client.futures


# ---------------------------------------------------------------- other ways of the same question


@pytest.mark.parametrize("number", [1, 5, 40])
@pytest.mark.parametrize("large", ["LARGE_QUESTION", "LARGE_ANSWERS"])
def test_large_messages_take_another_way_to_the_same_bits(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: str, number: int
) -> None:
    sites, mixture = write_sites(tmp_path, number, 2_000)
    expected = run(totals(mixture, 2), InProcess().over(sites)).value
    monkeypatch.setattr(submit, large, 0)
    got = run(totals(mixture, 2), cluster.over(sites))
    assert got.value == expected
    if large == "LARGE_ANSWERS":
        assert [len(r.exchanges) for r in got.record.rounds] == [1, 1]


def moved(mixture: Mixture, number: int) -> list[Expect]:
    """As many questions, each about another mixture."""
    shift, none = np.ones(mixture.experts.B.size), np.zeros(mixture.K)
    return [Expect(replace(mixture, experts=mixture.experts.moved(0.1 * i * shift, none))) for i in range(number)]


@pytest.mark.parametrize("deadline", [None, 20.0])
@pytest.mark.parametrize("limit", [0, 10**9], ids=["sent once", "sent with tasks"])
def test_own_questions_take_another_way_to_the_same_bits(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, deadline: float | None
) -> None:
    sites, mixture = write_sites(tmp_path, 40, 2_000)
    questions = {site.name: question for site, question in zip(sites, moved(mixture, 40), strict=True)}

    def ask() -> Dialogue[dict[str, bytes]]:
        return {site: encode(answer) for site, answer in (yield PerSite(questions)).items()}

    monkeypatch.setattr(submit, "LARGE_QUESTION", limit)
    got = run(ask(), cluster.over(sites), deadline=deadline).value
    assert list(got.items()) == [(site.name, encode(decode(respond(questions[site.name], site)))) for site in sites]


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("asked", [None, (0, 2)], ids=["all", "some"])
def test_a_site_of_a_block_is_shown_its_own_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[int, ...] | None, total: bool
) -> None:
    sites, mixture = write_sites(tmp_path, 3, 300)
    questions = moved(mixture, 9)
    shown: dict[str, bytes] = {}

    def seen(question: Any, site: Site) -> bytes:
        shown[site.name] = encode(question)
        return respond(question, site)

    monkeypatch.setattr(blocks, "respond", seen)
    bundle = encode(Bundle(tuple(range(2, 11)), tuple(questions)))  # the block has places 4, 5 and 6
    parts = answer_block(SiteBlock(4, sites, keep=False), bundle, asked, total, None)
    chosen = (0, 1, 2) if asked is None else asked
    assert shown == {sites[i].name: encode(questions[2 + i]) for i in chosen}
    assert [part[:3] for part in parts] == [(4 + i, 5 + i, respond(questions[2 + i], sites[i])) for i in chosen]


@pytest.mark.parametrize("deadline", [None, 20.0])
def test_sums_on_workers_leave_failed_sites_apart(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline: float | None
) -> None:
    sites, mixture = write_sites(tmp_path, 40, 2_000)
    for i in (7, 32, 33, 34, 35, 36, 37, 38, 39):
        Path(sites[i].data.uri).unlink()
    expected = run(totals(mixture, 3), InProcess().over(sites), on_drop="continue")
    monkeypatch.setattr(submit, "LARGE_ANSWERS", 0)
    got = run(totals(mixture, 3), cluster.over(sites), on_drop="continue", deadline=deadline)
    assert got.value == expected.value
    assert got.record.dropped.keys() == expected.record.dropped.keys()
    assert [sum(len(e.sites) for e in r.exchanges) for r in got.record.rounds] == [40, 31, 31]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe in place of a file is what hangs here")
def test_sums_on_workers_take_what_is_there_when_the_time_is_over(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, mixture = write_sites(tmp_path, 5, 1_000)  # each site a block
    pipe = Path(sites[2].data.uri)
    pipe.unlink()
    expected = run(totals(mixture, 2), InProcess().over(sites), on_drop="continue").value
    os.mkfifo(pipe)
    monkeypatch.setattr(submit, "LARGE_ANSWERS", 0)
    try:
        got = run(totals(mixture, 2), cluster.over(sites), on_drop="continue", deadline=5.0)
    finally:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    assert got.record.dropped == {"site-02": str(FailureCode.NO_ANSWER)}
    assert got.value == expected


def test_two_runs_on_one_engine_do_not_meet(cluster: DaskCluster, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 5, 500)
    engine = cluster.over(sites, in_memory=True)

    def counts() -> Dialogue[list[float]]:
        return [answer.weight for answer in (yield Each(Summarise(3, 1))).values()]

    first = run(counts(), engine).value
    totals_between = run(totals(mixture, 2), engine).value
    assert run(counts(), engine).value == first
    assert totals_between[0] == totals_between[1]


def test_relative_paths_mean_the_same_for_workers(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, mixture = write_sites(tmp_path, 1, 100)
    monkeypatch.chdir(tmp_path)
    relative = Site("north", Shard("site-00.parquet", sites[0].data.columns))
    assert run(totals(mixture, 1), cluster.over([relative])).value == run(totals(mixture, 1), cluster.over(sites)).value


# ---------------------------------------------------------------- sums that must not be sent


def parts_of(*values: Any) -> tuple[Part, ...]:
    return tuple((i, i + 1, encode(value), (b"",), 0.0) for i, value in enumerate(values))


@pytest.mark.parametrize(
    "values",
    [
        (Likelihood(1.0, 1.0), Likelihood(np.inf, 1.0)),
        (Likelihood(1.0, 1.0), Likelihood(1.0, np.nan)),
        (Likelihood(1e308, 1.0), Likelihood(1e308, 1.0)),  # each can be used, their sum cannot
        (Summarise(1, 1), Summarise(1, 1)),
    ],
)
def test_what_cannot_be_used_stays_apart(tmp_path: Path, values: tuple[Any, Any]) -> None:
    _, mixture = write_sites(tmp_path, 1, 10)
    question, parts = LogLikelihood(mixture), parts_of(*values)
    assert add_parts(parts, question) == parts
    assert add_neighbours(parts[:1], parts[1:], encode(question), ((0, 1), (1, 2))) == parts
    assert len(add_parts(parts_of(Likelihood(1.0, 1.0), Likelihood(2.0, 1.0)), question)) == 1


# ---------------------------------------------------------------- traces


@pytest.mark.parametrize("in_memory", [False, True], ids=["streamed", "in memory"])
def test_traces_are_in_the_logs_of_the_workers(
    cluster: DaskCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], in_memory: bool
) -> None:
    sites, mixture = write_sites(tmp_path, 16, 500)
    name = f"broken {in_memory}"
    Path(sites[3].data.uri).unlink()
    sites[3] = Site(name, sites[3].data)
    engine = cluster.over(sites, in_memory=in_memory)
    dropped = [run(totals(mixture), engine, on_drop="continue").record.dropped[name] for _ in range(2)]
    references = [1, 2] if in_memory else [1, 1]  # a site that is sent with each task counts from 1
    assert dropped == [
        f"{FailureCode.DATA_NOT_FOUND} (reference {reference} in the site's log)" for reference in references
    ]
    logs = cluster._client.get_worker_logs()
    found = [text for entries in logs.values() for level, text in entries if name in text and level == "ERROR"]
    assert len(found) == 2
    for reference in references:
        assert any(f"site {name} could not answer (reference {reference})" in text for text in found)
    for text in found:
        assert "Traceback (most recent call last)" in text
        assert "FileNotFoundError" in text
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- time


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe in place of a file is what hangs here")


@needs_pipes
@pytest.mark.parametrize(
    "in_memory", [False, pytest.param(True, marks=pytest.mark.long)], ids=["streamed", "in memory"]
)
def test_a_slow_site_has_nearly_all_of_the_deadline(cluster: DaskCluster, tmp_path: Path, in_memory: bool) -> None:
    sites, mixture = write_sites(tmp_path, 16, 1_000)  # two to a block
    expected = run(totals(mixture, 2), InProcess().over(sites, in_memory=in_memory))
    path, pipe, aside = Path(sites[4].data.uri), tmp_path / "pipe", tmp_path / "aside"
    path.rename(aside)
    os.mkfifo(pipe)
    os.link(pipe, path)

    def release() -> None:  # whoever opened the pipe finds no rows there; whoever comes now reads the file
        aside.replace(path)
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))

    deadline = 10.0
    engine = cluster.over(sites, in_memory=in_memory)
    slow = threading.Timer(0.8 * deadline, release)
    slow.start()
    got = run(totals(mixture, 2), engine, deadline=deadline, on_drop="continue")
    slow.join()
    if in_memory:
        assert not got.record.dropped
        assert got.value == expected.value
    else:
        assert got.record.dropped.keys() == {"site-04"}
        assert str(FailureCode.DATA_UNREADABLE) in got.record.dropped["site-04"]


@pytest.mark.long
@needs_pipes
@pytest.mark.parametrize("in_memory", [False, True], ids=["streamed", "in memory"])
def test_a_site_that_hangs_in_every_block_harms_no_other(cluster: DaskCluster, tmp_path: Path, in_memory: bool) -> None:
    sites, mixture = write_sites(tmp_path, 32, 1_000)  # four to a block, four blocks for each worker
    engine = cluster.over(sites, in_memory=in_memory)
    pipes = [Path(site.data.uri) for site in sites[1::4]]
    for pipe in pipes:
        pipe.unlink()
    expected = run(totals(mixture, 3), InProcess().over(sites, in_memory=in_memory), on_drop="continue")
    for pipe in pipes:
        os.mkfifo(pipe)
    try:
        got = run(totals(mixture, 3), engine, deadline=10.0, on_drop="continue")
    finally:
        for pipe in pipes:
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    assert got.record.dropped == {site.name: str(FailureCode.NO_ANSWER) for site in sites[1::4]}
    assert got.value == expected.value


@needs_pipes
def test_a_site_that_hung_is_read_again_by_a_later_run(cluster: DaskCluster, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 16, 1_000)
    expected = run(totals(mixture, 2), InProcess().over(sites, in_memory=True)).value
    path, pipe, aside = Path(sites[4].data.uri), tmp_path / "pipe", tmp_path / "aside"
    path.rename(aside)
    os.mkfifo(pipe)
    os.link(pipe, path)
    engine = cluster.over(sites, in_memory=True)
    try:
        assert run(totals(mixture, 2), engine, deadline=8.0, on_drop="continue").record.dropped.keys() == {"site-04"}
        aside.replace(path)  # the first reader still waits at the pipe
        assert run(totals(mixture, 2), engine, deadline=20.0).value == expected
    finally:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


def test_clocks_of_old_rounds_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "KEPT_CLOCKS", 3)
    for i in range(10):
        blocks.Limit(f"forgotten-{i}", 5.0).left()
    assert len(blocks._clocks) == 3
    time.sleep(0.01)
    assert blocks.Limit("forgotten-9", 5.0).left() < 5.0
    assert blocks.Limit("forgotten-0", 5.0).left() == 5.0


# ---------------------------------------------------------------- lost workers


def test_a_block_that_moves_is_aligned_again(tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 2, 1_000)
    block = SiteBlock(0, [site.loaded() for site in sites], keep=True)
    header, frames = serialize(block)
    moved = []
    for frame in frames:
        at_odd_address = memoryview(bytearray(memoryview(frame).nbytes + 1))[1:]
        at_odd_address[:] = memoryview(frame).cast("B")
        moved.append(at_odd_address)
    arrived = deserialize(header, moved)
    for before, after in zip(block.sites, arrived.sites, strict=True):
        assert after.data.X.T.flags.c_contiguous
        assert after.data.X.flags.aligned
        assert after.data.Y.flags.aligned
        np.testing.assert_array_equal(after.data.X, before.data.X)
    question = encode(Expect(mixture))
    messages = [[part[2] for part in answer_block(b, question, None, True, None)] for b in (block, arrived)]
    assert messages[0] == messages[1]
    assert sys.getsizeof(block) > 1_000 * 4 * 8


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Site], Mixture]:
    return write_sites(tmp_path_factory.mktemp("many"), 16, 150_000, n_experts=4, n_features=20)


@pytest.fixture(scope="module")
def mortal() -> Iterator[DaskCluster]:
    """A cluster whose workers may be killed: each is started again."""
    with DaskCluster(n_workers=2) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.parametrize(("in_memory", "trials"), [(True, 5), (False, 2)], ids=["in memory", "streamed"])
def test_killed_workers_cost_time_only(
    mortal: DaskCluster, many_rows: tuple[list[Site], Mixture], in_memory: bool, trials: int
) -> None:
    sites, mixture = many_rows
    rng = random.Random(0)
    worker_pids(mortal, 2)
    began = time.monotonic()
    undisturbed = run(totals(mixture, 4, information=True), mortal.over(sites, in_memory=in_memory)).value
    took = time.monotonic() - began
    for _ in range(trials):
        pid, moment = rng.choice(worker_pids(mortal, 2)), rng.uniform(0.05, 0.9) * took
        killer = threading.Timer(moment, os.kill, (pid, signal.SIGKILL))
        killer.start()
        again = run(totals(mixture, 4, information=True), mortal.over(sites, in_memory=in_memory), deadline=100)
        killer.join()
        assert again.value == undisturbed
        assert not again.record.dropped


@pytest.mark.long
def test_a_worker_killed_during_a_fit_costs_time_only(mortal: DaskCluster, tmp_path: Path) -> None:
    sites, _ = write_sites(tmp_path, 16, 30_000, n_experts=3, n_features=5)
    rng = random.Random(0)

    def fit(in_memory: bool) -> tuple[bytes, list[tuple[str, int]]]:
        dialogue = FederatedEM().dialogue(Task([Specification(K=3)], 5, 1, seed=0))
        ended = run(dialogue, mortal.over(sites, in_memory=in_memory), deadline=100)
        (fitted,) = ended.value
        assert not ended.record.dropped
        return encode(Expect(fitted.mixture)), [(r.question, len(r.exchanges)) for r in ended.record.rounds]

    for in_memory in (True, False):
        worker_pids(mortal, 2)
        began = time.monotonic()
        undisturbed = fit(in_memory)
        took = time.monotonic() - began
        pid, moment = rng.choice(worker_pids(mortal, 2)), rng.uniform(0.1, 0.9) * took
        killer = threading.Timer(moment, os.kill, (pid, signal.SIGKILL))
        killer.start()
        assert fit(in_memory) == undisturbed
        killer.join()


def test_workers_lost_for_good_are_a_failure_of_their_sites(many_rows: tuple[list[Site], Mixture]) -> None:
    sites, mixture = many_rows
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), DaskCluster(n_workers=2) as cluster:
        engine = cluster.over(sites)
        threading.Timer(0.3, os.kill, (worker_pids(cluster, 2)[0], signal.SIGKILL)).start()
        ended = run(totals(mixture, 4, information=True), engine, on_drop="continue")
    assert set(ended.record.dropped.values()) == {str(FailureCode.WORKER_LOST)}
    assert 1 <= len(ended.record.dropped) <= 4  # the block that was being answered, and one that was next

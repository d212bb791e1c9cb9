"""Sites of this process that raise, hang, or answer nonsense: named, left out, the others unharmed."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answering import Calls, small_sites, summaries
from consilience.data import Columns, Shard
from consilience.engines import InProcess
from consilience.errors import InvalidInputError, MessageError, RoundStoppedError
from consilience.messages import Each, Failure, FailureCode, Likelihood, Summarise, Total, decode, encode
from consilience.model import Rows
from consilience.runs import run
from consilience.site import Site, respond


def raising(question, site) -> bytes:
    return respond(question, Site(site.name, None, traces=site.traces))  # type: ignore[arg-type]


def not_finite(question, site) -> bytes:
    return encode(replace(decode(respond(question, site)), weight=np.nan))


def of_wrong_shape(question, site) -> bytes:
    return respond(Summarise(3, 1), Site("other", Rows(np.zeros((4, 3)), np.zeros((4, 1)))))


def of_another_kind(question, site) -> bytes:
    return encode(Likelihood(0.0, 1.0))


def in_an_old_format(question, site) -> bytes:
    message = bytearray(respond(question, site))
    struct.pack_into("<H", message, 4, 0)
    return bytes(message)


def noise(question, site) -> bytes:
    return b"\x80\x04\x95 a pickle, for example"


def hanging(question, site) -> bytes:
    time.sleep(60)
    return b""


MISBEHAVIOUR = [
    (raising, FailureCode.INTERNAL),
    (not_finite, FailureCode.NOT_FINITE),
    (of_wrong_shape, FailureCode.WRONG_SHAPE),
    (of_another_kind, FailureCode.WRONG_SHAPE),
    (in_an_old_format, FailureCode.OTHER_FORMAT),
    (noise, FailureCode.UNREADABLE_ANSWER),
    (hanging, FailureCode.NO_ANSWER),
]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), MISBEHAVIOUR, ids=[how.__name__ for how, _ in MISBEHAVIOUR])
@pytest.mark.parametrize("request_type", [Total, Each])
def test_misbehaviour_is_named_and_the_others_are_unharmed(calls: Calls, how, code, request_type) -> None:
    def weights():
        for _ in range(3):
            answer = yield request_type(Summarise(d=2, q=1))
        return answer.weight if request_type is Total else sum(part.weight for part in answer.values())

    calls.misbehave("north", how, time=1)
    deadline = 0.6 if how is hanging else None
    done = run(weights(), InProcess().over(small_sites()), deadline=deadline, on_drop="continue")
    assert done.value == 80.0
    assert done.record.dropped["north"].startswith(str(code))
    outcomes = {row["site"]: row["outcome"] for row in done.record.to_rows() if row["round"] == 2}
    assert outcomes["east"] == outcomes["south"] == "answered"
    assert outcomes["north"].startswith(str(code))


@pytest.mark.parametrize(("how", "code"), MISBEHAVIOUR, ids=[how.__name__ for how, _ in MISBEHAVIOUR])
def test_misbehaviour_stops_a_run_by_name(calls: Calls, how, code) -> None:
    calls.misbehave("north", how)
    with pytest.raises(RoundStoppedError, match="round 1 stopped: north: ") as stopped:
        run(summaries(1), InProcess().over(small_sites()), deadline=0.6)
    assert str(code) in str(stopped.value)


def test_the_trace_stays_at_the_site_and_its_number_leaves() -> None:
    site = Site("north", Rows(np.array([["a"]], dtype=object), np.zeros((1, 1))))  # type: ignore[arg-type]
    failure = decode(respond(Summarise(1, 1), site))
    assert failure == Failure(FailureCode.INTERNAL, reference=1)
    assert "Traceback" in site.traces[0]
    for _ in range(30):
        last = decode(respond(Summarise(1, 1), site)).reference
    assert last == 31
    assert len(site.traces) == 20


def test_threads_are_at_least_one() -> None:
    for threads in (0, -1):
        with pytest.raises(InvalidInputError, match="threads="):
            InProcess(threads)


@pytest.mark.slow
def test_the_interpreter_exits_while_a_site_hangs() -> None:
    program = """
import sys; sys.path[:0] = sys.argv[1:]
import time
from answering import small_sites, summaries
from consilience.engines import InProcess, inprocess
from consilience.errors import RoundStoppedError
from consilience.runs import run
inprocess.respond = lambda question, site: time.sleep(600)
try:
    run(summaries(1), InProcess().over(small_sites()), deadline=0.2)
except RoundStoppedError:
    print("stopped")
"""
    tests = str(Path(__file__).parents[1])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, tests], capture_output=True, timeout=60, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "stopped\n")
    assert time.monotonic() - began < 30


def test_a_question_that_cannot_be_sent_fails_here_already() -> None:
    def dialogue():
        yield Each("how are you?")

    with pytest.raises(MessageError, match="str is not in the table"):
        run(dialogue(), InProcess().over(small_sites()))


def test_files_are_read_once_when_they_are_to_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [0.0, 1.0], "y": [1.0, 3.0]}), path)
    site = Site("north", Shard(str(path), Columns(("a", "b"), ("y",))))
    engine = InProcess().over([site], in_memory=True)
    assert run(summaries(1), engine).value == [2.0]
    path.unlink()
    assert run(summaries(1), engine).value == [2.0]
    with pytest.raises(RoundStoppedError, match="not found"):
        run(summaries(1), InProcess().over([site]))


def test_a_pool_that_is_left_begins_nothing_more() -> None:
    begun: list[int] = []

    def work(item: int, shared: bytes) -> int:
        begun.append(item)
        time.sleep(0.02)
        return item

    found = InProcess(threads=1).each(work, list(range(50)), b"")
    next(found)
    found.close()
    time.sleep(0.1)
    at_the_end = len(begun)
    time.sleep(0.2)
    assert at_the_end < 10
    assert len(begun) == at_the_end

"""The journal: what was written is not asked again; a torn end is dropped, damage and other runs are refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answering import Calls, failing, small_sites, summaries
from consilience.datasets import soft
from consilience.engines import InProcess
from consilience.errors import JournalError, RoundStoppedError
from consilience.fit import Expect
from consilience.messages import (
    Each,
    Failure,
    FailureCode,
    Likelihood,
    LogLikelihood,
    PerSite,
    Several,
    Summarise,
    Total,
    encode,
)
from consilience.messages.codec import is_same_question, message_fingerprint
from consilience.messages.dialogue import Dialogue
from consilience.model import Rows
from consilience.model.statistics import Statistics
from consilience.runs import Journal, Limits, run
from consilience.runs import journal as journal_module
from consilience.runs.journal import FrameFile, join_parts, split_parts
from consilience.runs.record import ANSWERED, FROM_JOURNAL
from consilience.site import Site, respond
from strategies import Shape


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "run.journal"


def mixed(d: int = 2):
    """A dialogue with both kinds of requests."""
    total = yield Total(Summarise(d=d, q=1))
    each = yield Each(Summarise(d=d, q=1), sites=("north", "south"))
    again = yield Total(Summarise(d=d, q=1))
    return total.x_mean, {site: part.x_mean for site, part in each.items()}, again.y_mean


def equal(a, b) -> bool:
    return (
        np.array_equal(a[0], b[0])
        and a[1].keys() == b[1].keys()
        and all(np.array_equal(a[1][site], b[1][site]) for site in a[1])
        and np.array_equal(a[2], b[2])
    )


def test_a_finished_run_is_replayed_without_asking(path: Path, calls: Calls) -> None:
    first = run(mixed(), InProcess().over(small_sites()), journal=Journal(path))
    asked = len(calls.asked)
    again = run(mixed(), InProcess().over(small_sites()), journal=Journal(path))
    assert equal(first.value, again.value)
    assert len(calls.asked) == asked == 3 + 2 + 3
    assert {exchange.outcome[:16] for r in again.record.rounds for exchange in r.exchanges} == {"from the journal"}


def test_a_stopped_run_asks_only_for_what_it_does_not_have(path: Path, calls: Calls) -> None:
    calls.misbehave("north", failing, time=2)
    with pytest.raises(RoundStoppedError, match=r"round 3 stopped: north: an unexpected error.*resume") as stopped:
        run(summaries(4), InProcess().over(small_sites()), journal=Journal(path))
    assert stopped.value.sites == ("north",)
    assert len(calls.asked) == 9
    calls._misbehaviour.clear()
    resumed = run(summaries(4), InProcess().over(small_sites()), journal=Journal(path))
    assert resumed.value == [120.0] * 4
    assert calls.asked[9:].count("north") == 2  # the answer that was missing, and round 4
    assert len(calls.asked) == 9 + 1 + 3


def test_a_resumed_run_with_limits_has_the_same_bits(path: Path, tmp_path: Path) -> None:
    """Many small sites may answer together, but not before and apart after."""
    data = soft(150 * 12, n_experts=2, n_features=2, random_state=0)
    parts = np.array_split(np.arange(150 * 12), 150)
    sites = [Site(str(m), Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]

    def dialogue(stop: bool = False) -> Dialogue[Statistics]:
        yield Total(Summarise(d=2, q=1))
        if stop:
            raise KeyboardInterrupt
        return (yield Total(Expect(data.truth)))

    limits = Limits(max_rows=1000)
    with pytest.raises(KeyboardInterrupt):
        run(dialogue(stop=True), InProcess().over(sites), journal=Journal(path), limits=limits)
    resumed = run(dialogue(), InProcess().over(sites), journal=Journal(path), limits=limits).value
    whole = run(dialogue(), InProcess().over(sites), journal=Journal(tmp_path / "other"), limits=limits).value
    np.testing.assert_array_equal(resumed.to_array(), whole.to_array())


def test_a_site_left_out_stays_out_after_a_resume(path: Path, calls: Calls) -> None:
    calls.misbehave("north", failing, time=1)
    first = run(summaries(3), InProcess().over(small_sites()), journal=Journal(path), on_drop="continue")
    again = run(summaries(3), InProcess().over(small_sites()), journal=Journal(path), on_drop="continue")
    assert first.value == again.value == [120.0, 80.0, 80.0]
    assert first.record.dropped.keys() == again.record.dropped.keys() == {"north"}


def test_a_total_keeps_the_sum_and_digests_only(path: Path) -> None:
    run(summaries(2), InProcess().over(small_sites()), journal=Journal(path))
    journal = Journal(path)
    with journal.opened(("east", "north", "south")):
        assert [len(closed.answers) for closed in journal.rounds] == [1, 1]
        assert journal.open_replies == []
    assert path.with_name("run.journal.round").stat().st_size == 0


# ---------------------------------------------------------------------- questions of each site's own


def learning(rounds: int = 3, names: tuple[str, ...] = ("south", "east", "north")) -> Dialogue[dict[str, float]]:
    """Each site's next question hangs on its own last answer, so that the result hangs on all of them."""
    mixture, _ = Shape().problem()
    steps = {name: 0.1 * len(name) + 0.01 * ord(name[0]) for name in names}
    for _ in range(rounds):
        experts = {name: mixture.experts.moved(np.full(6, step), np.zeros(2)) for name, step in steps.items()}
        answers = yield PerSite({name: LogLikelihood(replace(mixture, experts=experts[name])) for name in names})
        steps = {name: np.tanh(answers[name].log_likelihood / 1e3) for name in names}
    return steps


def interrupted(dialogue: Dialogue[dict[str, float]], after: int) -> Dialogue[None]:
    """The dialogue until it has had some answers."""
    answer = None
    for _ in range(after):
        answer = yield dialogue.send(answer)
    raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 2, 3])
def test_own_questions_are_replayed_after_an_end_between_rounds(path: Path, calls: Calls, after: int) -> None:
    expected = run(learning(), InProcess().over(small_sites())).value
    assert len(set(expected.values())) == 3
    calls.asked.clear()
    with pytest.raises(KeyboardInterrupt):
        run(interrupted(learning(), after), InProcess().over(small_sites()), journal=Journal(path))
    resumed = run(learning(), InProcess().over(small_sites()), journal=Journal(path))
    assert resumed.value == expected
    assert len(calls.asked) == 3 * 3
    replayed = [e for r in resumed.record.rounds[:after] for e in r.exchanges]
    assert {(e.outcome, e.bytes_sent) for e in replayed} == {(FROM_JOURNAL, 0)}
    assert [r.request for r in resumed.record.rounds] == ["PerSite"] * 3


@pytest.mark.parametrize("missing", [("north",), ("east", "south"), ("east", "north", "south")])
def test_own_questions_are_asked_again_only_where_no_answer_was_written(
    path: Path, calls: Calls, missing: tuple[str, ...]
) -> None:
    expected = run(learning(), InProcess().over(small_sites())).value
    calls.asked.clear()
    for site in missing:
        calls.misbehave(site, failing, time=1)
    with pytest.raises(RoundStoppedError, match="round 2 stopped"):
        run(learning(), InProcess().over(small_sites()), journal=Journal(path))
    assert len(calls.asked) == 6
    calls._misbehaviour.clear()
    resumed = run(learning(), InProcess().over(small_sites()), journal=Journal(path))
    assert resumed.value == expected
    assert sorted(calls.asked[6:]) == sorted([*missing, "east", "north", "south"])  # what was missing, and round 3
    in_round_2 = {e.sites[0]: (e.outcome, e.bytes_sent > 0) for e in resumed.record.rounds[1].exchanges}
    kept = dict.fromkeys({"east", "north", "south"} - set(missing), (FROM_JOURNAL, False))
    assert in_round_2 == {**kept, **dict.fromkeys(missing, (ANSWERED, True))}


def test_a_site_left_out_of_own_questions_stays_out_after_a_resume(path: Path, calls: Calls) -> None:
    def twice() -> Dialogue[list[dict[str, bytes]]]:
        questions = {site: Summarise(2, 1) for site in ("south", "north")}
        answers = [(yield PerSite(questions)), (yield PerSite(questions))]
        return [{site: encode(answer) for site, answer in each.items()} for each in answers]

    calls.misbehave("north", failing, time=1)
    first = run(twice(), InProcess().over(small_sites()), journal=Journal(path), on_drop="continue")
    again = run(twice(), InProcess().over(small_sites()), journal=Journal(path), on_drop="continue")
    assert first.value == again.value
    assert [list(answers) for answers in again.value] == [["north", "south"], ["south"]]
    assert first.record.dropped == again.record.dropped == {"north": str(Failure(FailureCode.INTERNAL, 1))}
    assert len(calls.asked) == 4


def test_own_questions_are_those_of_the_journal_whatever_order_they_are_given_in(path: Path, calls: Calls) -> None:
    first = run(learning(2), InProcess().over(small_sites()), journal=Journal(path)).value
    again = run(learning(2, ("north", "south", "east")), InProcess().over(small_sites()), journal=Journal(path)).value
    assert first == again
    assert len(calls.asked) == 6


def test_own_questions_of_other_sites_are_those_of_another_run(path: Path) -> None:
    one, other = (LogLikelihood(Shape(seed=seed).problem()[0]) for seed in (1, 2))

    def ask(request: Each | PerSite) -> Dialogue[None]:
        yield request

    run(ask(PerSite({"east": one, "south": other})), InProcess().over(small_sites()), journal=Journal(path))
    before = path.read_bytes()
    for request in (
        PerSite({"east": other, "south": one}),
        PerSite({"east": one, "north": other}),
        PerSite({"east": one, "south": one}),
        Each(one, sites=("east", "south")),
    ):
        with pytest.raises(JournalError, match="its question of round 1 is not the one"):
            run(ask(request), InProcess().over(small_sites()), journal=Journal(path))
    assert path.read_bytes() == before


# ---------------------------------------------------------------------- other runs


def test_the_journal_of_other_sites_is_refused(path: Path) -> None:
    run(summaries(1), InProcess().over(small_sites()), journal=Journal(path))
    with pytest.raises(JournalError, match="journal of another run: it has other sites"):
        run(summaries(1), InProcess().over(small_sites(["east"])), journal=Journal(path))


def test_the_journal_of_another_study_is_refused(path: Path) -> None:
    run(summaries(1), InProcess().over(small_sites()), journal=Journal(path, "one"))
    with pytest.raises(JournalError, match="another model, method or setting"):
        run(summaries(1), InProcess().over(small_sites()), journal=Journal(path, "another"))


def test_another_question_is_refused(path: Path) -> None:
    run(mixed(), InProcess().over(small_sites()), journal=Journal(path))
    with pytest.raises(JournalError, match="its question of round 1 is not the one"):
        run(mixed(d=3), InProcess().over(small_sites()), journal=Journal(path))
    with pytest.raises(JournalError, match="its question of round 2"):
        run(summaries(3), InProcess().over(small_sites()), journal=Journal(path))


@pytest.mark.parametrize(("size", "same"), [(0.0, True), (1e-13, True), (-5e-10, True), (5e-9, False), (-1e-3, False)])
def test_questions_match_to_a_billionth(size: float, same: bool) -> None:
    mixture, _ = Shape(seed=3).problem()
    experts = mixture.experts.moved(np.full(6, size), np.zeros(2))
    moved = type(mixture)(mixture.design, mixture.gate, experts)
    assert is_same_question(encode(Expect(mixture)), encode(Expect(moved))) is same
    assert not is_same_question(encode(Expect(mixture)), encode(Expect(mixture, information=True)))


def test_a_journal_in_use_is_refused(path: Path) -> None:
    with (
        Journal(path).opened(("a",)),
        pytest.raises(JournalError, match="in use by another process"),
        Journal(path).opened(("a",)),
    ):
        pass


# ---------------------------------------------------------------------- damage


def journaled(path: Path, rounds: int = 3) -> bytes:
    run(summaries(rounds), InProcess().over(small_sites()), journal=Journal(path))
    return path.read_bytes()


@pytest.mark.parametrize("cut", [1, 5, 16, 40, 200])
def test_a_torn_last_record_is_dropped_and_asked_again(path: Path, calls: Calls, cut: int) -> None:
    whole = journaled(path)
    path.write_bytes(whole[:-cut])
    before = len(calls.asked)
    assert run(summaries(3), InProcess().over(small_sites()), journal=Journal(path)).value == [120.0] * 3
    assert len(calls.asked) == before + 3
    assert path.read_bytes() == whole


@pytest.mark.slow
def test_every_torn_end_resumes(path: Path) -> None:
    whole = journaled(path, 1)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        path.with_name("run.journal.round").unlink(missing_ok=True)
        assert run(summaries(1), InProcess().over(small_sites()), journal=Journal(path)).value == [120.0]


def test_space_that_was_allocated_and_never_written_is_a_torn_end(path: Path) -> None:
    whole = journaled(path)
    path.write_bytes(whole + b"\0" * 100)
    run(summaries(3), InProcess().over(small_sites()), journal=Journal(path))
    assert path.read_bytes() == whole


@pytest.mark.slow
@given(st.data())
def test_damage_before_the_end_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.journal"
    damaged = bytearray(journaled(path))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(damaged))
    with pytest.raises(JournalError, match=r"record \d+ \(byte \d+\) is damaged"):
        run(summaries(3), InProcess().over(small_sites()), journal=Journal(path))


def test_a_record_that_was_taken_out_is_noticed(path: Path) -> None:
    file = FrameFile(path)
    path.parent.mkdir()
    ends = []
    for i in range(3):
        file.append([(1, [bytes([i])])])
        ends.append(path.stat().st_size)
    file.close()
    data = path.read_bytes()
    path.write_bytes(data[: ends[0]] + data[ends[1] :])
    with pytest.raises(JournalError, match="record 1"):
        FrameFile(path).read()


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_parts_of_a_payload(parts: list[bytes]) -> None:
    assert split_parts(join_parts(parts)) == parts


def test_a_journal_can_be_opened_again(path: Path) -> None:
    journal = Journal(path)
    for _ in range(3):
        assert run(summaries(2), InProcess().over(small_sites()), journal=journal).value == [120.0] * 2


@pytest.mark.parametrize("content", [b"notes", b"a longer note that is not a journal at all"])
def test_a_file_that_is_no_journal_is_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(JournalError, match="not a record of a journal"):
        run(summaries(1), InProcess().over(small_sites()), journal=Journal(path))
    assert path.read_bytes() == content


def rechained(path: Path, changed: dict[int, bytes]) -> None:
    """Write a journal again with other payloads, so that its chain of digests is intact."""
    records = FrameFile(path).read()
    path.unlink()
    file = FrameFile(path)
    for i, (kind, payload) in enumerate(records):
        file.append([(kind, split_parts(changed.get(i, payload)))])
    file.close()


@pytest.mark.slow
@given(st.data())
def test_changed_content_with_an_intact_chain_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.journal"
    run(mixed(), InProcess().over(small_sites()), journal=Journal(path))
    records = FrameFile(path).read()
    index = data.draw(st.integers(0, len(records) - 1))
    parts = split_parts(records[index][1])
    which = data.draw(st.integers(0, len(parts) - 1))
    part = bytearray(parts[which])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(part) - 1))
        part[place] = data.draw(st.integers(0, 255))
    parts[which] = bytes(part[: data.draw(st.integers(0, len(part)))] if data.draw(st.booleans()) else part)
    rechained(path, {index: join_parts(parts)})
    with contextlib.suppress(JournalError, RoundStoppedError):  # a number that was changed is not seen
        run(mixed(), InProcess().over(small_sites()), journal=Journal(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload",
    [
        join_parts([b"not json"]),
        join_parts([b"\xff\xfe"]),
        join_parts([b"{}"]),
        join_parts([b"[1, 2]"]),
        join_parts([]),
        join_parts([b'{"request": "Total", "asked": ["nobody"], "answers": [], "failures": {}}', b""]),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_records_that_no_run_writes_are_refused(path: Path, payload: bytes, index: int) -> None:
    journaled(path)
    rechained(path, {index: payload})
    with pytest.raises(JournalError, match=f"record {index} was not written by this library"):
        run(summaries(3), InProcess().over(small_sites()), journal=Journal(path))


def test_an_answer_to_another_question_is_refused(path: Path) -> None:
    journaled(path)
    (_, payload) = FrameFile(path).read()[1]
    meta, question, answer = split_parts(payload)
    rechained(path, {1: join_parts([meta, question, encode(Likelihood(-1.0, 2.0), message_fingerprint(answer))])})
    with pytest.raises(JournalError, match="an answer of round 1 in the journal does not fit its question"):
        run(summaries(3), InProcess().over(small_sites()), journal=Journal(path))


def test_the_journal_of_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journaled(path)
    monkeypatch.setattr(journal_module, "__version__", "99.0")
    with pytest.raises(JournalError, match=r"another version of the library \(written by version .*, this is 99\.0\)"):
        run(summaries(3), InProcess().over(small_sites()), journal=Journal(path))


# ---------------------------------------------------------------------- the disk


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_may_read_a_journal(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    journaled(path)
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


SMALL_DISK = """
import sys; sys.path[:0] = sys.argv[2:]
from pathlib import Path
from answering import small_sites, summaries
from consilience.engines import InProcess
from consilience.errors import JournalError
from consilience.runs import Journal, run
from consilience.runs import journal as journal_module
path = Path(sys.argv[1]) / "run.journal"
def rounds(n):
    try:
        return run(summaries(n), InProcess().over(small_sites()), journal=Journal(path)).value
    except JournalError as error:
        return str(error)
"""


def on_a_small_disk(tmp_path: Path, program: str, shell: str) -> str:
    """Run a program with a file system of its own, mounted where no other process sees it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "program.py").write_text(SMALL_DISK + program)
    tests = str(Path(__file__).parents[1])
    run_it = f'"{sys.executable}" "{tmp_path}/program.py" "{tmp_path}/disk" "{tests}"'
    mount = f'mount -t tmpfs -o size=64k tmpfs "{tmp_path}/disk"'
    command = f"{mount} || exit 77; {shell.format(run=run_it, disk=tmp_path / 'disk')}"
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed: no file system of its own")
    done = subprocess.run([unshare, "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "Operation not permitted" in done.stderr:
        pytest.skip("mounting is not permitted here")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_full_disk_is_a_named_error(tmp_path: Path) -> None:
    said = on_a_small_disk(tmp_path, "print(rounds(1000))", "{run}")
    assert "run.journal" in said
    assert "No space left on device" in said
    assert "rounds that were written are kept" in said


@pytest.mark.slow
def test_a_finished_journal_is_replayed_from_a_read_only_disk(tmp_path: Path) -> None:
    twice = '{run} && mount -o remount,ro "{disk}" && {run}'
    assert on_a_small_disk(tmp_path, "print(rounds(2))", twice).splitlines() == ["[120.0, 120.0]"] * 2


@pytest.mark.slow
def test_an_unfinished_journal_on_a_read_only_disk_is_a_named_error(tmp_path: Path) -> None:
    program = "print(rounds(2 if len(list(path.parent.iterdir())) == 0 else 3))"
    said = on_a_small_disk(tmp_path, program, '{run} && mount -o remount,ro "{disk}" && {run}').splitlines()
    assert said[0] == "[120.0, 120.0]"
    assert "could not be written (Read-only file system)" in said[1]


def test_a_sum_that_overflows_is_the_same_after_a_replay(path: Path) -> None:
    huge = [Site(name, Rows(np.zeros((2, 2)), np.array([[5e153], [-5e153]]))) for name in "abcd"]

    def products():
        summaries_ = yield Total(Several((Summarise(d=2, q=1),)))
        return summaries_.items[0].y_products

    first, again = (run(products(), InProcess().over(huge), journal=Journal(path)).value for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.isinf(first).all()


def test_an_answer_is_on_disk_while_others_are_still_at_work(path: Path, calls: Calls) -> None:
    seen = []

    def watching(question, site) -> bytes:
        time.sleep(0.5)
        seen.append(path.with_name("run.journal.round").stat().st_size)
        return respond(question, site)

    calls.misbehave("south", watching)
    run(summaries(1), InProcess(threads=1).over(small_sites()), journal=Journal(path))
    single = len(respond(Summarise(2, 1), small_sites()[0]))
    assert seen[0] > 2 * single  # the answers of the two before it

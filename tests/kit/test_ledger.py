import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from consilience.errors import InvalidInputError
from consilience.files.json_text import canonical_bytes, content_hash
from consilience.kit import ledger
from consilience.kit.ledger import MOST_LINE, START, append, read, repair, verify
from consilience.kit.private_files import write_alone

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "ledger.jsonl"
    append(found, "init", {"site": "north"}, now=NOON)
    for number in range(4):
        append(found, "fit", {"study": f"s{number}"}, now=NOON + timedelta(minutes=number))
    return found


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def write(path, parts):
    path.write_bytes(b"".join(parts))


def rehashed(line, **changes):
    """Return the line of an entry that was changed by somebody who knows how hashes are computed."""
    fields = {**json.loads(line), **changes}
    fields.pop("hash")
    return canonical_bytes({**fields, "hash": content_hash(fields)}) + b"\n"


def test_entries_are_numbered_timed_and_chained(path):
    entries = read(path)
    assert [entry.number for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[0].time == "2026-01-31T12:00:00Z"
    assert entries[0].previous == START
    assert [entry.previous for entry in entries[1:]] == [entry.hash for entry in entries[:-1]]
    assert verify(path).is_whole
    assert verify(path).head == entries[-1].hash


def test_times_are_in_utc_and_need_a_zone(path):
    zone = timezone(timedelta(hours=2))
    assert append(path, "fit", {}, now=datetime(2026, 7, 1, 12, tzinfo=zone)).time == "2026-07-01T10:00:00Z"
    with pytest.raises(InvalidInputError, match="zone"):
        append(path, "fit", {}, now=datetime(2026, 7, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (lambda x: [*x[:2], x[2].replace(b"s1", b"s9"), *x[3:]], 3, "does not have the hash"),
        (lambda x: [*x[:2], rehashed(x[2], details={"study": "s9"}), *x[3:]], 4, "does not continue"),
        (lambda x: [*x[:2], *x[3:]], 3, "it has number 4: lines before it were removed or moved"),
        (lambda x: x[1:], 1, "it has number 2"),
        (lambda x: [*x[:2], x[3], x[2], x[4]], 3, "it has number 4"),
        (lambda x: [*x[:3], x[2], *x[3:]], 4, "it repeats entry 3"),
        (lambda x: [*x, rehashed(x[2], details={"study": "other"})], 6, "continues entry 2 .* fork"),
        (lambda x: [*x[:2], b"\n", *x[2:]], 3, "not JSON"),
        (lambda x: [*x[:2], x[2].replace(b'":', b'": '), *x[3:]], 3, "not in canonical form"),
        (lambda x: [*x[:2], x[2].replace(b"\n", b"\r\n"), *x[3:]], 3, "not in canonical form"),
        (lambda x: [x[0].replace(b'"number":1', b'"number":1,"number":1')], 1, "occurs twice"),
        (lambda x: [rehashed(x[0], extra=1)], 1, "unknown fields.*extra"),
        (lambda x: [rehashed(x[0], version=2)], 1, "version 2, this library reads 1"),
        (lambda x: [rehashed(x[0], version=True)], 1, "version True"),
        (lambda x: [rehashed(x[0], number=1.0)], 1, "another type"),
        (lambda x: [rehashed(x[0], number=True)], 1, "another type"),
        (lambda x: [rehashed(x[0], kind="gift")], 1, "none of init"),
        (lambda x: [rehashed(x[0], details=[])], 1, "not an object"),
        (lambda x: [rehashed(x[0], time="today")], 1, "not of the form"),
        (lambda x: [b"[1]\n"], 1, "not an entry"),
        (lambda x: [b"\xff\xfe\n"], 1, "not UTF-8"),
        (lambda x: [b"[" * 50_000 + b"\n"], 1, "nested too deeply"),
        (lambda x: [b" " * (MOST_LINE + 1) + b"\n"], 1, "more than 65,536 bytes"),
        (lambda x: [x[0].replace(b'"site":"north"', b'"site":NaN')], 1, "NaN"),
        (lambda x: [x[0].replace(b'"site":"north"', b'"site":1e999')], 1, "not finite"),
    ],
)
def test_damage_is_named_with_its_line(path, change, line, said):
    write(path, change(lines(path)))
    found = verify(path)
    assert found.line == line
    assert len(found.entries) == line - 1
    with pytest.raises(InvalidInputError, match=f"line {line}: .*{said}"):
        read(path)
    with pytest.raises(InvalidInputError, match="Restore the file"):
        append(path, "fit", {})
    with pytest.raises(InvalidInputError, match="cannot be repaired"):
        repair(path)


def test_a_cut_or_forked_ledger_is_found_by_hashes_from_released_files(path):
    known = {4: read(path)[3].hash}
    assert verify(path, known).is_whole
    write(path, lines(path)[:3])
    assert verify(path).is_whole  # a chain that ends earlier is a chain
    assert (verify(path, known).line, "was cut" in verify(path, known).said) == (4, True)
    append(path, "fit", {"study": "another"}, now=NOON)
    assert verify(path).is_whole
    assert (verify(path, known).line, "fork" in verify(path, known).said) == (4, True)


@pytest.mark.parametrize("kept", [1, 50, -2])
def test_a_crash_leaves_the_old_ledger_and_a_line_that_repair_drops(path, kept):
    old = read(path)
    append(path, "release", {"study": "s"}, now=NOON)
    whole = lines(path)
    write(path, [*whole[:-1], whole[-1][:kept]])
    assert read(path) == old
    assert verify(path).is_partial
    assert "line 6: the last line was not written to its end" in str(verify(path))
    with pytest.raises(InvalidInputError, match="Repair it first"):
        append(path, "fit", {})
    assert repair(path)
    assert lines(path) == whole[:-1]
    assert not repair(path)
    assert append(path, "repair", {}).number == 6


def test_repair_keeps_a_last_line_that_lacks_only_its_line_break(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert verify(path).is_partial
    assert repair(path)
    assert path.read_bytes() == whole


def test_repair_of_other_damage_changes_nothing(path):
    data = path.read_bytes().replace(b"s1", b"s9")[:-20]
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match="cannot be repaired"):
        repair(path)
    assert path.read_bytes() == data


def test_what_was_decided_on_an_older_state_is_not_recorded(path):
    head = verify(path).head
    append(path, "fit", {}, head=head)
    with pytest.raises(InvalidInputError, match="has grown since"):
        append(path, "release", {}, head=head)
    assert len(read(path)) == 6


def test_two_processes_do_not_write_at_once(path):
    with write_alone(path), pytest.raises(InvalidInputError, match=r"another process writes to ledger\.jsonl"):
        append(path, "fit", {})
    assert len(read(path)) == 5
    append(path, "fit", {})
    assert len(read(path)) == 6


def test_a_process_that_was_killed_while_it_wrote_keeps_nobody_from_writing(path):
    code = (
        "import sys, time; from pathlib import Path; from consilience.kit.private_files import write_alone\n"
        "with write_alone(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"locked\n"
        with pytest.raises(InvalidInputError, match="another process writes"):
            append(path, "fit", {})
        held.kill()
    append(path, "fit", {})
    assert len(read(path)) == 6


def test_the_first_entry_and_no_other_is_init(path, tmp_path):
    with pytest.raises(InvalidInputError, match="kind init"):
        append(path, "init", {})
    with pytest.raises(InvalidInputError, match="kind init"):
        append(tmp_path / "new.jsonl", "fit", {})
    assert not (tmp_path / "new.jsonl").exists()


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"x": float("nan")}, "not finite"),
        ({"x": object()}, "no canonical form"),
        ({"x": "a" * MOST_LINE}, "more than 65,536 bytes"),
        ({"x": "\ud800"}, "surrogate"),
    ],
)
def test_details_that_cannot_be_read_again_are_not_written(path, details, said):
    data = path.read_bytes()
    with pytest.raises(InvalidInputError, match=said):
        append(path, "fit", details)
    assert path.read_bytes() == data


def test_unknown_kinds_and_huge_or_missing_files_are_refused(path, monkeypatch, tmp_path):
    with pytest.raises(InvalidInputError, match="none of init"):
        append(path, "gift", {})
    monkeypatch.setattr(ledger, "MOST_BYTES", path.stat().st_size + 10)
    with pytest.raises(InvalidInputError, match="the most that are read"):
        append(path, "fit", {})
    monkeypatch.setattr(ledger, "MOST_BYTES", 100)
    with pytest.raises(InvalidInputError, match="more than 100 bytes"):
        verify(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        verify(tmp_path / "absent.jsonl")


def test_a_full_disk_is_an_error_and_not_an_entry(path, monkeypatch):
    def fails(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger.os, "fsync", fails)
    with pytest.raises(InvalidInputError, match="No space left"):
        append(path, "fit", {})

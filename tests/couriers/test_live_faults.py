"""A live run of processes over nginx: whatever is killed, frozen, cut off or full, the run ends with the same bits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from consilience.couriers import letter_stores
from consilience.couriers.letter_stores import FolderStore
from consilience.kit import serving
from consilience.kit.mail_folder import MailFolder
from consilience.kit.mail_watch import watch_run
from consilience.kit.mailbox import read_run
from letter_servers import needs_nginx
from live_cast import COORDINATOR, COURIER, FEW, PLAN, SERVER, Cast, Kills
from mail_office import PRIVATE, Office, start

pytestmark = [
    needs_nginx,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children of a process from /proc"),
]
LONGEST = 400.0
DISKS = ("sites/ash", "store", "mail")
long = pytest.mark.long


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The parameters of the run by files, in one process."""
    done = Office(tmp_path_factory.mktemp("plain"), PLAN, tables=FEW).to_the_end()
    return list(done.model.mixture_.to_vector().tolist())


def killed(path: Path, kills: int, seed: int, bits: list[float]) -> int:
    """How many programs were killed in a run that has the right bits."""
    cast = Cast(path)
    plan = Kills(cast, kills, random.Random(seed))
    cast.to_the_end(LONGEST, plan, plan.strike)
    cast.check(bits)
    return sum(cast.killed.values())


def test_killed_programs(bits: list[float], tmp_path: Path) -> None:
    """Sites, courier, coordinator and server are killed by the operating system and begun again."""
    assert killed(tmp_path, 8, 1, bits) >= 6


@long
def test_a_hundred_killed_programs(bits: list[float], tmp_path: Path) -> None:
    found = 0
    for seed in range(2, 20):
        (tmp_path / str(seed)).mkdir()
        found += killed(tmp_path / str(seed), 40, seed, bits)
        if found >= 100:
            return
    pytest.fail(f"{found} programs were killed")


@long
def test_killed_programs_charge_the_budget_once(tmp_path: Path) -> None:
    """Answers have noise: a charge is in the ledger before it is drawn, and never twice."""
    cast = Cast(tmp_path, study=PRIVATE, more={"start": start()})
    plan = Kills(cast, 30, random.Random(5))
    cast.to_the_end(LONGEST, plan, plan.strike)
    cast.check()
    assert sum(cast.killed.values()) >= 20


class After:
    """Something that begins with the second question, and ends after some seconds, when it was noticed."""

    def __init__(
        self,
        cast: Cast,
        seconds: float,
        begin: Callable[[], Any],
        end: Callable[[], Any],
        noticed: Callable[[], Any] = lambda: True,
    ) -> None:
        self.cast, self.seconds, self.begin, self.end, self.noticed = cast, seconds, begin, end, noticed
        self.began, self.ended = 0.0, False

    def __call__(self) -> None:
        if not self.began and any((self.cast.office.mail).glob("round-02.question*")):
            self.began = time.monotonic()
            self.begin()
        if self.began and not self.ended and time.monotonic() - self.began > self.seconds and self.noticed():
            self.ended = True
            self.end()


def awaited(cast: Cast) -> tuple[str, ...]:
    run = read_run(cast.office.mail, cast.office.own)
    return watch_run(MailFolder(cast.office.mail), run, cast.office.identity).awaited


@pytest.mark.parametrize(
    ("who", "seconds"), [("ash", 2.0), *(pytest.param(who, 30.0, marks=long) for who in ("ash", SERVER))]
)
def test_a_frozen_program(who: str, seconds: float, bits: list[float], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(letter_stores, "SECONDS", seconds / 4)
    cast = Cast(tmp_path)
    seen: list[tuple[str, ...]] = []

    def thaw() -> None:
        seen.append(awaited(cast))
        cast.kill(who, signal.SIGCONT)

    def noticed() -> bool:
        """Whether the coordinator names whom it waits for, and sites that no server answers."""
        down = who != SERVER or all(cast.states(name)["link-down"] for name in cast.office.names)
        return down and "ash" in awaited(cast)

    cast.to_the_end(LONGEST, meanwhile=After(cast, seconds, lambda: cast.kill(who, signal.SIGSTOP), thaw, noticed))
    cast.check(bits)
    assert "ash" in seen[0]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Callable[[Path], tuple[Callable[[], None], Callable[[], None]]]]:
    """Put a folder on a small disk of its own; functions that fill the disk and make room again."""
    mounted: list[Path] = []

    def move(place: Path) -> tuple[Callable[[], None], Callable[[], None]]:
        shutil.move(place, aside := tmp_path / "aside")
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0755", "none", str(place)]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a small disk cannot be mounted")
        mounted.append(place)
        shutil.copytree(aside, place, dirs_exist_ok=True)

        def fill() -> None:
            try:
                with (place / "filler").open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            except OSError:
                pass

        return fill, (place / "filler").unlink

    yield move
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize(
    ("where", "seconds"), [("sites/ash", 2.0), *(pytest.param(where, 20.0, marks=long) for where in DISKS)]
)
def test_a_full_disk(where: str, seconds: float, bits: list[float], tmp_path: Path, full: Any) -> None:
    cast = Cast(tmp_path)
    fill, empty = full(tmp_path / where)

    def noticed() -> int:
        """How often a program has named the full disk."""
        if where == "sites/ash":
            return cast.states("ash")["fault"]
        if where == "store":
            return cast.states(COURIER)["fails"] + sum(cast.states(name)["link-down"] for name in cast.office.names)
        return cast.states(COURIER)["fails"] + cast.states(COORDINATOR)["fails"]

    cast.to_the_end(LONGEST, meanwhile=After(cast, seconds, fill, empty, noticed))
    cast.check(bits)
    assert noticed()


class Drive(FolderStore):
    """A shared drive: it lists a file late, and shows half of it first."""

    def names(self, folder: str) -> dict[str, str]:
        now = time.time_ns()
        listed = super().names(folder)
        return {name: mark for name, mark in listed.items() if now - int(mark.partition("-")[2]) > 3e8}

    def write(self, folder: str, name: str, data: bytes) -> None:
        place = self.root / folder
        place.mkdir(parents=True, exist_ok=True)
        with (place / name).open("wb") as file:  # in place
            file.write(data[: len(data) // 2])
            file.flush()
            time.sleep(0.4)
            file.write(data[len(data) // 2 :])


@long
def test_a_store_that_lists_late_and_shows_halves(bits: list[float], tmp_path: Path) -> None:
    cast = Cast(tmp_path, reach=lambda _: Drive(tmp_path / "store"))
    cast.to_the_end(LONGEST)
    cast.check(bits)


def test_answers_that_are_overwritten_with_junk(bits: list[float], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving, "AGAIN", 0.5)  # in place of ten minutes
    cast, chance, written = Cast(tmp_path), random.Random(1), set[Path]()

    def overwrite() -> None:
        for path in (tmp_path / "store" / "from").glob("*/*.json"):
            if path not in written and chance.random() < 0.5:
                path.write_bytes(b"junk")
            written.add(path)

    cast.to_the_end(LONGEST, meanwhile=overwrite)
    cast.check(bits)


@long
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="makes a network namespace")
def test_a_network_that_is_cut_for_half_a_minute(bits: list[float], tmp_path: Path, monkeypatch: Any) -> None:
    """A site in a network of its own, whose cable is pulled."""
    import ctypes

    monkeypatch.setattr(letter_stores, "SECONDS", 5.0)  # silence of 20 s, twice, would be half of the test
    name, host = f"h{os.getpid()}", "10.213.77.1"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def enter() -> None:
        with Path(f"/run/netns/{name}").open() as file:
            assert ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) == 0

    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{host}/30", "dev", name)
        ip("link", "set", name, "up")
        for words in (("addr", "add", "10.213.77.2/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            ip("-n", name, *words)
        cast = Cast(tmp_path, host=host)
        cast.before["ash"] = enter
        cut = After(cast, 30.0, lambda: ip("link", "set", name, "down"), lambda: ip("link", "set", name, "up"))
        cast.to_the_end(LONGEST, meanwhile=cut)
        cast.check(bits)
        assert cut.ended
        assert cast.states("ash")["link-down"]
    finally:
        ip("netns", "del", name)


@long
@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is missing: apt-get install faketime")
@pytest.mark.parametrize("hours", ["+1h", "-1h"])
def test_a_clock_that_is_an_hour_off(hours: str, bits: list[float], tmp_path: Path) -> None:
    """The clock of a site differs: the certificates are good, and nothing is decided by it."""
    cast = Cast(tmp_path)

    def command() -> None:
        enrolment, table = tmp_path / "own/enrol/ash.json", tmp_path / "ash.parquet"
        words = ["site", "serve", "ash", "--enrolment", enrolment, "--table", table, "--in", tmp_path / "sites"]
        code = ["-c", "from consilience.cli.app import main; main()"]
        more = ["--proxy", "none", "--poll", "0.05", "--most", "1", "--once"]
        os.dup2(os.open(tmp_path / "ash.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        os.execvp("faketime", ["faketime", "-f", hours, sys.executable, *code, *map(str, words), *more])

    cast.before["ash"] = command
    cast.to_the_end(LONGEST)
    cast.check(bits)
    entry = cast.office.folders["ash"].entries[-1]
    off = datetime.strptime(entry.time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) - datetime.now(UTC)
    assert 0.8 < abs(off.total_seconds()) / 3600 < 1.2

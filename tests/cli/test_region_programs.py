"""A region by its programs alone: coordinator, region, couriers and sites are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from consilience.kit.combination import simulate_study
from consilience.kit.folder import KEY, SiteFolder
from letter_servers import roster_of
from mail_office import PRIVATE, TABLES, study_with

FEW = {name: TABLES[name].slice(0, TABLES[name].num_rows // 3) for name in list(TABLES)[:3]}


class Programs:
    """Commands in a folder, and those that go on beside them."""

    def __init__(self, place: Path) -> None:
        self.place, self.started = place, list[subprocess.Popen[bytes]]()
        self.environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-c", "from consilience.cli.app import main; main()", *map(str, arguments)]

    def say(self, *arguments: object, status: int = 0) -> str:
        """Run a command to its end; what it prints."""
        ended = subprocess.run(
            self.command(*arguments), cwd=self.place, env=self.environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == status, ended.stderr
        return ended.stdout

    def begin(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Begin a program that goes on."""
        log = (self.place / f"{len(self.started)}.log").open("wb")
        with log:
            whole = list(map(str, arguments))
            self.started.append(subprocess.Popen(whole, cwd=self.place, env=self.environment, stderr=log))
        return self.started[-1]

    def make_site(self, name: str) -> Path:
        """Make the folder and the table of a site; the path of its key."""
        pq.write_table(FEW[name], self.place / f"{name}.parquet")
        self.say("site", "init", name)
        return self.place / name / KEY

    def sign_mandate(self, name: str, coordinator: str) -> None:
        self.say("site", "mandate", name, "study.toml", "--coordinator", coordinator, "--mode", "mandate")
        self.say("site", "mandate", name, "--sign", "--by", "A. Person", "--no-input")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    found = Programs(tmp_path)
    yield found
    for each in found.started:
        each.terminate()
        each.wait(10)


@pytest.mark.long
def test_a_region_and_a_site_by_their_programs_alone(programs: Programs, tmp_path: Path) -> None:
    """The region ``north`` has two sites, and stands beside a third one in the run above; letters lie in folders."""
    say, (first, second, third) = programs.say, FEW
    (tmp_path / "study.toml").write_text(PRIVATE.to_text())
    simulate_study(study_with(), {"oak": TABLES["oak"]}).best.model.save(tmp_path / "start.json")
    keys = {name: programs.make_site(name) for name in FEW}
    region = say("study", "key", "north-box.coordinator/coordinator.pem").split()[-1]
    above = {"north": tmp_path / "north-box.coordinator/coordinator.pem", third: keys[third]}
    (tmp_path / "roster.toml").write_text(roster_of(above).to_text())
    (tmp_path / "north.toml").write_text(roster_of({name: keys[name] for name in (first, second)}).to_text())
    begun = ("run", "study.toml", "--mailbox", "box", "--roster", "roster.toml")
    say(*begun, "--start", "start.json", status=6)
    signer = json.loads(say("status", "box", "--json"))["signer"]
    command, begin = programs.command, programs.begin
    going = [
        begin(*command("live", "post", "box", "store", "--poll", 0.2)),
        begin(*command("live", "post", "north-box", "north-store", "--poll", 0.2)),
    ]
    more = ("--roster", "north.toml", "--coordinator", signer, "--store", "store", "--poll", 0.2, "--once")
    going.append(begin(*command("live", "relay", "north", "north-box", *more)))
    for name in FEW:
        programs.sign_mandate(name, signer if name == third else region)
        store = "store" if name == third else "north-store"
        more = ("--store", store, "--table", f"{name}.parquet", "--poll", 0.2, "--once")
        going.append(begin(*command("site", "serve", name, *more)))
    say(*begun, "--wait", 8, "--poll", 0.2)
    assert [each.wait(120) for each in going] == [0] * 6
    rounds = len(json.loads(say("status", "box", "--json"))["rounds"])
    for name in FEW:
        kinds = [entry.kind for entry in SiteFolder.open(tmp_path / name).entries]
        assert kinds.count("answer") == rounds
    assert "Serves the run" in Path(say("live", "open", "north-box").strip()).read_text()
    assert signer in (tmp_path / first / "page.html").read_text()  # whom the region serves

"""A live run by its programs alone: coordinator, courier, server and sites are processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.couriers.letter_stores import FolderStore
from consilience.datasets.hospitals import STUDY
from consilience.estimators.saving import load
from consilience.kit.combination import simulate_study
from consilience.kit.folder import KEY
from consilience.kit.serving import STATE, is_served
from letter_servers import NGINX, free_port, needs_nginx, roster_of, wait_for
from mail_office import TABLES, study_with
from serving_office import ServingOffice

CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
PLAN = study_with('name = "OneShot", refine = 0', text=CONTRACT)
FEW = {name: TABLES[name].slice(0, TABLES[name].num_rows // 3) for name in list(TABLES)[:3]}


@needs_nginx
@pytest.mark.long
def test_a_live_run_by_its_programs_alone(tmp_path: Path) -> None:
    """Coordinator, courier, server and sites are processes of their own; sites reach nothing but the server."""
    port, started = free_port(), []
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-c", "from consilience.cli.app import main; main()", *map(str, arguments)]

    def say(*arguments: object, status: int = 0) -> str:
        ended = subprocess.run(
            command(*arguments), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == status, ended.stderr
        return ended.stdout

    def begin(*arguments: object) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"{len(started)}.log").open("wb")
        with log:
            started.append(subprocess.Popen(list(map(str, arguments)), cwd=tmp_path, env=environment, stderr=log))
        return started[-1]

    (tmp_path / "study.toml").write_text(PLAN.to_text())
    (tmp_path / "store").mkdir()
    keys = {}
    for name, table in FEW.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        say("site", "init", name, "--profile", "research")
        policy = tmp_path / name / "policy.toml"
        policy.write_text(policy.read_text().replace('["noise", "limits"]', '["noise", "limits", "coordinator"]'))
        keys[name] = tmp_path / name / KEY
    (tmp_path / "roster.toml").write_text(roster_of(keys).to_text())
    say("run", "study.toml", "--mailbox", "box", "--roster", "roster.toml", status=6)
    signer = json.loads(say("status", "box", "--json"))["signer"]
    say("live", "enrol", "box", "--roster", "roster.toml", "--url", f"https://localhost:{port}")
    user = ("--user", "root") if os.geteuid() == 0 else ()
    text = say("live", "nginx", "box", "store", "--listen", f"127.0.0.1:{port}", *user)
    (tmp_path / "nginx.conf").write_text(text)
    try:
        server = begin(NGINX, "-c", tmp_path / "nginx.conf", "-g", "daemon off;")
        wait_for(port, lambda: server.poll() is None)
        courier = begin(*command("live", "post", "box", "store", "--poll", 0.2))
        sites = []
        for name in FEW:
            say("site", "mandate", name, "study.toml", "--coordinator", signer, "--mode", "mandate")
            say("site", "mandate", name, "--sign", "--by", "A. Person", "--no-input")
            enrolment = tmp_path / "box.coordinator/enrol" / f"{name}.json"
            more = ("--enrolment", enrolment, "--table", f"{name}.parquet", "--poll", 0.2, "--proxy", "none", "--once")
            sites.append(begin(*command("site", "serve", name, *more)))
        say("run", "study.toml", "--mailbox", "box", "--roster", "roster.toml", "--wait", 5, "--poll", 0.2)
        assert [each.wait(60) for each in (courier, *sites)] == [0, 0, 0, 0]
    finally:
        for each in started:
            each.terminate()
            each.wait(10)
    expected = simulate_study(PLAN, FEW).best.model.mixture_.coefficients
    assert (load(tmp_path / "model.json").mixture_.coefficients == expected).all()
    assert json.loads(say("live", "watch", "box", "--json"))["finished"]


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="the supervisor is a shell")
def test_a_supervisor_begins_a_killed_program_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    office = ServingOffice(tmp_path, PLAN, lambda _: store, tables=FEW)
    assert office.advance() is None
    office.post.step()
    words = ["site", "serve", "ash", "--in", "sites", "--store", "store", "--table", "ash.parquet", "--poll", "0.1"]
    program = [sys.executable, "-c", "from consilience.cli.app import main; main()", *words]
    folder, state = office.folders["ash"], office.programs["ash"].place / STATE

    def seen(what: Callable[[], bool]) -> None:
        until = time.monotonic() + 120
        while not what():
            assert time.monotonic() < until
            time.sleep(0.02)

    def waits(*others: int) -> bool:
        found = json.loads(state.read_text()) if state.exists() else {}
        return found.get("state") == "waits" and found["pid"] not in others

    def status() -> int:
        return CliRunner().invoke(app, ["site", "status", "ash", "--in", str(tmp_path / "sites")]).exit_code

    loop = ["sh", "-c", 'while :; do "$@"; sleep 0.5; done', "supervisor", *program]
    supervisor = subprocess.Popen(loop, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        seen(waits)
        assert status() == 0
        pid = json.loads(state.read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        seen(lambda: not is_served(folder))
        assert status() == 1
        seen(lambda: waits(pid))
        assert status() == 0
    finally:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()
    seen(lambda: status() == 1)
    assert office.rounds_in_ledger("ash") == [1]

"""The commands of a coordinator in a live run: enrol, nginx, post and watch."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.cli.run_page import COORDINATOR_KEY
from consilience.couriers.letter_stores import FolderStore
from consilience.datasets.hospitals import STUDY
from consilience.kit.folder import KEY
from consilience.kit.mail_folder import answer_name
from letter_servers import NGINX, free_port, needs_nginx, roster_of
from live_office import LiveOffice
from mail_office import TABLES, study_with

CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
PLAN = study_with('name = "OneShot", refine = 0', text=CONTRACT)
FEW = {name: TABLES[name].slice(0, TABLES[name].num_rows // 3) for name in list(TABLES)[:3]}
RUNNER = CliRunner()
pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveOffice:
    """A run that has begun, its coordinator's key and a roster."""
    monkeypatch.chdir(tmp_path)
    store = FolderStore(tmp_path / "store")
    found = LiveOffice(tmp_path, PLAN, lambda _: store, tables=FEW)
    assert found.advance() is None
    assert found.identity is not None
    found.identity.store(found.own / COORDINATOR_KEY)
    keys = {name: folder.path / KEY for name, folder in found.folders.items()}
    (tmp_path / "roster.toml").write_text(roster_of(keys).to_text())
    return found


def done(*arguments: object, status: int = 0) -> Any:
    found = RUNNER.invoke(app, ["live", *map(str, arguments), "--own", "coordinator"])
    assert found.exit_code == status, found.output + repr(found.exception)
    return found


def enrolled(*more: object, status: int = 0) -> Any:
    return done("enrol", "mail", "--roster", "roster.toml", "--url", "https://localhost:8443", *more, status=status)


def test_enrolling_says_what_to_send_and_which_file_is_a_secret(office) -> None:
    first, second, _ = office.names
    said = " ".join(enrolled("--password", second).stderr.split())
    assert f"{first}.json" in said
    assert f"A secret is in the file of {second}:" in said
    assert "A secret" not in enrolled().stderr
    assert enrolled("--password", "nobody", status=1).exception.problem.value.code == "CSL-125"


@needs_nginx
def test_the_printed_configuration_is_one_that_nginx_takes(office, tmp_path) -> None:
    assert done("nginx", "mail", "store", status=1).exception.problem.value.code == "CSL-125"  # no site is enrolled
    enrolled()
    text = done("nginx", "mail", "store", "--listen", f"127.0.0.1:{free_port()}", "--user", "root").stdout
    (tmp_path / "store").mkdir()
    (tmp_path / "nginx.conf").write_text(text)
    checked = subprocess.run([NGINX, "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, check=False)
    assert "test is successful" in checked.stderr


def test_post_carries_and_watch_says_who_waits_and_what_is_refused(office) -> None:
    first, second, third = office.names
    assert "sent 9, took 0" in done("post", "mail", "store").stderr
    seen = json.loads(done("watch", "mail", "--json").stdout)
    assert seen["awaited"] == list(office.names)
    assert {(each["number"], each["answered"]) for each in seen["sites"]} == {(1, "")}
    assert all(each["asked"].startswith("20") for each in seen["sites"])
    assert office.serve(first)
    store = FolderStore(Path("store"))
    store.write(f"from/{second}", answer_name(1, second), b"junk")
    store.write(f"from/{third}", answer_name(1, second), b"junk")
    forged = (Path("at") / first / answer_name(1, first)).read_text().replace(f'"{first}"', f'"{third}"')
    store.write(f"from/{third}", answer_name(1, third), forged.encode())
    said = done("post", "mail", "store").stderr
    assert "took 3" in said
    assert f"not taken: from/{third}/{answer_name(1, second)}" in said
    found = json.loads(done("watch", "mail", "--json").stdout)
    assert found["awaited"] == [second, third]
    assert set(found["refused"]) == {answer_name(1, second), answer_name(1, third)}
    assert "does not open" in found["refused"][answer_name(1, third)]
    assert found["courier"]["state"] == "works"
    text = done("watch", "mail").stdout
    assert f"{first}: round 1, asked 20" in text
    assert f"not taken: from/{third}/" in text
    assert office.serve(second)
    assert office.serve(third)
    done("post", "mail", "store")
    assert "the sites wait for 'consilience run'" in done("watch", "mail").stdout
    assert office.advance() is not None
    done("post", "mail", "store")
    assert "The run is finished." in done("watch", "mail", "--poll", 1).stdout
    assert "finished.json" in store.names(f"to/{first}")


def test_post_goes_on_after_a_failure_until_the_end_was_carried(office) -> None:
    Path("store").write_text("not a folder")
    program = Thread(target=done, args=("post", "mail", "store", "--poll", 0.02))
    program.start()
    state = office.own / "post.json"
    for _ in range(500):
        if state.exists() and json.loads(state.read_text())["state"] == "fails":
            break
        time.sleep(0.02)
    assert "cannot be" in json.loads(state.read_text())["reason"]
    Path("store").unlink()
    found = None
    for _ in range(500):
        for name in office.names:
            if Path("store/to", name).exists() and Path("store/to", name, "round-01.question.json").exists():
                office.serve(name)
        if (found := office.advance()) is not None:
            break
        time.sleep(0.05)
    program.join(30)
    assert not program.is_alive()
    assert found is not None
    assert json.loads(state.read_text())["state"] == "finished"


def test_a_run_whose_sites_are_not_known_here_is_not_carried(office) -> None:
    (office.own / "sites.json").unlink()
    assert "--own" in str(done("post", "mail", "store", status=1).exception.said)

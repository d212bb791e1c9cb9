"""The commands of a site in a live run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY
from consilience.kit.mandate import FILE, Mandate
from consilience.kit.private_files import write_alone
from consilience.kit.serving import PLACE, STATE
from mail_office import TABLES, Office, study_with

CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
PLAN = study_with('name = "OneShot", refine = 0', text=CONTRACT)
RUNNER = CliRunner()


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """A run with one site whose letters lie in a store, and the site's table."""
    monkeypatch.chdir(tmp_path)
    found = Office(tmp_path, PLAN, "hospital", tables={"ash": TABLES["ash"], "elm": TABLES["elm"]})
    assert found.advance() is None
    (tmp_path / "study.toml").write_text(PLAN.to_text())
    pq.write_table(TABLES["ash"], tmp_path / "ash.parquet")
    (tmp_path / "store" / "to").mkdir(parents=True)
    (tmp_path / "store" / "from").mkdir()
    for way in ("to", "from"):  # letters need not be carried
        (tmp_path / "store" / way / "ash").symlink_to(found.mail, target_is_directory=True)
    return found


def done(*arguments: object, status: int = 0, answer: str | None = None) -> Any:
    found = RUNNER.invoke(app, [str(each) for each in arguments], input=answer)
    assert found.exit_code == status, found.output + repr(found.exception)
    return found


def drafted(office: Office, mode: str = "mandate") -> None:
    assert office.identity is not None
    key = office.identity.public_key
    done("site", "mandate", "ash", "study.toml", "--coordinator", key, "--mode", mode, "--in", "sites")


def served(*more: object) -> Any:
    return done("site", "serve", "ash", "--store", "store", "--table", "ash.parquet", "--in", "sites", *more)


def test_from_a_mandate_to_the_end_of_a_run(office: Office) -> None:
    done("site", "status", "ash", "--in", "sites", status=1)  # nothing serves the site yet
    drafted(office)
    folder = office.folders["ash"]
    mandate = Mandate.read(folder.path / FILE)
    assert mandate.study == PLAN.identity
    assert mandate.questions
    shown = done("site", "mandate", "ash", "--sign", "--by", "A. Person", "--in", "sites", answer="y\n")
    assert "Largest number of questions" in shown.stderr
    assert folder.entries[-1].details["approved_by"] == "A. Person"
    office.answer("elm")
    program = Thread(target=served, args=("--once", "--poll", 0.05))
    program.start()
    found = None
    for _ in range(600):
        if (found := office.advance()) is not None:
            break
        time.sleep(0.05)
    program.join(30)
    assert not program.is_alive()
    assert found is not None
    answers = [entry for entry in folder.entries if entry.kind == "answer"]
    assert len(answers) == len(found.record.rounds)
    assert "state=finished" in done("site", "status", "ash", "--in", "sites").stdout


def test_a_draft_is_not_overwritten_and_a_refusal_to_sign_signs_nothing(office: Office) -> None:
    drafted(office)
    key = office.identity.public_key if office.identity else ""
    done("site", "mandate", "ash", "study.toml", "--coordinator", key, "--in", "sites", status=1)
    done("site", "mandate", "ash", "--sign", "--in", "sites", status=1, answer="n\n")
    assert not [entry for entry in office.folders["ash"].entries if entry.kind == "approval"]
    done("site", "mandate", "ash", "--in", "sites", status=2)


def test_status_says_in_its_exit_status_what_people_must_see(office: Office) -> None:
    path = office.folders["ash"].path / PLACE / STATE
    path.parent.mkdir()
    soon, past = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
    for word, seen, with_program, without in (
        ("waits", soon, 0, 1),
        ("waits", past, 1, 1),  # it hangs
        ("refused", soon, 1, 1),
        ("link-down", soon, 1, 1),
        ("fault", soon, 1, 1),
        ("needs-approval", soon, 0, 1),
        ("finished", past, 0, 0),  # the run is over
    ):
        path.write_text(json.dumps({"state": word, "round": 1, "seen": seen, "pid": os.getpid()}))
        with write_alone(path):
            assert f"state={word}" in done("site", "status", "ash", "--in", "sites", status=with_program).stdout
        assert f"state={word}" in done("site", "status", "ash", "--in", "sites", status=without).stdout
    done("site", "pause", "ash", "--in", "sites")
    assert (path.parent / "pause").exists()
    done("site", "resume", "ash", "--in", "sites")
    assert not (path.parent / "pause").exists()

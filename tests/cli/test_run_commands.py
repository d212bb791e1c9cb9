"""Runs from the command line: by files in a folder, and over the files of one owner."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.cli.site_page import PAGE
from consilience.estimators.saving import load
from consilience.files.json_text import bytes_hash
from consilience.kit.combination import simulate_study
from consilience.kit.mail_folder import answer_name, question_name
from mail_office import TABLES, study_with

RUNNER = CliRunner()
STUDY = study_with('name = "OneShot", refine = 1')
NAMES = tuple(sorted(TABLES))
SITES = [part for name in NAMES for part in ("--site", name)]
pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study, the tables of all hospitals, and a folder of each site."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY.to_text())
    for name, table in TABLES.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        done("site", "init", name, "--profile", "research", "--in", "sites")
        policy = tmp_path / "sites" / name / "policy.toml"
        policy.write_text(policy.read_text().replace('["noise", "limits"]', '["noise", "limits", "coordinator"]'))
    return tmp_path


def run(*arguments: object, answer: str | None = None) -> Any:
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None, status: int = 0) -> Any:
    found = run(*arguments, answer=answer)
    assert found.exit_code == status, found.output + repr(found.exception)
    return found


def code(found: Any) -> str:
    return str(found.exception.problem.value.code)


@cache
def simulated() -> Any:
    """Coefficients of the study in one process, with which two tests compare."""
    return simulate_study(STUDY, TABLES).best.model.mixture_.coefficients


def answered(name: str, *more: object) -> Any:
    return done("site", "answer", name, "box", "--in", "sites", *more, answer="y\n")


@pytest.mark.slow
def test_one_study_has_one_model_by_simulation_by_files_and_on_engines(place: Path) -> None:
    waiting = done("run", "study.toml", "--mailbox", "box", *SITES, "--days", 14, "-o", "mail.json", status=6)
    assert "waits for ash, birch" in waiting.stdout
    for name in NAMES:
        answered(name, "--table", f"{name}.parquet")
    for _ in range(9):
        if run("run", "study.toml", "--mailbox", "box", "-o", "mail.json").exit_code == 0:
            break
        for name in NAMES:
            answered(name)
    done("run", "study.toml", "--data", "*.parquet", "-o", "inprocess.json")
    expected = simulated()
    for file in ("mail.json", "inprocess.json"):
        np.testing.assert_array_equal(load(place / file).mixture_.coefficients, expected)
    shown = done("status", "box").stdout
    assert "round 2: 5 of 5 sites answered" in shown
    assert "finished" in shown
    assert json.loads(done("status", "box", "--json").stdout)["finished"]


@pytest.mark.slow
def test_a_study_runs_on_a_cluster(place: Path) -> None:
    pytest.importorskip("distributed")
    done("run", "study.toml", "--data", "*.parquet", "--engine", "dask", "-o", "dask.json")
    expected = simulated()
    np.testing.assert_allclose(load(place / "dask.json").mixture_.coefficients, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_a_method_with_a_model_for_each_site_writes_them_all(place: Path) -> None:
    (place / "own.toml").write_text(study_with('name = "SharedCentre"').to_text())
    found = done("run", "own.toml", "--data", "*.parquet", "-o", "own.json", "--report", "own.md")
    assert "It says:\nThis result can be used" in found.stderr
    assert [load(place / f"own.{name}.json").n_experts for name in NAMES] == [2] * len(NAMES)


def begun(place: Path, *options: object) -> None:
    done("run", "study.toml", "--mailbox", "box", *SITES, *options, "-o", "mail.json", status=6)


def test_a_run_states_its_wave_and_a_table_of_another_one_is_refused(place: Path) -> None:
    begun(place, "--wave", "2026")
    options = ("--table", "ash.parquet", "--in", "sites")
    other = run("site", "answer", "ash", "box", *options, "--wave", "2025", answer="y\n")
    assert code(other) == "CSL-115"
    assert "the table is of wave 2025, and the run is of wave 2026" in str(other.exception)
    shown = " ".join(answered("ash", "--table", "ash.parquet", "--wave", "2026").stderr.split())
    assert "This run is of wave 2026: answer it with the table of that wave." in shown
    begun(place)  # the run in the folder keeps its wave
    assert json.loads((place / "box" / "run.json").read_text())["content"]["wave"] == "2026"
    changed = run("run", "study.toml", "--mailbox", "box", *SITES, "--wave", "2027", "-o", "mail.json")
    assert code(changed) == "CSL-125"
    hidden = run("run", "study.toml", "--mailbox", "new", *SITES, "--wave", "2026\n", "-o", "mail.json")
    assert "printable characters" in str(hidden.exception)


def test_a_table_of_a_stated_wave_answers_no_run_without_one(place: Path) -> None:
    begun(place)
    found = run("site", "answer", "ash", "box", "--table", "ash.parquet", "--in", "sites", "--wave", "2026")
    assert "the run is of no stated wave" in str(found.exception)


def test_an_answer_is_shown_and_asked_about(place: Path) -> None:
    begun(place, "--days", 3)
    refused = run("site", "answer", "ash", "box", "--table", "ash.parquet", "--in", "sites", answer="n\n")
    assert code(refused) == "CSL-116"
    assert not (place / "box" / answer_name(1, "ash")).exists()
    page = place / "sites" / "ash" / PAGE
    assert "You said no: nothing has left" in page.read_text()
    assert "consilience site answer ash box --in sites" in page.read_text()
    shown = answered("ash", "--table", "ash.parquet", "--numbers").stderr
    assert "Asked: the parameters of a mixture" in shown
    assert "the coordinator could compute rows from them" in shown
    assert "first answer in this run" in shown
    assert "answer if its coordinator has asked this site to take part" in " ".join(shown.split())
    assert "model.mixture.experts.B = [" in shown
    entries = json.loads(done("site", "log", "show", "ash", "--in", "sites", "--json").stdout)["entries"]
    assert [entry["kind"] for entry in entries] == ["init", "decline", "run", "answer"]
    again = done("site", "answer", "ash", "box", "--in", "sites", status=6)
    assert "has answered round 1" in again.stdout
    assert "Round 1 is answered" in page.read_text()
    assert "answer of round 1" in page.read_text()
    (place / "box" / answer_name(1, "ash")).unlink()
    assert "answered before" in done("site", "answer", "ash", "box", "--in", "sites", "--no-input").stderr
    entries = json.loads(done("site", "log", "show", "ash", "--in", "sites", "--json").stdout)["entries"]
    assert len(entries) == 4
    status = json.loads(done("status", "box", "--json").stdout)
    assert status["rounds"][0]["answered"] == ["ash"]
    assert status["rounds"][0]["due"]


def test_a_folder_that_was_restored_is_noticed_before_its_table_is_asked_for(place: Path) -> None:
    alone = ("run", "study.toml", "--mailbox", "box", "-o", "mail.json")
    done(*alone, "--site", "ash", status=6)
    shutil.copytree(place / "sites" / "ash", place / "earlier")
    answered("ash", "--table", "ash.parquet")
    done(*alone, status=6)
    answered("ash")
    done(*alone, status=6)
    shutil.rmtree(place / "sites" / "ash")
    shutil.copytree(place / "earlier", place / "sites" / "ash")
    found = run("site", "answer", "ash", "box", "--in", "sites")
    assert code(found) == "CSL-115"
    assert "the folder was restored from an older copy" in str(found.exception)


def test_what_cannot_be_answered(place: Path) -> None:
    assert code(run("site", "answer", "ash", "nowhere", "--in", "sites")) == "CSL-124"
    begun(place)
    assert code(run("site", "answer", "ash", "box", "--in", "sites")) == "CSL-124"  # no table named yet
    done("site", "init", "strict", "--in", "sites")
    question = place / "box" / question_name(1)
    question.write_text(question.read_text()[:300])
    found = done("site", "answer", "ash", "box", "--in", "sites", status=6)
    assert "no question" in found.stdout
    assert f"not used: {question.name}" in found.stderr
    shown = done("status", "box").stdout
    assert "not used: round-01.question.json" in shown


def test_a_person_is_asked_where_the_policy_says_so(place: Path) -> None:
    begun(place)
    done("site", "init", "ash", "--in", "hospital")
    found = run("site", "answer", "ash", "box", "--table", "ash.parquet", "--in", "hospital", "--no-input")
    assert code(found) == "CSL-115"


def test_runs_that_cannot_begin(place: Path) -> None:
    assert code(run("run", "study.toml", "--mailbox", "box", "-o", "mail.json")) == "CSL-125"
    assert run("run", "study.toml").exit_code == 2
    assert run("run", "study.toml", "--mailbox", "box", "--data", "*.parquet").exit_code == 2
    assert run("run", "study.toml", "--data", "*.parquet", "--on-drop", "perhaps").exit_code == 2
    begun(place)
    assert code(run("run", "study.toml", "--mailbox", "box", "--site", "ash", "-o", "m.json")) == "CSL-125"
    other = run("run", "study.toml", "--mailbox", "box", *SITES, "--own", "theirs", "-o", "m.json")
    assert code(other) == "CSL-125"
    assert "another coordinator" in str(other.exception)
    over = run("run", "study.toml", "--mailbox", "box", "--until", "2020-01-01", "-o", "m.json")
    assert code(over) == "CSL-126"
    (place / "bad.toml").write_text(STUDY.to_text().replace('name = "OneShot"', 'name = "OneShot"\nwrong = 1'))
    assert code(run("run", "bad.toml", "--data", "*.parquet")) == "CSL-100"


# ---------------------------------------------------------------- with noise


def noisy(place: Path, *, privacy: str = "epsilon = 3.0") -> str:
    """A study with noise, begun from the fit of one hospital; the hash of its start."""
    lines = f'trust = "noise"\nmethod = {{name = "PrivateScoring"}}\nprivacy = {{{privacy}}}\n[model]'
    (place / "noise.toml").write_text(study_with().to_text().replace("[model]", lines, 1))
    simulate_study(study_with(), {"oak": TABLES["oak"]}).best.model.save(place / "start.json")
    return bytes_hash((place / "start.json").read_bytes())


def test_a_study_with_noise_is_answered_within_the_budget(place: Path) -> None:
    named = noisy(place)
    begin = ("run", "noise.toml", "--mailbox", "box", *SITES, "-o", "noise.json")
    assert "--start" in str(run(*begin).exception)
    done(*begin, "--start", "start.json", status=6)
    csv.write_csv(TABLES["ash"], place / "ash.csv")
    answer = ("site", "answer", "ash", "box", "--table", "ash.csv", "--in", "sites")
    assert code(run(*answer, answer="n\n")) == "CSL-116"
    assert "ε = 0 of" in done("site", "budget", "ash", "--in", "sites").stdout  # what was declined costs nothing
    shown = done(*answer, answer="y\n").stderr
    assert "differentially private for one row" in shown
    assert "Forecast if each of the 5 sites had 900 rows" in shown
    assert "have spent ε =" in shown
    assert "The noise is drawn if you approve" in shown
    spent = json.loads(done("site", "budget", "ash", "--in", "sites", "--json").stdout)
    assert 0.5 < spent["epsilon"] < 3
    assert spent["not_covered"] == []
    noisy(place, privacy=f'epsilon = 3.0, start = "{named}"')
    wrong = bytes_hash(b"another file")
    noisy(place, privacy=f'epsilon = 3.0, start = "{wrong}"')
    other = ("run", "noise.toml", "--mailbox", "box2", *SITES, "-o", "noise.json", "--start", "start.json")
    assert "not the model file that the study names" in str(run(*other).exception)
    assert code(run("run", "noise.toml", "--data", "*.parquet", "-o", "o.json", "--start", "start.json")) == "CSL-125"


@pytest.mark.slow
def test_a_run_with_noise_ends_with_a_model_and_a_report(place: Path) -> None:
    noisy(place)
    begin = ("run", "noise.toml", "--mailbox", "box", "--start", "start.json", "-o", "noise.json", "--report", "n.md")
    found = run(*begin, *SITES)
    for number in range(9):
        if found.exit_code != 6:
            break
        for name in NAMES:
            answered(name, *(("--table", f"{name}.parquet") if number == 0 else ()))
        found = run(*begin)
    assert found.exit_code == 0, found.output + repr(found.exception)
    assert "With noise: ε = 3" in found.stderr
    assert load(place / "noise.json").n_experts == 2
    assert " were asked for sums, and none was left out" in (place / "n.md").read_text()
    assert "ε = 3 of 16" in done("site", "budget", "ash", "--in", "sites").stdout


def test_the_annex_says_of_each_way_what_leaves_and_what_it_means(place: Path) -> None:
    noisy(place)
    (place / "file.toml").write_text(study_with().to_text())
    said = {
        way: done("site", "annex", "ash", f"{name}.toml", "--in", "sites").stdout
        for way, name in (("limits", "file"), ("coordinator", "study"), ("noise", "noise"))
    }
    assert "One JSON file" in said["limits"]
    assert "they are no guarantee" in said["limits"]
    assert "could compute rows from them" in said["coordinator"]
    assert "One JSON file" not in said["coordinator"]
    assert "In each round of OneShot with refine = 1" in said["coordinator"]
    assert "differentially private for one row" in said["noise"]
    assert "with sums with noise, at most 8 sums" in said["noise"]
    assert "of 100 guesses" in said["noise"]
    assert "bring it from ε = 0 to 3" in said["noise"]
    assert "| rows in all | ε = 1 | ε = 3 | ε = 8 |" in said["noise"]
    strict = done("site", "init", "strict", "--in", "sites")
    assert strict.exit_code == 0
    assert "does NOT allow" in done("site", "annex", "strict", "study.toml", "--in", "sites").stdout


# ---------------------------------------------------------------- forecasts


def test_a_forecast_says_what_a_study_will_know_and_reads_no_row(place: Path) -> None:
    noisy(place)
    for path in place.glob("*.parquet"):
        path.unlink()
    ask = ("study", "forecast", "noise.toml", "--rows", "500,600,700")
    shown = done(*ask, "--start", "start.json").stdout
    assert "1,800 rows at 3 sites" in shown
    assert "No row was read" in shown
    assert "sex[male]" in shown
    assert "3 (the study)" in shown
    assert "hospital: answers 5 runs" in shown
    found = json.loads(done(*ask, "--start", "start.json", "--json").stdout)
    assert [each["epsilon"] for each in found["forecasts"]] == [1, 3, 8]
    ratios = [each["ratio"] for each in found["forecasts"]]
    assert ratios == sorted(ratios, reverse=True)
    assert found["rounds"] == {"near": 5, "far": 7}
    assert set(found["standard_errors"][0]["with_noise"]) == {"1", "3", "8"}
    guessed = json.loads(done(*ask, "--epsilon", "2", "--json").stdout)
    assert (guessed["start"], guessed["standard_errors"]) == ("guess", [])
    assert [each["epsilon"] for each in guessed["forecasts"]] == [2, 3]
    assert "No start was given" in done(*ask).stdout
    assert "cannot succeed" in done(*ask[:3], "--rows", "30,40").stdout
    for wrong in ("", "a,b", "10,-3", "1.5"):
        assert run(*ask[:3], "--rows", wrong).exit_code == 2
    assert code(run("study", "forecast", "study.toml", "--rows", "500")) == "CSL-100"


def test_a_site_rehearses_and_the_coordinator_is_warned(place: Path) -> None:
    noisy(place)
    csv.write_csv(TABLES["ash"], place / "ash.csv")
    ledger = place / "sites" / "ash" / "ledger.jsonl"
    before = {path: path.read_bytes() for path in (place / "sites").rglob("*") if path.is_file()}
    shown = done("site", "rehearse", "ash", "noise.toml", "ash.csv", "--start", "start.json", "--in", "sites").stdout
    assert "Nothing was written, charged or sent" in shown
    assert "All cells fit the study" in shown
    assert "a whole run of 8 sums would make it 3" in shown
    assert "if a person approves" in shown
    ask = ("site", "rehearse", "ash", "noise.toml", "ash.csv", "--rows", "20,30", "--in", "sites", "--json")
    found = json.loads(done(*ask).stdout)
    assert found["forecast"]["rows"] == [900, 20, 30]
    assert found["forecast"]["start"] == "guess"
    (place / "file.toml").write_text(study_with().to_text())
    file = done("site", "rehearse", "ash", "file.toml", "ash.parquet", "--in", "sites").stdout
    assert "checks are kept" in file
    assert "Attack at the site" in file
    assert {path: path.read_bytes() for path in (place / "sites").rglob("*") if path.is_file()} == before
    assert ledger in before
    few = (
        "run",
        "noise.toml",
        "--mailbox",
        "box",
        *SITES,
        "--start",
        "start.json",
        "-o",
        "n.json",
        "--rows",
        "20,20,20",
    )
    assert "before it begins: This study cannot succeed" in done(*few, status=6).stderr
    assert "before it begins" not in done(*few, status=6).stderr  # only once
    contract = done("run", "study.toml", "--mailbox", "other", *SITES, "-o", "c.json", status=6)
    assert "No shipped profile answers this study" in contract.stderr

"""Evidence beside a model: the report that is made from it later is the report that was made at first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError
from consilience.files.json_text import bytes_hash
from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import site_file
from consilience.kit.stored_evidence import StoredEvidence, evidence_path
from consilience.kit.study import Study

RUNNER = CliRunner()
TABLES = hospitals()
pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, [str(each) for each in arguments])


def done(*arguments: object) -> Any:
    found = run(*arguments)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def failed(*arguments: object) -> str:
    found = run(*arguments)
    assert found.exit_code != 0, found.output
    return str(found.exception)


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the files of five hospitals were combined, with a report and its tables."""
    place = tmp_path_factory.mktemp("combined")
    study = Study.from_text(STUDY)
    (place / "study.toml").write_text(STUDY)
    for name, table in TABLES.items():
        (place / f"{name}.json").write_text(site_file(study, name, table, Policy.of_profile("hospital")).to_text())
    files = [place / f"{name}.json" for name in TABLES]
    done("combine", place / "study.toml", *files, "-o", place / "model.json", "--report", place / "first.html",
         "--tables", place / "first")  # fmt: skip
    return place


def test_the_report_from_stored_evidence_is_the_first_one_to_the_byte(combined: Path) -> None:
    again = combined / "again.html"
    done("report", combined / "model.json", "-o", again, "--tables", combined / "again")
    assert again.read_bytes() == (combined / "first.html").read_bytes()
    first = {path.name: path.read_text() for path in (combined / "first").iterdir()}
    assert len(first) > 8
    assert {path.name: path.read_text() for path in (combined / "again").iterdir()} == first


STUDIES = {
    "a gate of each site": STUDY.replace("[model]", 'method = { name = "FederatedEM", per_site = "gate" }\n[model]'),
    "a model of each site": STUDY.replace("[model]", 'method = { name = "SharedCentre" }\n[model]'),
    "a choice of the number": STUDY.replace("experts = [2]", "experts = [1, 2]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_so_is_that_of_a_run_by_another_method(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDIES[study])
    for name, table in TABLES.items():
        pq.write_table(table, f"{name}.parquet")
    done("run", "study.toml", "--data", "*.parquet", "-o", "model.json", "--report", "first.html")
    done("report", "model.json", "-o", "again.html")
    assert Path("again.html").read_bytes() == Path("first.html").read_bytes()


def test_other_words_are_used_and_another_study_is_refused(combined: Path) -> None:
    other = combined / "words.toml"
    other.write_text(STUDY.replace('title = "Length of stay of two kinds of patients"', 'title = "Nights in hospital"'))
    done("report", combined / "model.json", "--study", other, "-o", combined / "words.html")
    page = (combined / "words.html").read_text()
    assert "<h1>Nights in hospital</h1>" in page
    assert "No single hospital decides the result." in page
    other.write_text(STUDY.replace("seed = 20261116", "seed = 1"))
    assert "another one" in failed("report", combined / "model.json", "--study", other, "-o", combined / "x.html")


def test_a_model_without_its_evidence_has_a_report_that_says_so(combined: Path, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes((combined / "model.json").read_bytes())
    found = done("report", tmp_path / "model.json")
    assert "There is no model.evidence.json" in found.stderr
    assert "a model alone does not say whether one was left out" in (tmp_path / "model.html").read_text()


def test_evidence_of_another_model_is_refused(combined: Path, tmp_path: Path) -> None:
    model = (combined / "model.json").read_text()
    (tmp_path / "model.json").write_text(model + " ")
    evidence_path(tmp_path / "model.json").write_bytes(evidence_path(combined / "model.json").read_bytes())
    assert "evidence of another model" in failed("report", tmp_path / "model.json")


def change(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The document with another value in a place."""
    if not place:
        return value
    copy = list(document) if isinstance(document, list) else dict(document)
    copy[place[0]] = change(document[place[0]] if place[0] in (copy if isinstance(copy, dict) else range(len(copy)))
                            else None, place[1:], value)  # fmt: skip
    return copy


CHANGES = {
    ("version",): (2, 0, "1", None),
    ("format",): ("consilience model",),
    ("more",): (1,),
    ("model",): ("sha256:0", 3),
    ("study",): (3, "x" * 3_000_000),
    ("run", "sites"): ([{}], "none", [[]]),
    ("run", "sites", 0, "rows"): ("many", [1]),
    ("run", "coefficients", "estimates"): ([[1.0]], "x", [[[[True]]]]),
    ("run", "plan", "ash"): ([7, 0], ["a"]),
    ("run", "without", "units"): ([],),
    ("run", "between", "Q"): ([[1.0]],),
    ("files", 0, "mixture", "experts", "family"): ("nothing",),
    ("withdrawn",): ([],),
}


def test_evidence_that_was_changed_is_refused_with_a_sentence(combined: Path, tmp_path: Path) -> None:
    beside = evidence_path(tmp_path / "model.json")
    (tmp_path / "model.json").write_bytes((combined / "model.json").read_bytes())
    whole = json.loads(evidence_path(combined / "model.json").read_text())
    kept = []
    for place, values in CHANGES.items():
        for value in values:
            beside.write_text(json.dumps(change(whole, place, value)))
            found = run("report", tmp_path / "model.json", "--overwrite")
            if found.exit_code == 0 or type(found.exception).__name__ != "CommandError":
                kept.append((place, str(value)[:30], repr(found.exception)))
    assert kept == []
    for text in ("", "[]", '{"format": "consilience evidence"}', "[" * 100_000):
        with pytest.raises(InvalidInputError):
            StoredEvidence.from_text(text)


def test_evidence_has_no_row_and_names_its_model(combined: Path) -> None:
    found = StoredEvidence.from_text(evidence_path(combined / "model.json").read_text())
    assert found.model == bytes_hash((combined / "model.json").read_bytes())
    assert [site.name for site in found.run.sites] == sorted(TABLES)
    assert all(len(site.reasons) == 0 for site in found.run.sites)


def test_evidence_is_not_overwritten_unasked(combined: Path, tmp_path: Path) -> None:
    evidence_path(tmp_path / "model.json").write_text("kept")
    arguments = ("combine", combined / "study.toml", combined / "ash.json", combined / "oak.json")
    assert "exists" in failed(*arguments, "-o", tmp_path / "model.json")
    assert evidence_path(tmp_path / "model.json").read_text() == "kept"
    done(*arguments, "-o", tmp_path / "model.json", "--overwrite")
    assert StoredEvidence.from_text(evidence_path(tmp_path / "model.json").read_text()).run.asked

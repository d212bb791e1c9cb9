"""The everyday of four hospitals by the real command line, from raw exports to the report, without a line of code.

docs/evidence/consortium.rst has the figures, and names the test of each complaint of an earlier trial.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.lib.study import Record
from consilience.estimators.saving import load
from consilience.kit.combination import simulate_study
from consilience.kit.policy.policy import Policy
from consilience.kit.study import Study
from hospital_exports import ROWS, hospital
from paths.consortium.measure import measure
from paths.consortium.trial import HUB, MANAGER, ONE_FILE, SITES, Trial, forget_a_unit, lack_two_sites
from shells import ROOT, needs

PAGE = (ROOT / "docs" / "evidence" / "consortium.rst").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, list[Record]]:
    """All ways, carried out once, and the figures of each."""
    needs("script")
    trial = Trial(tmp_path_factory.mktemp("consortium"), Path(sys.executable).parent)
    return trial, measure(trial)


@pytest.fixture(scope="module")
def trial(measured: tuple[Trial, list[Record]]) -> Trial:
    return measured[0]


def clean(site: str) -> pa.Table:
    """The table that the export of a site was made of."""
    return pa.table(hospital(ROWS[site], SITES.index(site)))


@pytest.mark.long
def test_the_model_is_that_of_the_clean_tables(trial: Trial) -> None:
    tables = {site: clean(site) for site in SITES}
    expected = simulate_study(Study.from_text(ONE_FILE), tables, Policy.of_profile("hospital")).best.model
    found = load(trial.folder(HUB) / "model.json")
    assert found.n_experts == 2
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=1e-6)


@pytest.mark.long
def test_the_truth_is_found_in_each_way(trial: Trial) -> None:
    truth = np.array([[1.0, 0.05, 0.15, 0.05, 0.0, 0.2], [2.6, 0.15, 0.1, 0.2, 0.05, 0.3]])
    for name, most in (("model", 0.1), ("contract", 0.1), ("noise", 0.5)):
        model = load(trial.folder(HUB) / f"{name}.json")
        found = np.column_stack([model.intercept_, model.coef_])[np.argsort(model.intercept_)]
        assert np.abs(found - truth).max() < most, name


@pytest.mark.long
def test_nobody_wrote_code_and_few_commands_are_enough(trial: Trial) -> None:
    commands = [act for act in trial.acts if act.kind == "command"]
    assert all(act.typed.startswith("consilience ") for act in commands)
    texts = {path.suffix for site in SITES for path in trial.folder(site).rglob("*") if path.is_file()}
    assert not texts & {".py", ".R", ".sh", ".sql", ".ipynb"}
    mapped = [act for act in commands if act.role == MANAGER and " site map " in act.typed]
    checks = [act for act in commands if " site check " in act.typed]
    assert len(mapped) <= 3
    assert len(checks) == len(SITES)  # each passes at once


@pytest.mark.long
def test_reports_name_all_sites_and_can_be_used(trial: Trial) -> None:
    for name in ("report", "contract", "noise"):
        text = (trial.folder(HUB) / f"{name}.html").read_text(encoding="utf-8")
        assert all(site in text for site in SITES), name
    assert "This result can be used." in (trial.folder(HUB) / "report.html").read_text(encoding="utf-8")
    assert len(list((trial.folder(HUB) / "tables").glob("*.csv"))) > 3


@pytest.mark.long
def test_reports_speak_of_stays_and_days_and_have_a_date(trial: Trial) -> None:
    page = (trial.folder(HUB) / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)
    read = text[: text.index('<h2 id="supplement"')]
    assert f"{dt.datetime.now(dt.UTC):%B %Y}" in read
    assert "of an average stay" in read
    assert "days" in read
    software = r"predicts y|standard deviation of \(|OneShot|select_order|rows or groups|\(age - 65\)|sex\[male\]"
    assert re.findall(software, read) == []


@pytest.mark.long
def test_a_file_has_one_hash_and_one_size_everywhere(trial: Trial) -> None:
    report = (trial.folder(HUB) / "report.html").read_text(encoding="utf-8")
    for site in SITES:
        sent = (trial.folder(site) / f"{site}.json").read_bytes()
        digest = sha256(sent).hexdigest()
        (kept,) = (trial.folder(site) / site / "releases").iterdir()
        assert kept.stem == digest
        assert kept.read_bytes() == sent
        assert digest in report
        assert f"{len(sent):,}" in report


@pytest.mark.long
def test_a_lost_factor_of_units_is_named_with_site_column_and_factor(trial: Trial) -> None:
    said = " ".join(forget_a_unit(trial).split())
    assert re.search(r"boston.{0,90}crp is about 10 times lower", said), said
    report = (trial.folder(HUB) / "wrong.html").read_text(encoding="utf-8")
    assert "Do not use this result yet." in report


@pytest.mark.long
def test_two_absent_sites_are_named_on_the_first_screen(trial: Trial) -> None:
    first = lack_two_sites(trial)
    assert "2 of 4 hospitals were left out" in first
    assert "boston: it sent nothing" in first


@pytest.mark.long
def test_the_stored_figures_are_those_of_the_trial(measured: tuple[Trial, list[Record]]) -> None:
    stored = json.loads((ROOT / "benchmarks" / "results" / "consortium.json").read_text(encoding="utf-8"))
    exact = ("role", "people", "commands", "texts by hand")
    for mine, other in zip(measured[1], stored["tables"], strict=True):
        assert [[row[name] for name in exact] for row in mine["rows"]] == [
            [row[name] for name in exact] for row in other["rows"]
        ]


def named() -> set[tuple[str, str]]:
    """Files and tests that the page names."""
    return set(re.findall(r"``(tests/[\w/]+\.py)::(test_\w+)``", PAGE))


def test_the_page_names_tests_that_exist_for_every_complaint() -> None:
    table = PAGE[PAGE.index(".. list-table:: Complaints") :]
    rows = re.split(r"^   \* - ", table, flags=re.MULTILINE)[2:]
    assert len(rows) >= 30
    assert [row.partition("\n")[0] for row in rows if "::test_" not in row] == []
    lost = [(file, test) for file, test in named() if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")]
    assert lost == []

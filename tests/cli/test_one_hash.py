"""What leaves a site has one hash, one size and the parts that people were shown, wherever they are said."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.annex import annex_of
from consilience.cli.answer_fields import fields_of_answer
from consilience.cli.app import app
from consilience.cli.preview import fields_of
from consilience.datasets.hospitals import STUDY
from consilience.files.noisy_file import read_sent_file
from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.mail_folder import answer_name
from consilience.kit.policy.policy import Policy
from consilience.kit.release import release_fit
from consilience.kit.site_fit import Statement, fit_at_site
from consilience.kit.site_noise import draft_steps
from consilience.kit.study import Study
from consilience.messages import decode
from mail_office import PRIVATE, TABLES, Office, start, study_with, with_noise

pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
FEW = {name: TABLES[name].slice(0, 400) for name in ("ash", "oak")}


def done(*arguments: object, answer: str | None = None) -> Any:
    found = CliRunner().invoke(app, [str(each) for each in arguments], input=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sizes(text: str) -> set[int]:
    return {int(each.replace(",", "")) for each in re.findall(r"(\d[\d,]*) bytes", text)}


def hashes(text: str) -> set[str]:
    return set(re.findall(r"(?<![0-9a-f:])[0-9a-f]{64}(?![0-9a-f])", text))


@pytest.mark.slow
def test_a_file_has_one_hash_and_one_size_from_the_preview_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    pq.write_table(TABLES["ash"], "ash.parquet")
    done("site", "init", "ash")
    done("site", "fit", "ash", "study.toml", "ash.parquet")
    shown = done("site", "preview", "ash").stdout
    before = json.loads(done("site", "preview", "ash", "--json").stdout)
    asked = done("site", "release", "ash", "-o", "ash.json", answer="y\n").stderr
    file = tmp_path / "ash.json"
    digest, size = sha256(file), file.stat().st_size
    assert (before["file"], before["bytes"]) == (f"sha256:{digest}", size)
    for text in (shown, asked):
        assert (hashes(text), sizes(text)) == ({digest}, {size})
    entries = json.loads(done("site", "log", "show", "ash", "--json").stdout)["entries"]
    named = {
        (each["kind"], each["details"]["file"], each["details"]["bytes"])
        for each in entries
        if "file" in each["details"]
    }
    assert named == {("preview", f"sha256:{digest}", size), ("release", f"sha256:{digest}", size)}
    logged = done("site", "log", "show", "ash").stdout
    assert hashes(logged) == {digest}
    assert f"bytes {size}" in logged
    verified = done("site", "log", "verify", "ash", file).stdout
    assert sizes(verified) == {size}
    annex = done("site", "annex", "ash", "study.toml").stdout
    assert f"| {size:,} | {digest} |" in annex
    spent = done("site", "budget", "ash").stdout
    assert (hashes(spent), sizes(spent)) == ({digest}, {size})
    page = (tmp_path / "ash" / "page.html").read_text()
    assert digest in page
    assert f"{size:,}" in page
    combined = done("combine", "study.toml", "ash.json", "--report", "report.html", "--tables", "tables").stderr
    assert f"ash.json: {size:,} bytes, SHA-256 {digest}" in combined
    report = (tmp_path / "report.html").read_text()
    assert digest in report
    assert f",{size}," in (tmp_path / "tables" / "files.csv").read_text().replace('"', "").replace(
        f"{size:,}", str(size)
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", ["coordinator", "noise"])
def test_an_answer_has_one_hash_and_one_size_from_the_preview_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(tmp_path)
    study = PRIVATE if way == "noise" else study_with('name = "OneShot", refine = 1')
    (tmp_path / "study.toml").write_text(study.to_text())
    for name, table in FEW.items():
        pq.write_table(table, f"{name}.parquet")
        done("site", "init", name, "--profile", "open")
    begin = [
        "run",
        "study.toml",
        "--mailbox",
        "box",
        "-o",
        "model.json",
        "--report",
        "report.html",
        "--tables",
        "tables",
    ]
    if way == "noise":
        simulate_study(study_with(), {"oak": TABLES["oak"]}).best.model.save(tmp_path / "start.json")
        begin += ["--start", "start.json"]
    sites = ["--site", "ash", "--site", "oak"]
    found = CliRunner().invoke(app, [*begin, *sites])
    for number in range(1, 12):
        if found.exit_code != 6:
            break
        for name in FEW:
            path = tmp_path / "box" / answer_name(number, name)
            shown = done("site", "answer", name, "box", "--table", f"{name}.parquet", answer="y\n").stderr
            if way == "coordinator":
                assert (hashes(shown), sizes(shown)) == ({sha256(path)}, {path.stat().st_size})
        found = CliRunner().invoke(app, begin)
    assert found.exit_code == 0, found.output + repr(found.exception)
    files = {name: list((tmp_path / "box").glob(f"*answer.{name}.json")) for name in FEW}
    entries = json.loads(done("site", "log", "show", "ash", "--json").stdout)["entries"]
    answers = [each["details"] for each in entries if each["kind"] == "answer"]
    assert {(each["file"], each["bytes"]) for each in answers} == {
        (f"sha256:{sha256(path)}", path.stat().st_size) for path in files["ash"]
    }
    annex = done("site", "annex", "ash", "study.toml").stdout
    status = done("status", "box").stdout
    for path in files["ash"]:
        assert f"| {path.stat().st_size:,} | {sha256(path)} |" in annex
        assert f"{path.name}: {path.stat().st_size:,} bytes, SHA-256 {sha256(path)}" in status
        shown = done("site", "show-answer", "ash", path).stdout
        assert f"{path.stat().st_size:,} bytes, SHA-256 {sha256(path)}" in shown
    report = (tmp_path / "tables" / "answers.csv").read_text().replace('"', "").replace(",", "")
    for name, paths in files.items():
        total = sum(path.stat().st_size for path in paths)
        assert f"{name}{len(paths)}{total}\n" in report


# ---------------------------------------------------------------- parts


def listed(text: str) -> set[str]:
    """Parts that an annex lists, in all of its tables of parts."""
    tables = text.split("| part | meaning |\n|---|---|\n")[1:]
    rows = [line for table in tables for line in table.split("\n\n")[0].splitlines()]
    return {row.split(" | ")[0].removeprefix("| ") for row in rows}


def keys(document: dict[str, Any]) -> set[str]:
    """Names of the parts of a file beside its content."""
    return set(document) - {"content", "envelope"} | set(document["envelope"])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["limits", "noise"])
def test_the_annex_lists_the_parts_of_the_file_and_no_others(tmp_path: Path, way: str) -> None:
    study = study_with()
    folder = SiteFolder.init("ash", Policy.of_profile("open").to_text(), tmp_path)
    if way == "noise":
        study = with_noise(f'epsilon = 3.0, exchange = "file", start = "sha256:{64 * "0"}"')
        draft_steps(folder, study, TABLES["ash"], start(), source=tmp_path, approved_by="A. Person").fit()
    else:
        stated = Statement("2026", "2026-06-30", False, ())
        study = Study.from_text(
            study.to_text().replace("[model]", 'cohort = [{ column = "age", at_least = 30 }]\n[model]')
        )
        fit_at_site(folder, study, TABLES["ash"], stated=stated)
    text = release_fit(folder, "A. Person").decode()
    parts = {name for name, _, _ in fields_of(read_sent_file(text))} | keys(json.loads(text))
    assert listed(annex_of(folder, study).markdown) == parts


@pytest.mark.slow
@pytest.mark.parametrize("way", ["coordinator", "noise"])
def test_the_annex_lists_the_parts_of_all_answers_and_no_others(tmp_path: Path, way: str) -> None:
    study, given = (PRIVATE, start()) if way == "noise" else (study_with('name = "FederatedEM"'), None)
    office, found = Office(tmp_path, study, tables=FEW, start=given), set[str]()
    for _ in range(60):
        if office.advance() is not None:
            break
        for name in office.asked():
            path = office.answer(name)
            letter = office.opened(path)
            document = json.loads(letter.to_text())
            found |= set(json.loads(path.read_text())) | keys(document) | set(document["content"])
            found |= {part for _, part, _, _ in fields_of_answer(decode(letter.answer))}
    assert listed(annex_of(office.folders["ash"], study).markdown) == found

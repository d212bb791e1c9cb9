"""One file with noise: charged before noise is drawn, released to the byte, and combined with standard errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from consilience import PrivateScoring
from consilience.cli.annex import annex_of
from consilience.cli.app import app
from consilience.cli.preview import preview_document, text_of
from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.noisy_file import NoisyFile, read_sent_file
from consilience.kit.combination import combine_files, simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.mail_run import begin_by_files
from consilience.kit.policy.policy import Policy
from consilience.kit.release import earlier_of, last_fit, release_fit, verify_ledger
from consilience.kit.site_fit import site_file
from consilience.kit.site_noise import NoisyDraft, draft_steps
from consilience.kit.spending import charges_in, spent_in, uncovered_in
from consilience.kit.study import Study
from consilience.model import Mixture
from consilience.model.contributions import COUNTED
from consilience.numerics.budget import rho_of
from consilience.report.verdict import verdict
from mail_office import TABLES

NAMES = ("ash", "birch")
FILE = f"""trust = "noise"
method = {{name = "PrivateScoring"}}
privacy = {{epsilon = 3.0, exchange = "file", start = "sha256:{64 * "a"}"}}
[model]"""
ONE_FILE = Study.from_text(STUDY.replace("[model]", FILE, 1))


@cache
def start() -> Mixture:
    """The fit of one hospital, which may release it."""
    model = site_file(Study.from_text(STUDY), "oak", TABLES["oak"]).fit.model
    assert model is not None
    return model.mixture


def folder_of(place: Path, name: str = "ash", epsilon: float = 8.0) -> SiteFolder:
    text = Policy.of_profile("hospital").to_text().replace("max_epsilon_ever = 8.0", f"max_epsilon_ever = {epsilon}")
    return SiteFolder.init(name, text, place)


def draft(folder: SiteFolder, table: pa.Table | None = None, study: Study = ONE_FILE) -> NoisyDraft:
    return draft_steps(folder, study, TABLES[folder.name] if table is None else table, start())


def kinds(folder: SiteFolder) -> list[str]:
    return [entry.kind for entry in folder.entries]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_files_with_noise_of_several_sites_give_the_model(tmp_path: Path) -> None:
    files = list[NoisyFile]()
    for name in NAMES:
        folder = folder_of(tmp_path, name)
        draft(folder).fit()
        file = read_sent_file(release_fit(folder, "A. Person").decode())
        assert isinstance(file, NoisyFile)
        files.append(file)
        assert sum(files[-1].steps.shares) == 8
        assert spent_in(folder) == rho_of(3.0, 1e-6)
        assert verify_ledger(folder, files[-1:]).is_whole
        assert uncovered_in(folder) == []  # noise is in the budget
        assert earlier_of(folder) == []  # and is compared with no file under limits
    found = combine_files(ONE_FILE, files).best
    pooled = simulate_study(Study.from_text(STUDY), {name: TABLES[name] for name in NAMES}).best
    assert found.settled
    assert found.privacy is not None
    assert (found.privacy.epsilon, found.privacy.exchange, found.privacy.rho) == (3.0, "file", rho_of(3.0, 1e-6))
    assert "in one file" in str(verdict(found))
    assert len(found.record.rounds) == 1
    errors = found.model.inference_.standard_errors().flat()
    assert 1.02 < found.fit.forecast.ratio < 2  # in units of those without noise
    gap = (found.model.inference_.estimates.flat() - pooled.model.inference_.estimates.flat()) / errors
    assert np.sqrt(np.nanmean(gap**2)) < 2
    check_report(tmp_path, files)
    moved = replace(files[1], steps=replace(files[1].steps, mixtures=files[1].steps.mixtures[::-1]))
    with pytest.raises(InvalidInputError, match="different models"):
        combine_files(ONE_FILE, [files[0], moved])


def check_report(place: Path, files: list[NoisyFile]) -> None:
    """Combine the files by the command, with a report on them."""
    (place / "study.toml").write_text(ONE_FILE.to_text(), encoding="utf-8")
    paths = [place / f"{file.site}.json" for file in files]
    for path, file in zip(paths, files, strict=True):
        path.write_text(file.to_text(), encoding="utf-8")
    for name in ("report.html", "report.md"):
        command = ["combine", str(place / "study.toml"), *map(str, paths), "-o", str(place / "m.json"), "--overwrite"]
        done = CliRunner().invoke(app, [*command, "--report", str(place / name), "--tables", str(place / "tables")])
        assert done.exit_code == 0, done.output
        assert "With noise: ε = 3" in done.output
        assert "Table 1" not in done.output
    page, card = ((place / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    for path in paths:
        assert sha256(path.read_bytes()).hexdigest() in page
        assert f"{path.stat().st_size:,}" in page
    assert "Noise was added: ε = 3" in page
    assert "No noise was added" not in page
    for text in (page, card):
        assert "2 hospitals sent a file with noise, and none was left out" in text
        assert "were asked for sums" not in text


def test_each_sum_is_charged_before_its_noise_and_a_release_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = folder_of(tmp_path), list[int]()
    prepared = draft(folder)
    assert kinds(folder) == ["init"]  # a person approves before anything is charged
    assert "ε = 3" in prepared.said[-1]

    def drawn(variance: int, size: int) -> list[int]:
        seen.append(len(charges_in(SiteFolder.open(folder.path))))
        return [0] * size

    monkeypatch.setattr(sys.modules["consilience.site.answer"], "discrete_gaussian", drawn)
    prepared.fit()
    assert seen == list(range(1, 9))
    assert [each.entry.details["place"] for each in charges_in(folder)] == list(range(8))
    data = release_fit(folder, "A. Person")
    again = draft(folder)
    assert not again.is_new
    again.fit()
    assert release_fit(folder, "B. Person") == data
    assert len(charges_in(folder)) == 8
    file = read_sent_file(data.decode())
    assert isinstance(file, NoisyFile)
    rows = [sums.values[-1] / share / COUNTED for sums, share in zip(file.steps.sums, file.steps.shares, strict=True)]
    assert rows == [TABLES["ash"].num_rows] * len(rows)  # without noise here
    shown = text_of(last_fit(folder).report, last_fit(folder).entry, data, numbers=True)
    assert "ε = 3" in shown
    assert "no noise" not in shown.lower()
    document = preview_document(last_fit(folder).report, last_fit(folder).entry, data)
    assert {each["name"] for each in document["fields"]} == {
        "study", "site", "terms", "privacy", "evidence", "steps",
    }  # fmt: skip
    assert "One JSON file with sums with noise" in annex_of(folder, ONE_FILE).markdown
    with pytest.raises(RefusedError, match="other rows were summed"):
        draft(folder, TABLES["ash"].slice(1))
    with pytest.raises(InvalidInputError, match="changed or damaged"):
        read_sent_file(data.decode().replace('"parts": 1', '"parts": 2', 1))


def test_a_crash_costs_what_was_charged_and_nothing_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["consilience.site.answer"], "discrete_gaussian", crash)
        with pytest.raises(KeyboardInterrupt):
            draft(folder).fit()
    assert kinds(folder) == ["init", "charge"]
    with pytest.raises(RefusedError, match="charged for an answer that failed"):
        draft(folder).fit()
    assert kinds(folder) == ["init", "charge"]


def test_what_the_policy_and_the_budget_do_not_allow_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    poor = folder_of(tmp_path, epsilon=2.9)
    with pytest.raises(RefusedError, match="max_epsilon_ever"):
        draft(poor)
    assert kinds(poor) == ["init"]
    limits = Policy.of_profile("hospital").to_text().replace('["noise", "limits"]', '["limits"]')
    with pytest.raises(RefusedError, match="trust"):
        draft(SiteFolder.init("ash", limits, tmp_path / "limits"))


def unfit(table: pa.Table, cell: object) -> pa.Table:
    cells: list[object] = [cell, *table["age"].to_pylist()[1:]]
    texts = pa.array([None if each is None else str(each) for each in cells])
    return table.set_column(table.column_names.index("age"), "age", texts)


@pytest.mark.parametrize("cell", [None, 999.0, "n/a", "inf"])
def test_nothing_is_refused_for_a_value_of_a_row(cell: object, tmp_path: Path) -> None:
    prepared = draft(folder_of(tmp_path), unfit(TABLES["ash"], cell))
    assert prepared.is_new
    assert any("1 of 900 rows do not fit" in said for said in prepared.said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(', start = "sha256:' + 64 * "a" + '"', ""), "needs its start"),
        (
            lambda text: text.replace('exchange = "file"', 'exchange = "file", rounds = 3'),
            "rounds are not for one file",
        ),
        (lambda text: text.replace('exchange = "file"', 'exchange = "letters"'), "exchange"),
        (lambda text: text.replace('exchange = "file"', 'exchange = "file", sums = "masked"'), "one file has no start"),
        (lambda text: text.replace("sha256:" + 64 * "a", "private"), "one file has no start"),
    ],
)
def test_a_study_says_what_one_file_needs(change: Callable[[str], str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Study.from_text(change(STUDY.replace("[model]", FILE, 1)))


def test_a_study_of_one_file_is_not_run_in_rounds_and_reads_as_it_was_written(tmp_path: Path) -> None:
    assert Study.from_text(ONE_FILE.to_text()).identity == ONE_FILE.identity
    with pytest.raises(InvalidInputError, match="one file of each site"):
        begin_by_files(ONE_FILE, tmp_path / "box", tmp_path / "own", sites=["ash"], start=start())


@pytest.mark.parametrize("other", [{"sums": "masked"}, {"start": "private", "response": (0.0, 9.0)}])
def test_one_file_has_neither_masked_sums_nor_a_private_start(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="exchange='file'"):
        PrivateScoring(3.0, covariates=np.zeros((2, 1)), exchange="file", **other)

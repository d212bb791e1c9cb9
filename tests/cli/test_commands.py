"""The commands as a new user runs them, on tables of three sites."""

import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

import consilience
from consilience.cli import app as module
from consilience.cli.catalogue import CommandError, CommandFault
from consilience.cli.output import Output, is_confirmed
from consilience.data.tables import read_table
from consilience.errors import InvalidInputError, SetAsideWarning
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import site_file
from consilience.kit.site_rounds import RunPart, open_private
from consilience.kit.study import Study

RUNNER = CliRunner()


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, ward = rng.integers(20, 100, n), rng.choice(["medical", "surgical"], n)
    frail = rng.random(n) < 1 / (1 + np.exp(-(age - 60) / 5))
    days = np.where(frail, 14 + 2 * (ward == "surgical"), 4) + rng.normal(size=n)
    return pd.DataFrame({"days": days, "age": age, "ward": ward})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study drafted from a table, and the files of three sites."""
    place = tmp_path_factory.mktemp("study")
    table(400, 0).to_csv(place / "example.csv", index=False)
    drafted = ["init", str(place / "stay.toml"), "--from", str(place / "example.csv"), "--response", "days"]
    done = RUNNER.invoke(module.app, [*drafted, "--trust", "limits"])
    assert done.exit_code == 0, done.output
    text = (place / "stay.toml").read_text().replace("experts = [1, 2, 3]", "experts = [2]")
    (place / "stay.toml").write_text(text)
    study = Study.read(place / "stay.toml")
    for seed, name in enumerate(("ash", "birch", "elm")):
        rows = table(400, seed)
        rows.to_parquet(place / f"{name}.parquet", index=False)
        sent = site_file(study, name, read_table(place / f"{name}.parquet"))
        (place / f"{name}.json").write_text(sent.to_text())
    return place


def run(*arguments: object):
    return RUNNER.invoke(module.app, [str(each) for each in arguments])


@pytest.mark.slow
def test_a_draft_is_a_study_with_round_ranges_and_no_exact_value(folder):
    study = Study.read(folder / "stay.toml")
    rows = table(400, 0)
    age = study.covariates.columns[0]
    assert age.rule.low < rows.age.min()
    assert age.rule.high > rows.age.max()
    assert study.covariates.terms[1] == "ward[surgical]"
    assert "Ranges were read from your table" in (folder / "stay.toml").read_text()


def test_the_example_of_a_study_is_valid(tmp_path):
    assert run("init", tmp_path / "study.toml").exit_code == 0
    assert Study.read(tmp_path / "study.toml").model.response == "outcome"
    again = run("init", tmp_path / "study.toml")
    assert isinstance(again.exception, CommandError)
    assert again.exception.problem is CommandFault.OUTPUT
    assert run("init", tmp_path / "study.toml", "--overwrite").exit_code == 0


def test_a_draft_says_whom_a_site_has_to_trust_in_one_word(tmp_path):
    """Nobody without another word: one file with noise."""
    table(400, 0).to_csv(tmp_path / "example.csv", index=False)
    for trust in ("noise", "limits", "coordinator"):
        more = () if trust == "noise" else ("--trust", trust)
        for name, source in (("example", ()), ("draft", ("--from", tmp_path / "example.csv", "--response", "days"))):
            path = tmp_path / f"{name}-{trust}.toml"
            assert run("init", path, *source, *more).exit_code == 0
            study = Study.read(path)
            assert study.way == trust
            assert study.is_one_file == (trust != "coordinator")
            assert study.lacks_start == (trust == "noise")


def test_a_draft_with_noise_is_no_study_until_its_start_is_named(folder, tmp_path):
    """Commands of sites name what is missing; a forecast needs no start; the command writes the hash of a model."""
    path, model = tmp_path / "noisy.toml", tmp_path / "first.json"
    table(400, 0).to_csv(tmp_path / "example.csv", index=False)
    assert run("init", path, "--from", tmp_path / "example.csv", "--response", "days").exit_code == 0
    for words in (("check", "ash", path, folder / "ash.parquet"), ("annex", "ash", path)):
        assert run("site", "init", "ash", "--in", tmp_path / words[0]).exit_code == 0
        where = ("--in", tmp_path / words[0]) if words[0] == "annex" else ()
        refused = run("site", *words, *where)
        assert refused.exception.problem is CommandFault.STUDY
        assert "privacy.start is still to be named" in refused.exception.said
    assert run("study", "forecast", path, "--rows", "400,400").exit_code == 0
    assert run("combine", folder / "stay.toml", folder / "ash.json", "-o", model).exit_code == 0
    before = path.read_text()
    assert run("study", "start", path, model).exit_code == 0
    assert path.read_text() == before.replace('"unnamed"', f'"sha256:{sha256(model.read_bytes()).hexdigest()}"')
    assert not Study.read(path).lacks_start
    assert run("site", "check", "ash", path, folder / "ash.parquet").exit_code == 0
    again = run("study", "start", path, model)
    assert "there is no line" in again.exception.said


def test_a_site_does_not_sum_for_a_study_without_a_start(tmp_path):
    """Whoever calls the library in place of the command gets the same answer, before anything is charged."""
    rows = table(400, 0)
    rows.to_csv(tmp_path / "example.csv", index=False)
    assert run("init", tmp_path / "noisy.toml", "--from", tmp_path / "example.csv", "--response", "days").exit_code == 0
    study = Study.read(tmp_path / "noisy.toml")
    site = SiteFolder.init("ash", Policy.of_profile("research").to_text(), tmp_path)
    with pytest.raises(InvalidInputError, match="does not name the model from which it starts"):
        open_private(
            site, study, read_table(tmp_path / "example.csv"), RunPart("run", 1, "asked", "table", "A. Person")
        )
    assert [entry.kind for entry in site.entries] == ["init"]


def test_check_says_that_a_table_fits_and_what_does_not(folder, tmp_path):
    good = run("site", "check", "ash", folder / "stay.toml", folder / "ash.parquet", "--json")
    assert good.exit_code == 0
    assert json.loads(good.stdout)["used"] == 400
    table(400, 1).assign(ward="?").to_csv(tmp_path / "wrong.csv", index=False)
    wrong = run("site", "check", "ash", folder / "stay.toml", tmp_path / "wrong.csv")
    assert wrong.exception.problem is CommandFault.MISFIT
    assert "error: column 'ward': 400 of 400 rows have a level that the study does not list" in wrong.stdout


def test_combine_show_and_predict(folder, tmp_path):
    model = tmp_path / "model.json"
    done = run(
        "combine", folder / "stay.toml", *(folder / f"{name}.json" for name in ("ash", "birch", "elm")), "-o", model
    )
    assert done.exit_code == 0, done.output
    assert "Mixture of experts, regression" in done.stdout
    shown = run("show", model, "--json")
    assert json.loads(shown.stdout)["columns"] == ["age", "ward"]
    assert "Expert 1 holds for" in run("show", model, "--words").stdout
    scored = run("predict", model, folder / "ash.parquet", "-o", tmp_path / "scored.parquet")
    assert scored.exit_code == 0, scored.output
    found = pd.read_parquet(tmp_path / "scored.parquet")
    assert list(found) == ["days", "age", "ward", "prediction", "gate_1", "gate_2"]
    assert np.corrcoef(found.days, found.prediction)[0, 1] > 0.5


def dropping(folder, place):
    """A study that drops rows without an age, and the files of two sites with a wave each."""
    text = (folder / "stay.toml").read_text().replace('missing = "refuse"', 'missing = "drop"')
    (place / "drop.toml").write_text(text.replace("experts = [2]", "experts = [1]"))
    study = Study.read(place / "drop.toml")
    for seed, name in enumerate(("ash", "birch")):
        file = site_file(study, name, pa.Table.from_pandas(table(400, seed), preserve_index=False))
        (place / f"{name}.json").write_text(replace(file, wave=str(seed), data_cut="2026-06-30").to_text())
    return place / "drop.toml", place / "ash.json", place / "birch.json"


@pytest.mark.slow
def test_a_row_without_a_value_that_the_study_drops_is_kept_without_a_prediction(folder, tmp_path):
    study, ash, _ = dropping(folder, tmp_path)
    model = tmp_path / "model.json"
    assert run("combine", study, ash, "-o", model, "--quiet").exit_code == 0
    rows = table(20, 5).astype({"age": float})
    rows.loc[[3, 7], "age"] = np.nan
    rows.loc[7, "ward"] = None
    rows.to_csv(tmp_path / "new.csv", index=False)
    for name in ("scored.csv", "scored.parquet"):
        done = run("predict", model, tmp_path / "new.csv", "-o", tmp_path / name)
        assert done.exit_code == 0, done.output
        assert "2 of 20 rows have no prediction" in done.stderr
        found = read_table(tmp_path / name).to_pandas()
        assert len(found) == 20
        assert found.index[found.prediction.isna()].tolist() == [3, 7]
        assert found.unscored.dropna().tolist() == ["no age", "no age, no ward"]
        assert found.gate_1.notna().sum() == 18
    whole = rows.drop(index=[3, 7])
    whole.to_csv(tmp_path / "whole.csv", index=False)
    assert run("predict", model, tmp_path / "whole.csv", "-o", tmp_path / "whole.parquet").exit_code == 0
    alone = pd.read_parquet(tmp_path / "whole.parquet")
    assert "unscored" not in alone
    np.testing.assert_array_equal(found.prediction.dropna(), alone.prediction)
    rows.assign(age=np.nan).to_csv(tmp_path / "none.csv", index=False)
    refused = run("predict", model, tmp_path / "none.csv", "-o", tmp_path / "none.parquet")
    assert refused.exception.problem is CommandFault.PREDICTION


@pytest.mark.slow
def test_files_of_different_waves_are_combined_only_if_said_and_named_in_table_one(folder, tmp_path):
    study, ash, birch = dropping(folder, tmp_path)
    refused = run("combine", study, ash, birch, "-o", tmp_path / "model.json")
    assert refused.exception.problem is CommandFault.COMBINATION
    assert "0: ash; 1: birch" in refused.exception.said
    assert not (tmp_path / "model.json").exists()
    done = run("combine", study, ash, birch, "-o", tmp_path / "model.json", "--mixed-waves", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["waves"]["birch"] == {"wave": "1", "data_cut": "2026-06-30"}
    assert ["wave", "0", "1", ""] in found["table_one"]["rows"]
    assert "different waves were combined" in done.stderr


@pytest.mark.slow
def test_reports_are_written_and_named_before_work_is_done(folder, tmp_path):
    files = [folder / f"{name}.json" for name in ("ash", "birch", "elm")]
    model, page = tmp_path / "model.json", tmp_path / "report.html"
    refused = run("combine", folder / "stay.toml", *files, "-o", model, "--report", tmp_path / "report.pdf")
    assert refused.exit_code == 2
    assert not model.exists()
    done = run("combine", folder / "stay.toml", *files, "-o", model, "--report", page)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "This result can be used" in text
    assert "It says:\nThis result can be used" in done.stderr
    for path in files:
        assert text.count(sha256(path.read_bytes()).hexdigest()) == 1
        assert f"{len(path.read_bytes()):,}" in text
    assert "pip install consilience==" in text
    again = run("combine", folder / "stay.toml", *files, "-o", tmp_path / "other.json", "--report", page)
    assert again.exit_code != 0
    tables = ("--report", tmp_path / "two.html", "--tables", tmp_path / "tables", "--overwrite")
    assert run("combine", folder / "stay.toml", *files, "-o", model, *tables).exit_code == 0
    assert (tmp_path / "tables" / "effects-by-site.csv").read_text().startswith("group,site,")
    assert run("report", model, "--title", "Stay", "--study", folder / "stay.toml").exit_code == 0
    assert "<title>Stay</title>" in (tmp_path / "model.html").read_text()
    assert run("report", model, "--format", "md").exit_code == 0
    assert (tmp_path / "MODEL_CARD.md").read_text().startswith("---\nlibrary_name: consilience")
    assert run("report", model, "--format", "pdf").exit_code == 2


def test_a_changed_site_file_is_refused(folder, tmp_path):
    changed = tmp_path / "ash.json"
    changed.write_text((folder / "ash.json").read_text().replace('"site": "ash"', '"site": "oak"'))
    done = run("combine", folder / "stay.toml", changed, "-o", tmp_path / "model.json")
    assert done.exception.problem is CommandFault.SITE_FILE
    assert not (tmp_path / "model.json").exists()


@pytest.mark.slow
def test_errors_have_a_code_a_next_step_and_a_status(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from consilience.cli.app import main; main()",
            "site",
            "check",
            "north",
            "none.toml",
            "none.csv",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "error CSL-100: none.toml cannot be read: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_codes_are_distinct_and_have_a_remedy():
    codes = [problem.value.code for problem in CommandFault]
    assert len(set(codes)) == len(codes)
    for problem in CommandFault:
        assert problem.value.remedy.endswith(".")
        assert 1 <= problem.value.status <= 5


def test_an_unforeseen_error_shows_no_value(monkeypatch, capsys):
    def broken():
        raise RuntimeError("patient 4711")

    monkeypatch.setattr(module, "app", broken)
    with pytest.raises(SystemExit) as end:
        module.main()
    said = capsys.readouterr().err
    assert end.value.code == 1
    assert "error CSL-001: RuntimeError" in said
    assert "4711" not in said


def test_an_error_is_json_where_data_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["consilience", "show", "none.json", "--json"])
    with pytest.raises(SystemExit) as end:
        module.main()
    told = capsys.readouterr()
    found = json.loads(told.err.splitlines()[-1])["error"]
    assert end.value.code == found["status"] == 3
    assert found["code"] == "CSL-130"
    assert found["message"].startswith("none.json: the file cannot be read")
    assert found["to_do"]
    assert told.out == ""


def test_warnings_are_shown_also_if_quiet(capsys):
    with Output(quiet=True).working("combining"):
        warnings.warn("the sites disagree", SetAsideWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: the sites disagree\n"


def test_an_output_that_exists_is_named_before_anything_is_read(folder, tmp_path):
    (tmp_path / "model.json").write_text("{}")
    done = run("combine", folder / "stay.toml", tmp_path / "none.json", "-o", tmp_path / "model.json")
    assert done.exception.problem is CommandFault.OUTPUT


def test_the_version_is_printed():
    assert run("--version").stdout == f"consilience {consilience.__version__}\n"


def test_a_question_shows_control_characters_as_escapes() -> None:
    ask = typer.Typer()
    ask.command()(lambda: sys.stdout.write(f"{is_confirmed('Release a' + chr(27) + '[2J.json?')}"))
    said = RUNNER.invoke(ask, input="y\n")
    assert said.stdout.endswith("True")
    assert "Release a\\u001b[2J.json?" in said.output


def test_what_follows_a_question_with_a_piped_answer_has_a_line_of_its_own() -> None:
    code = "from consilience.cli.output import is_confirmed; import sys; print(is_confirmed('Send?'), file=sys.stderr)"
    for answer in ("y", "n"):
        asked = {"input": f"{answer}\n", "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, "-c", code], check=True, **asked)
        assert done.stderr.splitlines() == ["Send? [y/N]:", str(answer == "y")]


def test_no_command_prints_words_of_others_as_they_are() -> None:
    texts = [each.read_text(encoding="utf-8") for each in Path(module.__file__).parent.rglob("*.py")]
    asked = [each for text in texts for each in re.findall(r"typer\.(?:confirm|echo)\(\s*(\S+)", text)]
    assert len(asked) > 2
    assert all(each.startswith("printable(") for each in asked)

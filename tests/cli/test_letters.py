"""Letters on columns before any model leaves, by the commands of docs/how-to/look-at-the-columns-of-sites.rst."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from hospital_exports import NAMES, STUDY, related

RUNNER = CliRunner()
ONE = STUDY.replace("experts = [2]", "experts = [1]")


def run(*arguments: object, answer: str | None = None):
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None):
    found = run(*arguments, answer=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def code(found) -> str:
    return found.exception.problem.value.code


def write(name: str, table: dict) -> None:
    pq.write_table(pa.table({key: pa.array(list(values)) for key, values in table.items()}), f"{name}.parquet")


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Four sites with their tables, of which boston has CRP in mg/dl."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(ONE)
    for seed, name in enumerate(NAMES):
        table = related(seed)
        if name == "boston":
            table["crp"] = table["crp"].astype(float) / 10
        write(name, table)
        done("site", "init", name)
    return tmp_path


def share(name: str, *options: object, answer: str = "y\n"):
    return run("site", "check", name, "study.toml", f"{name}.parquet", "--share", f"{name}-columns.json", *options,
               answer=answer)  # fmt: skip


def kinds(name: str) -> list[str]:
    entries = json.loads(done("site", "log", "show", name, "--json").stdout)["entries"]
    return [each["kind"] for each in entries]


def test_wrong_units_are_found_and_mended_before_any_model_leaves(sites) -> None:
    letters = []
    for name in NAMES:
        found = share(name)
        assert found.exit_code == 0, found.output
        letters.append(f"{name}-columns.json")
    shown = " ".join(found.stderr.split())
    question = shown.index("Release this as delft-columns.json?")
    assert 0 < shown.index("each has noise with a standard deviation of 17 rows") < question
    assert 0 < shown.index("answers with noise at this site have spent ε = 1 of 8") < question
    compared = done("study", "compare", "study.toml", *letters)
    assert "Ask boston: crp is about 10 times lower than elsewhere; multiplied by 10" in compared.stdout
    assert compared.stdout.count("Ask ") == 1
    done("site", "map", "boston", "study.toml", "boston.parquet", "--multiply", "crp=10", "--no-input")
    assert share("boston", "--overwrite").exit_code == 0
    assert kinds("boston") == ["init", "charge", "check", "charge", "check"]
    mended = json.loads(done("study", "compare", "study.toml", *letters, "--json").stdout)
    assert mended["questions"] == []
    assert mended["table_one"]["header"][1:5] == list(NAMES)
    done("site", "fit", "boston", "study.toml", "boston.parquet")  # and no letter stands in the way of the file
    done("site", "release", "boston", "-o", "boston.json", answer="y\n")
    said = done("combine", "study.toml", "boston.json", *letters, "-o", "model.json").stderr
    assert "boston-columns.json is a letter on columns, which 'consilience study compare' reads: not used." in said


def test_a_few_rows_are_corrected_after_the_letter_and_the_file_leaves(sites) -> None:
    assert share("adlershof").exit_code == 0
    table = related(0)
    table["age"][[3, 40, 500]] = [45.0, 54.0, 81.0]
    write("adlershof", table)
    done("site", "fit", "adlershof", "study.toml", "adlershof.parquet")
    done("site", "release", "adlershof", "-o", "adlershof.json", answer="y\n")
    table["age"][9] = 33.0  # after the file it is too late
    write("adlershof", table)
    assert code(run("site", "fit", "adlershof", "study.toml", "adlershof.parquet")) == "CSL-115"


def test_a_letter_leaves_after_approval_only_and_also_of_a_table_that_does_not_fit(sites) -> None:
    declined = share("cardiff", answer="n\n")
    assert code(declined) == "CSL-116"
    assert kinds("cardiff") == ["init", "decline"]
    assert not (sites / "cardiff-columns.json").exists()
    assert code(share("cardiff", "--no-input")) == "CSL-115"
    hours = related(2)
    hours["los_days"] = hours["los_days"].astype(float) * 24
    write("cardiff", hours)
    assert code(share("cardiff")) == "CSL-111"
    assert (sites / "cardiff-columns.json").exists()
    written = (sites / "cardiff-columns.json").read_bytes()
    again = share("cardiff", "--no-input", "--overwrite")
    assert code(again) == "CSL-111"
    assert (sites / "cardiff-columns.json").read_bytes() == written
    assert kinds("cardiff").count("charge") == 1


def test_letters_are_signed_and_a_changed_one_is_refused(sites) -> None:
    roster = ['format = "consilience-roster"', "version = 1"]
    for name in ("adlershof", "delft"):
        assert share(name).exit_code == 0
        roster += ["[[sites]]", f'name = "{name}"', f'key = "{done("site", "key", name).stdout.strip()}"']
    (sites / "roster.toml").write_text("\n".join(roster))
    letters = ["adlershof-columns.json", "delft-columns.json"]
    assert "signed by 'delft'" in done("study", "compare", "study.toml", *letters, "--roster", "roster.toml").stderr
    letter = json.loads((sites / letters[1]).read_text())
    letter["envelope"]["time"] = "2020-01-01T00:00:00Z"
    (sites / letters[1]).write_text(json.dumps(letter))
    assert code(run("study", "compare", "study.toml", *letters, "--roster", "roster.toml")) == "CSL-122"
    one = run("study", "compare", "study.toml", "study.toml")
    assert code(one) == "CSL-120"


def test_a_letter_has_no_exact_count_of_the_table(sites) -> None:
    assert share("adlershof").exit_code == 0
    found = json.loads((sites / "adlershof-columns.json").read_text())["content"]
    counts = np.array([each["rows"] for column in found["columns"] for each in column["bands"]])
    assert np.any(counts < 0)
    assert found["noise"] == {"rho": found["noise"]["rho"], "bands": 288, "pairs": 616}
    assert set(found) == {"site", "study", "said", "unit", "noise", "rows", "columns", "pairs"}

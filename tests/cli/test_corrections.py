"""What follows after a release, by the commands of docs/how-to/corrections.rst: patients who withdraw."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.files.site_file import SiteFile

RUNNER = CliRunner()
STUDY = """
format = "consilience-study"
version = 1
name = "stay"
seed = 1

[model]
response = "days"
experts = [1]

[[columns]]
name = "days"
kind = "number"
unit = "days"
low = 0
high = 400

[[columns]]
name = "age"
kind = "number"
unit = "years"
low = 18
high = 110
centre = 60
scale = 15
"""


def patients(n: int, seed: int, first: int = 0) -> pa.Table:
    rng = np.random.default_rng([seed, first])
    age = rng.uniform(20, 95, n)
    days = rng.gamma(3.0, 2.0, n) + (age - 60) / 20 + 2
    crp = pa.array(rng.lognormal(2, 1, n), mask=rng.random(n) < 0.3)
    return pa.table({"days": days, "age": age, "crp": crp, "patient": [f"{seed}-{i}" for i in range(first, first + n)]})


def run(*arguments: object, answer: str | None = None):
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None):
    found = run(*arguments, answer=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def code(found) -> str:
    return found.exception.problem.value.code


def rows_in(path: Path) -> int:
    return int(SiteFile.from_text(path.read_text()).fit.summary.weight)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder in which north has released its file for a study."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    pq.write_table(patients(500, 1), "north.parquet")
    done("site", "init", "north")
    done("site", "fit", "north", "study.toml", "north.parquet")
    return tmp_path


def release(site: str, out: str, *options: object):
    return done("site", "release", site, "-o", out, *options, answer="y\n")


def ledger(site: str) -> list[dict]:
    return json.loads(done("site", "log", "show", site, "--json").stdout)["entries"]


def test_a_release_says_before_it_asks_that_it_is_final_and_what_follows(place):
    said = " ".join(release("north", "north.json").stderr.split())
    question = said.index("Release this as north.json?")
    assert 0 < said.index("This release is final.") < question
    assert 0 < said.index("A correction of fewer than 50 rows cannot be released later") < question
    assert 0 < said.index("The next release leaves out at least 50 others with them, for good") < question


def test_patients_who_withdraw_take_a_crowd_with_them(place):
    release("north", "north.json")
    table = patients(500, 1)
    pq.write_table(table.filter(pc.not_equal(table["patient"], "1-17")), "fewer.parquet")
    refused = run("site", "fit", "north", "study.toml", "fewer.parquet")
    assert code(refused) == "CSL-115"
    assert "--leave-out-crowd" in str(refused.exception)
    done("site", "fit", "north", "study.toml", "fewer.parquet", "--leave-out-crowd")
    shown = done("site", "preview", "north").stdout
    assert "NOTE: 50 rows of the table are left out as crowds, a new one and those of earlier releases" in shown
    release("north", "north-2.json")
    assert rows_in(place / "north.json") - rows_in(place / "north-2.json") == 51
    assert ledger("north")[-1]["details"]["crowd"] == ledger("north")[-3]["details"]["crowd"]
    done("site", "fit", "north", "study.toml", "fewer.parquet")  # the next fit leaves the crowd out by itself
    release("north", "again.json")
    assert (place / "again.json").read_bytes() == (place / "north-2.json").read_bytes()
    (place / "older.toml").write_text(STUDY.replace("[model]", 'cohort = [{column = "age", at_least = 40}]\n[model]'))
    done("site", "fit", "north", "older.toml", "fewer.parquet")
    assert (
        "NOTE: 50 rows of the table are left out as crowds, those of earlier releases"
        in done("site", "preview", "north").stdout
    )

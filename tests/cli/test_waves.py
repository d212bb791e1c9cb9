"""A second wave with two more sites, a sub-group and a sub-study, by the commands of the how-to pages."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.data.tables import read_table

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

[[columns]]
name = "ward"
kind = "category"
levels = ["a", "b"]
missing = "drop"
"""
FIRST, MORE = ("north", "south", "west"), ("east", "isle")


def run(*arguments: object, answer: str | None = None):
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None):
    found = run(*arguments, answer=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def patients(n: int, seed: int, first: int = 0) -> pa.Table:
    rng = np.random.default_rng([seed, first])
    age, ward = rng.uniform(20, 95, n), rng.choice(["a", "b"], n)
    days = rng.gamma(3.0, 2.0, n) + (age - 60) / 20 + 2 + (ward == "b")
    crp = pa.array(rng.lognormal(2, 1, n), mask=rng.random(n) < 0.3)
    return pa.table({"days": days, "age": age, "ward": ward, "crp": crp})


def release(site: str, study: str, table: pa.Table, out: str, *options: str) -> None:
    pq.write_table(table, f"{site}.parquet")
    done("site", "fit", site, study, f"{site}.parquet", *options)
    done("site", "release", site, "-o", out, answer="y\n")


def result(*arguments: str) -> dict:
    return json.loads(done("combine", *arguments, "-o", "model.json", "--overwrite", "--json").stdout)


def error_of_age(found: dict) -> float:
    return next(
        each["std_error"] for each in found["parameters"] if (each["part"], each["term"]) == ("expert", "(age - 60)/15")
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder in which three sites have released their files of a first wave."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    for seed, site in enumerate(FIRST):
        done("site", "init", site)
        release(site, "study.toml", patients(400, seed), f"{site}-2025.json", "--wave", "2025")
    return tmp_path


@pytest.mark.slow
def test_a_second_wave_has_more_patients_and_two_more_sites_and_scores_new_ones(place) -> None:
    first = result("study.toml", *(f"{site}-2025.json" for site in FIRST))
    later = ["north-2026.json", "south-2026.json", "west-2026.json", "east-2026.json", "isle-2026.json"]
    for seed, site in enumerate(FIRST):
        both = pa.concat_tables([patients(400, seed), patients(200, seed, first=400)])
        release(site, "study.toml", both, f"{site}-2026.json", "--wave", "2026", "--data-cut", "2026-06-30")
    refused = run("combine", "study.toml", "north-2025.json", *later[1:3], "--overwrite")
    assert "the files are of different waves (2025: north; 2026: south, west)" in str(refused.exception)
    for seed, site in enumerate(MORE, start=3):
        done("site", "init", site)
        release(site, "study.toml", patients(300, seed), f"{site}-2026.json", "--wave", "2026")
    roster = ['format = "consilience-roster"', "version = 1"]
    for site in (*FIRST, *MORE):
        roster += ["[[sites]]", f'name = "{site}"', f'key = "{done("site", "key", site).stdout.strip()}"']
    (place / "roster.toml").write_text("\n".join(roster))
    second = result("study.toml", *later, "--roster", "roster.toml", "--report", "report.md")
    rows = {line[0]: line[1:] for line in second["table_one"]["rows"]}
    assert second["table_one"]["header"][1:6] == ["east", "isle", "north", "south", "west"]
    assert rows["rows used"][:5] == ["300", "300", "600", "600", "600"]
    assert error_of_age(second) < error_of_age(first)
    new = patients(30, 9).to_pandas()
    new.loc[[4, 11], "ward"] = None
    new.to_csv("new.csv", index=False)
    said = done("predict", "model.json", "new.csv", "-o", "scored.parquet").stderr
    assert "2 of 30 rows have no prediction" in said
    scored = read_table("scored.parquet").to_pandas()
    assert scored.index[scored.prediction.isna()].tolist() == [4, 11]


@pytest.mark.slow
def test_a_sub_group_and_a_sub_study_are_studies_of_their_own_beside_the_main_one(place) -> None:
    (place / "older.toml").write_text(
        STUDY.replace('"stay"', '"stay, older"').replace(
            "[model]", 'cohort = [{column = "age", at_least = 50}]\n[model]'
        )
    )
    crp = '\n[[columns]]\nname = "crp"\nkind = "number"\nlow = 0\nhigh = 500\nmissing = "drop"\ntransform = "log1p"\n'
    (place / "crp.toml").write_text(STUDY.replace('"stay"', '"stay and CRP"') + crp)
    for seed, site in enumerate(FIRST):
        release(site, "older.toml", patients(400, seed), f"{site}-older.json")
        release(site, "crp.toml", patients(400, seed), f"{site}-crp.json")
    older = result("older.toml", *(f"{site}-older.json" for site in FIRST))
    rows = {line[0]: line[1:4] for line in older["table_one"]["rows"]}
    assert [int(n) for n in rows["rows used"]] == [np.sum(patients(400, i)["age"].to_numpy() >= 50) for i in range(3)]
    with_crp = result("crp.toml", *(f"{site}-crp.json" for site in FIRST))
    assert any("crp" in each["term"] for each in with_crp["parameters"])
    mixed = run("combine", "study.toml", "north-2025.json", "south-older.json", "--overwrite")
    assert "is for another study" in str(mixed.exception)
    nearly = STUDY.replace("[model]", 'cohort = [{column = "age", below = 94.5}]\n[model]')
    (place / "nearly.toml").write_text(nearly)
    refused = run("site", "fit", "north", "nearly.toml", "north.parquet")
    assert "differ from those of entry" in str(refused.exception)

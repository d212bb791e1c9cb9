"""What follows after a release, by the commands of docs/how-to/corrections.rst."""

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


# ---------------------------------------------------------------- a few corrected rows


def corrected(table: pa.Table) -> pa.Table:
    """Three ages with the digits in the right order."""
    age = table["age"].to_numpy().copy()
    age[[4, 90, 200]] = [54.0, 45.0, 81.0]
    return table.set_column(table.column_names.index("age"), "age", pa.array(age))


def allow_corrections(site: str, key: str) -> None:
    path = Path(site) / "policy.toml"
    path.write_text(path.read_text().replace('coordinator = ""', f'coordinator = "{key}"'))


@pytest.fixture
def mistaken(place):
    """A folder in which north has released its file, and found three mistakes in it."""
    pq.write_table(corrected(patients(500, 1)), "corrected.parquet")
    key = done("study", "key", "coordinator.pem").stdout.strip()
    assert key == done("study", "key", "coordinator.pem").stdout.strip()
    allow_corrections("north", key)
    done("site", "fit", "north", "study.toml", "north.parquet")
    release("north", "north.json")
    return place


def test_nothing_is_replaced_unless_the_policy_names_the_key_of_the_coordinator(place):
    release("north", "north.json")
    pq.write_table(corrected(patients(500, 1)), "corrected.parquet")
    found = run("site", "fit", "north", "study.toml", "corrected.parquet", "--replaces", 3)
    assert code(found) == "CSL-115"
    assert "[corrections] coordinator" in str(found.exception)
    assert [each["kind"] for each in ledger("north")][-1] == "refusal"


def test_a_few_corrected_rows_leave_after_the_coordinator_destroyed_the_earlier_file(mistaken):
    wrong = ledger("north")[-1]["number"]
    assert code(run("site", "fit", "north", "study.toml", "corrected.parquet")) == "CSL-115"
    done("site", "fit", "north", "study.toml", "corrected.parquet", "--replaces", wrong)
    shown = " ".join(done("site", "preview", "north").stdout.split())
    assert f"This fit replaces the release of entry {wrong} of the ledger" in shown
    assert "if the file was kept, the difference of both is the rows that were corrected" in shown
    early = run("site", "release", "north", "-o", "new.json", "--replaces", wrong, answer="y\n")
    assert "no notice says" in str(early.exception)
    assert "with the same --replaces" in str(run("site", "release", "north", "-o", "new.json", answer="y\n").exception)
    copy = (mistaken / "north.json").read_bytes()
    asked = done("study", "retract", "north.json", "--key", "coordinator.pem", "-o", "gone.json", answer="y\n")
    assert "no result was made of them" in asked.stderr
    assert not (mistaken / "north.json").exists()
    release("north", "new.json", "--replaces", wrong, "--notice", "gone.json")
    kinds = [each["kind"] for each in ledger("north")]
    assert kinds[-2:] == ["retraction", "release"]
    assert json.loads(ledger("north")[-2]["details"]["notice"])["content"]["files"][0]["site"] == "north"
    (mistaken / "north.json").write_bytes(copy)  # a coordinator who kept the file cannot combine it by mistake
    refused = run("combine", "study.toml", "north.json", "gone.json", "-o", "model.json")
    assert "was retracted" in str(refused.exception)
    older = STUDY.replace("[model]", 'cohort = [{column = "age", at_least = 40}]\n[model]')
    (mistaken / "older.toml").write_text(older)  # and later studies are compared with the corrected rows alone
    done("site", "fit", "north", "older.toml", "corrected.parquet")
    assert (
        code(run("site", "fit", "north", "study.toml", "north.parquet")) == "CSL-115"
    )  # the mistakes do not come back


def test_a_notice_of_somebody_else_or_on_another_file_releases_nothing(mistaken):
    wrong = ledger("north")[-1]["number"]
    done("site", "fit", "north", "study.toml", "corrected.parquet", "--replaces", wrong)
    copy = (mistaken / "north.json").read_bytes()
    done("study", "retract", "north.json", "--key", "stranger.pem", "-o", "forged.json", "--no-input")
    (mistaken / "north.json").write_bytes(copy)
    done("study", "retract", "north.json", "--key", "coordinator.pem", "-o", "gone.json", "--no-input")
    other = (mistaken / "gone.json").read_text().replace('"north"', '"south"')
    (mistaken / "changed.json").write_text(other)
    for notice, said in (("forged.json", "not signed with the key"), ("changed.json", "it was changed")):
        found = run("site", "release", "north", "-o", "new.json", "--replaces", wrong, "--notice", notice, answer="y\n")
        assert found.exit_code != 0
        assert said in str(found.exception)
        assert not (mistaken / "new.json").exists()
    assert "retraction" not in [each["kind"] for each in ledger("north")]


# ---------------------------------------------------------------- a site withdraws


@pytest.fixture
def three(place):
    """A folder in which three sites have released their files, and a roster with their keys."""
    roster = ['format = "consilience-roster"', "version = 1"]
    for seed, site in enumerate(("north", "south", "west"), start=1):
        if site != "north":
            pq.write_table(patients(500, seed), f"{site}.parquet")
            done("site", "init", site)
            done("site", "fit", site, "study.toml", f"{site}.parquet")
        release(site, f"{site}.json")
        roster += ["[[sites]]", f'name = "{site}"', f'key = "{done("site", "key", site).stdout.strip()}"']
    (place / "roster.toml").write_text("\n".join(roster))
    return place


def test_a_site_that_withdraws_is_left_out_and_the_report_names_it(three):
    asked = run("site", "withdraw", "south", "study.toml", "--reason", "it has to", "-o", "bye.json", answer="n\n")
    assert code(asked) == "CSL-116"
    done(
        "site", "withdraw", "south", "study.toml", "--reason", "the board asked for it", "-o", "bye.json", answer="y\n"
    )
    assert ledger("south")[-1]["kind"] == "withdrawal"
    day = json.loads((three / "bye.json").read_text())["content"]["day"]
    files = ["north.json", "south.json", "west.json", "bye.json"]
    done("combine", "study.toml", *files[:3], "-o", "with.json")
    said = done("combine", "study.toml", *files, "--roster", "roster.toml", "-o", "model.json", "--report", "r.md")
    assert f"south withdrew on {day}: nothing of it is used." in said.stderr
    report = (three / "r.md").read_text()
    assert f"south: it withdrew on {day}" in report
    assert "1 of 3 sites was left out" in report
    north_and_west = done("combine", "study.toml", "north.json", "west.json", "-o", "two.json", "--json")
    again = done("combine", "study.toml", *files, "-o", "model.json", "--overwrite", "--json")
    assert json.loads(again.stdout)["parameters"] == json.loads(north_and_west.stdout)["parameters"]


def test_a_site_that_withdrew_releases_nothing_more_for_the_study(three):
    reason = ("--reason", "the board asked for it", "--no-input")
    done("site", "withdraw", "south", "study.toml", *reason, "-o", "bye.json")
    assert "withdrew from the study" in str(run("site", "release", "south", "-o", "x.json", answer="y\n").exception)
    assert "withdrew from the study" in str(run("site", "fit", "south", "study.toml", "south.parquet").exception)
    done("site", "withdraw", "south", "study.toml", *reason, "-o", "again.json")
    assert (three / "again.json").read_bytes() == (three / "bye.json").read_bytes()
    (three / "other.toml").write_text(STUDY.replace('"stay"', '"another study"'))
    done("site", "fit", "south", "other.toml", "south.parquet")
    other = run("combine", "other.toml", "north.json", "bye.json", "-o", "model.json")
    assert "from another study" in str(other.exception)


def test_a_withdrawal_that_somebody_else_wrote_is_refused(three):
    done("site", "withdraw", "south", "study.toml", "--reason", "x", "--no-input", "-o", "bye.json")
    notice = json.loads((three / "bye.json").read_text())
    forged = {**notice, "envelope": {**notice["envelope"], "time": "2020-01-01T00:00:00Z"}}
    (three / "forged.json").write_text(json.dumps(forged))
    found = run("combine", "study.toml", "north.json", "south.json", "forged.json", "--roster", "roster.toml")
    assert code(found) == "CSL-122"

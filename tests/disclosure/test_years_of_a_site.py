"""The years of a site by its commands, and attacks by sums and differences of all that it has released.

The site releases for a study, a patient withdraws, rows are corrected, there are a sub-group, a sub-study and a second
wave. At each step the coordinator also asks for rows that differ from those of an earlier release by one patient. With
the rules these fits are refused, and no sum or difference of two or three files rests on few patients. Without them
each attack finds the stay of the patient.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.kit import folder, release, site_fit
from consilience.kit.differencing import Decision
from consilience.kit.folder import SiteFolder

RUNNER = CliRunner()
LIMIT = 50
STUDY = """
format = "consilience-study"
version = 1
name = "stay"
seed = 1
model = {response = "days", experts = [1]}

[[columns]]
name = "days"
kind = "number"
low = 0
high = 400

[[columns]]
name = "age"
kind = "number"
low = 18
high = 115
centre = 60
scale = 15
missing = "drop"
"""
FAR = (90.0, 111.0)
"""Stay and age of those whom the attacks look for: they are far from all others."""


def cohort(rule: str) -> str:
    return STUDY.replace("model =", f"cohort = [{{{rule}}}]\nmodel =")


def reading(column: str) -> str:
    return STUDY.replace('"stay"', f'"stay by {column}"') + (
        f'\n[[columns]]\nname = "{column}"\nkind = "number"\ncentre = 20\nscale = 10\nmissing = "drop"\n'
    )


def run(*arguments: object, answer: str | None = None):
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None):
    found = run(*arguments, answer=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def patients(n: int, seed: int, first: int = 0) -> pa.Table:
    """Rows of patients, of whom a third has no CRP; all but the first one, whom an attack looks for, have a weight."""
    rng = np.random.default_rng([seed, first])
    age, days = rng.uniform(20, 95, n), rng.gamma(3.0, 2.0, n)
    weight = pa.array(rng.uniform(50, 100, n), mask=np.arange(first, first + n) == 0)
    crp = pa.array(rng.uniform(1, 50, n), mask=rng.random(n) < 1 / 3)
    named = [f"p{i}" for i in range(first, first + n)]
    return pa.table({"days": days, "age": age, "crp": crp, "weight": weight, "patient": named})


def with_values(table: pa.Table, person: str, days: float, age: float) -> pa.Table:
    """The table in which one patient has another stay and age."""
    mask = pc.equal(table["patient"], person)
    for at, (name, value) in enumerate((("days", days), ("age", age))):
        table = table.set_column(at, name, pc.if_else(mask, value, table[name]))
    return table


def without(table: pa.Table, *people: str) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["patient"], pa.array(people))))


# ---------------------------------------------------------------------- the site and the coordinator


@dataclass
class Site:
    """A site that fits and releases by its commands, and what the coordinator has of it."""

    name: str
    files: dict[str, dict] = field(default_factory=dict)

    def fit(self, study: str, table: pa.Table, *options: str):
        Path("study-now.toml").write_text(study)
        pq.write_table(table, "table-now.parquet")
        return run("site", "fit", self.name, "study-now.toml", "table-now.parquet", *options)

    def release(self, step: str, study: str, table: pa.Table, *options: str) -> None:
        found = self.fit(study, table, *options)
        assert found.exit_code == 0, (step, found.output, found.exception)
        out = f"{self.name}-{step.replace(' ', '-')}.json"
        done("site", "release", self.name, "-o", out, "--overwrite", answer="y\n")
        self.files[step] = json.loads(Path(out).read_text())

    def attempt(self, step: str, study: str, table: pa.Table, *, protected: bool) -> None:
        """Release what a coordinator asks for who is after one patient: the rules refuse it."""
        if not protected:
            self.release(step, study, table)
            return
        found = self.fit(study, table)
        assert found.exception is not None, step
        assert found.exception.problem.value.code == "CSL-115", (step, found.exception)


def sums(file: dict) -> np.ndarray:
    """Number of rows, and the sums of the stay and of age, which a file discloses."""
    columns = file["content"]["columns"]
    return columns["rows"] * np.array([1.0, columns["response_means"][0], 60 + 15 * columns["covariate_means"][0]])


def membership(site: Site) -> np.ndarray:
    """Who is in which file, (patients, files), by the tags of patients that the site has kept."""
    folder = SiteFolder.open(site.name)
    tags = {each.details["content"]: each.details["people"] for each in folder.entries if each.kind == "release"}
    sets = [
        set(map(tuple, release.read_tags(folder, tags[file["hash"]]).tags.tolist())) for file in site.files.values()
    ]
    return np.array([[person in each for each in sets] for person in sorted(set().union(*sets))], dtype=int)


def attacks(site: Site) -> Iterator[tuple[set[str], int, np.ndarray]]:
    """Yield for each combination of two and three files the steps, the number of patients it rests on, and its sums."""
    steps, U = list(site.files), membership(site)
    known = np.array([sums(file) for file in site.files.values()])
    for many in (2, 3):
        for chosen in map(list, combinations(range(len(steps)), many)):
            for c in product((-2, -1, 1, 2), repeat=many):
                yield {steps[i] for i in chosen}, np.count_nonzero(U[:, chosen] @ c), np.array(c) @ known[chosen]


# ---------------------------------------------------------------------- the years


def year_one(site: Site, *, protected: bool) -> pa.Table:
    """Release, a withdrawal, a correction, a sub-group and a sub-study; return the table as it is then."""
    table = with_values(patients(800, 1), "p0", *FAR)
    site.release("main study", STUDY, table)
    site.attempt("a rule for one", cohort(f'column = "age", below = {FAR[1]}'), table, protected=protected)
    site.attempt("a column that one lacks", reading("weight"), table, protected=protected)
    fewer = without(table, "p0")
    site.attempt("one withdrew", STUDY, fewer, protected=protected)
    site.release("withdrawal", STUDY, fewer, "--leave-out-crowd")
    right = with_values(fewer, "p5", 4.0, 50.0)
    site.attempt("one is corrected", STUDY, right, protected=protected)
    site.release("correction", STUDY, right, "--leave-out-crowd")
    site.release("sub-group", cohort('column = "age", at_least = 45'), right)
    site.release("sub-study", reading("crp"), right)
    return right


def year_two(site: Site, table: pa.Table, *, protected: bool) -> None:
    """A second wave, before which the coordinator asks for one patient more."""
    one = with_values(patients(1, 1, first=5000), "p5000", *FAR)
    site.attempt("one came", STUDY, pa.concat_tables([table, one]), protected=protected)
    later = pa.concat_tables([table, one, patients(300, 1, first=6000)])
    site.release("second wave", STUDY, later, "--wave", "2026", "--data-cut", "2026-06-30")


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    """A site whose secret is fixed: the patient whose row is corrected could be in the crowd that stays out."""
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(folder.secrets, "token_bytes", lambda length: bytes(range(length)))
        done("site", "init", "north")
    path = tmp_path / "north" / "policy.toml"
    path.write_text(path.read_text().replace('column = ""', 'column = "patient"'))
    return Site("north")


ATTEMPTS = {"a rule for one", "a column that one lacks", "one withdrew", "one came"}


@pytest.mark.slow
def test_each_attack_finds_the_patient_without_the_rules(site: Site, monkeypatch) -> None:
    """Files are rounded: a sum over all rows is known to about a standard deviation of one row, which is 5 days."""
    monkeypatch.setattr(release, "decide", lambda *_, **__: Decision("allowed"))
    monkeypatch.setattr(site_fit, "find_crowd", lambda *_: None)
    table = year_one(site, protected=False)
    year_two(site, table, protected=False)
    found = set()
    for steps, rests_on, (_, days, _) in attacks(site):
        if rests_on == 1 and abs(abs(days) - FAR[0]) < 30:
            found |= steps
    assert found >= ATTEMPTS


@pytest.mark.slow
def test_no_pair_or_triple_of_releases_shows_anybody_with_the_rules(site: Site) -> None:
    table = year_one(site, protected=True)
    year_two(site, table, protected=True)
    assert set(site.files) == {"main study", "withdrawal", "correction", "sub-group", "sub-study", "second wave"}
    assert min(rests_on for _, rests_on, _ in attacks(site) if rests_on) >= LIMIT

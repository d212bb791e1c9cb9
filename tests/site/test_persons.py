"""Noise for persons: so many rows of each count, the noise is so many times as large, and nobody else's rows change."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience import Federation, MixtureOfRegressions, PrivateScoring
from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError
from consilience.fit.private_step import PublicStep
from consilience.kit.examination import examine_table
from consilience.kit.forecast import forecast_study
from consilience.kit.letters import RunFile
from consilience.kit.mail_run import draft_answer, finish_answer
from consilience.kit.private_rows import private_rows
from consilience.kit.site_fit import wanted_of
from consilience.kit.spending import charges_in, spent_in
from consilience.kit.study import Study
from consilience.messages import PrivateScores, decode, encode
from consilience.messages.table import receive
from consilience.model import Groups, Mixture, Rows
from consilience.model.contributions import private_total, total_sensitivity
from consilience.numerics.budget import noise_variance, rho_of
from consilience.site import Site, respond
from consilience.site.site import first_of_clusters
from contributing import drawn_rows, mixture_of
from mail_office import TABLES, Office, start, with_noise

RHO, EACH = Fraction(1, 20), 3


def problem(n: int = 90) -> tuple[Mixture, Rows, PrivateScores]:
    """Rows of 18 persons, some of whom stand at the same outlying place in all their rows."""
    rng = np.random.default_rng(4)
    mixture = mixture_of("gaussian-full", rng)
    step = PublicStep.at(mixture, rng.normal(size=(1500, 2)))
    found = drawn_rows("gaussian-full", mixture, n, rng)
    persons = rng.integers(18, size=n)
    X, Y = found.X.copy(), found.Y.copy()
    for person in range(6):
        X[persons == person], Y[persons == person] = X[person], 40.0 * (1 + person)
    return mixture, Rows(X, Y, clusters=Groups.of(persons)), PrivateScores(mixture, step.factor, step.clip, place=0)


def test_a_person_moves_the_sums_by_at_most_the_sensitivity_and_by_more_than_one_row_does():
    mixture, rows, question = problem()
    Delta, moved = total_sensitivity(mixture.parameter_count), []

    def total(of: Rows) -> np.ndarray:
        return np.array(
            private_total(mixture, first_of_clusters(of, EACH), question.factor, question.clip), dtype=object
        )

    whole = total(rows)
    for person in range(18):
        rest = rows.take(np.flatnonzero(rows.clusters.codes != person))
        moved.append(sum(int(each) ** 2 for each in whole - total(rest)))
    assert max(moved) <= (EACH * Delta) ** 2
    assert max(moved) > ((EACH - 0.5) * Delta) ** 2  # with the noise of a row, this person would be seen


def test_the_noise_of_a_site_is_that_of_a_person():
    mixture, rows, question = problem()
    site = Site("north", rows).private(RHO, 1, EACH)
    found = receive(respond(encode(question), site), question)
    assert found.variance == noise_variance(EACH * total_sensitivity(mixture.parameter_count), RHO)
    assert site.account.spent == RHO


def test_rows_of_other_persons_do_not_depend_on_a_person():
    _, rows, _ = problem()
    kept = rows.clusters.first_of_each(EACH)
    assert np.bincount(rows.clusters.codes[kept]).max() == EACH
    for person in range(18):
        others = rows.clusters.codes != person
        alone = Groups.of(rows.clusters.codes[others]).first_of_each(EACH)
        assert np.array_equal(kept[others], alone)


# ---------------------------------------------------------------- in process


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, 1 + X[:, 0] + rng.normal(size=n)


def test_a_fit_protects_the_clusters_of_its_rows():
    X, y = drawn(6000, 0)
    begin = MixtureOfRegressions(1).fit(*drawn(300, 1))
    method = PrivateScoring(8, unit="person", rows_each=2, covariates=drawn(1500, 2)[0])
    sites = {"north": {"X": X, "y": y, "clusters": np.arange(6000) // 3}}
    found = Federation(sites).fit(MixtureOfRegressions(1), method, start=begin)
    assert found.settled
    assert found.privacy.unit == "person with 2 rows"
    assert found.privacy.rho == rho_of(8, 1e-6)
    assert "for each person with 2 rows of a site" in str(found.privacy)


def test_files_of_rows_are_refused(tmp_path: Path):
    X, y = drawn(300, 0)
    table = pa.table({"x": X[:, 0], "y": y, "person": np.arange(300) // 2})
    parquet.write_table(table, tmp_path / "north.parquet")
    sites = Federation.from_parquet(str(tmp_path / "*.parquet"), target="y", features=["x"], clusters="person")
    method = PrivateScoring(8, unit="person", rows_each=2, covariates=X)
    with pytest.raises(InvalidInputError, match="for rows in memory"):
        sites.fit(MixtureOfRegressions(1), method, start=MixtureOfRegressions(1).fit(X, y))


@pytest.mark.parametrize(
    ("method", "part", "said"),
    [
        ({"unit": "person"}, {}, "pass the persons as clusters"),
        ({}, {"clusters": np.arange(300)}, "unit='person'"),
        ({"unit": "row", "rows_each": 2}, {}, "rows_each is for unit='person'"),
        ({"unit": "person", "rows_each": 0}, {}, "rows_each"),
        ({"unit": "group"}, {}, "pass groups=labels"),
        ({}, {"groups": np.arange(300) // 2}, "unit='group'"),
        ({"unit": "person"}, {"groups": np.arange(300) // 2, "clusters": np.arange(300) // 4}, "unit='group'"),
    ],
)
def test_what_cannot_be_protected_is_refused(method: dict, part: dict, said: str):
    X, y = drawn(300, 0)
    begin = MixtureOfRegressions(1).fit(X, y)
    with pytest.raises(InvalidInputError, match=said):
        Federation({"north": {"X": X, "y": y, **part}}).fit(
            MixtureOfRegressions(1), PrivateScoring(8, covariates=X, **method), start=begin
        )


# ---------------------------------------------------------------- by files


def persons_study(rows: int = 2) -> Study:
    return with_noise(f'epsilon = 3.0, unit = {{column = "patient", rows = {rows}}}')


def with_patients(table: pa.Table, of: int = 3) -> pa.Table:
    return table.append_column("patient", pa.array([f"p{i // of}" for i in range(table.num_rows)]))


def test_a_study_names_the_column_of_persons_and_rows_beyond_are_left_out():
    table = with_patients(TABLES["ash"])
    found = private_rows(persons_study(), table)
    assert found.rows.n == sum(min(2, table.num_rows - first) for first in range(0, table.num_rows, 3))
    assert found.rows.n + found.further == table.num_rows
    assert found.told == [f"{found.further:,} rows are left out, since enough rows of the same person count."]
    unnamed = table.set_column(table.column_names.index("patient"), "patient", pa.nulls(table.num_rows, pa.string()))
    assert private_rows(persons_study(), unnamed).rows.n == 2  # rows without a label are those of one person
    with pytest.raises(InvalidInputError, match="no column 'patient'"):
        private_rows(persons_study(), TABLES["ash"])
    assert not examine_table(TABLES["ash"], wanted_of(persons_study())).fits
    assert examine_table(table, wanted_of(persons_study())).fits
    with pytest.raises(InvalidInputError, match="listed among the columns"):
        with_noise('epsilon = 3.0, unit = {column = "age", rows = 2}')


def test_rows_that_are_left_out_for_another_reason_take_no_place():
    table = with_patients(TABLES["ash"])
    age = [None if i % 3 == 0 else value for i, value in enumerate(table["age"].to_pylist())]
    gaps = table.set_column(table.column_names.index("age"), "age", pa.array(age, pa.float64()))
    drops = STUDY.replace('name = "age"\n', 'name = "age"\nmissing = "drop"\n')
    found = private_rows(with_noise('epsilon = 3.0, unit = {column = "patient", rows = 2}', drops), gaps)
    assert found.dropped == -(-table.num_rows // 3)
    assert found.further == 0  # of three rows of a patient one is dropped, and the other two count
    assert found.rows.n + found.dropped == table.num_rows


def test_an_answer_by_files_is_charged_for_persons(tmp_path: Path):
    study = persons_study()
    tables = {name: with_patients(table) for name, table in TABLES.items()}
    office = Office(tmp_path, study, start=start(), tables=tables)
    office.advance()
    folder, letter = office.folders["ash"], office.latest("ash")
    finish_answer(folder, draft_answer(folder, study, tables["ash"], RunFile.read(office.mail), letter))
    details = charges_in(folder)[0].entry.details
    P = decode(letter.question).mixture.parameter_count
    assert details["unit"] == "person with 2 rows"
    assert details["sensitivity"] == 2 * total_sensitivity(P)
    assert details["variance"] == noise_variance(2 * total_sensitivity(P), rho_of(3.0, 1e-6) / 8)
    assert spent_in(folder) == rho_of(3.0, 1e-6) / 8


def test_the_forecast_counts_the_rows_of_a_person():
    row, one, four = (
        forecast_study(study, start()) for study in (with_noise("epsilon = 3.0"), persons_study(1), persons_study(4))
    )
    clip = row.ratio(20_000, 5, np.inf) ** 2
    of_noise = [each.ratio(20_000, 5) ** 2 - clip for each in (row, one, four)]
    assert of_noise[1] == of_noise[0]
    assert of_noise[2] == pytest.approx(16 * of_noise[0])

"""Letters on columns: what is counted, what the noise costs, and what the coordinator reads of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column, Rule
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import content_hash
from consilience.kit import table_letter
from consilience.kit.bands import band_labels, banded, fit_bands, places_in_bands
from consilience.kit.folder import SiteFolder
from consilience.kit.letter_comparison import LetterReader, compare_letters, table_of_letters
from consilience.kit.policy.policy import Policy
from consilience.kit.release import earlier_of
from consilience.kit.spending import NOISE, budget_document, budget_text, charges_in, spent_in
from consilience.kit.study import Study
from consilience.kit.table_letter import (
    RHO,
    CountedRows,
    TableLetter,
    draft_letter,
    draw_letter,
    is_table_letter,
    letter_columns,
    letter_pairs,
    letter_variances,
)
from hospital_exports import NAMES, STUDY, related

LOS = Study.from_text(STUDY)


def arrow(table: dict) -> pa.Table:
    return pa.table({name: pa.array(list(values), from_pandas=True) for name, values in table.items()})


@pytest.fixture
def silent(monkeypatch):
    """Counts without noise."""
    monkeypatch.setattr(table_letter, "discrete_gaussian", lambda variance, size, _: [0] * size)


def letter(name: str, table: dict, study: Study = LOS) -> TableLetter:
    return draw_letter(study, name, CountedRows.of(study, arrow(table)), "row")


# ---------------------------------------------------------------- bands


def test_each_row_is_in_one_band_of_each_column() -> None:
    table = related(0, 300)
    table["age"][:3] = [5.0, 999.0, None]
    rows = CountedRows.of(LOS, arrow({**table, "sex": ["x", None, *table["sex"][2:]]}))
    for column in rows.columns:
        assert sum(rows.counts(column)) == 300
    age, sex = (next(each for each in rows.columns if each.name == name) for name in ("age", "sex"))
    assert dict(zip(band_labels(age), rows.counts(age), strict=True))["no value"] == 1
    assert dict(zip(band_labels(sex), rows.counts(sex), strict=True))["another value"] == 1


def test_cells_are_read_each_by_itself_as_text_as_in_numbers() -> None:
    crp = banded(next(column for column in LOS.covariates.columns if column.name == "crp"))
    numbers = pa.array([0.0, 3.2, 80.0, None, -4.0])
    found = places_in_bands(crp, numbers)
    np.testing.assert_array_equal(places_in_bands(crp, pa.array(["0", "3.2", "8e1", None, "-4"])), found)
    words = places_in_bands(crp, pa.array(["0", "high", "80.0", None, "-4"]))
    assert band_labels(crp)[words[1]] == "not a number"
    np.testing.assert_array_equal(np.delete(words, 1), np.delete(found, 1))
    assert found[4] == 0  # below the domain of the logarithm


def test_a_number_without_centre_and_range_has_no_bands_and_is_named(tmp_path) -> None:
    study = Study.from_text(STUDY + '\n[[columns]]\nname = "weight"\nkind = "number"\n')
    assert banded(Column("weight")) is None
    assert "weight" not in [column.name for column in letter_columns(study)]
    table = arrow({**related(0, 300), "weight": np.full(300, 70.0)})
    draft = draft_letter(site_at(tmp_path), study, table)
    assert "weight is not in it: the study states neither centre and scale nor low and high" in "\n".join(draft.said)


@pytest.mark.parametrize("factor", [0.1, 1.0, 7.0, 12.0])
def test_moments_are_found_far_from_the_centre_too(factor) -> None:
    age = Column("age", rule=Rule("years", 0.0, 1000.0, centre=65.0, scale=15.0))
    values = np.random.default_rng(0).normal(65, 15, 2000) * factor
    counts = np.bincount(places_in_bands(age, pa.array(values)), minlength=len(band_labels(age))).astype(float)
    noise = np.random.default_rng(1).normal(0, 17, len(counts))
    moments, errors = fit_bands(age, counts + noise, 17.0**2)
    assert moments[0] == pytest.approx(65 * factor, rel=0.1, abs=6)
    assert errors[0] < 0.1


# ---------------------------------------------------------------- what it costs


def test_the_noise_of_bands_and_pairs_costs_rho_together() -> None:
    columns, pairs = letter_columns(LOS), letter_pairs(LOS)
    of_bands, of_pairs = letter_variances(len(columns), len(pairs))
    spent = Fraction(len(columns) + 1, 2 * of_bands) + Fraction(len(pairs), 2 * of_pairs)
    assert RHO * Fraction(99, 100) < spent <= RHO


def test_one_row_moves_the_counts_by_what_the_noise_is_for() -> None:
    """The sensitivity: over all rows that could be added, the counts and pairs move by no more than is charged."""
    table = related(0, 300)
    before = CountedRows.of(LOS, arrow(table))
    pairs, middles = letter_pairs(LOS), dict.fromkeys(("los_days", "age", "charlson", "crp"), 5)
    middles |= {"sex": 1, "admission": 1}
    rng = np.random.default_rng(0)
    largest = [0, 0]
    for _ in range(40):
        row = {
            "los_days": rng.uniform(-5, 500),
            "age": rng.choice([None, -1e9, 1e9, 60.0]),
            "charlson": rng.uniform(0, 20),
            "crp": rng.choice([None, 0.0, 1e6]),
            "sex": rng.choice(["male", "female", "other", None]),
            "admission": rng.choice(["planned", "emergency", None]),
        }
        after = CountedRows.of(LOS, arrow({name: [*values, row[name]] for name, values in table.items()}))
        bands = [n - m for column in before.columns
                 for n, m in zip(after.counts(column), before.counts(column), strict=True)]  # fmt: skip
        moved = [after.excess(pair, middles) - before.excess(pair, middles) for pair in pairs]
        largest = [max(largest[0], sum(each**2 for each in bands) + 1), max(largest[1], sum(each**2 for each in moved))]
    assert largest == [len(before.columns) + 1, len(pairs)]


def site_at(parent, people: str = "", allow: tuple[str, ...] = ("noise", "limits")) -> SiteFolder:
    tables = {"format": "consilience-policy", "version": 1, "profile": "hospital", "people": {"column": people}}
    policy = Policy.from_tables({**tables, "privacy": {"allow": list(allow)}})
    return SiteFolder.init("north", policy.to_text(), parent)


def test_a_letter_is_charged_once_and_the_same_rows_give_the_same_bytes(tmp_path) -> None:
    folder, table = site_at(tmp_path), arrow(related(0, 300))
    first = draft_letter(folder, LOS, table, approved_by="A. Person")
    assert first.is_new
    assert spent_in(folder) == 0
    data = first.write()
    assert [each.kind for each in folder.entries] == ["init", "charge", "check"]
    assert spent_in(folder) == RHO
    order = np.random.default_rng(0).permutation(300)
    again = draft_letter(folder, LOS, table.take(order))
    assert (again.is_new, again.write()) == (False, data)
    assert len(charges_in(folder)) == 1
    other = draft_letter(folder, LOS, table.slice(1))
    assert other.is_new
    other.write()
    assert spent_in(folder) == 2 * RHO
    assert folder.entries[-1].details["way"] == NOISE
    assert "letter on columns" in budget_text(budget_document(folder, Policy.from_text(folder.policy).privacy))


def test_a_letter_stands_in_the_way_of_no_release(tmp_path) -> None:
    folder = site_at(tmp_path)
    draft_letter(folder, LOS, arrow(related(0, 300))).write()
    assert earlier_of(folder) == []


def test_a_site_without_noise_in_its_policy_or_without_budget_writes_none(tmp_path) -> None:
    with pytest.raises(RefusedError, match='add "noise" to allow'):
        draft_letter(site_at(tmp_path / "one", allow=("limits",)), LOS, arrow(related(0, 300)))
    folder = site_at(tmp_path / "two")
    path = folder.path / "policy.toml"
    path.write_text(path.read_text().replace("max_epsilon_ever = 8.0", "max_epsilon_ever = 1.2"))
    draft_letter(folder, LOS, arrow(related(0, 300))).write()
    with pytest.raises(RefusedError, match="max_epsilon_ever"):
        draft_letter(folder, LOS, arrow(related(1, 300)))
    assert len(charges_in(folder)) == 1


def test_of_a_person_the_first_row_counts(tmp_path, silent) -> None:
    table = related(0, 300)
    table["patient"] = [f"p{i // 3}" for i in range(300)]
    draft = draft_letter(site_at(tmp_path, people="patient"), LOS, arrow(table))
    assert "private for one person, by the first row of each in column 'patient'" in draft.said[-2]
    found = TableLetter.from_text(draft.write().decode())
    assert (found.rows, found.unit) == (100, "person")
    for bands in found.bands.values():
        assert sum(n for _, n in bands) == 100


def test_rows_outside_of_the_cohort_are_not_counted(silent) -> None:
    older = Study.from_text(STUDY.replace("[model]", 'cohort = [{column = "age", at_least = 70}]\n[model]'))
    table = related(0, 300)
    assert letter("north", table, older).rows == np.sum(table["age"] >= 70)


# ---------------------------------------------------------------- the file


def test_a_letter_is_read_as_it_was_written_and_a_changed_one_is_refused() -> None:
    written = letter("north", related(0, 300))
    text = written.to_text()
    found = TableLetter.from_text(text)
    assert is_table_letter(text)
    assert (found.content, found.hash) == (written.content, written.hash)
    with pytest.raises(InvalidInputError, match="does not have the hash"):
        TableLetter.from_text(text.replace('"north"', '"south"'))
    for change in ({"rows": 1.5}, {"rows": 2**50}, {"unit": "city"}, {"columns": [{"name": "age"}]}, {"more": 1}):
        document = json.loads(text)
        document["content"] |= change
        document["hash"] = content_hash(document["content"])
        with pytest.raises(InvalidInputError, match="not a valid consilience table letter"):
            TableLetter.from_text(json.dumps(document))


def test_a_letter_of_another_study_or_with_other_bands_is_refused() -> None:
    one, two = letter("a", related(0, 300)), letter("b", related(1, 300))
    other = Study.from_text(STUDY.replace("centre = 65", "centre = 60"))
    with pytest.raises(InvalidInputError, match="for another study"):
        compare_letters(other, [one, two])
    with pytest.raises(InvalidInputError, match="two letters of a"):
        compare_letters(LOS, [one, replace(two, site="a")])
    with pytest.raises(InvalidInputError, match="does not have the bands of the study"):
        compare_letters(LOS, [one, replace(two, bands={**two.bands, "age": two.bands["age"][1:]})])
    with pytest.raises(InvalidInputError, match="does not have the bands of the study"):
        compare_letters(LOS, [one, replace(two, middles={**two.middles, "age": 99})])


# ---------------------------------------------------------------- what the coordinator reads


def test_table_one_has_about_the_moments_and_shares_of_the_tables() -> None:
    tables = [related(i) for i in range(4)]
    found = table_of_letters(LOS, [letter(name, table) for name, table in zip(NAMES, tables, strict=True)])
    rows = {row.label: row for row in found.rows}
    for at, table in enumerate(tables):
        mean, spread = (float(each.rstrip(")")) for each in rows["age, years: mean (SD)"].values[at].split(" ("))
        assert mean == pytest.approx(table["age"].astype(float).mean(), abs=6)
        assert spread == pytest.approx(table["age"].astype(float).std(), rel=0.4)
        share = float(rows["sex male: n (%)"].values[at].split("(")[1].split()[0])
        assert share == pytest.approx(100 * np.mean(table["sex"] == "male"), abs=10)
    assert {each[-1] for each in rows["rows: about"].values} == {"0"}  # digits that are noise are not shown


ERRORS = {
    "CRP off by ten": ("crp", lambda table: table["crp"].astype(float) / 10, 10.0),
    "hours for days": ("los_days", lambda table: table["los_days"].astype(float) * 24, 1 / 24),
    "months for years": ("age", lambda table: table["age"].astype(float) * 12, 1 / 12),
    "swapped levels": ("sex", lambda table: np.where(table["sex"] == "male", "female", "male"), None),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_a_column_is_named_with_site_and_factor_in_most_draws(error) -> None:
    column, wrong, factor = ERRORS[error]
    named, others = Counter(), 0
    for draw in range(5):
        tables = {name: related(10 * draw + i) for i, name in enumerate(NAMES)}
        assert len(compare_letters(LOS, [letter(*each) for each in tables.items()])) <= 1
        tables["boston"] = {**tables["boston"], column: wrong(tables["boston"])}
        for each in compare_letters(LOS, [letter(*each) for each in tables.items()]):
            is_it = (each.site, each.column) == ("boston", column)
            right = each.what == "swapped" if factor is None else each.factor == pytest.approx(factor, rel=1e-3)
            named[is_it and right] += 1
            others += not is_it
    assert named[True] >= 4
    assert others <= 1


def test_correlations_are_those_of_the_columns_without_noise(silent) -> None:
    table = related(3, 20_000)
    found = LetterReader(LOS, letter("north", table)).columns.relations
    at = {name: i for i, name in enumerate(found.columns)}
    age, charlson = (table[name].astype(float) for name in ("age", "charlson"))
    expected = np.arctanh(np.corrcoef(age, charlson)[0, 1])
    assert found.values[at["age"], at["charlson"]] == pytest.approx(expected, abs=0.06)
    assert np.sign(found.values[at["age"], at["sex"]]) == np.sign(np.corrcoef(age, table["sex"] == "male")[0, 1])
    assert found.shares[at["sex"]] == pytest.approx(np.mean(table["sex"] == "male"), abs=0.01)

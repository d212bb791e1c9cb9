"""Attacks by the difference of two releases: they recover a row without the rule, and are refused with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column
from consilience.errors import InvalidInputError
from consilience.kit.differencing import Earlier, decide
from consilience.kit.examination import UsedRows
from consilience.kit.folder import SiteFolder
from consilience.kit.release import decide_for_site, earlier_of, read_release, record_release
from consilience.kit.site_fit import examine_for_study, few_filled, site_file, wanted_of
from consilience.kit.study import Study

MIN_ROWS = 10
TEXT = """
format = "consilience-study"
version = 1
name = "stay"
seed = 1
model = {response = "days", experts = [1]}
minimum = {rows = 20}

[[columns]]
name = "days"
kind = "number"
low = 0
high = 400

[[columns]]
name = "age"
kind = "number"
low = 18
high = 110
"""
EXTRA = '\n[[columns]]\nname = "weight"\nkind = "number"\nmissing = "drop"\n'
STUDY = Study.from_text(TEXT)
RENAMED = Study.from_text(TEXT.replace('"stay"', '"stay again"'))
NARROWER = Study.from_text(TEXT.replace("high = 110", "high = 104"))
WIDER = Study.from_text(TEXT + EXTRA)


def table(n: int = 200, seed: int = 3) -> pa.Table:
    """Rows of which the first is that of the oldest person, whose weight is not known."""
    rng = np.random.default_rng(seed)
    age = np.r_[105.0, rng.uniform(20, 100, n - 1)]
    weight = [None, *rng.uniform(50, 100, n - 1)]
    return pa.table({"days": rng.gamma(3.0, 2.0, n), "age": age, "weight": weight})


ROWS = table()
TARGET = np.array([ROWS["days"][0].as_py(), ROWS["age"][0].as_py()])
STRANGER = table(1, seed=9)


@dataclass(frozen=True)
class Releasing:
    """A site that releases its file for a study, with the rule against differences or without it."""

    folder: SiteFolder
    has_rule: bool
    people: str = ""

    def __call__(self, study: Study, rows: pa.Table) -> tuple[str, bytes | str]:
        """Return the outcome, and what leaves or why nothing does."""
        used = UsedRows.of(rows, wanted_of(study).columns, self.folder.secret, self.people)
        head = self.folder.entries[-1].hash
        if self.has_rule:
            found = decide_for_site(self.folder, study.identity, used, MIN_ROWS)
            if found.outcome == "refused":
                return "refused", found.said
            if found.outcome == "stored":
                return "stored", read_release(self.folder, found.entry)
        data = site_file(study, self.folder.name, rows).to_text().encode()
        record_release(self.folder, "release", study.identity, used.tags, data, people=used.people_tags, head=head)
        return "allowed", data


@pytest.fixture
def guarded(tmp_path: Path) -> Releasing:
    return Releasing(SiteFolder.init("north", "", tmp_path), has_rule=True)


@pytest.fixture
def unguarded(tmp_path: Path) -> Releasing:
    return Releasing(SiteFolder.init("south", "", tmp_path), has_rule=False)


def sums(data: bytes) -> np.ndarray:
    """Return the sums of the response and the age that a released file discloses."""
    columns = json.loads(data)["content"]["columns"]
    means = [columns["response_means"][0], columns["covariate_means"][0]]
    return columns["rows"] * np.array(means)


ATTACKS = {
    "removed": (STUDY, ROWS.slice(1)),
    "removed, by a new study name": (RENAMED, ROWS.slice(1)),
    "removed, by a changed range": (NARROWER, ROWS.slice(1)),
    "left out, by a column with a missing value": (WIDER, ROWS),
}


@pytest.mark.parametrize(("study", "rows"), ATTACKS.values(), ids=ATTACKS)
class TestOneRowLess:
    def test_the_attack_succeeds_without_the_rule(self, unguarded, study, rows):
        _, before = unguarded(STUDY, ROWS)
        outcome, after = unguarded(study, rows)
        assert outcome == "allowed"
        np.testing.assert_allclose(sums(before) - sums(after), TARGET, rtol=1e-9)

    def test_the_attack_is_refused_with_the_rule(self, guarded, study, rows):
        assert guarded(STUDY, ROWS)[0] == "allowed"
        outcome, said = guarded(study, rows)
        assert outcome == "refused"
        assert "entry 2 of the ledger" in said
        assert "wait until at least 10 rows" in said
        assert len(earlier_of(guarded.folder)) == 1

    def test_the_attack_is_refused_in_the_other_order(self, guarded, study, rows):
        assert guarded(study, rows)[0] == "allowed"
        assert guarded(STUDY, ROWS)[0] == "refused"


def test_a_changed_range_makes_the_site_remove_the_row_and_never_selects_it():
    assert not examine_for_study(NARROWER, ROWS).fits
    assert examine_for_study(NARROWER, ROWS.slice(1)).fits


def test_an_added_row_is_recovered_without_the_rule_and_refused_with_it(guarded, unguarded):
    _, before = unguarded(STUDY, ROWS.slice(1))
    _, after = unguarded(STUDY, ROWS)
    np.testing.assert_allclose(sums(after) - sums(before), TARGET, rtol=1e-9)
    assert guarded(STUDY, ROWS.slice(1))[0] == "allowed"
    assert guarded(STUDY, ROWS)[0] == "refused"


def test_a_swapped_row_is_recovered_by_who_knows_the_other_and_refused_with_the_rule(guarded, unguarded):
    swapped = pa.concat_tables([STRANGER.cast(ROWS.schema), ROWS.slice(1)])
    known = np.array([STRANGER["days"][0].as_py(), STRANGER["age"][0].as_py()])
    _, before = unguarded(STUDY, ROWS)
    _, after = unguarded(STUDY, swapped)
    np.testing.assert_allclose(sums(before) - sums(after) + known, TARGET, rtol=1e-9)
    assert guarded(STUDY, ROWS)[0] == "allowed"
    assert guarded(STUDY, swapped)[0] == "refused"


def test_a_corrected_value_is_a_swapped_row(guarded):
    assert guarded(STUDY, ROWS)[0] == "allowed"
    age = ROWS["age"].to_numpy().copy()
    age[5] += 0.5
    assert guarded(STUDY, ROWS.set_column(1, "age", pa.array(age)))[0] == "refused"


def test_the_same_rows_in_another_order_return_the_stored_bytes(guarded):
    _, first = guarded(STUDY, ROWS)
    order = np.random.default_rng(0).permutation(ROWS.num_rows)
    outcome, again = guarded(STUDY, ROWS.take(order).select(["age", "weight", "days"]))
    assert (outcome, again) == ("stored", first)
    assert len(guarded.folder.entries) == 2


def test_the_same_rows_for_another_study_are_allowed(guarded):
    assert guarded(STUDY, ROWS)[0] == "allowed"
    assert guarded(RENAMED, ROWS)[0] == "allowed"


@pytest.mark.parametrize("many", [1, 9, 10, 50])
def test_the_limit_is_min_rows(guarded, many):
    assert guarded(STUDY, ROWS)[0] == "allowed"
    assert guarded(STUDY, ROWS.slice(many))[0] == ("refused" if many < MIN_ROWS else "allowed")


@pytest.mark.parametrize("many", [1, 4])
def test_refusals_say_the_same_whatever_the_number_of_rows_and_no_value(guarded, many):
    guarded(STUDY, ROWS)
    said = guarded(STUDY, ROWS.slice(many))[1]
    assert said == guarded(STUDY, ROWS.slice(many + 1))[1]
    assert "105" not in said
    assert str(ROWS.num_rows) not in said


def test_a_table_that_lacks_an_earlier_column_is_refused_unless_its_number_of_rows_is_far_off(guarded):
    assert guarded(WIDER, ROWS)[0] == "allowed"
    fewer = ROWS.select(["days", "age"])
    outcome, said = guarded(STUDY, fewer)
    assert (outcome, "lacks columns that were read there: 'weight'" in said) == ("refused", True)
    assert guarded(STUDY, fewer.slice(20))[0] == "allowed"


def test_every_earlier_release_counts_and_not_only_the_last(guarded):
    assert guarded(STUDY, ROWS)[0] == "allowed"
    assert guarded(STUDY, ROWS.slice(0, 100))[0] == "allowed"
    assert guarded(STUDY, ROWS.slice(1))[0] == "refused"
    assert guarded(STUDY, ROWS.slice(0, 99))[0] == "refused"


def test_a_run_counts_as_a_release_and_has_no_bytes_to_return(guarded):
    used = UsedRows.of(ROWS, wanted_of(STUDY).columns, guarded.folder.secret)
    record_release(guarded.folder, "run", STUDY.identity, used.tags)
    assert guarded(STUDY, ROWS.slice(1))[0] == "refused"
    assert guarded(STUDY, ROWS)[0] == "allowed"


def test_a_column_recoded_in_all_rows_is_refused_unless_people_state_that_they_are_others(guarded):
    assert guarded(STUDY, ROWS)[0] == "allowed"
    recoded = ROWS.set_column(1, "age", pa.array(ROWS["age"].to_numpy() - 0.25)).slice(1)
    used = UsedRows.of(recoded, wanted_of(STUDY).columns, guarded.folder.secret)
    found = decide_for_site(guarded.folder, STUDY.identity, used, MIN_ROWS)
    assert (found.outcome, found.entry) == ("refused", 2)
    assert "no row of entry 2 of the ledger is found again" in found.said
    assert "--other-people" in found.said
    assert decide_for_site(guarded.folder, STUDY.identity, used, MIN_ROWS, other_people=True).outcome == "allowed"
    fewer = UsedRows.of(ROWS.slice(1), wanted_of(STUDY).columns, guarded.folder.secret)  # a statement against the rows
    assert decide_for_site(guarded.folder, STUDY.identity, fewer, MIN_ROWS, other_people=True).outcome == "refused"


def test_changed_or_missing_tags_and_releases_stop_everything(guarded):
    guarded(STUDY, ROWS)
    (kept,) = (guarded.folder.path / "releases").iterdir()
    kept.write_bytes(kept.read_bytes() + b" ")
    with pytest.raises(InvalidInputError, match="does not have the hash"):
        guarded(STUDY, ROWS)
    (tags,) = (guarded.folder.path / "tags").iterdir()
    data = tags.read_bytes()
    tags.write_bytes(data[:-16] + bytes([255]) * 16)
    with pytest.raises(InvalidInputError, match="does not have the hash"):
        guarded(STUDY, ROWS.slice(1))
    tags.unlink()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        guarded(STUDY, ROWS.slice(1))


def test_two_processes_cannot_both_release_what_each_alone_may(guarded):
    head = guarded.folder.entries[-1].hash
    one, two = (UsedRows.of(rows, wanted_of(STUDY).columns, guarded.folder.secret) for rows in (ROWS, ROWS.slice(1)))
    record_release(guarded.folder, "release", STUDY.identity, one.tags, b"one", head=head)
    with pytest.raises(InvalidInputError, match="decide again"):
        record_release(guarded.folder, "release", STUDY.identity, two.tags, b"two", head=head)


def test_min_rows_is_at_least_one():
    used = UsedRows.of(ROWS, [Column("age")], bytes(32))
    with pytest.raises(InvalidInputError, match="min_rows=0"):
        decide("sha256:a", used, [Earlier(1, "sha256:a", ("age",), 200, lambda: used.tags)], 0)


# ---------------------------------------------------------------------- several releases together


def dropping(*names: str) -> Study:
    """A study that drops rows in which one of these columns is missing."""
    columns = "".join(f'\n[[columns]]\nname = "{name}"\nkind = "number"\nmissing = "drop"\n' for name in names)
    return Study.from_text(TEXT.replace('"stay"', f'"stay by {" and ".join(names) or "nothing"}"') + columns)


def incomplete(n: int = 400, both: int = 1) -> pa.Table:
    """Rows of which 60 lack one column, 60 another one, and the first ``both``, of the oldest people, lack both."""
    rng = np.random.default_rng(4)
    hidden = np.zeros((n, 2), dtype=bool)
    hidden[both : both + 60, 0], hidden[both + 60 : both + 120, 1], hidden[:both] = True, True, True
    values = {
        name: pa.array(rng.uniform(50, 100, n), mask=mask) for name, mask in zip(("bmi", "crp"), hidden.T, strict=True)
    }
    age = np.r_[105.0, rng.uniform(20, 100, n - 1)]
    return pa.table({"days": rng.gamma(3.0, 2.0, n), "age": age, **values, "patient": [f"p{i}" for i in range(n)]})


FOUR = [dropping(), dropping("bmi"), dropping("crp"), dropping("bmi", "crp")]


def test_four_studies_single_out_the_one_who_lacks_two_values_without_the_rule(unguarded):
    rows = incomplete()
    everybody, bmi, crp, both = (sums(unguarded(study, rows)[1]) for study in FOUR)
    target = np.array([rows["days"][0].as_py(), rows["age"][0].as_py()])
    np.testing.assert_allclose(everybody - bmi - crp + both, target, rtol=1e-8)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_four_studies_together_are_refused(guarded, order):
    rows = incomplete()
    outcomes = [guarded(FOUR[place], rows) for place in order]
    assert [outcome for outcome, _ in outcomes] == ["allowed"] * 3 + ["refused"]
    assert "earlier releases together" in outcomes[-1][1]


@pytest.mark.parametrize("many", [9, 10, 40])
def test_four_studies_are_allowed_if_enough_people_lack_both_values(guarded, many):
    outcomes = [guarded(study, incomplete(both=many))[0] for study in FOUR]
    assert outcomes[:3] == ["allowed"] * 3
    assert outcomes[3] == ("refused" if many < MIN_ROWS else "allowed")


def test_the_rule_counts_rows_that_have_left_the_table(guarded):
    rows = incomplete()
    assert [guarded(study, rows)[0] for study in FOUR[:2]] == ["allowed"] * 2
    assert guarded(FOUR[2], rows.slice(1))[0] == "allowed"  # without the target, who lacks the column as well
    assert guarded(FOUR[3], rows.slice(1))[0] == "refused"


@pytest.mark.parametrize("seed", range(5))
def test_honest_subgroups_are_allowed(guarded, seed):
    rng, rows = np.random.default_rng(seed), incomplete()
    for number in range(4):  # studies of random halves, which overlap in about a quarter of the rows
        chosen = rows.filter(pa.array(rng.random(rows.num_rows) < 0.5))
        renamed = Study.from_text(TEXT.replace('"stay"', f'"half {number}"'))
        assert guarded(renamed, chosen)[0] == "allowed"


# ---------------------------------------------------------------------- people


def by_patient(path: Path) -> Releasing:
    return Releasing(SiteFolder.init("east", "", path), has_rule=True, people="patient")


def recoded(rows: pa.Table, some: slice = slice(None)) -> pa.Table:
    age = rows["age"].to_numpy().copy()
    age[some] -= 0.25
    return rows.set_column(1, "age", pa.array(age))


@pytest.mark.parametrize("some", [slice(None), slice(0, 200)], ids=["all rows", "a part of the rows"])
def test_who_left_is_seen_by_person_although_a_column_was_recoded(tmp_path, unguarded, some):
    rows = incomplete()
    later = recoded(rows, some).slice(1)
    site = by_patient(tmp_path)
    assert site(STUDY, rows)[0] == "allowed"
    outcome, said = site(RENAMED, later)
    assert outcome == "refused"
    assert "fewer than 10 rows" in said
    before, after = (sums(unguarded(study, each)[1]) for study, each in ((STUDY, rows), (RENAMED, later)))
    shift = 0.25 * (len(range(*some.indices(rows.num_rows))) - 1)
    target = np.array([rows["days"][0].as_py(), rows["age"][0].as_py()])
    np.testing.assert_allclose(before - after - [0, shift], target, rtol=1e-8)


def test_the_same_people_with_a_recoded_column_are_allowed_without_a_statement(tmp_path):
    site, rows = by_patient(tmp_path), incomplete()
    assert site(STUDY, rows)[0] == "allowed"
    assert site(RENAMED, recoded(rows))[0] == "allowed"
    assert site(RENAMED, recoded(rows, slice(0, 4)))[0] == "refused"  # four corrected rows


def test_a_person_with_many_rows_counts_once(tmp_path):
    rows = incomplete()
    owners = pa.array([f"p{max(i - 60, 0)}" for i in range(rows.num_rows)])
    shared = rows.set_column(rows.column_names.index("patient"), "patient", owners)
    site = by_patient(tmp_path)
    assert site(STUDY, shared)[0] == "allowed"
    assert site(RENAMED, shared.slice(61))[0] == "refused"  # 61 rows of one person
    assert site(RENAMED, shared.slice(80))[0] == "allowed"


def test_a_table_without_the_column_of_people_is_refused_with_what_to_do(tmp_path):
    site, rows = by_patient(tmp_path), incomplete()
    with pytest.raises(InvalidInputError, match="the table lacks it: export it too"):
        site(STUDY, rows.drop_columns(["patient"]))
    empty = rows.set_column(4, "patient", pa.array([None, *rows["patient"].to_pylist()[1:]]))
    with pytest.raises(InvalidInputError, match="is empty in 1 rows"):
        site(STUDY, empty)


# ---------------------------------------------------------------------- values that a study fills in


def filling(value: int) -> Study:
    column = f'\n[[columns]]\nname = "bmi"\nkind = "number"\nmissing = "fill"\nfill = {value}\n'
    return Study.from_text(TEXT.replace('"stay"', f'"stay {value}"') + column)


def test_two_values_to_fill_in_show_who_lacks_one_without_the_rule(unguarded):
    rows = incomplete(both=1).select(["days", "age", "bmi"])
    few = rows.set_column(2, "bmi", pa.array([None, *np.full(rows.num_rows - 1, 20.0)]))
    found = [json.loads(unguarded(filling(value), few)[1])["content"]["columns"] for value in (8, 9)]
    products = [np.array(each["covariate_products"]) for each in found]
    means = [np.array(each["covariate_means"]) for each in found]
    full = [P + few.num_rows * np.outer(m, m) for P, m in zip(products, means, strict=True)]
    assert (full[1] - full[0])[0, 1] == pytest.approx(105.0, rel=1e-6)  # the age of the one who lacks the value


@pytest.mark.parametrize(("many", "refused"), [(0, False), (1, True), (9, True), (10, False)])
def test_few_values_are_not_filled_in(many, refused):
    rows = ROWS.set_column(2, "bmi", pa.array([*[None] * many, *np.full(ROWS.num_rows - many, 20.0)]))
    assert bool(few_filled(filling(8), rows, MIN_ROWS)) == refused

"""Runs with noise by files: the budget in the ledger, rows that do not fit, and nothing else that leaves."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from consilience.data.tables import read_table
from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import bytes_hash
from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import RunFile
from consilience.kit.mail_folder import answer_name
from consilience.kit.mail_run import begin_by_files, draft_answer, finish_answer
from consilience.kit.mapping import MappedColumn, TableMapping, read_mapped
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import private_rows
from consilience.kit.row_tags import row_tags
from consilience.kit.site_fit import site_file, validate_rows
from consilience.kit.spending import charges_in, spent_in
from consilience.kit.study import Study
from consilience.messages import LogLikelihood, NoisySums, PrivateScores, Several, Summarise, decode, encode
from consilience.model.contributions import total_sensitivity
from consilience.numerics.budget import noise_variance, rho_of
from consilience.report.verdict import verdict
from mail_office import NOISE, PRIVATE, TABLES, Office, start, with_noise


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A run with noise whose first question is out, at sites with the strict profile as it is."""
    found = Office(tmp_path, PRIVATE, start=start())
    found.folders = {
        name: SiteFolder.init(name, Policy.of_profile("hospital").to_text(), tmp_path / "strict")
        for name in found.names
    }
    assert found.advance() is None
    return found


def kinds(folder: SiteFolder) -> list[str]:
    return [entry.kind for entry in folder.entries]


# ---------------------------------------------------------------- a run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_a_run_with_noise_by_files_gives_the_model_under_the_strict_profile(office: Office) -> None:
    done = office.to_the_end()
    pooled = simulate_study(Study.from_text(STUDY), TABLES).best
    assert done.fit.settled
    said = str(verdict(done))
    assert "5 sites were asked for sums, and none was left out" in said
    assert "by sums with noise (ε = 3" in said
    apart = np.abs(done.fit.mixture.coefficients - pooled.fit.mixture.coefficients)
    assert apart.max() < 0.15  # standard errors are 0.006 to 0.045
    assert len(charges_in(office.folders["ash"])) == 8
    whole = rho_of(3.0, 1e-6)
    for folder in office.folders.values():
        assert spent_in(folder) == whole
        assert set(kinds(folder)) == {"init", "charge", "answer"}
    assert sum(done.fit.privacy.rhos, Fraction(0)) == whole


def test_a_charge_is_in_the_ledger_before_the_noise_and_says_what_for(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = office.folders["ash"]
    letter = office.latest("ash")
    draft = draft_answer(folder, PRIVATE, TABLES["ash"], RunFile.read(office.mail), letter)
    assert draft.reply is None  # a person approves before anything is drawn
    assert kinds(folder) == ["init"]
    seen: list[list[str]] = []

    def drawn(variance: int, size: int) -> list[int]:
        seen.append(kinds(SiteFolder.open(folder.path)))
        return [0] * size

    monkeypatch.setattr(sys.modules["consilience.site.answer"], "discrete_gaussian", drawn)
    finish_answer(folder, draft)
    assert seen == [["init", "charge"]]
    entry = charges_in(folder)[0].entry
    question = decode(letter.question)
    assert isinstance(question, PrivateScores)
    rho = rho_of(3.0, 1e-6) / 8
    sensitivity = total_sensitivity(question.mixture.parameter_count)
    said = {name: entry.details[name] for name in ("study", "run", "number", "place", "question", "unit", "spent")}
    assert said == {
        "study": PRIVATE.identity, "run": letter.run, "number": 1, "place": 0, "unit": "row",
        "question": bytes_hash(letter.question), "spent": f"{rho.numerator}/{rho.denominator}",
    }  # fmt: skip
    assert entry.details["sensitivity"] == sensitivity
    assert entry.details["variance"] == noise_variance(sensitivity, rho)


def test_the_same_question_has_the_stored_bytes_and_another_in_its_place_has_none(office: Office) -> None:
    first = office.opened(office.answer("ash"))
    spent = spent_in(office.folders["ash"])
    again = office.opened(office.answer("ash"))
    assert first.answer == again.answer
    assert spent_in(office.folders["ash"]) == spent > 0
    letter, run = office.latest("ash"), RunFile.read(office.mail)
    question = decode(letter.question)
    assert isinstance(question, PrivateScores)
    for number, other in (
        (1, replace(question, clip=2 * question.clip)),
        (2, replace(question, clip=3.0)),
        (2, question),
    ):
        asked = replace(letter, number=number, question=encode(other))
        with pytest.raises(RefusedError):
            finish_answer(
                office.folders["ash"], draft_answer(office.folders["ash"], PRIVATE, TABLES["ash"], run, asked)
            )
    assert spent_in(office.folders["ash"]) == spent


def test_a_crash_between_charge_and_answer_costs_the_charge(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, letter, run = office.folders["ash"], office.latest("ash"), RunFile.read(office.mail)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["consilience.site.answer"], "discrete_gaussian", crash)
        with pytest.raises(KeyboardInterrupt):
            finish_answer(folder, draft_answer(folder, PRIVATE, TABLES["ash"], run, letter))
    assert kinds(folder) == ["init", "charge"]
    with pytest.raises(RefusedError, match="charged for an answer that failed"):
        finish_answer(folder, draft_answer(folder, PRIVATE, TABLES["ash"], run, letter))
    assert kinds(folder) == ["init", "charge"]


def test_a_restored_folder_would_spend_its_budget_again_and_is_seen_by_its_head(office: Office, tmp_path: Path) -> None:
    folder, letter = office.folders["ash"].path, office.latest("ash")
    copied = shutil.copytree(folder, tmp_path / "copy")
    first = office.opened(office.answer("ash"))
    entries, spent = office.folders["ash"].entries, spent_in(office.folders["ash"])

    def restore() -> SiteFolder:
        shutil.rmtree(folder)
        shutil.copytree(copied, folder)
        return SiteFolder.open(folder)

    restored, run = restore(), RunFile.read(office.mail)
    again = office.opened(finish_answer(restored, draft_answer(restored, PRIVATE, TABLES["ash"], run, letter)))
    assert decode(again.answer).values != decode(first.answer).values  # other noise, which can be averaged
    assert spent_in(restored) == spent
    told = office.signed(replace(letter, to="ash", head=(len(entries), entries[-1].hash)))
    with pytest.raises(RefusedError, match="restored from an older copy"):
        draft_answer(restore(), PRIVATE, TABLES["ash"], run, told)


def test_nothing_but_sums_with_noise_is_answered(office: Office) -> None:
    letter, run, folder = office.latest("ash"), RunFile.read(office.mail), office.folders["ash"]
    question = decode(letter.question)
    for other in (Summarise(4, 1), LogLikelihood(start()), Several((question, Summarise(4, 1)))):
        asked = office.signed(replace(letter, question=encode(other)))
        with pytest.raises(RefusedError, match="nothing leaves"):
            finish_answer(folder, draft_answer(folder, PRIVATE, TABLES["ash"], run, asked))
    assert kinds(folder) == ["init"]


@pytest.mark.parametrize(
    ("privacy", "said"), [("epsilon = 3.5", "max_epsilon"), ("epsilon = 1.0, delta = 1e-5", "max_delta")]
)
def test_a_study_that_wants_more_than_the_policy_allows_is_refused(privacy: str, said: str, tmp_path: Path) -> None:
    office = Office(tmp_path, with_noise(privacy), "hospital", start=start())
    office.advance()
    with pytest.raises(RefusedError, match=said):
        office.answer("ash")
    assert kinds(office.folders["ash"]) == ["init"]


def test_the_budget_of_the_folder_is_over_all_studies_and_columns(office: Office, tmp_path: Path) -> None:
    """A study over fewer rows, in other columns, is another study over the same people: its charges add."""
    folder = office.folders["ash"]
    office.answer("ash")
    spent = spent_in(folder)
    fewer = STUDY.replace('gate_columns = ["age", "severity"]', 'gate_columns = ["age"]')
    model = site_file(Study.from_text(fewer), "oak", TABLES["oak"].slice(0, 400)).fit.model
    other = Office(tmp_path / "other", with_noise("epsilon = 1.0", fewer), start=model.mixture)
    other.folders = office.folders
    other.advance()
    other.answer("ash", TABLES["ash"].slice(100))
    assert spent_in(folder) == spent + rho_of(1.0, 1e-6) / 8


def test_a_run_that_the_rest_of_the_budget_does_not_cover_does_not_begin(tmp_path: Path) -> None:
    text = Policy.of_profile("hospital").to_text().replace("max_epsilon_ever = 8.0", "max_epsilon_ever = 2.9")
    office = Office(tmp_path, PRIVATE, start=start())
    office.folders["ash"] = SiteFolder.init("ash", text, tmp_path / "poor")
    office.advance()
    with pytest.raises(RefusedError, match="max_epsilon_ever"):
        office.answer("ash")
    assert kinds(office.folders["ash"]) == ["init"]


def test_a_run_with_noise_needs_a_public_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="--start"):
        begin_by_files(PRIVATE, tmp_path / "box", tmp_path / "own", sites=["ash"])


def test_fingerprints_of_two_runs_over_the_same_rows_differ(office: Office, tmp_path: Path) -> None:
    other = Office(tmp_path / "other", with_noise("epsilon = 2.0"), start=start())
    other.folders = office.folders
    other.advance()
    letters = [each.opened(each.answer("ash")) for each in (office, other)]
    from consilience.messages.codec import message_fingerprint

    one, two = (message_fingerprint(letter.answer) for letter in letters)
    assert one != two


def test_rows_that_change_in_a_run_are_not_answered_for(office: Office) -> None:
    office.answer("ash")
    letter, run = office.signed(replace(office.latest("ash"), number=2)), RunFile.read(office.mail)
    with pytest.raises(RefusedError, match="not those with which the run"):
        draft_answer(office.folders["ash"], PRIVATE, TABLES["ash"].slice(1), run, letter)


# ---------------------------------------------------------------- rows that do not fit


def changed(name: str, cell: Any, row: int = 3) -> pa.Table:
    """A hospital's table with one other cell."""
    table = TABLES["ash"]
    values = table[name].to_pylist()
    values[row] = cell
    kind = pa.string() if isinstance(cell, str) or isinstance(values[0], str) else pa.float64()
    cells = [None if each is None else str(each) if kind == pa.string() else float(each) for each in values]
    return table.set_column(table.column_names.index(name), name, pa.array(cells, kind))


BAD: dict[str, Callable[[], pa.Table]] = {
    "missing": lambda: changed("age", None),
    "out of range": lambda: changed("age", 999.0),
    "infinite": lambda: changed("severity", float("inf")),
    "a word": lambda: changed("severity", "n/a"),
    "an unknown level": lambda: changed("sex", "unknown"),
    "a missing level": lambda: changed("sex", None),
    "a missing response": lambda: changed("log_days", None),
}


@pytest.mark.parametrize("case", BAD)
def test_a_cell_that_does_not_fit_makes_its_row_zeros_and_changes_no_other(case: str, office: Office) -> None:
    found, whole = private_rows(PRIVATE, BAD[case]()), private_rows(PRIVATE, TABLES["ash"])
    assert found.zeros == 1
    assert sum(found.unfit.values()) == 1
    assert whole.told == []
    others = np.arange(whole.rows.n) != 3
    np.testing.assert_array_equal(found.rows.X[others], whole.rows.X[others])
    np.testing.assert_array_equal(found.rows.Y[others], whole.rows.Y[others])
    assert np.isnan(found.rows.X[3]).all()
    draft = draft_answer(office.folders["ash"], PRIVATE, BAD[case](), RunFile.read(office.mail), office.latest("ash"))
    assert any("1 of 900 rows do not fit" in said for said in draft.said)  # the site is told
    leaves = office.opened(finish_answer(office.folders["ash"], draft))
    answer = decode(leaves.answer)
    assert isinstance(answer, NoisySums)
    assert len(answer.values) == decode(office.latest("ash").question).mixture.parameter_count + 1


def test_rows_that_fit_are_read_as_for_other_studies() -> None:
    for name, table in TABLES.items():
        rows, read = validate_rows(PRIVATE, table), private_rows(PRIVATE, table).rows
        np.testing.assert_array_equal(read.X, rows.X, err_msg=name)
        np.testing.assert_array_equal(read.Y, rows.Y, err_msg=name)


def test_missing_values_are_dropped_or_filled_by_the_rules_of_the_study() -> None:
    table = changed("age", None)
    dropping = Study.from_text(_ruled('missing = "drop"'))
    found = private_rows(dropping, table)
    assert (found.rows.n, found.zeros, found.dropped) == (table.num_rows - 1, 0, 1)
    filling = Study.from_text(_ruled('missing = "fill"\nfill = 60.0'))
    found = private_rows(filling, table)
    assert (found.rows.n, found.zeros, found.dropped) == (table.num_rows, 0, 0)
    assert np.isfinite(found.rows.X[3]).all()


def _ruled(rule: str) -> str:
    text = STUDY.replace("[model]", NOISE + "[model]", 1)
    assert 'name = "age"\nkind = "number"\n' in text
    return text.replace('name = "age"\nkind = "number"\n', f'name = "age"\nkind = "number"\n{rule}\n')


def test_one_cell_of_a_csv_file_does_not_decide_how_the_others_are_read(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    csv.write_csv(TABLES["ash"], good)
    lines = good.read_text().splitlines()
    cells = lines[4].split(",")
    cells[0] = "n/k"
    bad.write_text("\n".join([*lines[:4], ",".join(cells), *lines[5:]]) + "\n")
    whole, found = (private_rows(PRIVATE, read_table(path, as_text=True)).rows for path in (good, bad))
    others = np.arange(whole.n) != 3
    np.testing.assert_array_equal(found.X[others], whole.X[others])
    np.testing.assert_array_equal(found.Y[others], whole.Y[others])
    np.testing.assert_array_equal(whole.X, private_rows(PRIVATE, TABLES["ash"]).rows.X)


@pytest.mark.parametrize("cell", ["n/k", True, datetime(2024, 2, 1)])  # noqa: DTZ001 - a workbook knows no zones
@pytest.mark.parametrize("mapped", [False, True])
def test_one_cell_of_a_workbook_does_not_decide_how_the_others_are_read(
    cell: Any, mapped: bool, tmp_path: Path
) -> None:
    """A column of numbers alone is one of numbers, and one of dates alone has no tags: one cell would say which."""
    openpyxl = pytest.importorskip("openpyxl")
    table = TABLES["ash"]
    names = ["sex", "log_days", "age", "severity"]
    codes = {"male": 1, "female": 2}
    text = STUDY.replace("[model]", NOISE + "[model]", 1)
    mapping = TableMapping(
        study=PRIVATE.name,
        columns=[MappedColumn(name="sex", source="sex", levels={"1": "male", "2": "female"})],
    )
    recoded = text.replace('["female", "male"]', '["1", "2"]')
    study = PRIVATE if mapped else Study.from_text(recoded.split("[words.columns.sex]", maxsplit=1)[0])
    for place, name in enumerate(names):
        read = []
        for odd in (False, True):
            book = openpyxl.Workbook()
            book.active.append(table.column_names)
            for i, row in enumerate(table.slice(0, 60).to_pylist()):
                values = row | {"sex": codes[row["sex"]]} | ({names[place]: cell} if odd and i == 3 else {})
                book.active.append(list(values.values()))
            book.save(tmp_path / "a.xlsx")
            found = read_mapped(tmp_path / "a.xlsx", study, mapping if mapped else None, as_text=True)
            row_tags(found, [name], bytes(32))
            read.append(private_rows(study, found).rows)
        others = np.arange(60) != 3
        for field in ("X", "Y"):
            one, other = (getattr(rows, field)[others] for rows in read)
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, other)


def test_only_the_form_of_a_table_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'age'"):
        private_rows(PRIVATE, TABLES["ash"].drop_columns(["age"]))
    empty = private_rows(PRIVATE, TABLES["ash"].slice(0, 0))
    assert empty.rows.n == 0
    assert answer_name(1, "ash").endswith(".json")

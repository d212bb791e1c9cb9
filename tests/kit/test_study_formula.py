"""Studies by a formula: the same bits as by derived columns, at sites, in files, over files and in predictions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience import Federation, load, plot
from consilience.cli.app import app
from consilience.errors import InvalidInputError
from consilience.files.site_file import SiteFile
from consilience.kit.combination import combine_files, run_over_files, simulate_study
from consilience.kit.private_rows import private_rows
from consilience.kit.site_fit import examine_for_study, site_file, study_rows
from consilience.kit.study import Study
from consilience.kit.study_model import estimators_of, method_of
from consilience.kit.table_one import table_one
from consilience.messages import SiteError
from consilience.report.scale import term_spreads
from consilience.report.typical import encode_rows, moving_columns

HEAD = """
format = "consilience-study"
version = 1
name = "stay"
seed = 7
[minimum]
rows = 100
[[columns]]
name = "days"
kind = "number"
low = -100
high = 100
"""
RAW = """
[[columns]]
name = "age"
kind = "number"
low = 18
high = 110
centre = 60
scale = 15
missing = "drop"
[[columns]]
name = "crp"
kind = "number"
unit = "mg/l"
low = 0.1
high = 600
missing = "fill"
fill = 5
[[columns]]
name = "admission"
kind = "category"
levels = ["planned", "urgent", "transfer"]
reference = "urgent"
[[columns]]
name = "severity"
kind = "number"
low = -5
high = 5
"""
KNOTS = (1.0, 10.0, 40.0)
FORMULA = "days ~ age * admission + spline(crp, df=2) | severity + log(crp)"
BY_FORMULA = f"""{HEAD}{RAW}
[model]
formula = "{FORMULA}"
knots = {{ "spline(crp, df=2)" = {list(KNOTS)} }}
experts = [2]
"""
TERMS = (
    "(age - 60)/15",
    "admission[planned]",
    "admission[transfer]",
    "(age - 60)/15:admission[planned]",
    "(age - 60)/15:admission[transfer]",
    "spline(crp, df=2)[1]",
    "spline(crp, df=2)[2]",
    "severity",
    "log(crp)",
)
DERIVED = (*TERMS[3:7], TERMS[8])
PRODUCTS, SPLINE = DERIVED[:2], DERIVED[2:4]


def by_columns() -> str:
    """Return the same study with the derived columns listed, as sites would have to write them into their tables."""
    age, _, admission, severity = RAW.split("[[columns]]")[1:]
    derived = {name: f'\nname = "{name}"\nkind = "number"\n' for name in DERIVED}
    entries = [age, admission, *(derived[name] for name in (*PRODUCTS, *SPLINE)), severity, derived["log(crp)"]]
    experts = ["age", "admission", *PRODUCTS, *SPLINE]
    listed = "".join(f"[[columns]]{entry}" for entry in entries)
    model = f'response = "days"\nexperts = [2]\nexpert_columns = {experts}\ngate_columns = ["severity", "log(crp)"]\n'
    return f"{HEAD}{listed}\n[model]\n{model}".replace("'", '"')


def table(n: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    age, crp = rng.integers(20, 100, n).astype(float), np.clip(rng.gamma(2, 10, n), 0.2, 500)
    admission = rng.choice(["planned", "urgent", "transfer"], n)
    severity = np.clip(rng.normal(size=n), -4, 4)
    severe = rng.random(n) < 1 / (1 + np.exp(-3 * severity))
    days = np.where(severe, 20 + 0.1 * age + np.log(crp), 2 - 0.1 * age * (admission == "planned"))
    days = days + rng.normal(size=n)
    age[rng.random(n) < 0.02], crp[rng.random(n) < 0.1] = np.nan, np.nan
    return pa.table(
        {"days": days, "age": pa.array(age, from_pandas=True), "crp": pa.array(crp, from_pandas=True),
         "admission": admission, "severity": severity}
    )  # fmt: skip


def derived(raw: pa.Table) -> pa.Table:
    """Add the derived columns, by hand."""
    age = (raw["age"].to_numpy() - 60) / 15
    crp = np.nan_to_num(raw["crp"].to_numpy(), nan=5.0)
    t, others = KNOTS, {}
    for level in ("planned", "transfer"):
        is_level = (np.array(raw["admission"].to_pylist()) == level).astype(float)
        others[f"(age - 60)/15:admission[{level}]"] = np.nan_to_num(age * is_level)  # those rows are dropped
    bend = [(np.maximum(crp - t[j], 0) ** 3 - np.maximum(crp - t[2], 0) ** 3) / (t[2] - t[j]) for j in range(2)]
    others |= {SPLINE[0]: crp, SPLINE[1]: (bend[0] - bend[1]) / (t[2] - t[0]), "log(crp)": np.log(crp)}
    for name in DERIVED:
        raw = raw.append_column(name, pa.array(others[name]))
    return raw


@cache
def raw_tables() -> dict[str, pa.Table]:
    return {name: table(n, seed) for seed, (name, n) in enumerate({"ash": 400, "birch": 350, "elm": 450}.items())}


@cache
def study() -> Study:
    return Study.from_text(BY_FORMULA)


@cache
def sent() -> tuple[SiteFile, ...]:
    files = (site_file(study(), name, each) for name, each in raw_tables().items())
    return tuple(SiteFile.from_text(file.to_text()) for file in files)


@cache
def combined() -> Any:
    return combine_files(study(), sent()).best.model


def test_the_study_says_what_is_read_and_what_is_fitted() -> None:
    assert study().model.response == "days"
    assert study().sources.names == ("age", "crp", "admission", "severity")
    assert study().covariates.terms == TERMS
    again = Study.from_text(study().to_text())
    assert again == study()
    assert again.identity == study().identity
    moved = Study.from_text(BY_FORMULA.replace("[1.0, 10.0, 40.0]", "[1.0, 10.0, 41.0]"))
    assert moved.identity != study().identity


def test_rows_are_those_of_the_derived_columns_to_the_bit() -> None:
    columns = Study.from_text(by_columns())
    assert columns.covariates.terms == TERMS
    for raw in raw_tables().values():
        found, expected = study_rows(study(), raw), study_rows(columns, derived(raw))
        assert np.array_equal(found.X, expected.X)
        assert np.array_equal(found.Y, expected.Y)


def test_a_study_by_formula_gives_the_bits_of_the_same_study_by_columns() -> None:
    columns = Study.from_text(by_columns())
    others = [site_file(columns, name, derived(each)) for name, each in raw_tables().items()]
    expected = combine_files(columns, others).best.model
    found = combined()
    assert np.array_equal(found.inference_.estimates.flat(), expected.inference_.estimates.flat(), equal_nan=True)
    assert np.array_equal(found.inference_.covariance, expected.inference_.covariance, equal_nan=True)
    assert str(found.summary()) == str(expected.summary())
    assert all(term in str(found.summary()) for term in ("(age - 60)/15:admission[planned]", "log(crp)"))
    simulated = simulate_study(study(), raw_tables()).best.model
    assert np.array_equal(simulated.inference_.covariance, found.inference_.covariance, equal_nan=True)


def test_the_model_predicts_from_raw_columns_and_from_its_file(tmp_path: Path) -> None:
    raw = raw_tables()["ash"].slice(0, 50)
    raw = raw.filter(raw["age"].is_valid())
    expected = combined().mixture_.mean(study_rows(study(), raw).X)[:, 0]
    combined().save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert np.array_equal(again.predict(raw.drop_columns(["days"])), expected)
    assert again.formula == FORMULA
    pq.write_table(raw, tmp_path / "rows.parquet")
    Federation.from_parquet(str(tmp_path / "rows.parquet"), target="days").predict(again, out=str(tmp_path / "scores"))
    (scores,) = (tmp_path / "scores").iterdir()
    assert np.array_equal(pq.read_table(scores)["prediction"].to_numpy(), expected)


def test_files_of_one_owner_are_read_through_the_formula(tmp_path: Path) -> None:
    for name, raw in raw_tables().items():
        pq.write_table(raw, tmp_path / f"{name}.parquet")
    found = run_over_files(study(), str(tmp_path / "*.parquet")).best.model
    assert np.array_equal(found.inference_.covariance, combined().inference_.covariance, equal_nan=True)


def test_a_table_is_examined_in_its_own_columns() -> None:
    wrong = raw_tables()["ash"].drop_columns(["crp"])
    (error,) = (each for each in examine_for_study(study(), wrong).findings if each.is_error)
    assert (error.code, error.column) == ("COLUMN_MISSING", "crp")


def test_table_one_has_columns_and_no_products() -> None:
    labels = [row.label for row in table_one(study(), sent()).rows]
    assert labels[1:3] == ["days: mean (SD)", "age: mean (SD)"]
    assert "crp, mg/l: mean (SD)" in labels  # the first term of its spline
    assert not any(":admission" in label or "log(" in label for label in labels)


def test_rows_and_public_covariates_of_a_study_with_noise_have_the_terms() -> None:
    noisy = f'{BY_FORMULA}\n[method]\nname = "PrivateScoring"\n[privacy]\nepsilon = 1.0\n'
    private = Study.from_text(noisy)
    found, rows = private_rows(private, raw_tables()["ash"]), study_rows(study(), raw_tables()["ash"])
    assert np.array_equal(found.rows.X, rows.X)
    assert found.zeros == 0
    X = method_of(private).covariates
    t, crp = KNOTS, X[:, 5]
    bend = [(np.maximum(crp - t[j], 0) ** 3 - np.maximum(crp - t[2], 0) ** 3) / (t[2] - t[j]) for j in range(2)]
    np.testing.assert_allclose(X[:, 6], (bend[0] - bend[1]) / (t[2] - t[0]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(X[:, 3], X[:, 0] * X[:, 1])
    unlike = raw_tables()["ash"].set_column(2, "crp", pa.array(np.full(400, -3.0)))
    outside = private_rows(private, unlike)
    assert outside.unfit == {"crp": 400}
    assert np.all(np.isnan(outside.rows.X))


def test_what_does_not_fit_at_a_site_is_no_value_in_an_error(tmp_path: Path) -> None:
    raw = raw_tables()["ash"]
    unknown = raw.set_column(3, "admission", pa.array(["by a secret way"] * raw.num_rows))
    with pytest.raises(SiteError) as caught:
        study_rows(study(), unknown)
    assert "secret" not in str(caught.value)
    assert "admission" in str(caught.value)


def test_estimators_of_a_study_are_those_of_the_formula() -> None:
    (model,) = estimators_of(study())
    assert model.formula == FORMULA
    assert model.derivation_ is not None
    assert model.derivation_.columns == study().covariates.names


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("+ log(crp)", "+ log(dose)", "model.formula: the data have no column 'dose'"),
        ("+ log(crp)", "+ crp.max()", "model.formula: the attribute crp.max is no part of a formula"),
        ("+ log(crp)", "+ exp(crp)", r"model.formula: a call of exp\(…\) is no part of a formula"),
        ("log(crp)", "log(age)", r"log\(age\) is a function of a number as it is"),
        ("log(crp)", "sqrt(admission)", r"sqrt\(admission\) is a function of a number as it is"),
        ("log(crp)", "log(severity)", r"severity, for log\(severity\) in the formula: transform='log' needs low"),
        ("log(crp)", "category(crp)", "list 'crp' as a column of kind category"),
        ("age * admission", "age + age:admission", r"name its parts too, as in age \* admission"),
        ("| severity + ", "| ", "columns: severity is in no term of the formula"),
        ("[1.0, 10.0, 40.0]", "[1.0, 40.0]", r"spline\(crp, df=2\) needs 3 numbers in increasing order"),
        ("[1.0, 10.0, 40.0]", "[1.0, 40.0, 10.0]", "needs 3 numbers in increasing order"),
        ('"spline(crp, df=2)" =', '"spline(age)" =', r"model.knots: the formula has no 'spline\(age\)'"),
        ("experts = [2]", 'experts = [2]\nresponse = "age"', "model.formula: the data have no column 'days'|response"),
        ("experts = [2]", 'experts = [2]\ngate_columns = ["age"]', "leave out gate_columns, expert_columns"),
        ("experts = [2]", 'experts = [2]\ngate = "constant"', "the gate 'constant' reads no covariates"),
        ('name = "days"', 'name = "dayz"', "there is no column 'days'"),
    ],
)
def test_a_formula_that_a_study_cannot_answer_is_refused(old: str, new: str, said: str) -> None:
    assert old in BY_FORMULA
    with pytest.raises(InvalidInputError, match=said):
        Study.from_text(BY_FORMULA.replace(old, new, 1))


def test_knots_without_a_formula_and_too_many_terms_are_refused() -> None:
    plain = BY_FORMULA.replace(f'formula = "{FORMULA}"', 'response = "days"')
    with pytest.raises(InvalidInputError, match=r"model\.knots: they are those of the splines of a formula"):
        Study.from_text(plain)
    names = [f"c{j}" for j in range(8)]
    levels = [str(i) for i in range(10)]
    wide = "".join(f'[[columns]]\nname = "{name}"\nkind = "category"\nlevels = {levels}\n' for name in names)
    wide = wide.replace("'", '"')
    with pytest.raises(InvalidInputError, match=r"model\.formula: more than 500 columns"):
        Study.from_text(f'{HEAD}{wide}[model]\nformula = "days ~ {" * ".join(names)}"\nexperts = [1]\n')


def done(*arguments: object) -> str:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found.stdout


def test_commands_of_a_site_say_which_columns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(BY_FORMULA)
    raw = raw_tables()["ash"]
    pq.write_table(raw.set_column(2, "crp", raw["crp"].fill_null(5.0)), "ash.parquet")
    done("site", "init", "ash", "--profile", "research")
    done("site", "check", "ash", "study.toml", "ash.parquet")
    done("site", "fit", "ash", "study.toml", "ash.parquet")
    said = f"The terms of the formula {FORMULA!r} are computed here, from the columns age, admission, crp, severity."
    assert f"NOTE: {said}" in done("site", "preview", "ash")
    done("site", "annex", "ash", "study.toml", "-o", "annex.md")
    assert "are computed here, from the columns age, admission, crp, severity." in Path("annex.md").read_text()


def test_names_of_terms_are_in_the_report_and_in_pictures(tmp_path: Path) -> None:
    combined().report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "(age - 60)/15:admission[planned]" in text
    assert "spline(crp, df=2)" in text
    labels = [
        each.get_text().replace("\n", " ") for each in np.ravel(plot.coefficients(combined()))[0].get_yticklabels()
    ]
    assert {"(age - 60)/15:admission[planned]", "spline(crp, df=2)[2]"} <= {each.replace(": ", ":") for each in labels}
    plt.close("all")


def test_typical_rows_of_a_report_have_the_terms_of_their_columns() -> None:
    model = combined()
    assert {column.name for column in moving_columns(model)} <= {"age", "severity"}
    X = encode_rows(model, [{"age": 90.0, "admission": "planned", "crp": 20.0}, {"age": 30.0}])
    found = dict(zip(TERMS, X.T, strict=True))
    np.testing.assert_allclose(found["(age - 60)/15:admission[planned]"], [2.0, 0.0])
    np.testing.assert_allclose(found["log(crp)"][0], np.log(20.0))
    crp = {term: column for term, column in found.items() if term.startswith("spline")}
    np.testing.assert_allclose(crp["spline(crp, df=2)[1]"][0], 20.0)
    expected = derived(pa.table({"days": [0.0], "age": [90.0], "crp": [20.0], "admission": ["planned"]}))
    np.testing.assert_allclose(found[SPLINE[1]][0], expected[SPLINE[1]][0].as_py())
    means = term_spreads(model)[1:]
    assert found["log(crp)"][1] == pytest.approx(means[TERMS.index("log(crp)")][0])


def test_the_command_predict_reads_the_columns_of_the_formula(tmp_path: Path) -> None:
    combined().save(tmp_path / "model.json")
    raw = raw_tables()["ash"]
    pq.write_table(raw, tmp_path / "rows.parquet")
    said = done("predict", tmp_path / "model.json", tmp_path / "rows.parquet", "-o", tmp_path / "scored.parquet")
    scored = pq.read_table(tmp_path / "scored.parquet")
    known = raw["age"].is_valid()
    expected = combined().mixture_.mean(study_rows(study(), raw).X)[:, 0]
    assert np.array_equal(scored.filter(known)["prediction"].to_numpy(), expected)
    assert set(scored["unscored"].to_pylist()) == {None, "no age"}
    assert scored.column_names[: len(raw.column_names)] == raw.column_names
    shown = json.loads(done("show", tmp_path / "model.json", "--json"))
    assert shown["columns"] == ["age", "admission", "crp", "severity"], said


@pytest.mark.slow
def test_rounds_by_formula_and_by_columns_give_the_same_bits(tmp_path: Path) -> None:
    models = []
    for name, text, change in (("formula", BY_FORMULA, None), ("columns", by_columns(), derived)):
        (tmp_path / name).mkdir()
        for site, raw in raw_tables().items():
            pq.write_table(raw if change is None else change(raw), tmp_path / name / f"{site}.parquet")
        rounds = Study.from_text(f'{text}\n[method]\nname = "FederatedEM"\n')
        models.append(run_over_files(rounds, str(tmp_path / name / "*.parquet")).best.model)
    found, expected = models
    assert np.array_equal(found.inference_.estimates.flat(), expected.inference_.estimates.flat(), equal_nan=True)
    assert np.array_equal(found.inference_.covariance, expected.inference_.covariance, equal_nan=True)

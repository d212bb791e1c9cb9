import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import consilience
from consilience import MixtureOfRegressions
from consilience.columns import Column, Dictionary, Rule
from consilience.columns.dictionary import TRANSFORMS
from consilience.columns.frames import encode_columns
from consilience.data.file_columns import Chunk, Columns
from consilience.errors import InvalidInputError
from consilience.estimators.federated import set_columns
from consilience.messages.failures import FailureCode, SiteError

RULES = Dictionary(
    (
        Column("age", rule=Rule("years", 18, 110, centre=60, scale=15)),
        Column("dose", rule=Rule("mg", 0.1, 50, missing="fill", fill=1.0, transform="log")),
        Column("sex", ("f", "m")),
    )
)
TABLE = pd.DataFrame({"age": [60.0, 75.0, 45.0], "dose": [1.0, 10.0, np.nan], "sex": ["f", "m", "m"]})
COVARIATES = np.array([[0.0, 0.0, 0.0], [1.0, np.log(10), 1.0], [-1.0, 0.0, 1.0]])


def chunk_of(table: pd.DataFrame) -> np.ndarray:
    batch = pa.RecordBatch.from_pandas(table.assign(y=1.0))
    chunk = Chunk(Columns(RULES.names, ("y",), dictionary=RULES), size=len(table))
    chunk.fill(batch)
    return chunk.rows().X


@pytest.mark.parametrize("read", [lambda table: encode_columns(table, RULES), chunk_of])
def test_estimators_and_sites_read_through_the_same_rules(read):
    assert RULES.terms == ("(age - 60)/15", "log(dose)", "sex[m]")
    np.testing.assert_array_equal(read(TABLE), COVARIATES)


def test_a_value_out_of_range_is_an_error_and_selects_no_row():
    table = TABLE.assign(age=[60.0, 7.0, 450.0])
    with pytest.raises(InvalidInputError, match="column 'age' has 2 values outside its range, 18 to 110 years"):
        encode_columns(table, RULES)
    with pytest.raises(SiteError) as failure:
        chunk_of(table)
    assert failure.value.code is FailureCode.VALUE_OUT_OF_RANGE
    assert "450" not in str(failure.value)


def test_missing_values_without_a_fill_are_a_failure():
    with pytest.raises(SiteError) as failure:
        chunk_of(TABLE.assign(age=[60.0, np.nan, 45.0]))
    assert failure.value.code is FailureCode.MISSING_VALUES


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"transform": "exp"}, "expected one of none, log, log1p, sqrt"),
        ({"transform": "log", "low": 0.0}, "needs low, and above 0"),
        ({"transform": "log1p", "low": -2.0}, "needs low, and above -1"),
        ({"transform": "sqrt"}, "needs low, and at least 0"),
        ({"low": 3.0, "high": 2.0}, "low=3 is not below high=2"),
        ({"low": float("nan")}, "finite"),
        ({"scale": 0.0}, "scale a positive"),
        ({"missing": "guess"}, "expected one of refuse, drop, fill"),
        ({"missing": "fill"}, "belong together"),
        ({"fill": 1.0}, "belong together"),
        ({"missing": "fill", "fill": 9.0, "high": 5.0}, "outside the range"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule, said):
    with pytest.raises(InvalidInputError, match=said):
        Rule(**rule)


def test_a_category_has_no_transform():
    with pytest.raises(InvalidInputError, match="is a category"):
        Column("sex", ("f", "m"), rule=Rule(centre=1.0))
    assert Column("sex", ("f", "m"), rule=Rule(missing="drop")).terms == ("sex[m]",)


@pytest.fixture(scope="module")
def ruled():
    """A model of covariates that are read by rules."""
    rng = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {"age": rng.uniform(20, 100, n), "dose": np.exp(rng.uniform(-1, 3, n)), "sex": rng.choice(["f", "m"], n)}
    )
    covariates = encode_columns(X, RULES)
    y = covariates @ [1.0, -0.5, 0.3] + 0.2 * rng.normal(size=n)
    model = MixtureOfRegressions(1).fit(pd.DataFrame(covariates, columns=RULES.terms), y)
    expected = model.predict(pd.DataFrame(covariates, columns=RULES.terms))
    set_columns(model, RULES.names, dictionary=RULES)
    return model, X, expected


def test_a_saved_model_reads_tables_by_its_rules(ruled, tmp_path):
    model, X, expected = ruled
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    assert again.columns_ == RULES
    np.testing.assert_array_equal(again.predict(X), expected)
    with pytest.raises(InvalidInputError, match="outside its range, 18 to 110 years"):
        again.predict(X.assign(age=10 * X["age"]))


def test_onnx_applies_the_rules(ruled, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, X, expected = ruled
    model.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    inputs = {name: X[[name]].to_numpy(dtype=object if name == "sex" else np.float64) for name in X}
    np.testing.assert_allclose(session.run(["prediction"], inputs)[0].ravel(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_covariates_are_turned_back_into_the_values_that_have_them(transform):
    rule = Rule("", 0.5, 90.0, transform=transform, centre=1.5, scale=0.7)
    values = np.array([0.5, 1.0, 17.3, 90.0])
    np.testing.assert_allclose(rule.original(rule.values(values)), values, rtol=1e-12)


def test_what_is_below_every_square_root_stands_for_zero():
    """A mean less a standard deviation may be there, as in Table 1: its square would be above the mean."""
    assert Rule("", 0.0, transform="sqrt").original(np.array([-2.0, 3.0])).tolist() == [0.0, 9.0]

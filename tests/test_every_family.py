"""Every family of the registry is saved, loaded, pickled, released by a site and written as ONNX."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - users and process pools pickle estimators
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import is_classifier

import consilience
from consilience.errors import InvalidInputError
from consilience.files.model_document import ModelDocument
from consilience.files.site_file import SiteDocument, SiteFile
from consilience.fit.climb import Expect
from consilience.kit.site_fit import site_file
from consilience.kit.study import Study
from consilience.messages import encode
from consilience.model import FAMILIES
from families import NAMES
from saved_models import fitted
from simulated import simulated


def test_the_shared_tests_know_every_family() -> None:
    assert set(NAMES) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_is_what_the_published_schema_says_and_predicts_the_same(family: str, tmp_path: Path) -> None:
    model, X, *_ = fitted(family)
    model.save(tmp_path / "model.json")
    jsonschema.validate(json.loads((tmp_path / "model.json").read_text()), ModelDocument.model_json_schema())
    again = consilience.load(tmp_path / "model.json")
    assert encode(Expect(again.mixture_)) == encode(Expect(model.mixture_))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.summary() == model.summary()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pickled_model_predicts_the_same(family: str) -> None:
    model, X, *_ = fitted(family)
    again = pickle.loads(pickle.dumps(model))
    assert encode(Expect(again.mixture_)) == encode(Expect(model.mixture_))
    assert np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_onnx_runtime_predicts_the_same_or_the_export_says_why_not(family: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, X, *_ = fitted(family)
    try:
        model.to_onnx(tmp_path / "model.onnx")
    except InvalidInputError as error:
        assert "ONNX" in str(error)  # noqa: PT017 - a family may say why there is none
        return
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    kind = "label" if is_classifier(model) else "prediction"
    np.testing.assert_allclose(session.run([kind], {"X": X})[0], model.predict(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("family", [name for name in FAMILIES if not FAMILIES[name].classes])
def test_a_shared_coefficient_is_one_parameter_in_tables_files_and_over_sites(family: str, tmp_path: Path) -> None:
    case, name = simulated(family, n=400, exposure=True), FAMILIES[family].size_name
    sizes = {} if case.rows.exposure is None else {name: case.rows.exposure}
    model = consilience.MixtureOfExpertsRegressor(2, family=family, shared=[1], n_init=2, random_state=0)
    model.fit(case.X, case.y, **sizes)
    assert model.coef_[0, 1] == model.coef_[1, 1]
    assert model.n_parameters_ == model.mixture_.parameter_count - 1
    assert list(model.tidy()["expert"]).count("all experts") == 1
    model.save(tmp_path / "model.json")
    assert consilience.load(tmp_path / "model.json").summary() == model.summary()
    parts = {"north": slice(0, 150), "south": slice(150, 400)}
    tables = {
        site: {"X": case.X[rows], "y": case.y[rows], **{size: values[rows] for size, values in sizes.items()}}
        for site, rows in parts.items()
    }
    found = consilience.Federation(tables).fit(model, start=model)
    assert found.model.log_likelihood_ == pytest.approx(model.log_likelihood_, abs=1e-7)
    np.testing.assert_allclose(found.model.coef_, model.coef_, atol=1e-5)
    assert found.model.coef_[0, 1] == found.model.coef_[1, 1]


def study(family: str) -> Study:
    size = f'exposure = "{FAMILIES[family].size_name}"' * (FAMILIES[family].size_name is not None)
    response = 'kind = "category"\nlevels = ["0", "1", "2"]' if FAMILIES[family].classes else 'kind = "number"'
    text = f"""
format = "consilience-study"
version = 1
name = "every-family"
seed = 1
[model]
response = "y"
family = "{family}"
experts = [2]
{size}
[[columns]]
name = "y"
{response}
[[columns]]
name = "x"
kind = "number"
"""
    more = f'[[columns]]\nname = "{FAMILIES[family].size_name}"\nkind = "number"\n' * bool(size)
    return Study.from_text(text + more)


def table(family: str) -> pa.Table:
    case = simulated(family, n=300, d=1, exposure=True)
    y = case.y.astype(int).astype(str) if FAMILIES[family].classes else case.y
    sizes = {} if case.rows.exposure is None else {FAMILIES[family].size_name: case.rows.exposure}
    return pa.table({"y": y, "x": case.X[:, 0], **sizes})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_that_a_site_releases_comes_back_to_the_bit(family: str) -> None:
    file = site_file(study(family), "north", table(family))
    assert file.fit.model is not None
    text = file.to_text()
    jsonschema.validate(json.loads(text), SiteDocument.model_json_schema())
    again = SiteFile.from_text(text)
    assert encode(again.fit) == encode(file.fit)
    assert (again.hash, again.to_text()) == (file.hash, text)

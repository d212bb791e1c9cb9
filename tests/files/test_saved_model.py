"""Files of models: the published schema, older versions, and files that are damaged."""

from __future__ import annotations

import inspect
import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from pydantic import ValidationError

import consilience
from consilience.errors import ConsilienceError, InvalidInputError
from consilience.estimators.saving import ESTIMATORS
from consilience.files import SavedModel
from consilience.files.documents import PREDICATE
from consilience.files.model_document import ModelDocument
from consilience.model import FAMILIES, GATES
from saved_models import frame

FOLDER = Path(__file__).parent / "version-1"
FILES = sorted(path for path in FOLDER.glob("*.json") if path.name != "expected.json")
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
SCHEMA = ModelDocument.model_json_schema()
MOST_SECONDS = 1.0


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


# ---------------------------------------------------------------- the schema


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["title"] == "Consilience model, version 1"


def test_the_schema_lists_every_estimator_with_its_parameters() -> None:
    listed = {each["properties"]["class"]["const"]: each for each in SCHEMA["properties"]["estimator"]["oneOf"]}
    assert listed.keys() == ESTIMATORS.keys()
    for name, kind in ESTIMATORS.items():
        parameters = set(inspect.signature(kind).parameters) - {"mixture_init", "n_jobs"}
        assert set(resolved(listed[name]["properties"]["parameters"])["properties"]) == parameters


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The part of the schema that a reference names."""
    return SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema


@pytest.mark.parametrize(("part", "key", "known"), [("gate", "kind", GATES), ("experts", "family", FAMILIES)])
def test_the_schema_lists_every_gate_and_family_with_its_fields(part: str, key: str, known: dict[str, Any]) -> None:
    listed = resolved(SCHEMA["properties"]["mixture"])["properties"][part]["oneOf"]
    found = {each["properties"][key]["const"]: set(each["properties"]) - {key} for each in listed}
    assert found == {name: set(kind.message_fields) for name, kind in known.items()}


# ---------------------------------------------------------------- files of this version


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_older_files_stay_readable(path: Path) -> None:
    model, expected = consilience.load(path), EXPECTED[path.stem]
    X = rows(model)
    np.testing.assert_allclose(model.predict_gate(X), expected["gate"], rtol=1e-12, atol=1e-14)
    predicted = model.predict(X)
    if predicted.dtype.kind == "f":
        np.testing.assert_allclose(predicted, expected["predict"], rtol=1e-12)
    else:
        assert predicted.tolist() == expected["predict"]
    np.testing.assert_allclose(model.to_frame()["std_error"].to_numpy(), np.array(expected["std_error"], dtype=float))
    jsonschema.validate(document(path.stem), SCHEMA)


def rows(model: Any) -> Any:
    X = np.linspace(-1, 1, 5 * model.n_features_in_).reshape(5, -1)
    return X if not hasattr(model, "feature_names_in_") else frame().head(5)[list(model.feature_names_in_)]


def test_newer_versions_are_refused_with_a_sentence(tmp_path: Path) -> None:
    newer = document("gaussian") | {"version": 2, "something": "new"}
    (tmp_path / "model.json").write_text(json.dumps(newer))
    with pytest.raises(InvalidInputError, match=r"model\.json: the file has format 2.*up to 1: upgrade consilience"):
        consilience.load(tmp_path / "model.json")


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"format": "other"}', '"consilience model"'])
def test_other_json_is_not_a_model(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a saved model"):
        SavedModel.from_text(text)


# ---------------------------------------------------------------- contradictions


def changed(name: str, change: Callable[[dict[str, Any]], object], tmp_path: Path) -> Path:
    found = document(name)
    change(found)
    (tmp_path / "model.json").write_text(json.dumps(found))
    return tmp_path / "model.json"


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("gaussian", lambda d: d.pop("terms"), "has no 'terms'"),
        ("gaussian", lambda d: d.update(extra=1), "'extra', which is not a field"),
        ("gaussian", lambda d: d["terms"].pop(), "3 terms for 4 coefficients"),
        ("gaussian", lambda d: d["terms"].reverse(), "terms of the model are not those of its columns"),
        ("gaussian", lambda d: d["columns"].pop(), "3 covariates; the columns have 2"),
        ("gaussian", lambda d: d["mixture"].update(intercept=False), "3 covariates; the mixture has 4"),
        ("gaussian", lambda d: d["mixture"]["experts"]["B"].pop(), "inconsistent shapes"),
        ("gaussian", lambda d: d["mixture"]["experts"]["B"][0][0].pop(), "rows of different lengths"),
        ("gaussian", lambda d: d["mixture"]["experts"].update(B=[[None]]), "on 3 levels|a list"),
        ("gaussian", lambda d: d["mixture"]["gate"]["alpha"][0].__setitem__(0, None), "not finite"),
        ("gaussian", lambda d: d["mixture"]["gate"]["alpha"][0].__setitem__(0, 1e60), "too large or too small"),
        ("gaussian", lambda d: d["mixture"]["experts"].update(covariance=[[[-1.0]], [[1.0]]]), "not positive definite"),
        ("gaussian", lambda d: d["mixture"]["experts"].update(family="cauchy"), "expected one of gaussian"),
        ("gaussian", lambda d: d["estimator"]["parameters"].update(n_experts=3), "the parameters say 3"),
        ("gaussian", lambda d: d["estimator"]["parameters"].update(family="student"), "the parameters say student"),
        ("gaussian", lambda d: d["estimator"]["parameters"].update(gate_features=["x9"]), "no column 'x9'"),
        ("gaussian", lambda d: d["estimator"]["parameters"].update(n_experts=10**9), "expected at most"),
        ("gaussian", lambda d: d.update(size="exposure"), "exposure is for"),
        ("gaussian", lambda d: d.update(classes={"type": "int64", "values": [0, 1]}), "classes of a response"),
        ("gaussian", lambda d: d["inference"]["covariance"][0].update(first=1), "overlaps another block, or is beyond"),
        ("gaussian", lambda d: d["inference"]["covariance"][0]["rows"][2].pop(), "2 numbers; expected 3"),
        ("gaussian", lambda d: d["inference"]["covariance"][0]["rows"][0].__setitem__(0, -1.0), "negative or infinite"),
        ("gaussian", lambda d: d["inference"]["degrees_of_freedom"].pop(), "17 numbers; expected 18"),
        ("gaussian", lambda d: d["inference"]["not_identified"]["gate"].append("x9"), "not a term"),
        ("gaussian", lambda d: d["fit"]["weights"].pop(), "1 numbers; expected 2"),
        ("gaussian", lambda d: d["fit"].update(starts_agree=not d["fit"]["starts_agree"]), "contradicts"),
        ("gaussian", lambda d: d["fit"].update(stop_reason="bored"), 'the text \'bored\'; expected "converged_em"'),
        ("gaussian", lambda d: d.update(frame="os"), "the text 'os'; expected \"pandas\""),
        ("classes-of-text", lambda d: d["classes"]["values"].reverse(), "not in increasing order"),
        ("classes-of-text", lambda d: d["classes"]["values"].pop(), "number of responses or classes"),
        ("classes-of-text", lambda d: d["classes"].update(type="int64"), "not of type int64"),
        ("classes-of-text", lambda d: d.pop("classes"), "or without"),
        ("categories-reference", lambda d: d["columns"][1].update(reference="coal"), "no level 'coal'"),
        ("categories-reference", lambda d: d["columns"][1]["levels"].append("gas"), "listed twice"),
        ("categories-reference", lambda d: d["columns"][1].update(levels=list(range(300))), "300 items"),
        ("mixture-full", lambda d: d["columns"].pop(), "3 covariates; the columns have 2"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(
    name: str, change: Callable[[dict[str, Any]], object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        consilience.load(changed(name, change, tmp_path))


# ---------------------------------------------------------------- mutations

ODD: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2, 10**9, 10**400, 0.0, -0.0, 1e308, 5e-324, 1e100, "", "Infinity", "-Infinity", "NaN",
    "\ud800", "x" * 20_000, [], [[]], [[[]]], [1.0] * 1000, {}, {"a": 1},
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of a document with each of its keys or indices."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def mutated(text: str, rng: random.Random) -> bytes:
    """Return the text of a model, damaged in one of many ways."""
    kind = rng.randrange(8)
    if kind == 0:
        return text[: rng.randrange(len(text))].encode()
    if kind == 1:
        data = bytearray(text.encode())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    found = json.loads(text)
    holder, key = rng.choice(places(found))
    if kind == 2:
        del holder[key]
    elif kind == 3:
        holder[key] = rng.choice(ODD)
    elif kind == 4:  # an item more, or a field of another place
        _, (other, place) = 0, rng.choice(places(found))
        if isinstance(holder, list):
            holder.extend([json.loads(json.dumps(other[place]))] * rng.choice([1, 1, 500]))
        else:
            holder[str(rng.choice(["new", place]))] = json.loads(json.dumps(other[place]))
    elif kind == 5:
        depth = rng.choice([2, 50, 100_000])
        mark = "@@"
        holder[key] = mark
        return json.dumps(found).replace(f'"{mark}"', "[" * depth + "]" * depth).encode()
    elif kind == 6:
        _, (other, place) = 0, rng.choice(places(found))
        holder[key], other[place] = json.loads(json.dumps(other[place])), json.loads(json.dumps(holder[key]))
    else:
        written = json.dumps(found)
        at = [i for i, letter in enumerate(written) if letter == '"' and written[i - 2 : i] in (", ", "{")]
        cut = rng.choice(at or [1])
        end = written.find(",", cut)
        return (written[:end] + ", " + written[cut:end] + written[end:]).encode()
    return json.dumps(found).encode()


def outcome(data: bytes, path: Path) -> str:
    """Load damaged bytes, and use what was read; return what happened."""
    path.write_bytes(data)
    began = time.process_time()
    try:
        model = consilience.load(path)
    except ConsilienceError:
        assert time.process_time() - began < MOST_SECONDS
        return "refused"
    assert time.process_time() - began < MOST_SECONDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # parameters of 1e49 are allowed and overflow
        assert model.summary()
        assert model.describe()
        model.to_frame()
        model.predict(rows(model))
    return "read"


@pytest.mark.slow
@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.long)])
def test_mutated_files_are_read_or_refused_with_a_sentence(number: int, tmp_path: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    rng = random.Random(number)
    counts = Counter(outcome(mutated(rng.choice(texts), rng), tmp_path / "model.json") for _ in range(number))
    assert sum(counts.values()) == number
    assert counts["refused"] > number / 2
    assert counts["read"] > number / 50


def test_the_schema_is_read_as_the_reference_validator_reads_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES if path.stat().st_size < 9_000]
    rng, validator, agreed = random.Random(0), jsonschema.Draft202012Validator(SCHEMA), Counter[bool]()
    for _ in range(30):
        try:
            found = json.loads(mutated(rng.choice(texts), rng))
        except (ValueError, RecursionError):
            continue
        try:
            ModelDocument.model_validate(found)
            kinds = set()
        except ValidationError as error:
            kinds = {each["type"] for each in error.errors()}
        if kinds == {PREDICATE}:  # such as ragged lists, of which a schema says nothing
            continue
        assert (not kinds) == validator.is_valid(found), kinds
        agreed[not kinds] += 1
    assert min(agreed[True], agreed[False]) >= 2

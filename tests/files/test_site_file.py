import contextlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from consilience.errors import InvalidInputError
from consilience.files.json_text import canonical_bytes, content_hash
from consilience.files.site_file import SiteDocument, SiteFile
from consilience.fit import Specification
from consilience.messages import FitSite, decode, encode
from consilience.model import Rows
from consilience.site import Site, answer

STUDY = "sha256:" + "0" * 64
EVIDENCE = {
    "policy": STUDY,
    "profile": "hospital",
    "rules": [{"rule": "rows", "scope": "site", "limit": 50, "result": "kept"}],
}
ENVELOPE = {"time": "2026-11-16T12:00:00Z", "ledger": {"position": 3}, "signature": None}


def fit_of(family: str = "gaussian", gate: str = "softmax", n: int = 300, K: int = 2):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 2, n).astype(float)])
    label = rng.random(n) < 1 / (1 + np.exp(-X[:, 0]))
    mean = np.where(label, 2 + X[:, 0], -2 + 0.5 * X[:, 1])
    y = {"gaussian": mean + 0.5 * rng.normal(size=n), "poisson": rng.poisson(np.exp(mean / 3)).astype(float)}[family]
    question = FitSite(Specification(K=K, family=family, gate=gate), (K,), seed=0, n_init=2)
    return answer(question, Site("north", Rows(X, y[:, None])))


@pytest.fixture(scope="module", params=[("gaussian", "softmax"), ("gaussian", "constant"), ("poisson", "softmax")])
def file(request):
    return SiteFile(STUDY, "north", ("(intercept)", "age", "sex[m]"), fit_of(*request.param), EVIDENCE, ENVELOPE)


@pytest.fixture(scope="module")
def text():
    return SiteFile(STUDY, "north", ("(intercept)", "age", "sex[m]"), fit_of(), EVIDENCE, ENVELOPE).to_text()


def test_a_fit_comes_back_to_the_bit(file):
    again = SiteFile.from_text(file.to_text())
    assert encode(again.fit) == encode(file.fit)
    assert again.content == file.content
    assert (again.study, again.site, again.terms) == (file.study, file.site, file.terms)
    assert (again.evidence, again.envelope) == (EVIDENCE, ENVELOPE)
    assert again.to_text() == file.to_text()


def test_the_content_does_not_depend_on_the_envelope(file):
    later = replace(file, envelope={"time": "2027-01-01T00:00:00Z"})
    assert later.hash == file.hash
    assert canonical_bytes(later.content) == canonical_bytes(file.content)


def test_it_is_what_the_published_schema_says(file):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(SiteDocument.model_json_schema()).validate(json.loads(file.to_text()))


def test_a_site_with_too_few_rows_has_no_model():
    fit = replace(fit_of(), model=None, stop=None)
    again = SiteFile.from_text(SiteFile(STUDY, "north", ("(intercept)", "age", "sex[m]"), fit).to_text())
    assert again.fit.model is None


def test_no_row_is_in_the_file(text):
    rng = np.random.default_rng(0)
    for value in rng.normal(size=300):
        assert repr(float(value)) not in text


CHANGES = {
    "a changed number": (r'"log_likelihood": -\d+', '"log_likelihood": -1', "was changed or damaged"),
    "another study": (STUDY, "sha256:" + "1" * 64, "was changed or damaged"),
    "a newer version": (r'"version": 1', '"version": 2', "upgrade consilience"),
    "another format": ("consilience site file", "consilience model", "not a site file"),
    "NaN": (r'"log_likelihood": -[\d.]+', '"log_likelihood": NaN', "NaN, which is not JSON"),
    "an infinite number": (r'"log_likelihood": -[\d.]+', '"log_likelihood": 1e999', "too large for a float"),
    "a second key": (r'"site": "north"', '"site": "north", "site": "south"', "occurs twice"),
    "a stripped hash": (r'  "hash": "sha256:[0-9a-f]+",\n', "", "has no 'hash'"),
    "an extra field": (r'"site": "north"', '"site": "north", "code": "import os"', "not a field of it"),
    "noise that is none": (r'"mechanism": "none"', '"mechanism": "differential privacy"', 'expected "none"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_refused(text, change):
    old, new, said = CHANGES[change]
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        SiteFile.from_text(changed)


def rehashed(text: str, change) -> str:
    """Return a file whose content was changed, with the hash of what it has now."""
    document = json.loads(text)
    change(document["content"])
    document["hash"] = content_hash(document["content"])
    return json.dumps(document)


FORGERIES = {
    "negative rows": lambda c: c["model"].update(rows_of_experts=[-10.0, 310.0]),
    "more rows than there are": lambda c: c["columns"].update(rows=10.0),
    "an expert too many": lambda c: c["model"]["mixture"]["gate"]["alpha"].append([0.0, 0.0, 0.0]),
    "asymmetric products": lambda c: c["columns"]["covariate_products"][0].__setitem__(1, 1e6),
    "indefinite products": lambda c: c["columns"].update(covariate_products=[[1.0, 5.0], [5.0, 1.0]]),
    "an earned precision": lambda c: c["model"].update(precision=(1e9 * np.array(c["model"]["precision"])).tolist()),
    "terms of another model": lambda c: c.update(terms=["(intercept)"]),
    "ragged lists": lambda c: c["model"]["mixture"]["experts"]["B"][0][0].append(1.0),
    "shares that are none": lambda c: c["model"]["covariates"]["shares"].append([]),
    "huge coefficients": lambda c: c["model"]["mixture"]["experts"]["B"][0][0].__setitem__(0, 1e200),
    "no experts": lambda c: c["model"]["mixture"]["experts"].update(B=[], covariance=[]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_no_rows_can_give_is_refused_whatever_its_hash(text, forgery):
    forged = rehashed(text, FORGERIES[forgery])
    with pytest.raises(InvalidInputError):
        SiteFile.from_text(forged)
    SiteFile.from_text(rehashed(text, lambda _: None))  # so that it is not the hash that is refused


@pytest.mark.parametrize(
    "bomb",
    [
        '{"format": ' + "[" * 100_000,
        '{"a": ' * 100_000,
        '{"format": "consilience site file", "version": 1, "x": ' + "9" * 100_000 + "}",
        "",
        "null",
        "[]",
        "\x00",
    ],
)
def test_bombs_are_refused(bomb):
    with pytest.raises(InvalidInputError):
        SiteFile.from_text(bomb)


@pytest.mark.slow
def test_a_billion_experts_are_refused_before_anything_is_allocated(text):
    many = rehashed(text, lambda c: c["model"]["mixture"]["experts"].update(B=[[[0.0]]] * 200_000))
    with pytest.raises(InvalidInputError):
        SiteFile.from_text(many)


@pytest.mark.slow
def test_two_thousand_mutated_files_are_read_or_refused(text):
    rng = np.random.default_rng(1)
    data = text.encode()
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            at, kind = int(rng.integers(len(changed))), rng.integers(3)
            if kind == 0:
                changed[at] = int(rng.integers(256))
            elif kind == 1:
                del changed[at : at + int(rng.integers(1, 40))]
            else:
                changed[at:at] = changed[: int(rng.integers(1, 40))]
        with contextlib.suppress(InvalidInputError):
            SiteFile.from_text(bytes(changed).decode("utf-8", "replace"))


def test_canonical_bytes_do_not_depend_on_order_or_unicode_form():
    assert canonical_bytes({"b": 1.0, "a": "e\u0301"}) == canonical_bytes({"a": "\u00e9", "b": 1.0})
    for value in (float("nan"), {"é": 1, "e\u0301": 2}, "\ud800", object()):
        with pytest.raises(InvalidInputError):
            canonical_bytes(value)
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="too deeply"):
        canonical_bytes(deep)


def test_numbers_keep_their_bits():
    rng = np.random.default_rng(0)
    values = (rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200)).tolist()
    assert json.loads(canonical_bytes(values)) == values


def test_messages_and_files_say_the_same(text):
    fit = SiteFile.from_text(text).fit
    assert encode(decode(encode(fit))) == encode(fit)

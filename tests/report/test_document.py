"""Reports as files: nothing is loaded, names are escaped, tables hold the numbers, and no value of a table is shown."""

from __future__ import annotations

import re
import sys
import time
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
    load,
)
from consilience.datasets import soft
from consilience.errors import InvalidInputError
from consilience.kit.combination import simulate_study
from consilience.report import html_report, model_card
from mail_office import TABLES, study_with

pytest.importorskip("matplotlib")
HOSTILE = '<script>alert(1)</script>"&'
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements, attributes and texts of a page; an error if elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


@pytest.fixture(scope="module")
def hospitals() -> Any:
    return simulate_study(study_with('name = "OneShot", refine = 1'), TABLES)


@pytest.fixture(scope="module")
def text(hospitals: Any) -> str:
    return html_report(hospitals, title=HOSTILE, origin={HOSTILE: HOSTILE}, policies={"ash": HOSTILE})


def test_a_page_is_closed_to_the_outside(text: str) -> None:
    page = Page(text)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    for _, attributes in page.elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith(("#", "data:"))
        assert attributes.get("src") is None
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy == f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"
    assert "url(http" not in text
    assert "@import" not in text


def test_names_are_escaped(text: str) -> None:
    assert "<script>" not in text
    assert HOSTILE in "".join(Page(text).texts)


def test_identifiers_are_unique_and_links_lead_to_one(text: str) -> None:
    elements = Page(text).elements
    names = [a["id"] for _, a in elements if "id" in a]
    assert len(names) == len(set(names))
    assert {a["href"][1:] for _, a in elements if (a.get("href") or "").startswith("#")} <= set(names)


def test_a_page_has_verdict_sites_and_numbers_in_order(text: str, hospitals: Any) -> None:
    said = " ".join(" ".join(Page(text).texts).split())
    titles = [
        "This result can be used",
        "Who is in which expert, in words",
        "Sites",
        "Effects",
        "Where each expert holds",
        "Differences between sites",
        "From the sites' models to one",
        "Against simpler models",
        "Convergence",
        "What left each site",
        "Provenance",
    ]
    body = said[said.index("Expert 0 holds for") - 400 :]
    places = [said.index(titles[0]), *(body.index(title) + len(said) for title in titles[1:] if title in body)]
    assert len(places) == len(titles)
    assert places == sorted(places)
    assert f"{hospitals.best.model.mixture_.experts.B[0, 0, 1]:.4g}" in said
    for name in TABLES:
        assert name in said


def test_every_picture_has_a_text_and_a_table(text: str) -> None:
    page = Page(text)
    pictures = [a for tag, a in page.elements if tag == "svg"]
    assert len(pictures) >= 6
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 20 for a in pictures)
    assert len([tag for tag, _ in page.elements if tag == "table"]) >= len(pictures)
    assert len([tag for tag, _ in page.elements if tag == "figcaption"]) == len(pictures)


def test_an_expert_has_the_same_colour_throughout(text: str) -> None:
    colours = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', text.lower()))
    saturated = {
        c for c in colours if max(int(c[i : i + 2], 16) for i in (1, 3, 5)) > 90 and len({c[1:3], c[3:5], c[5:]}) > 1
    }
    assert saturated == {"#0072b2", "#d55e00"}


def test_values_of_a_table_are_in_no_report() -> None:
    sentinel = 77.123457
    tables = dict(TABLES)
    ages = tables["ash"]["age"].to_numpy().astype(float)
    ages[3] = sentinel
    at = tables["ash"].column_names.index("age")
    tables["ash"] = tables["ash"].set_column(at, "age", pa.array(ages))
    found = simulate_study(study_with('name = "OneShot", refine = 1'), tables)
    for made in (html_report(found), model_card(found)):
        assert "77.12" not in made
        assert "mail" not in made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "method"),
    [
        (MixtureOfRegressions(2, random_state=0), OneShot(refine=0)),
        (MixtureOfExpertsRegressor(2, random_state=0), SharedCentre()),
    ],
)
def test_other_methods_have_reports(model: Any, method: Any, tmp_path: Path) -> None:
    data = soft(1500, n_experts=2, n_features=2, random_state=0)
    sites = {name: (data.X[i::3], data.y[i::3]) for i, name in enumerate("abc")}
    result = Federation(sites).fit(model, method=method)
    result.report(tmp_path / "report.html", title="three sites")
    Page((tmp_path / "report.html").read_text())


@pytest.mark.slow
def test_models_of_one_machine_have_reports(tmp_path: Path) -> None:
    data = soft(900, n_experts=2, n_features=2, random_state=0)
    regression = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    regression.report(tmp_path / "a.html", data.X, data.y)
    assert "The model on the rows" in (tmp_path / "a.html").read_text()
    label = (data.y > np.median(data.y)).astype(int)
    MixtureOfExpertsClassifier(2, random_state=0, n_init=2).fit(data.X, label).report(
        tmp_path / "b.html", data.X, label
    )
    GaussianMixture(2, random_state=0).fit(data.X).report(tmp_path / "c.html", data.X)
    regression.save(tmp_path / "model.json")
    load(tmp_path / "model.json").report(tmp_path / "MODEL_CARD.md")
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert card.startswith("---\nlibrary_name: consilience\npipeline_tag: tabular-regression\n")
    assert "| expert | part | term |" in card
    for name in "abc":
        Page((tmp_path / f"{name}.html").read_text())
    with pytest.raises(InvalidInputError, match=r"html or \.md"):
        regression.report(tmp_path / "report.pdf")


def test_a_card_escapes_names(hospitals: Any) -> None:
    card = model_card(hospitals, title="a | b <i>", policies={"ash": "x | y"})
    assert r"# a \| b \<i\>" in card
    assert r"x \| y" in card


def test_without_the_extra_the_error_names_it(hospitals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"consilience\[report\]"):
        html_report(hospitals)
    assert model_card(hospitals)


@pytest.mark.long
def test_a_large_report_is_small_and_quick() -> None:
    M, K, d = 128, 8, 50
    data = soft(M * 1600, n_experts=K, n_features=d, random_state=0)
    sites = {f"site {i:03d}": (data.X[i::M], data.y[i::M]) for i in range(M)}
    model = MixtureOfExpertsRegressor(K, random_state=0, mixture_init=data.truth, max_iter=3)
    result = Federation(sites).fit(model, method=OneShot(refine=0))
    assert {site.status for site in result.sites} == {"used"}
    began = time.process_time()
    text = html_report(result)
    assert time.process_time() - began <= 20
    assert len(text.encode()) <= 2_000_000
    assert text.count("<details>") >= 3

"""Reports as files: nothing is loaded, names are escaped, and no value of a table is shown."""

from __future__ import annotations

import csv
import io
import re
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
from consilience.kit.study_words import words_of
from consilience.report import SentFile, html_report, model_card, report_tables
from mail_office import TABLES, study_with

HOSTILE = '<script>alert(1)</script>"&'
VOID = {"meta", "br", "link", "img", "input", "hr"}
SHAPES = {"svg", "line", "text", "polyline", "polygon", "path", "rect", "circle"}


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
    sent = (SentFile("ash", HOSTILE, 1234, "0" * 64, 250, HOSTILE),)
    known = {"files": sent, "invited": ("ash", HOSTILE), "governance": {"purpose": HOSTILE}, "study": HOSTILE}
    return html_report(hospitals, title=HOSTILE, origin={HOSTILE: HOSTILE}, commands=(HOSTILE,), **known)


def test_a_page_is_closed_to_the_outside(text: str) -> None:
    page = Page(text)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    for _, attributes in page.elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
        assert attributes.get("src") is None
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in text
    assert "@import" not in text


def test_names_are_escaped(text: str) -> None:
    assert "<script>" not in text
    assert HOSTILE in "".join(Page(text).texts)


def test_identifiers_are_unique_and_links_lead_to_one(text: str) -> None:
    elements = Page(text).elements
    names = [a["id"] for _, a in elements if "id" in a]
    assert len(names) == len(set(names))
    assert {a["href"][1:] for _, a in elements if (a.get("href") or "").startswith("#")} <= set(names)


def test_sections_are_in_the_order_in_which_they_are_read(text: str) -> None:
    titles = re.findall(r'<h2 id="\w+"[^>]*>\d+\. ([^<]*)</h2>', text)
    assert titles == [
        "What was found",
        "Rows and sites",
        "Who belongs where",
        "What goes with log_days",
        "What to expect",
        "Do the sites agree?",
        "Is two the right number?",
        "Methods and results, ready to paste",
        "What this report cannot say",
        "What left each site",
        "How to get the same result again",
        "Supplement: all numbers",
        "Supplement: sites and computation",
        "Supplement: checklists",
    ]


def test_every_picture_has_a_text_and_colours_of_the_page_alone(text: str) -> None:
    elements = Page(text).elements
    pictures = [a for tag, a in elements if tag == "svg"]
    assert len(pictures) >= 15
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 20 for a in pictures)
    for tag, attributes in elements:
        if tag in SHAPES:
            assert not {"fill", "stroke", "font-family", "font-size"} & attributes.keys()


def test_nothing_is_folded(text: str) -> None:
    assert not {"details", "summary"} & {tag for tag, _ in Page(text).elements}


def test_a_site_of_the_roster_without_a_file_is_named(text: str) -> None:
    said = "".join(Page(text).texts)
    assert f"nothing came from {HOSTILE}" in said
    assert f"The result says nothing about {HOSTILE}: it was left out." in said


def test_no_file_is_said_to_have_another_hash_or_size(hospitals: Any, tmp_path: Path) -> None:
    data = b"{}"
    sent = SentFile("ash", "ash.json", len(data), sha256(data).hexdigest(), 0)
    text = html_report(hospitals, files=(sent,))
    assert text.count(sent.digest) == 1
    assert set(re.findall(r"\b[0-9a-f]{64}\b", text)) - {sent.digest} == set(
        re.findall(r"(?<=sha256:)[0-9a-f]{64}\b", text)
    )


def test_values_of_a_table_are_in_no_report() -> None:
    sentinel = 77.123457
    tables = dict(TABLES)
    ages = tables["ash"]["age"].to_numpy().astype(float)
    ages[3] = sentinel
    at = tables["ash"].column_names.index("age")
    tables["ash"] = tables["ash"].set_column(at, "age", pa.array(ages))
    study = study_with('name = "OneShot", refine = 1')
    found = simulate_study(study, tables)
    tables_of = report_tables(found, words=words_of(study))
    for made in (html_report(found), model_card(found), *tables_of.values()):
        assert "77.12" not in made
        assert "mail" not in made


def test_tables_have_the_numbers_of_the_page_and_no_formula(hospitals: Any) -> None:
    found = report_tables(hospitals, characteristics=(("what", "ash"), ("=cmd()", "-3.5 (1.2)")))
    rows = list(csv.reader(io.StringIO(found["characteristics.csv"])))
    assert rows == [["what", "ash"], ["'=cmd()", "-3.5 (1.2)"]]
    parameters = list(csv.DictReader(io.StringIO(found["parameters.csv"])))
    model = hospitals.best.model
    slope = next(r for r in parameters if r["part"] == "expert" and r["term"] == "(age - 60)/15")
    assert float(slope["estimate"]) in [float(f"{v:.4g}") for v in model.coef_[:, 0]]


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
    assert "Does the model describe the rows?" in (tmp_path / "a.html").read_text()
    label = (data.y > np.median(data.y)).astype(int)
    MixtureOfExpertsClassifier(2, random_state=0, n_init=2).fit(data.X, label).report(
        tmp_path / "b.html", data.X, label
    )
    GaussianMixture(2, random_state=0).fit(data.X).report(tmp_path / "c.html", data.X)
    three = np.digitize(data.y, np.quantile(data.y, [0.3, 0.6]))
    MixtureOfExpertsClassifier(2, random_state=0, n_init=1).fit(data.X, three).report(
        tmp_path / "d.html", data.X, three
    )
    regression.save(tmp_path / "model.json")
    load(tmp_path / "model.json").report(tmp_path / "MODEL_CARD.md")
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert card.startswith("---\nlibrary_name: consilience\npipeline_tag: tabular-regression\n")
    assert "| kind | part | term |" in card
    for name in "abcd":
        Page((tmp_path / f"{name}.html").read_text())
    with pytest.raises(InvalidInputError, match=r"html or \.md"):
        regression.report(tmp_path / "report.pdf")


def test_a_card_escapes_names(hospitals: Any) -> None:
    card = model_card(hospitals, title="a | b <i>", study="s", governance={"purpose": "x | y"})
    assert r"# a \| b \<i\>" in card
    assert r"x \| y" in card


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
    assert "The table is too large for a page: effects-by-site.csv" in text
    assert len(report_tables(result)["effects-by-site.csv"].splitlines()) > M * K * d

"""The first screen of a report says whether a result can be used, and what is in doubt."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import FederatedEM, MixtureOfExpertsRegressor, OneShot, PrivateScoring, SharedCentre, load
from consilience.datasets import soft
from consilience.methods import Method
from consilience.methods.site_reports import WORSE
from consilience.report import Use, html_report, verdict
from consilience.report.subject import Subject
from consilience.report.verdict import in_study_words
from report_cases import CASES, fitted, good, parts

EXPECTED: dict[str, tuple[Use, list[str]]] = {
    "good": (Use.YES, ["5 of 5 sites were used", "There are two kinds of rows"]),
    "bad_site": (Use.CARE, ["1 of 5 sites was left out. east: its data follow patterns that no other site shows"]),
    "wrong_units": (Use.CARE, ["1 of 5 sites was left out. west", "x1 is about 1,000 times the others': units"]),
    "one_site_expert": (Use.CARE, ["was found at one site only, south"]),
    "sharp_gate": (Use.CARE, ["within a small range", "the sites are small", "where the border is, is uncertain"]),
    "sites_differ": (Use.NO, ["The sites disagree, and the data cannot tell which are wrong", "an average over sites"]),
    "separated_gate": (Use.CARE, ["no intervals of who belongs to which kind: the gate is nearly separated"]),
    "too_many_experts": (Use.NO, ["prefers 1 kind to 3", "the data do not show that there are 3"]),
    "too_few_rows": (Use.NO, ["effective rows (a row counts less where its kind is unclear) for 4 coefficients"]),
    "worse_than_one": (Use.NO, ["One regression for all rows explains them better"]),
    "refused_sites": (Use.CARE, ["1 of 5 sites was left out. ash", "the site refuses the question"]),
    "withheld": (Use.YES, ["Intervals of who belongs to which kind and of the scatter: they need a second exchange"]),
}
OF_THE_LIBRARY = re.compile(
    r"OneShot|FederatedEM|SharedCentre|ClusteredClients|PrivateScoring|MixtureOf\w+|GaussianMixture|n_init|select_order|"
    r"to_frame|refine=|\bExpert \d|\bexpert \d|\bcomponent \d"
)
"""Names of classes and settings, and numbers of experts, which mean nothing to a reader of a report."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_verdict_says_what_is_in_doubt(case: str) -> None:
    found: Any = CASES[case]()
    said = verdict(*found) if isinstance(found, tuple) else verdict(found)
    use, expected = EXPECTED[case]
    assert said.use is use, str(said)
    for part in expected:
        assert part in str(said)
    if case in ("good", "withheld"):
        assert not said.points
    result, orders = found if isinstance(found, tuple) else (found, None)
    page = html_report(result, orders=orders)
    shown = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert not OF_THE_LIBRARY.findall(shown)


@pytest.mark.slow
def test_a_site_that_the_result_explains_worse_than_its_own_model_is_named() -> None:
    tables = parts(12_000)
    X, y = tables["east"]
    tables["east"] = (X, y + 0.15 * X[:, 0])
    result = fitted(tables, method=FederatedEM())
    assert any(WORSE in str(site) for site in result.sites if site.name == "east")
    assert verdict(result).use is not Use.YES
    assert "The own model of east explains the rows there better than the result does" in str(verdict(result))


@pytest.mark.slow
@pytest.mark.parametrize("method", [OneShot(refine=0), SharedCentre(rounds=14)], ids=["one shot", "shared centre"])
def test_degrees_of_freedom_between_sites_are_not_taken_for_rows(method: Method) -> None:
    tables = parts(6000)
    for shift, name in zip((-0.4, -0.2, 0, 0.2, 0.4), tables, strict=True):
        X, y = tables[name]
        tables[name] = (X, y + shift * (1 + X.sum(axis=1)))
    result = fitted(tables, method=method)
    assert result.model.inference_.degrees.min() < 10
    assert "for 4 coefficients, at least" not in str(verdict(result))


def test_degrees_of_freedom_of_clusters_are_not_taken_for_rows() -> None:
    data = soft(2000, n_experts=2, n_features=3, random_state=0)
    model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y, clusters=np.arange(2000) % 10)
    assert model.inference_.degrees_of_freedom().experts.max() == 9
    assert "for 4 coefficients, at least" not in str(verdict(model))


def test_all_cases_are_expected() -> None:
    assert CASES.keys() == EXPECTED.keys()
    assert len(CASES) == 12


@pytest.mark.slow
def test_every_suspect_site_is_named_wherever_it_stands() -> None:
    data = soft(4000, n_experts=2, n_features=3, random_state=0)
    tables = {f"site {i}": (data.X[i::10], data.y[i::10]) for i in range(10)}
    result = fitted(tables, method=FederatedEM())
    assert verdict(result).use is Use.YES
    wrong = "x1 is about 10 times the others': units?"
    large = "it has 95 % of all rows, 20 times those of the next site: ask whether rows were counted twice"
    survey = result.fit.survey.with_suspicions({"site 8": (wrong,)})
    survey = replace(survey, sites=(*survey.sites[:-1], replace(survey.sites[-1], question=large)))
    said = verdict(replace(result, fit=replace(result.fit, survey=survey)))
    assert said.use is Use.NO
    assert f"The data of site 8 may be wrong, and were used as they are: {wrong} Ask the site." in str(said)
    assert f"site 9 was used, though {large}" in str(said)


def test_long_numbers_of_a_sentence_have_separators_and_nothing_else_changes() -> None:
    subject = Subject.of(good())
    said = in_study_words(subject, "log-likelihood -21793 against -24267.2, 1234 and 0.123456; 12345.")
    assert said == "log-likelihood −21,793 against −24,267.2, 1234 and 0.123456; 12,345."


# ---------------------------------------------------------------- fits with noise


@cache
def private() -> Any:
    """A fit from sums with noise, from a start that two of three sites could have released."""
    tables = parts(sites=3)
    start = MixtureOfExpertsRegressor(2, random_state=0).fit(*tables["north"])
    X = np.concatenate([X for X, _ in tables.values()])
    return fitted(tables, method=PrivateScoring(8, covariates=X[::2], start=start))


@pytest.mark.slow
def test_a_private_fit_says_what_it_spent_and_what_noise_costs() -> None:
    page = html_report(private())
    assert "3 sites were asked for sums" in page
    assert "What noise protects, and what it costs" in page
    for said in (
        "ε = 8",
        "ρ = 1.0524",
        "one row of a site",
        "times those without noise",
        "sums with noise do not tell",
    ):
        assert said in page
    assert "All rows were at one place" not in page
    assert "What noise protects" not in html_report(fitted(parts(sites=3)))


@pytest.mark.slow
def test_a_site_that_added_noise_is_not_called_silent() -> None:
    names = tuple(parts(sites=3))
    assert Subject.of(private(), invited=(*names, "lost")).absent == ("lost",)


@pytest.mark.slow
def test_a_model_file_of_sites_does_not_say_that_all_rows_were_at_one_place(tmp_path: Path) -> None:
    pooled = fitted(parts(sites=3))
    for result, said in ((private(), "The rows were at several sites"), (pooled, "The rows were at 3 sites")):
        result.model.save(tmp_path / "model.json")
        page = str(verdict(load(tmp_path / "model.json")))
        assert said in page
        assert "at one place" not in page
    private().model.save(tmp_path / "model.json")
    assert "ε = 8" in str(verdict(load(tmp_path / "model.json")))
    alone = MixtureOfExpertsRegressor(2, random_state=0).fit(*parts()["north"])
    assert "All rows were at one place" in str(verdict(alone))
    alone.save(tmp_path / "alone.json")
    assert "All rows were at one place" in str(verdict(load(tmp_path / "alone.json")))

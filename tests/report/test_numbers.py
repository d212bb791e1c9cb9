"""What a report says is what the model has: every number."""

from __future__ import annotations

import platform
import re
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import chi2, norm

from consilience._version import __version__
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit.combination import simulate_study
from consilience.kit.policy.policy import Policy
from consilience.kit.study import Study
from consilience.kit.study_words import words_of
from consilience.report import html_report, verdict
from consilience.report.kinds import kinds_of, name_experts
from consilience.report.scale import ChangeScale
from report_text import plain, sections

AT = {"age": (60, 15), "severity": (4, 2)}


def test_effects_are_those_of_the_model(page: str, demo: Any) -> None:
    model = demo[0].best.model
    B, (low, high) = model.inference_.estimates.experts, model.inference_.interval(0.95)
    order = np.argsort(B[:, 0, 0])
    said = sections(page)["effects"]
    rows = [
        (1, 10 / 15, "Age, per 10 years"),
        (2, 0.5, "Severity, per point"),
        (4, 1, "emergency compared with planned"),
    ]
    for place, size, name in rows:
        cells = []
        for k in order:
            change, *ends = (100 * np.expm1(size * part[k, 0, place]) for part in (B, low.experts, high.experts))
            digits = 0 if change >= 9.5 else 1 if change >= 0.95 else 2
            cells.append(f"{change:.{digits}f} % longer ({ends[0]:.{digits}f} to {ends[1]:.{digits}f} %)")
        assert f"{name} {' '.join(cells)}" in said


def test_effects_in_days_are_those_of_the_model(page: str, demo: Any) -> None:
    model, rows = demo[0].best.model, pa.concat_tables(hospitals().values())
    estimates, normal = model.inference_.estimates, np.random.default_rng(0).standard_normal((200_000, 5))
    means = [(rows[name].to_numpy().mean() - centre) / scale for name, (centre, scale) in AT.items()]
    shares = [np.mean(rows[name].to_numpy() == level) for name, level in (("sex", "male"), ("admission", "emergency"))]
    said = sections(page)["effects"].partition("in days.")[2]
    for place, size, name in [(1, 10 / 15, "Age, per 10 years"), (4, 1, "Admission, emergency compared with planned")]:
        before = np.array([1.0, *means, *shares]) * (np.arange(5) != place if place == 4 else 1)
        after = before + size * (np.arange(5) == place)
        shown = re.search(rf"{name} ([\d.]+) days longer \(([\d.]+) to ([\d.]+)\) ([\d.]+) days longer", said)
        assert shown is not None
        for k, numbers in zip(np.argsort(estimates.experts[:, 0, 0]), [(1, 2, 3), (4,)], strict=True):
            own = slice(estimates.gate.size + 5 * k, estimates.gate.size + 5 * (k + 1))
            root = np.linalg.cholesky(model.inference_.covariance[own, own])
            drawn = estimates.experts[k, 0] + normal @ root.T
            change = np.exp(drawn @ after) - np.exp(drawn @ before)
            for i, expected in zip(numbers, [np.median(change), *np.quantile(change, [0.025, 0.975])], strict=False):
                assert abs(float(shown[i]) - expected) < 0.01 * change.mean() + 0.006


def test_parameters_are_those_of_the_model(page: str, demo: Any) -> None:
    model, said = demo[0].best.model, sections(page)["supplement"]
    errors = model.inference_.standard_errors().experts
    for k in range(2):
        for t, name in enumerate(["(intercept)", "(age - 60)/15", "(severity - 4)/2", "sex[male]"]):
            figures = [
                f"{v:.4g}".replace("-", "−") for v in (model.inference_.estimates.experts[k, 0, t], errors[k, 0, t])
            ]
            assert f"expert {name} {' '.join(figures)}" in said


def test_forests_have_estimates_and_weights_of_the_sites(page: str, demo: Any) -> None:
    found = demo[0].best.fit.combination.coefficients
    k = int(np.argmin(demo[0].best.model.inference_.estimates.experts[:, 0, 0]))
    information = 1 / found.variances[k, :, 4]
    said = sections(page)["agree"]
    for m, site in enumerate(found.sites):
        b, reach = found.estimates[k, m, 4], norm.ppf(0.975) * np.sqrt(found.variances[k, m, 4])
        value, low, high = (100 * np.expm1(v) for v in (b, b - reach, b + reach))
        weight = 100 * information[m] / information.sum()
        assert f"{site} +{value:.0f} ({low:.0f} to {high:.0f}) {weight:.0f} %" in said


def test_predictions_are_those_of_the_model(page: str, demo: Any) -> None:
    model, said = demo[0].best.model, sections(page)["expect"]
    x = np.array([[(80 - 60) / 15, (6 - 4) / 2, 0.0, 0.0]])
    chance = model.mixture_.gate_weights(x)[0, int(np.argmax(model.inference_.estimates.experts[:, 0, 0]))]
    half, most = (np.exp(model.mixture_.quantile(x, p)[0]) for p in (0.5, 0.9))
    assert f"Age 80 years, severity 6 points {100 * chance:.0f} % {half:.1f} {most:.1f}" in said


def test_changes_without_a_site_are_those_of_the_fit(page: str, demo: Any) -> None:
    fit, at = demo[0].best.fit, demo[0].best.model.inference_.estimates
    k = int(np.argmin(at.experts[:, 0, 0]))
    i = at.gate.size + k * at.experts.shape[2] + 4
    row = [100 * np.expm1(at.experts[k, 0, 4])]
    row += [100 * np.expm1(at.experts[k, 0, 4] + change[i]) for change in fit.left_out.changes.values()]
    assert f"Admission, emergency compared with planned {' '.join(f'{v:+.1f}' for v in row)}" in sections(page)["agree"]


def test_numbers_of_the_text_to_paste_are_those_of_the_tables(page: str) -> None:
    parts = sections(page)
    elsewhere = " ".join(text for name, text in parts.items() if name != "paste")
    results = parts["paste"].partition("Results.")[2].partition("Citation.")[0]
    numbers = re.findall(r"−?\d[\d,.]*\d|\d", results)
    assert len(numbers) > 40
    assert not [number for number in numbers if number not in elsewhere]


NUMBER = re.compile(r"−?\d[\d,.]*\d|−?\d")
SAID_OF_THE_METHOD = {"4", "5", "20", "95", "0", "2", "1", "8", "3", "2026", "19", "256"}
"""Numbers of the wording and of counts of what is on the page: 4 of 5, 95 % intervals, one of 20, Table 2, SHA-256."""


def numbers_in(text: str) -> list[str]:
    return [each.lstrip("−") for each in NUMBER.findall(text)]


def prose_and_cells(page: str) -> tuple[str, str]:
    """Sentences of a page, without pictures, commands and hashes; and the cells of its tables."""
    body = re.sub(r'<h2 id="again">.*?(?=<h2 id=)', " ", page, flags=re.DOTALL)
    body = re.sub(r"<style>.*?</style>|<svg.*?</svg>|<nav.*?</nav>|<h2.*?</h2>", " ", body, flags=re.DOTALL)
    cells = " ".join(re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", body, flags=re.DOTALL))
    captions = " ".join(re.findall(r"<caption>(.*?)</caption>", body, flags=re.DOTALL))
    prose = re.sub(r"<table.*?</table>|<figcaption><b>.*?</b>", " ", body, flags=re.DOTALL)
    return plain(f"{prose} {captions}"), plain(cells)


def rounded(value: float) -> str:
    """Three digits, as people write them."""
    return f"{value:.{max(0, 2 - int(np.floor(np.log10(abs(value)))))}f}"


def followed(demo: Any) -> set[str]:
    """Numbers of the text that stand in no table, computed from the rows of all hospitals and from the model."""
    model, rows = demo[0].best.model, pa.concat_tables(hospitals().values())
    found = {f"{rows.num_rows:,}", f"{model.log_likelihood_:,.3f}".lstrip("-"), *numbers_in(__version__)}
    found |= {platform.python_version(), str(model.random_state), str(model.n_parameters_), str(model.n_iter_)}
    raw = {name: rows[name].to_numpy() for name in AT}
    for name, digits in (("age", 0), ("severity", 1)):
        reach = norm.ppf(0.9) * raw[name].std()
        found |= {f"{raw[name].mean() + sign * reach:.{digits}f}" for sign in (-1, 1)} | {rounded(raw[name].mean())}
    shares = [np.mean(rows[name].to_numpy() == level) for name, level in (("sex", "male"), ("admission", "emergency"))]
    x = np.array([1.0, *((raw[name].mean() - centre) / scale for name, (centre, scale) in AT.items()), *shares])
    estimates, gate = model.inference_.estimates, model.inference_.estimates.gate.size
    for k, part in enumerate(estimates.experts[:, 0]):
        own = slice(gate + 5 * k, gate + 5 * (k + 1))
        reach = norm.ppf(0.975) * np.sqrt(x @ model.inference_.covariance[own, own] @ x)
        found |= {rounded(float(np.exp(part @ x + sign * reach))) for sign in (-1, 0, 1)}
        spread = norm.ppf(0.9) * np.exp(0.5 * float(estimates.log_shapes[k, 0]))
        found |= {f"{np.exp(sign * spread):.2f}" for sign in (-1, 1)} | {f"{100 * model.weights_[k]:.0f}"}
    return found


def test_every_number_of_the_text_is_in_a_table_or_follows_from_model_and_rows(page: str, demo: Any) -> None:
    prose, cells = prose_and_cells(page)
    said = numbers_in(prose)
    assert len(said) > 150
    known = {*numbers_in(cells), *followed(demo), *SAID_OF_THE_METHOD}
    assert [number for number in said if number not in known] == []
    assert followed(demo) - set(said) - SAID_OF_THE_METHOD == set()  # and each of these is said


def test_differences_between_sites_are_those_of_their_estimates(page: str, demo: Any) -> None:
    model, found = demo[0].best.model, demo[0].best.fit.combination.coefficients
    said = sections(page)["computation"].partition("Table S3.")[2]
    order = np.argsort(model.inference_.estimates.experts[:, 0, 0])
    for k, name in zip(order, ["Shorter stays", "Longer stays"], strict=True):
        b, w = found.estimates[k, :, 4], 1 / found.variances[k, :, 4]
        Q, df = float(np.sum(w * (b - np.sum(w * b) / w.sum()) ** 2)), len(b) - 1
        shown = re.search(rf"{name}: admission, emergency compared with planned (\d+) % .*? ([\d.]+) (?:\+|−)", said)
        assert shown is not None
        assert abs(float(shown[1]) - 100 * max(0.0, (Q - df) / Q)) <= 0.5
        assert abs(float(shown[2]) - chi2.sf(Q, df)) <= 0.006


def test_the_likelihood_of_one_model_is_that_of_all_rows_in_one_table(page: str) -> None:
    rows = pa.concat_tables(hospitals().values())
    y = rows["log_days"].to_numpy()
    X = np.column_stack(
        [np.ones(len(y)), *((rows[name].to_numpy() - centre) / scale for name, (centre, scale) in AT.items()),
         rows["sex"].to_numpy() == "male", rows["admission"].to_numpy() == "emergency"]
    ).astype(float)  # fmt: skip
    rest = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    log_likelihood = -len(y) / 2 * (np.log(2 * np.pi * np.mean(rest**2)) + 1)
    expected = -2 * log_likelihood + 6 * np.log(len(y))
    shown = re.search(r"1 ([\d,]+) by algebra from the files", sections(page)["number"])
    assert shown is not None
    assert abs(float(shown[1].replace(",", "")) - expected) < 10  # numbers in the files are rounded


def test_the_chances_in_pictures_are_those_of_the_table(page: str) -> None:
    start = page.index('<h2 id="members">')
    drawn = re.findall(r">([\d]+) %</text>", page[start : page.index('<h2 id="effects">')])
    table = re.findall(r"Age \d+ years, severity \d points (\d+) %", sections(page)["expect"])
    assert len(drawn) == len(table) == 9
    assert sorted(drawn) == sorted(table)


def test_experts_count_from_one_and_have_the_same_name_everywhere(page: str, demo: Any) -> None:
    """The expert with the smaller prediction is the first kind, and has its number of the summary, from 1."""
    orders, known = demo
    model, kinds = orders.best.model, kinds_of(orders.best.model, known["words"])
    low = int(np.argmin(model.intercept_))
    assert kinds[0].expert == low
    assert f"{kinds[0].name} {low + 1}, {kinds[1].name} {2 - low}." in plain(page)
    assert name_experts(f"expert {low + 1} has 5 rows", kinds) == f"{kinds[0].name} has 5 rows"
    assert f"Expert {low + 1}: share {model.weights_[low]:.3f}" in model.summary()
    assert "xpert 0" not in model.summary() + model.describe()


def test_one_number_of_kinds_that_was_not_sent_is_not_invented() -> None:
    study = Study.from_text(STUDY.replace("experts = [2]", "experts = [1, 2, 3]"))
    tables = {name: table for name, table in hospitals().items() if name in ("ash", "birch", "oak")}
    orders = simulate_study(study, tables, Policy.of_profile("hospital"))
    said = sections(html_report(orders, words=words_of(study)))["number"]
    assert re.search(r"1 [\d,]+ by algebra from the files 2 [\d,]+ this report 3 — cannot be computed", said)


def test_a_doubt_about_the_data_is_in_its_own_box(demo: Any) -> None:
    orders, known = demo
    data, model, way = verdict(orders, **known).parts
    assert (data.tag, model.tag) == ("1 doubt", "No doubt found")
    assert not way.decides
    assert verdict(orders, **{**known, "invited": tuple(hospitals())}).use == 0


def test_an_effect_in_words_is_as_fine_as_its_interval_supports() -> None:
    days = ChangeScale("difference", "days", "shorter", "longer")
    assert days.sentence(0.0206, 0.0102, 0.031) == "0.021 days longer (0.010 to 0.031)"
    assert days.sentence(-1.25, -1.32, -1.18) == "1.25 days shorter (1.18 to 1.32)"
    assert days.sentence(0.9, -0.483, 2.31) == "no difference shown (−0.5 to +2.3 days)"
    assert days.sentence(0.17, 0.004, 0.35) == "0.170 days longer (0.004 to 0.350)"

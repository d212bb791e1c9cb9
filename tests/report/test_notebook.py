"""What a notebook shows of a fitted model: its table, the picture, and what is in doubt."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from consilience import Federation, GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.fitted.effects import expert_effects
from consilience.report.notebook import effects_picture
from simulated import simulated

NAMES = ["a<b>&\"'", "</svg><script>alert(1)</script>"]


@cache
def model(family: str = "gaussian") -> MixtureOfExpertsRegressor:
    data = simulated(family, n=300)
    X = pd.DataFrame(data.X, columns=NAMES)
    return MixtureOfExpertsRegressor(2, family=family, mixture_init=data.truth).fit(X, data.y)


def doubtful(**changes: object) -> MixtureOfExpertsRegressor:
    """A copy of the model with other attributes."""
    found = MixtureOfExpertsRegressor(2)
    vars(found).update(vars(model()) | changes)
    return found


def test_a_notebook_asks_for_what_is_tested_here() -> None:
    """IPython asks for the bundle of types before it asks for HTML."""
    assert model()._repr_mimebundle_()["text/html"] == model()._repr_html_()
    assert "Parameters" in MixtureOfExpertsRegressor()._repr_mimebundle_()["text/html"]
    with config_context(display="text"):
        assert "text/html" not in model()._repr_mimebundle_()


class Tags(HTMLParser):
    """Collects the tags with their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


TABLES = {"div", "strong", "table", "tr", "th", "td", "br", "ul", "li", "p"}
ALLOWED = TABLES | {"svg", "circle", "polygon", "path", "text"}


def test_names_are_escaped_and_nothing_runs_or_loads() -> None:
    read = Tags(model()._repr_html_())
    assert {tag for tag, _ in read.tags} <= ALLOWED
    attributes = {name for _, attrs in read.tags for name in attrs}
    assert not {name for name in attributes if name.startswith("on") or name in ("href", "src")}
    assert set(NAMES) <= set(read.words)


def test_the_picture_has_a_mark_and_an_interval_for_each_coefficient() -> None:
    picture = Tags(effects_picture(model()))
    circles = [attrs for tag, attrs in picture.tags if tag == "circle"]
    squares = [attrs for tag, attrs in picture.tags if tag == "polygon"]
    assert len(circles) == len(squares) == 3  # the legend and two columns
    bars = [attrs["d"] for tag, attrs in picture.tags if tag == "path" and attrs.get("stroke-width") == "2"]
    assert len(bars) == 4
    effects = [effect for k in range(2) for effect in expert_effects(model(), k, 0.95)]
    order = np.argsort([effect.estimate for effect in effects])
    x = [float(attrs["cx"]) for attrs in circles[1:]] + [
        float(attrs["points"].split(",")[0]) + 3 for attrs in squares[1:]
    ]
    assert np.argsort(x).tolist() == order.tolist()
    for bar in bars:
        low, high = map(float, re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", bar)[0])
        assert low < high


def test_ratios_have_round_ticks() -> None:
    said = Tags(effects_picture(model("poisson"))).words
    assert "1" in said
    assert not {"0.368", "2.72"} & set(said)
    assert said[0].startswith("By how much the rate is multiplied, per standard deviation")


def test_a_mark_without_an_interval_is_hollow() -> None:
    silent = doubtful(inference_=replace(model().inference_, withheld={"experts": "a reason"}))
    marks = [attrs for tag, attrs in Tags(effects_picture(silent)).tags if tag in ("circle", "polygon")]
    assert [attrs["fill"] for attrs in marks[2:]] == ["none"] * 4
    assert "Intervals withheld (experts): a reason." in silent._repr_html_()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"degeneracy_": "an expert has no rows"}, "The fit is degenerate: an expert has no rows."),
        ({"doubts_": ("sites disagree",)}, "Sites disagree."),
        ({"starts_agree_": False}, "Starts do not agree"),
        ({"unidentified_": ["x is constant"]}, "Not identified: x is constant."),
    ],
)
def test_what_is_in_doubt_stands_above_the_tables(changes: dict[str, object], said: str) -> None:
    html = doubtful(**changes)._repr_html_()
    assert html.index("In doubt") < html.index(said) < html.index("Experts: coefficient")
    assert "Nothing is in doubt" in model()._repr_html_()
    assert "In doubt" not in model()._repr_html_()


def test_long_names_keep_their_ends_and_many_columns_are_cut() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(100, 12)), columns=[f"the same beginning of column {j}" for j in range(12)])
    y = X @ np.arange(12) + rng.normal(size=100)
    said = Tags(effects_picture(MixtureOfRegressions(1).fit(X, y))).words
    names = [word for word in said if "…" in word]
    assert len(set(names)) == 10
    assert "the 10 strongest of 12 columns" in said[0]


@pytest.mark.filterwarnings("ignore")  # eight experts are too many for these rows
def test_many_experts_are_said_to_be_more_than_are_shown() -> None:
    data = simulated(n=600)
    html = MixtureOfRegressions(8, max_iter=2, n_init=1, random_state=0).fit(data.X, data.y)._repr_html_()
    assert "terms of 8 experts in all: see to_frame()" in html
    assert "plot.coefficients(model) draws" in html
    assert "component 7" not in html


def test_what_has_no_picture_has_its_tables() -> None:
    data = simulated(q=2, gate="constant", n=200)
    several = MixtureOfRegressions(2, mixture_init=data.truth).fit(data.X, data.y)
    for fit in (several, GaussianMixture(1).fit(data.X)):
        assert "<svg" not in fit._repr_html_()
        assert "<table" in fit._repr_html_()


def test_a_federated_fit_shows_the_same_and_its_record_a_table() -> None:
    data = simulated(n=300)
    sites = {"north <b>": (data.X[::2], data.y[::2]), "south": (data.X[1::2], data.y[1::2])}
    result = Federation(sites).fit(MixtureOfExpertsRegressor(2, mixture_init=data.truth))
    assert result.model._repr_html_() in result._repr_html_()
    record = replace(result.record, dropped={"west <i>": "no answer"})._repr_html_()
    read = Tags(record)
    assert {tag for tag, _ in read.tags} <= ALLOWED
    assert any("left out: west <i> (no answer)" in word for word in read.words)
    for line in str(result.record).splitlines()[1:]:
        times, _, rest = line.strip().partition(" × ")
        kind, _, what = rest.partition(": ")
        assert {times, kind, what} <= set(read.words)

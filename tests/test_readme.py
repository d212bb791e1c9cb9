import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris

import consilience

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")


def quick_start() -> str:
    section = re.search(r"^## Quick start$(.*?)^## ", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert section, "README.md has no section 'Quick start'"
    blocks = re.findall(r"^```python\n(.*?)^```$", section[1], flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2, "expected two Python blocks: one table, three sites"
    return "".join(blocks)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    found: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch, mpl.rc_context({"backend": "agg"}):
        patch.chdir(tmp_path_factory.mktemp("readme"))
        exec(compile(quick_start(), str(README), "exec"), found)
        found["loaded"] = consilience.load("iris.json")
    return found


@pytest.mark.slow
def test_quick_start_fits_saves_and_draws(names):
    model, X = names["model"], names["X"]
    assert names["loaded"].summary() == model.summary()
    np.testing.assert_array_equal(names["loaded"].predict(X), model.predict(X))


def test_three_sites_give_the_fit_of_all_rows_without_an_alarm(names):
    result = names["result"]
    assert result.model.log_likelihood_ == pytest.approx(names["model"].log_likelihood_, abs=1e-6)
    assert [str(site) for site in result.sites] == ["north: used", "south: used", "east: used"]


@pytest.mark.slow
def test_what_is_said_of_the_picture_is_so(names):
    model, X, y = names["model"], names["X"], names["y"]
    setosa = load_iris().target == 0
    assert "in 149 of 150 flowers" in TEXT
    assert np.sum(model.responsibilities(X, y).argmax(axis=1) == setosa) == 149
    assert np.all(model.mixture_.experts.B[:, 0, 1] > 0)
    one = consilience.MixtureOfExpertsRegressor(1).fit(X, y).to_frame()
    slope = one[one["term"] == "sepal length (cm)"].query("part == 'expert'").iloc[0]
    assert slope["upper"] > 0 > slope["lower"]


def test_the_description_answers_where_each_expert_holds(names):
    text = " ".join(names["model"].describe().split())
    assert re.search(r"It is likelier the higher sepal length \(cm\) is: its odds .* \([\d.]+ to [\d.]+\)", text)
    assert "gate" not in names["model"].inference_.withheld


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (README.parent / target).exists(), target


def test_the_table_names_what_there_is():
    section = TEXT.split("## What to use when")[1].split("\n\n")[1]
    for name in re.findall(r"`([A-Z]\w+)", section):
        assert hasattr(consilience, name), name

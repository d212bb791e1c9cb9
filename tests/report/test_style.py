"""A page can be read by everyone: contrast in light and dark, landmarks, headings in order, and no picture library."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
from consilience.report import html_report
from consilience.report.kind_effects import Agreement, KindEffect, SiteEffect
from consilience.report.kinds import RowKind
from consilience.report.scale import ChangeScale, NaturalStep
from consilience.report.svg import forest

STYLE = files("consilience.report").joinpath("style.css").read_text(encoding="utf-8")
TEXTS = ("ink", "soft", "link", "yes", "care", "no", "note", *(f"k{i}" for i in range(6)))
GROUNDS = {"page": TEXTS, "panel": ("ink", "soft", "yes", "care", "no"), "yesbg": ("yes",), "carebg": ("care",),
           "nobg": ("no",), "notebg": ("note",)}  # fmt: skip


def colours(scheme: str) -> dict[str, str]:
    """The colours of a scheme by name; later declarations replace earlier ones."""
    blocks = re.findall(r":root\{(.*?)\}", STYLE, flags=re.DOTALL)
    assert len(blocks) == 3
    light, dark, printed = (dict(re.findall(r"--(\w+):(#[0-9a-f]+)", block)) for block in blocks)
    return {"light": light, "dark": {**light, **dark}, "print": {**light, **printed}}[scheme]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_texts_have_the_contrast_that_people_need(scheme: str) -> None:
    found = colours(scheme)
    for ground, texts in GROUNDS.items():
        for text in texts:
            light, dark = sorted((luminance(found[text]), luminance(found[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{text} on {ground}, {scheme}"


@pytest.fixture(scope="module")
def page() -> str:
    data = soft(600, n_experts=2, n_features=2, random_state=0)
    return html_report(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y), X=data.X, y=data.y)


def test_a_page_has_landmarks_and_headings_in_order(page: str) -> None:
    for landmark in ("<header>", "<main>", '<nav aria-label="Contents">', "<footer>", '<html lang="en">'):
        assert page.count(landmark) == 1
    levels = [int(level) for level in re.findall(r"<h([1-6])[ >]", page)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_table_has_a_caption_and_heads_of_columns_and_rows(page: str) -> None:
    tables = re.findall(r"<table.*?</table>", page, flags=re.DOTALL)
    assert len(tables) >= 4
    for table in tables:
        assert "<caption>" in table
        assert 'scope="col"' in table
        assert 'scope="row"' in table


def test_every_class_of_the_page_has_a_style(page: str) -> None:
    used = {name for names in re.findall(r'class="([^"]*)"', page) for name in names.split()}
    styled = set(re.findall(r"\.([a-z]\w*)", STYLE))
    assert used - styled <= {"cell", "group"}


@pytest.mark.slow
def test_a_report_needs_no_library_for_pictures() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from consilience import MixtureOfExpertsRegressor\n"
        "from consilience.datasets import soft\n"
        "from consilience.report import html_report\n"
        "data = soft(600, n_experts=2, n_features=2, random_state=0)\n"
        "page = html_report(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y), X=data.X, y=data.y)\n"
        "print(page.count('<svg'))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True)
    assert int(done.stdout) >= 3


@pytest.mark.parametrize("next_site", [(float("nan"), float("nan")), (-0.2, 0.4)])
def test_the_line_of_no_effect_ends_above_the_numbers_of_the_axis(next_site: tuple[float, float]) -> None:
    sites = tuple(SiteEffect(name, (0.1, -0.1, 0.3), 0.5) for name in ("ash", "oak"))
    step = NaturalStep(1, "age", "age", "per year", 1.0)
    agreement = Agreement(0.0, (0.0, 0.5), 0.0, 0.5, next_site)
    effect = KindEffect(RowKind(0, "all", 1.0, (1.0, 1.0, 1.0)), step, "", (0.1, 0.0, 0.2), sites, agreement)
    drawn = forest(effect, ChangeScale("odds", "", "lower", "higher"), "Age", i=0, axis=(-0.5, 0.5))
    found = re.search(r'<line class="r" x1="([\d.]+)" y1="[\d.]+" x2="\1" y2="([\d.]+)"', drawn)
    numbers = [float(y) for y in re.findall(r'<text class="s" x="[\d.]+" y="([\d.]+)" text-anchor="middle">', drawn)]
    assert found is not None
    assert float(found[2]) < min(numbers) - 11.5  # the height of a number

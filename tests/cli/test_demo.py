"""The demonstration runs to its end, and one exchange is close to the pooled fit."""

import json
import re

import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit.site_fit import examine_for_study
from consilience.kit.study import Study


@pytest.mark.slow
def test_the_tour_ends_within_a_standard_error_of_the_pooled_fit(tmp_path):
    done = CliRunner().invoke(app, ["demo", "hospitals", str(tmp_path / "tour"), "--no-input"])
    assert done.exit_code == 0, done.output
    last = done.stdout.strip().splitlines()[-1]
    assert float(re.fullmatch(r"one exchange against pooled: max \|Δcoef\|/SE = ([\d.]+)", last)[1]) < 1
    assert {path.name for path in (tmp_path / "tour").glob("*.json")} == {
        *(f"{name}.json" for name in hospitals()),
        "model.json",
        "model.evidence.json",
    }
    assert "What left each hospital" in (tmp_path / "tour" / "report.html").read_text()
    assert json.loads((tmp_path / "tour" / "ash.json").read_text())["content"]["privacy"] == {"mechanism": "none"}


def test_the_tour_asks_before_it_writes(tmp_path):
    done = CliRunner().invoke(app, ["demo", "hospitals", str(tmp_path / "tour")], input="n\n")
    assert done.exit_code == 1
    assert not (tmp_path / "tour").exists()


def test_the_tables_fit_the_study():
    study = Study.from_text(STUDY)
    for table in hospitals(3).values():
        assert examine_for_study(study, table).findings == ()

"""The demonstration runs to its end, and one exchange is close to the pooled fit."""

import json
import re
from hashlib import sha256

import pytest
from typer.testing import CliRunner

from consilience import load
from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit.folder import SiteFolder
from consilience.kit.site_fit import examine_for_study
from consilience.kit.site_noise import draft_steps
from consilience.kit.spending import spent_in
from consilience.kit.study import Study
from consilience.kit.study_model import estimators_of, method_of, task_of
from consilience.methods.site_reports import parameter_columns


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


@pytest.mark.slow
def test_the_tour_with_noise_ends_near_the_pooled_fit_and_costs_nothing_again(tmp_path):
    """Noise is drawn from the system: the bound is far above what it gives (0.7 to 1.2 in six runs)."""
    done = CliRunner().invoke(app, ["demo", "hospitals", str(tmp_path / "tour"), "--trust", "noise", "--no-input"])
    assert done.exit_code == 0, done.output
    last = done.stdout.strip().splitlines()[-1]
    assert float(re.fullmatch(r"one exchange against pooled: max \|Δcoef\|/SE = ([\d.]+)", last)[1]) < 5
    study, start = Study.read(tmp_path / "tour" / "study.toml"), (tmp_path / "tour" / "start.json").read_bytes()
    assert study.privacy.start == f"sha256:{sha256(start).hexdigest()}"
    files = {name: (tmp_path / "tour" / f"{name}.json").read_bytes() for name in hospitals()}
    assert all(json.loads(each)["content"]["privacy"]["epsilon"] == 3 for each in files.values())
    folder = SiteFolder.open(tmp_path / "tour" / "sites" / "ash")
    spent = spent_in(folder)
    assert spent == method_of(study).budget.whole
    draft = draft_steps(folder, study, hospitals()["ash"], load(tmp_path / "tour" / "start.json").mixture_)
    assert not draft.is_new


def test_the_tour_asks_before_it_writes(tmp_path):
    done = CliRunner().invoke(app, ["demo", "hospitals", str(tmp_path / "tour")], input="n\n")
    assert done.exit_code == 1
    assert not (tmp_path / "tour").exists()


def test_the_tables_fit_the_study():
    study = Study.from_text(STUDY)
    for table in hospitals(3).values():
        assert examine_for_study(study, table).findings == ()


@pytest.mark.slow
def test_no_text_of_the_tour_calls_the_response_y(tmp_path):
    done = CliRunner().invoke(app, ["demo", "hospitals", str(tmp_path / "tour"), "--no-input"])
    page = re.sub(r"<(style|svg).*?</\1>", "", (tmp_path / "tour" / "report.html").read_text(), flags=re.DOTALL)
    model = load(tmp_path / "tour" / "model.json")
    others = [str(model.summary()), model.describe(), str(model.to_frame()), str(model.tidy())]
    assert str(model.summary()).startswith("Mixture of experts, regression of log_days\n")
    assert set(model.to_frame()["response"]) == {"", "log_days"}
    for text in (done.stdout, re.sub(r"<[^>]+>", " ", page), *others):
        assert not re.search(r"(?<![\w=/])y(?![\w=/])", text)


def test_a_study_names_the_response_with_its_transform():
    text = STUDY.replace('name = "log_days"', 'name = "days"').replace('response = "log_days"', 'response = "days"')
    head, _, rest = text.partition('name = "days"')
    entry, _, others = rest.partition("[[columns]]")
    entry = re.sub(r"\n(low|high) = .*", "", entry) + 'low = 0\ntransform = "log1p"\n\n'
    others = others.replace('back = "exp"\n', "")
    study = Study.from_text(f'{head}name = "days"{entry}[[columns]]{others}')
    (model, *_) = estimators_of(study)
    assert model.response_names_ == ("log1p(days)",)
    assert parameter_columns(task_of(study))[-1] == "log1p(days)"

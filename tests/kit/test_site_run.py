"""Runs in rounds at a site: rows against earlier releases and runs, and what was asked against what is asked next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience import FederatedEM, OneShot
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError, RefusedError
from consilience.fit import Expect, fit_mixture
from consilience.kit import ledger
from consilience.kit.combination import GuardedSites, combine_files
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.rounds.guard import GuardedSite
from consilience.kit.release import release_fit
from consilience.kit.site_fit import fit_at_site, site_file, validate_rows
from consilience.kit.site_rounds import open_guarded_site
from consilience.kit.study import Study
from consilience.kit.study_model import task_of
from consilience.messages import FitSite, Summarise, decode, encode
from consilience.messages.failures import Failure
from consilience.model import Rows
from consilience.runs import run

PLAN = Study.from_text(STUDY)
TABLES = hospitals()
TASK = task_of(PLAN)
TOTALS = FederatedEM(totals_only=True)


def folder_in(path: Path, name: str = "ash", profile: str = "hospital") -> SiteFolder:
    return SiteFolder.init(name, Policy.of_profile(profile).to_text(), path)


def begun(folder: SiteFolder, table: pa.Table = TABLES["ash"], method: Any = TOTALS) -> GuardedSite:
    return open_guarded_site(folder, PLAN, table, method, TASK)


def test_a_run_over_nearly_the_rows_of_a_release_or_run_is_refused(tmp_path: Path) -> None:
    released_first, run_first = folder_in(tmp_path), folder_in(tmp_path, "birch")
    fit_at_site(released_first, PLAN, TABLES["ash"])
    release_fit(released_first, "A. Person")
    begun(run_first)
    for folder in (released_first, run_first):
        with pytest.raises(RefusedError, match="differ"):
            begun(folder, TABLES["ash"].slice(1))
        assert folder.entries[-1].kind == "refusal"
        assert begun(folder).asked.rounds == 0  # the same rows may be asked about again
    with pytest.raises(RefusedError, match="differ"):  # and a release after a run is held against it
        fit_at_site(run_first, PLAN, TABLES["ash"].slice(1))


def test_a_statement_on_other_people_is_recorded_and_a_refused_question_is_no_refused_fit(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    site = open_guarded_site(folder, PLAN, TABLES["ash"], TOTALS, TASK, other_people="another year")
    assert folder.entries[-1].details["stated"] == ["another year"]
    fit_at_site(folder, PLAN, TABLES["ash"])
    site.reply(b"noise")
    assert folder.entries[-1].kind == "refusal"
    assert len(release_fit(folder, "A. Person")) > 1_000


def test_the_fit_that_was_released_answers_for_it_and_counts(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    bare = begun(folder_in(tmp_path, "birch"), method=OneShot())
    assert bare.run.released is None
    fit_at_site(folder, PLAN, TABLES["ash"])
    release_fit(folder, "A. Person")
    site = begun(folder, method=OneShot())
    assert len(site.asked.fits) == 1
    question = next(OneShot().dialogue(TASK)).question
    assert isinstance(question, FitSite)
    answer = decode(site.reply(encode(question)))
    expected = site_file(PLAN, "ash", TABLES["ash"], Policy.of_profile("hospital")).fit
    np.testing.assert_array_equal(answer.model.mixture.coefficients, expected.model.mixture.coefficients)


def test_what_was_asked_counts_in_the_next_run_and_in_another_process(tmp_path: Path) -> None:
    folder = folder_in(tmp_path, profile="open")
    first = begun(folder, method=OneShot())
    mixture = site_file(PLAN, "ash", TABLES["ash"]).fit.model.mixture
    assert not isinstance(decode(first.reply(encode(Expect(mixture)))), Failure)
    assert folder.entries[-1].kind == "answer"
    again = begun(SiteFolder.open(folder.path), method=OneShot())
    assert again.asked == first.asked.next_run()
    assert again.asked.questions == first.asked.questions
    assert again.asked.rounds == 0


def test_a_refusal_is_kept_with_the_rows_and_ends_later_runs(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    most = Policy.of_profile("hospital").rounds.max_refusals
    for _ in range(most):
        assert isinstance(decode(begun(folder).reply(b"noise")), Failure)
    with pytest.raises(RefusedError, match="any more"):
        begun(folder)


def test_an_older_state_does_not_take_the_place_of_a_newer_one(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    begun(folder).reply(encode(Summarise(4, 1)))
    state = folder.path / "rounds" / f"{folder.entries[-1].details['state'].removeprefix('sha256:')}.json"
    state.write_text(state.read_text().replace('"rounds":1', '"rounds":0'))
    with pytest.raises(InvalidInputError, match="restore"):
        begun(folder)


def pooled_log_likelihood() -> float:
    """The log-likelihood of the pooled fit."""
    rows = [validate_rows(PLAN, table) for table in TABLES.values()]
    X, Y = (np.concatenate([getattr(each, name) for each in rows]) for name in ("X", "Y"))
    return float(fit_mixture(Rows(X, Y), TASK.specifications[0], rng=np.random.default_rng(0)).log_likelihood)


@pytest.mark.slow
def test_a_run_over_guarded_folders_gives_the_model(tmp_path: Path) -> None:
    files = [site_file(PLAN, name, table) for name, table in TABLES.items()]
    (before,) = combine_files(PLAN, files).fits
    method = FederatedEM(totals_only=True, information="simulated")
    task = replace(TASK, start=before.fit.mixture)
    sites = [open_guarded_site(folder_in(tmp_path, name), PLAN, table, method, task) for name, table in TABLES.items()]
    done = run(method.dialogue(task), GuardedSites(sites)).value[0]
    assert done.ascent.stop.converged
    assert done.log_likelihood >= pooled_log_likelihood() - 1.0
    for folder in tmp_path.iterdir():
        kinds = [entry.kind for entry in SiteFolder.open(folder).entries]
        assert kinds[:2] == ["init", "run"]
        assert set(kinds[2:]) == {"answer"}
        ledger.read(folder / "ledger.jsonl")

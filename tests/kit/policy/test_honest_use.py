"""Honest sites are not refused, and a refusal says what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from consilience.datasets import soft
from consilience.files.site_file import SiteFile
from consilience.kit.combination import combine_files
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import fit_releasable
from consilience.kit.policy.rounding import round_fit
from consilience.kit.site_fit import question_of, site_file
from consilience.model.rows import Rows
from policy_cases import policy_with, rows_from, study_of

NAMES = [f"x{j}" for j in range(20)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 105))
def test_no_refusal_on_soft_gates_with_2000_rows(seed: int) -> None:
    data = soft(2000, random_state=seed)
    study = study_of(NAMES, gate="softmax", experts=[4])
    release = fit_releasable(question_of(study), Rows(data.X, data.y[:, None]), study, Policy.of_profile("hospital"))
    assert release.verdict.kept
    assert release.fit.model.mixture.K == 4


@pytest.mark.slow
def test_a_release_without_changes_is_the_rounded_file_of_the_study() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    study = study_of(["x"], gate="softmax")
    columns = {"y": np.where(rng.random(300) < 0.5, 3.0, 0.0) + x + rng.normal(size=300), "x": x}
    rows = rows_from(study, **columns)
    release = fit_releasable(question_of(study), rows, study, Policy.of_profile())
    file = site_file(study, "north", pa.table(columns))
    assert release.steps == ()
    rounded = round_fit(file.fit)
    np.testing.assert_array_equal(release.fit.model.precision, rounded.model.precision)
    np.testing.assert_array_equal(release.fit.model.mixture.experts.B, rounded.model.mixture.experts.B)


@pytest.mark.slow
def test_files_with_merged_classes_are_combined() -> None:
    study = study_of(["a", "b"], gate="softmax")
    files = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(400, 2))
        first = rng.random(400) < 1 / (1 + np.exp(-X[:, 0]))
        y = np.where(first, 4.0, -4.0) + X @ [1.0, -1.0] + rng.normal(size=400)
        rows = rows_from(study, y=y, a=X[:, 0], b=X[:, 1])
        policy = policy_with(rows_per_class=150)
        release = fit_releasable(question_of(study), rows, study, policy)
        assert release.verdict.kept, release.refusal
        assert any("merged" in step for step in release.steps)
        files.append(SiteFile(study.identity, f"site {seed}", ("(intercept)", "a", "b"), release.fit))
    model = combine_files(study, files).best.model
    np.testing.assert_allclose(np.sort(model.intercept_.ravel()), [-4, 4], atol=0.3)
    assert np.all(np.isfinite(model.inference_.standard_errors().experts))


def test_orders_beyond_the_policy_are_not_tried() -> None:
    rng = np.random.default_rng(1)
    study = study_of(["x"], experts=[1, 2, 3])
    rows = rows_from(study, y=rng.normal(size=200), x=rng.normal(size=200))
    release = fit_releasable(question_of(study), rows, study, policy_with(max_experts=2))
    assert release.steps == ("only 1, 2 experts were tried: more are not allowed",)


def test_refusals_name_levels_and_remedies_and_no_counts() -> None:
    rng = np.random.default_rng(2)
    study = study_of(["x"], {"ward": ["a", "b"]}, experts=[1])
    ward = np.where(np.arange(173) < 7, "b", "a")
    rows = rows_from(study, y=rng.normal(size=173), x=rng.normal(size=173), ward=ward)
    release = fit_releasable(question_of(study), rows, study, Policy.of_profile())
    assert release.fit is None
    assert release.refusal == (
        "Nothing can be released:\n  ward: ward[b]: the limit of rows_per_level is 10. To do: merge rare levels, or "
        "leave them out, in the study for all sites; ask the coordinator."
    )


@pytest.mark.slow
def test_too_few_rows_for_every_number_of_experts() -> None:
    rng = np.random.default_rng(3)
    study = study_of(NAMES, experts=[2])
    X = rng.normal(size=(60, 20))
    rows = rows_from(study, y=rng.normal(size=60), **{name: X[:, j] for j, name in enumerate(NAMES)})
    release = fit_releasable(question_of(study), rows, study, Policy.of_profile())
    assert release.fit is None
    assert "rows_per_parameter" in release.refusal
    assert "fewer columns" in release.refusal


@pytest.mark.slow
def test_a_flattened_precision_changes_coefficients_and_standard_errors_little() -> None:
    study = study_of(["a"])
    sent, kept, steps = [], [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=300)
        columns = {"y": np.where(rng.random(300) < 0.5, 5.0, -5.0) + a + rng.normal(size=300), "a": a}
        file = site_file(study, f"site {seed}", pa.table(columns))
        release = fit_releasable(question_of(study), rows_from(study, **columns), study, Policy.of_profile())
        steps += release.steps
        sent.append(file)
        kept.append(replace(file, fit=release.fit))
    assert any("precision" in step for step in steps)
    plain, flat = (combine_files(study, files).best.model for files in (sent, kept))
    errors, others = (model.inference_.standard_errors().experts for model in (plain, flat))
    np.testing.assert_allclose(errors, others, rtol=0.02)
    assert np.all(np.abs(plain.coef_ - flat.coef_) < 0.2 * errors[:, 0, 1:])  # rounding

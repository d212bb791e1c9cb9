"""The three ways between owners: what a study states, and what the policy of a site allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consilience import PrivateScoring
from consilience.columns import Dictionary
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError, RefusedError
from consilience.kit.folder import SiteFolder
from consilience.kit.mail_run import begin_by_files
from consilience.kit.policy.policy import Policy
from consilience.kit.public_covariates import draw_covariates
from consilience.kit.site_fit import fit_at_site, validate_rows
from consilience.kit.study import NumberColumn, Study
from consilience.kit.study_model import method_of
from policy_cases import policy_with

NOISE = 'trust = "noise"\nmethod = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0}\n'
HEAD = 'format = "consilience-policy"\nversion = 1\n'


def study_with(lines: str, text: str = STUDY) -> Study:
    """The hospitals' study with more lines at its head."""
    return Study.from_text(text.replace("[model]", f"{lines}\n[model]", 1))


def test_a_study_without_the_word_has_the_way_that_it_needs_and_its_identity() -> None:
    assert Study.from_text(STUDY).way == "limits"
    assert Study.from_text(STUDY).identity == "sha256:7235518fe5f08bad8159633c98ea6ffedac7f270cc12329d62862aeb8512c7b3"
    assert study_with('method = {name = "OneShot", refine = 0}').way == "limits"
    assert study_with('method = {name = "OneShot", refine = 1}').way == "coordinator"
    assert study_with('method = {name = "OneShot"}').way == "coordinator"  # one refinement by default
    assert study_with(NOISE).way == "noise"
    assert study_with('trust = "limits"').identity != Study.from_text(STUDY).identity


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('trust = "anybody"', "trust"),
        ('trust = "noise"', r"\[privacy\]"),
        ('trust = "limits"\nprivacy = {epsilon = 3.0}', r"\[privacy\]"),
        ('trust = "limits"\nmethod = {name = "FederatedEM"}', "rounds need"),
        ("privacy = {epsilon = 3.0}", "PrivateScoring"),
        ('method = {name = "PrivateScoring"}', "PrivateScoring"),
        ('method = {name = "PrivateScoring", epsilon = 3.0}\nprivacy = {epsilon = 3.0}', "settings"),
        ('method = {name = "PrivateScoring"}\nprivacy = {epsilon = 0.0}', "epsilon"),
        ('method = {name = "PrivateScoring"}\nprivacy = {epsilon = 1e9}', "epsilon"),
        ('method = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0, delta = 0.5}', "delta"),
        ('method = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0, unit = "person"}', "unit"),
        ('method = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0, start = "model.json"}', "start"),
    ],
)
def test_ways_that_do_not_fit_the_rest_of_a_study_are_refused(lines: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        study_with(lines)


def test_a_study_with_noise_has_one_number_of_experts_and_no_clients() -> None:
    for old, new, said in (
        ("experts = [2]", "experts = [1, 2]", "model.experts"),
        ('gate = "softmax"', 'gate = "softmax"\nclients = "ward_of"', "model.clients"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            study_with(NOISE, STUDY.replace(old, new))


def test_the_method_of_a_study_with_noise_has_its_budget_and_public_covariates() -> None:
    method = method_of(study_with(NOISE.replace("3.0", "3.0, rounds = 4, delta = 1e-7")))
    assert isinstance(method, PrivateScoring)
    assert (method.epsilon, method.delta, method.rounds) == (3.0, 1e-7, 4)
    again = method_of(study_with(NOISE.replace("3.0", "3.0, rounds = 4, delta = 1e-7")))
    np.testing.assert_array_equal(method.covariates, again.covariates)  # the same at every site


def test_a_study_may_find_its_start_from_sums_with_noise(tmp_path: Path) -> None:
    private = NOISE.replace("3.0", '3.0, start = "private"')
    study = study_with(private)
    method = method_of(study)
    assert (method.start, method.response) == ("private", (-3.0, 7.0))
    begin_by_files(study, tmp_path / "box", tmp_path / "own", sites=["ash"])  # without a model
    for old, new, said in (("experts = [2]", "experts = [3]", "start from a file"), ("high = 7", "", "low and high")):
        with pytest.raises(InvalidInputError, match=said):
            study_with(private, STUDY.replace(old, new, 1))


def test_public_covariates_are_like_the_rows_of_the_sites() -> None:
    study = Study.from_text(STUDY)
    X = draw_covariates(study.covariates, 20_000, np.random.default_rng(0))
    real = np.concatenate([validate_rows(study, table).X for table in hospitals().values()])
    assert X.shape[1] == real.shape[1]
    assert np.abs(X.mean(axis=0) - real.mean(axis=0)).max() < 0.5
    spread = X.std(axis=0) / real.std(axis=0)
    assert spread.min() > 0.6
    assert spread.max() < 1.6


def test_covariates_that_the_dictionary_does_not_describe_are_refused() -> None:
    ranged = NumberColumn(name="age", kind="number", low=20.0, high=80.0).column()
    X = draw_covariates(Dictionary((ranged,)), 20_000, np.random.default_rng(0))
    assert abs(X.mean() - 50) < 0.5
    assert abs(X.std() - 10) < 0.5
    assert X.min() >= 20
    assert X.max() <= 80
    bare = NumberColumn(name="age", kind="number", low=20.0).column()
    with pytest.raises(InvalidInputError, match="centre and scale"):
        draw_covariates(Dictionary((bare,)), 10, np.random.default_rng(0))


def test_a_contract_is_allowed_by_people_and_by_no_profile_for_sites() -> None:
    for profile in ("hospital", "research"):
        policy = Policy.of_profile(profile)
        policy.check_way("noise")
        policy.check_way("limits")
        with pytest.raises(RefusedError, match=r"could compute rows.*policy\.toml"):
            policy.check_way("coordinator")
        added = Policy.from_text(HEAD + f'profile = "{profile}"\n[privacy]\nallow = ["noise", "limits", "coordinator"]')
        added.check_way("coordinator")
        assert added.profile_text == f"{profile}, loosened"
        assert added.identity != policy.identity
    strict = Policy.from_text(HEAD + '[privacy]\nallow = ["noise"]')
    assert strict.keeps(Policy.of_profile())
    with pytest.raises(RefusedError, match='trust = "limits"'):
        strict.check_way("limits")


def test_a_site_that_sends_noise_only_releases_no_file_under_limits(tmp_path: Path) -> None:
    folder = SiteFolder.init("ash", policy_with(allow=["noise"]).to_text(), tmp_path)
    with pytest.raises(RefusedError, match="allows"):
        fit_at_site(folder, Study.from_text(STUDY), hospitals()["ash"])
    with pytest.raises(RefusedError, match="site answer"):
        fit_at_site(folder, study_with(NOISE), hospitals()["ash"])

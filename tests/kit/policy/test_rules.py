from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.aggregate.combine.site_model import CovariateSummary, covariate_summary
from consilience.errors import InvalidInputError
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import check_release, fit_releasable
from consilience.kit.policy.rules import (
    covariate_rules,
    dominance,
    effective_rows,
    factors_of,
    flatten_precision,
    flattened_experts,
    level_rules,
    read_parameters,
    weighted_rows,
    with_merged_classes,
)
from consilience.kit.site_fit import question_of
from consilience.messages.questions import LocalFit
from consilience.model.rows import Groups, Rows
from consilience.model.summary import column_summary
from consilience.site.local_fit import local_fit
from consilience.site.site import Site
from policy_cases import failed_rules, policy_with, rows_from, study_of

WEIGHTS = arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1e6))


@given(WEIGHTS)
def test_effective_rows_are_between_one_and_the_number_of_rows(weight: np.ndarray) -> None:
    found = effective_rows(weight)
    assert found == 0 if not weight.any() else 1 - 1e-9 <= found <= np.count_nonzero(weight) + 1e-9
    assert effective_rows(np.append(weight, 0.0)) == pytest.approx(found)


@given(WEIGHTS, st.integers(1, 5))
def test_dominance_is_a_percentage_and_grows_with_the_rows_counted(weight: np.ndarray, rows: int) -> None:
    found = dominance(weight, rows)
    assert 0 <= found <= 100
    assert dominance(weight, rows + 1) >= found - 1e-9
    if weight.sum() > 0:
        assert found >= 100 * min(rows, len(weight)) / len(weight) - 1e-6


def test_equal_weights_have_all_effective_rows_and_no_dominance() -> None:
    assert effective_rows(np.full(50, 1e-200)) == pytest.approx(50)
    assert dominance(np.full(50, 1e-200), 2) == pytest.approx(4)


# ---------------------------------------------------------------------- levels


def level_study(**model: object):
    return study_of(["age"], {"ward": ["a", "b", "c"], "sex": ["f", "m"]}, experts=[1], **model)


def level_rows(study, counts: dict[tuple[str, str], int]) -> Rows:
    ward = np.repeat([pair[0] for pair in counts], list(counts.values()))
    sex = np.repeat([pair[1] for pair in counts], list(counts.values()))
    rng = np.random.default_rng(0)
    return rows_from(study, y=rng.normal(size=len(ward)), age=rng.normal(size=len(ward)), ward=ward, sex=sex)


def test_codes_of_levels_are_read_from_indicators_whatever_the_reference() -> None:
    study = level_study()
    rows = level_rows(study, {("a", "f"): 2, ("c", "m"): 1, ("b", "m"): 1})
    ward, sex = (factor for factor in factors_of(rows, study) if factor.name in ("ward", "sex"))
    assert [ward.levels[code] for code in ward.codes] == ["ward[a]", "ward[a]", "ward[c]", "ward[b]"]
    assert [sex.levels[code] for code in sex.codes] == ["sex[f]", "sex[f]", "sex[m]", "sex[m]"]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 9, 10])
def test_pairs_of_levels_have_no_row_or_enough(count: int) -> None:
    study = level_study()
    counts = {("a", "f"): 40, ("a", "m"): 40, ("b", "f"): 40, ("b", "m"): count}
    failed = failed_rules_of_levels(study, counts)
    assert ("rows_per_pair" in failed) == (0 < count < 5)
    assert "rows_per_level" not in failed


@pytest.mark.parametrize("count", [0, 1, 9, 10])
def test_levels_have_no_row_or_enough_the_reference_too(count: int) -> None:
    study = level_study()
    for level in ("a", "c"):
        others = [each for each in ("a", "b", "c") if each != level]
        counts = {(each, sex): 40 for each in others for sex in ("f", "m")} | {(level, "f"): count}
        assert ("rows_per_level" in failed_rules_of_levels(study, counts)) == (0 < count < 10)


def failed_rules_of_levels(study, counts) -> set[str]:
    return {
        check.rule for check in level_rules(level_rows(study, counts), study, Policy.of_profile()) if not check.kept
    }


def test_numbers_with_two_values_are_levels_and_their_values_are_not_named() -> None:
    study = study_of(["flag", "age"], experts=[1])
    flag = np.where(np.arange(200) < 3, 7.25, 0.0)
    rows = rows_from(study, y=np.arange(200.0), flag=flag, age=np.arange(200.0))
    (check,) = [check for check in level_rules(rows, study, Policy.of_profile()) if not check.kept]
    assert (check.rule, check.scope, check.observed) == ("rows_per_level", "flag", 3)
    assert "7.25" not in check.detail


def test_classes_of_the_response_are_levels() -> None:
    study = study_of(["age"], {"z": ["no", "yes"]}, response="z", family="categorical", experts=[1])
    study = type(study).model_validate({**study.model_dump(), "columns": study.model_dump()["columns"][1:]})
    z = np.where(np.arange(100) < 4, "yes", "no")
    checks = level_rules(rows_from(study, age=np.arange(100.0), z=z), study, Policy.of_profile())
    assert [(check.scope, check.detail) for check in checks if not check.kept] == [("z", "z[yes]")]


# ---------------------------------------------------------------------- experts, precision, covariates


def two_groups(n: int = 400, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(rng.random(n) < 0.4, 4.0, 0.0) + X @ [1.0, -1.0] + rng.normal(size=n)
    study = study_of(["a", "b"], gate="softmax")
    rows = rows_from(study, y=y, a=X[:, 0], b=X[:, 1])
    return study, rows, local_fit(question_of(study), Site("s", rows))


@pytest.fixture(scope="module")
def fitted():
    return two_groups()


def test_checks_cover_each_part_and_each_expert_and_class(fitted) -> None:
    study, rows, fit = fitted
    verdict = check_release(fit, rows, study, Policy.of_profile())
    assert verdict.kept
    assert {check.part for check in verdict.checks} == {"site", "levels", "experts", "precision", "covariates"}
    places = {check.place for check in verdict.checks if check.part == "covariates"}
    assert places == set(range(len(fit.model.covariates.weights)))


def test_observed_rows_are_those_that_the_file_states(fitted) -> None:
    study, rows, fit = fitted
    checks = check_release(fit, rows, study, Policy.of_profile()).checks
    mass = [check.observed for check in checks if check.rule == "rows_per_expert"]
    np.testing.assert_allclose(mass, fit.model.mass, rtol=1e-8)
    classes = [check.observed for check in checks if check.rule == "rows_per_class"]
    assert all(seen <= stated * 400 + 5 for seen, stated in zip(classes, fit.model.covariates.weights, strict=True))


def test_the_verdict_does_not_depend_on_the_order_of_rows_or_on_units(fitted) -> None:
    study, rows, fit = fitted
    turned = rows.take(np.random.default_rng(1).permutation(rows.n))
    for one, other in zip(
        check_release(fit, rows, study, Policy.of_profile()).checks,
        check_release(fit, turned, study, Policy.of_profile()).checks,
        strict=True,
    ):
        assert one.observed == pytest.approx(other.observed, rel=1e-9)


def test_parameters_on_columns_that_are_not_read_do_not_count() -> None:
    study = study_of(["a", "b"], gate="softmax", gate_columns=["a"])
    _, rows, _ = two_groups()
    mixture = local_fit(question_of(study), Site("s", rows)).model.mixture
    assert mixture.parameter_count == 3 + 2 * 3 + 2
    assert read_parameters(mixture) == 2 + 2 * 3 + 2


def test_weights_are_those_of_the_sums_in_the_file(fitted) -> None:
    _, rows, fit = fitted
    weights = weighted_rows(fit.model.mixture, rows)
    np.testing.assert_allclose(weights.tau.sum(axis=1), fit.model.mass)
    np.testing.assert_allclose(weights.tau.sum(axis=0), 1.0)
    assert np.all(weights.missing >= 0)


def test_rows_with_groups_are_refused(fitted) -> None:
    _, rows, fit = fitted
    grouped = Rows(rows.X, rows.Y, groups=Groups.of(np.arange(rows.n) // 2))
    with pytest.raises(InvalidInputError, match="groups or weights"):
        weighted_rows(fit.model.mixture, grouped)


def test_rows_of_another_study_are_refused(fitted) -> None:
    _, rows, fit = fitted
    with pytest.raises(InvalidInputError, match="the rows have 2 covariates and the study 1"):
        check_release(fit, rows, study_of(["a"]), Policy.of_profile())


def test_a_flattened_precision_is_a_multiple_and_keeps_the_trace(fitted) -> None:
    _, _, fit = fitted
    model = flatten_precision(fit.model, [1])
    assert flattened_experts(model).tolist() == [False, True]
    assert not flattened_experts(fit.model).any()
    np.testing.assert_array_equal(model.precision[0], fit.model.precision[0])
    assert np.abs(model.precision[1] / fit.model.precision[1] - 1)[[0, 3, 5]].max() < 0.3


@pytest.mark.slow
def test_a_file_without_a_model_is_checked_too() -> None:
    study, rows, _ = two_groups(60)
    verdict = check_release(LocalFit(column_summary(rows), None, None), rows, study, policy_with(min_rows=100))
    assert failed_rules(verdict) == {"min_rows"}


def test_merged_classes_keep_the_moments_of_numbers_and_of_shares() -> None:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=400) + 3 * (np.arange(400) < 150), rng.integers(0, 3, 400)])
    summary = covariate_summary(X, np.ones(400), rng)
    while len(summary.weights) > 1:
        merged = with_merged_classes(summary, 0)
        for one, other in zip(merged.moments(), summary.moments(), strict=True):
            np.testing.assert_allclose(one, other)
        summary = merged
    assert summary.responsibilities(X).shape == (400, 1)


def test_a_share_of_a_value_that_few_members_of_a_class_have_fails() -> None:
    study = study_of(["a", "n"], gate="softmax")
    a = np.concatenate([np.linspace(-1, 1, 100), np.linspace(9, 11, 100)])
    number = np.tile([0.0, 1.0, 2.0, 3.0], 50)
    number[:100] = 0.0
    number[:2] = 3.0
    values = np.array([0.0, 1.0, 2.0, 3.0])
    shares = np.array([[0.98, 1e-6, 1e-6, 0.02], [0.25, 0.25, 0.25, 0.25]])
    summary = CovariateSummary(
        np.array([0.5, 0.5]), np.array([[0.0], [10.0]]), np.array([[0.3], [0.3]]),
        (np.empty(0), values), (np.empty((2, 0)), shares),
    )  # fmt: skip
    rows = rows_from(study, y=a, a=a, n=number)
    failed = [check for check in covariate_rules(rows, summary, study, Policy.of_profile()) if not check.kept]
    assert [(check.rule, check.place, check.observed, check.detail) for check in failed] == [
        ("rows_per_pair", 0, 2, "n")
    ]


@pytest.mark.parametrize("family", ["poisson", "gamma", "student"])
def test_other_families_are_checked(family: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    y = {"poisson": rng.poisson(np.exp(1 + 0.3 * x)).astype(float), "gamma": rng.gamma(2, np.exp(0.3 * x) / 2)}
    study = study_of(["x"], family=family, experts=[1])
    rows = rows_from(study, y=y.get(family, x + rng.standard_t(4, 300)), x=x)
    release = fit_releasable(question_of(study), rows, study, Policy.of_profile())
    assert release.verdict.kept
    assert any(check.rule == "information" for check in release.verdict.checks)
    assert len(release.fit.model.precision)


def test_precision_of_other_families_is_left_out_if_it_fails() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=300)
    study = study_of(["x"], family="poisson", experts=[1])
    rows = rows_from(study, y=rng.poisson(np.exp(1 + 0.3 * x)).astype(float), x=x)
    release = fit_releasable(question_of(study), rows, study, policy_with(missing_information_percent=1.0))
    assert release.verdict.kept
    assert len(release.fit.model.precision) == 0

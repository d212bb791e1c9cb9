"""Attacks on the one file of a site: each fails under the policy "hospital", and succeeds without its rules.

Numbers are not rounded here, so that each rule is tested alone; ``test_lattice`` tests the rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from consilience.aggregate.combine import site_model
from consilience.files.site_file import SiteFile
from consilience.kit.policy import refit
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import Release, check_release, fit_releasable, release_evidence
from consilience.kit.policy.rules import complete_precision
from consilience.kit.site_fit import question_of
from consilience.kit.study import Minimum, Study
from consilience.messages.questions import LocalFit
from consilience.model.rows import Rows
from consilience.numerics.arrays import unpack
from consilience.site.local_fit import local_fit
from consilience.site.site import Site
from policy_cases import failed_rules, policy_with, rows_from, study_of

OFF = {"rows_per_expert": 1, "effective_rows": 1, "residual_degrees": -1000, "dominance_percent": 100.0}
"""Limits with which no rule on experts binds."""


@pytest.fixture(autouse=True)
def _exact_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refit, "round_fit", lambda fit: fit)


def released(study: Study, rows: Rows, **limits: Any) -> Release:
    return fit_releasable(question_of(study), rows, study, policy_with(**limits))


def as_sent(release: Release, study: Study) -> LocalFit:
    """What a recipient reads from the file."""
    assert release.fit is not None, release.refusal
    intercept_and = ("(intercept)", *study.covariates.terms)
    file = SiteFile(study.identity, "north", intercept_and, release.fit, release_evidence(release.verdict))
    return SiteFile.from_text(file.to_text()).fit


def asked(study: Study, rows: Rows) -> set[str]:
    """The rules that the fit breaks that the study asks for."""
    return failed_rules(check_release(local_fit(question_of(study), Site("a", rows)), rows, study, Policy.of_profile()))


# ---------------------------------------------------------------------- a saturated expert


@cache
def saturated() -> tuple[Study, Rows]:
    """300 rows of one regression, and six far away: as many as an expert has coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(306, 5))
    y = X.sum(axis=1) + rng.normal(size=306)
    y[300:] = 100 + 5 * rng.normal(size=6)
    study = study_of([f"x{j}" for j in range(5)])
    return study, rows_from(study, y=y, **{f"x{j}": X[:, j] for j in range(5)})


def outcome_error(fit: LocalFit, rows: Rows) -> float:
    """Error of the outcomes that experts predict for six persons whose covariates the attacker knows."""
    X, y = rows.X[300:], rows.Y[300:, 0]
    predicted = fit.model.mixture.experts.B[:, 0] @ np.c_[np.ones(6), X].T
    return float(np.abs(predicted - y).min(axis=0).max())


def test_a_saturated_expert_does_not_give_outcomes_back() -> None:
    study, rows = saturated()
    assert {"rows_per_expert", "residual_degrees"} <= asked(study, rows)
    assert outcome_error(as_sent(released(study, rows, **OFF), study), rows) < 1e-3
    kept = released(study, rows)
    assert kept.verdict.kept
    assert kept.fit.model.mixture.K == 1
    assert outcome_error(as_sent(kept, study), rows) > 10


# ---------------------------------------------------------------------- dominance by one row


def test_a_row_that_dominates_a_column_is_not_disclosed() -> None:
    rng = np.random.default_rng(1)
    cost = rng.normal(size=400)
    cost[17] = 4321.0
    study = study_of(["cost"], experts=[1])
    rows = rows_from(study, y=rng.normal(size=400), cost=cost)
    told = as_sent(released(study, rows, **OFF), study).summary
    read = told.x_mean[0] + np.sqrt(told.x_products[0, 0])
    assert abs(read / 4321.0 - 1) < 0.01
    kept = released(study, rows)
    assert kept.fit is None
    assert "column_dominance" in failed_rules(kept.verdict)
    assert "cost" in kept.refusal
    assert "4321" not in kept.refusal


@cache
def lone_level() -> tuple[Study, Rows]:
    """Two experts far apart; of the 40 rows on ward c one is the second expert's."""
    rng = np.random.default_rng(2)
    n = 400
    ward = np.where(np.arange(n) < 40, "c", np.where(rng.random(n) < 0.5, "a", "b"))
    second = rng.random(n) < 0.4
    second[:40] = False
    second[7] = True
    age = rng.normal(60, 10, n)
    y = np.where(second, 30.0, 0.0) + 0.1 * age + rng.normal(size=n)
    study = study_of(["age"], {"ward": ["a", "b", "c"]})
    return study, rows_from(study, y=y, age=age, ward=ward)


def lone_row(fit: LocalFit, study: Study) -> np.ndarray:
    """Age and outcome of the rows on ward c, on average with each expert's weights, ``(K, 2)``."""
    at, age = (1 + study.covariates.terms.index(term) for term in ("ward[c]", "age"))
    S, B = unpack(fit.model.second), fit.model.mixture.experts.B[:, 0]
    return np.column_stack([S[:, at, age], np.einsum("kp,kp->k", S[:, at], B)]) / S[:, at, at][:, None]


@pytest.mark.slow
def test_an_expert_with_one_row_of_a_level_does_not_give_that_row() -> None:
    study, rows = lone_level()
    row = np.array([rows.X[7, 0], rows.Y[7, 0]])
    assert "column_dominance" in asked(study, rows)
    told = lone_row(as_sent(released(study, rows, dominance_percent=100.0), study), study)
    assert np.abs(told - row).max(axis=1).min() < 1e-6
    kept = released(study, rows)
    assert kept.verdict.kept
    assert np.abs(lone_row(as_sent(kept, study), study) - row).max(axis=1).min() > 0.1


@cache
def between() -> tuple[Study, Rows]:
    """Two experts far apart, and one row between them."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(500, 3))
    y = np.where(rng.random(500) < 0.5, 12.0, 0.0) + X @ [1.0, -1.0, 0.5] + 0.8 * rng.normal(size=500)
    y[11] = 6.05 + X[11] @ [1.0, -1.0, 0.5]
    study = study_of(["x0", "x1", "x2"])
    return study, rows_from(study, y=y, **{f"x{j}": X[:, j] for j in range(3)})


def row_in_precision(fit: LocalFit, rows: Rows) -> float:
    """Largest error of a row that is read from what the precision lacks, compared with known labels."""
    errors = []
    for C, J in zip(complete_precision(fit.model), unpack(fit.model.precision), strict=True):
        L = np.linalg.cholesky(C)
        white = np.linalg.inv(L)
        vector = L @ np.linalg.eigh(white @ (C - J) @ white.T)[1][:, -1]
        errors.append(np.abs(rows.X[11] - vector[1:] / vector[0]).max())
    return float(min(errors))


def test_precision_matrices_do_not_give_the_row_between_two_experts() -> None:
    study, rows = between()
    assert "missing_information" in asked(study, rows)
    assert row_in_precision(as_sent(released(study, rows, missing_information_percent=100.0), study), rows) < 1e-3
    kept = released(study, rows)
    assert kept.fit.model.mixture.K == 2
    assert row_in_precision(as_sent(kept, study), rows) > 0.3


# ---------------------------------------------------------------------- categories


def test_a_rare_pair_of_levels_is_not_read_from_cross_products() -> None:
    rng = np.random.default_rng(5)
    n = 400
    ward, drug = rng.choice(["a", "b"], n), rng.choice(["none", "new"], n)
    drug[(ward == "b") & (drug == "new")] = "none"
    drug[np.flatnonzero(ward == "b")[0]] = "new"
    study = study_of(["age"], {"ward": ["a", "b"], "drug": ["none", "new"]}, experts=[1])
    rows = rows_from(study, y=rng.normal(size=n), age=rng.normal(size=n), ward=ward, drug=drug)
    told = as_sent(released(study, rows, rows_per_pair=1), study).summary
    together = told.x_products[1, 2] + told.weight * told.x_mean[1] * told.x_mean[2]
    assert together == pytest.approx(1.0)
    kept = released(study, rows)
    assert kept.fit is None
    assert failed_rules(kept.verdict) == {"rows_per_pair"}
    assert "ward[b] and drug[new]" in kept.refusal


def test_a_class_of_two_rows_in_the_summary_of_covariates_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_model, "LEAST_ROWS", 1)  # the summary's own guard
    rng = np.random.default_rng(6)
    X = 0.5 * rng.normal(size=(600, 2)) + np.repeat([[5.0, 0.0], [-5.0, 0.0], [0.0, 6.0]], 200, axis=0)
    X[:2] = [[40.0, 41.0], [41.0, 40.5]]
    study = study_of(["a", "b"], experts=[1], gate="softmax")
    rows = rows_from(study, y=X @ [1.0, 1.0] + rng.normal(size=600), a=X[:, 0], b=X[:, 1])

    def guess_error(fit: LocalFit) -> float:
        """Error of the guess that a class is of two rows, which are then its mean ± its deviation."""
        found = fit.model.covariates
        errors = []
        for mean, S in zip(found.means, unpack(found.covariances), strict=True):
            values, vectors = np.linalg.eigh(S)
            step = np.sqrt(values[-1]) * vectors[:, -1]
            errors.append(max(min(np.abs(mean + sign * step - row).max() for sign in (1, -1)) for row in X[:2]))
        return float(min(errors))

    assert guess_error(as_sent(released(study, rows, rows_per_class=1, rows_per_parameter=0.0, **OFF), study)) < 0.01
    kept = released(study, rows)
    assert kept.verdict.kept
    assert any("merged with another" in step for step in kept.steps)
    assert guess_error(as_sent(kept, study)) > 1


# ---------------------------------------------------------------------- what a coordinator may ask


def test_a_study_cannot_loosen_the_policy() -> None:
    rng = np.random.default_rng(7)
    lax = study_of(["x"], experts=[1], minimum=Minimum(rows=1, rows_per_level=1, rows_per_expert=1))
    rows = rows_from(lax, y=rng.normal(size=30), x=rng.normal(size=30))
    assert released(lax, rows).fit is None
    assert fit_releasable(question_of(lax), rows, lax, Policy.of_profile("open")).fit is not None


def test_a_study_can_tighten_the_policy() -> None:
    rng = np.random.default_rng(7)
    strict = study_of(["x"], experts=[1], minimum=Minimum(rows=500))
    rows = rows_from(strict, y=rng.normal(size=300), x=rng.normal(size=300))
    assert failed_rules(released(strict, rows).verdict) == {"min_rows"}
    plain = study_of(["x"], experts=[1])
    assert released(plain, rows).verdict.kept


@pytest.mark.slow
def test_no_more_experts_than_the_policy_allows() -> None:
    study, rows = lone_level()
    assert released(study, rows, dominance_percent=100.0).fit.model.mixture.K == 2
    few = released(study, rows, dominance_percent=100.0, max_experts=1)
    assert few.fit.model.mixture.K == 1
    assert "more experts than the policy allows" in few.steps[0]
    fit = local_fit(question_of(study), Site("a", rows))
    assert "max_experts" in failed_rules(check_release(fit, rows, study, policy_with(max_experts=1)))


@pytest.mark.slow
def test_a_start_of_the_coordinator_is_not_used() -> None:
    study, rows = lone_level()
    crafted = local_fit(question_of(study), Site("a", rows.take(np.arange(60)))).model.mixture
    question = question_of(study)
    told = fit_releasable(
        type(question)(**{**vars(question), "start": crafted, "max_iter": 1}), rows, study, policy_with("open")
    )
    own = fit_releasable(type(question)(**{**vars(question), "max_iter": 1}), rows, study, policy_with("open"))
    np.testing.assert_array_equal(told.fit.model.mixture.experts.B, own.fit.model.mixture.experts.B)


def test_too_few_rows_leave_nothing() -> None:
    rng = np.random.default_rng(8)
    study = study_of(["x"], experts=[1])
    rows = rows_from(study, y=rng.normal(size=40), x=rng.normal(size=40))
    assert released(study, rows, min_rows=1).verdict.kept
    kept = released(study, rows)
    assert kept.fit is None
    assert "min_rows" in kept.refusal


def test_evidence_has_no_observed_count() -> None:
    study, rows = lone_level()
    kept, fewer = (released(study, each) for each in (rows, rows.take(np.arange(390))))
    told = release_evidence(kept.verdict)
    assert set(told) == {"policy", "profile", "rules"}
    assert all(set(rule) == {"rule", "scope", "limit", "result"} for rule in told["rules"])
    observed = [check.observed for check in kept.verdict.checks]
    assert observed != [check.observed for check in fewer.verdict.checks]
    assert told == release_evidence(fewer.verdict)  # other counts, same evidence
    assert {rule["limit"] for rule in told["rules"]} <= set(Policy.of_profile().limits.values())
    assert "[" not in " ".join(rule["scope"] for rule in told["rules"])  # no level of a category

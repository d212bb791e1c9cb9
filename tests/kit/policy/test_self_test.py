from __future__ import annotations

import numpy as np

from consilience.kit.policy.refit import attack_auc, self_test
from consilience.kit.site_fit import question_of
from consilience.model.rows import Rows
from policy_cases import rows_from, study_of


def rows_of_size(n: int, d: int) -> tuple[object, Rows]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    study = study_of([f"x{j}" for j in range(d)], experts=[1])
    return study, rows_from(study, y=X.sum(axis=1) + rng.normal(size=n), **{f"x{j}": X[:, j] for j in range(d)})


def test_many_rows_per_parameter_are_not_told_apart_and_few_are() -> None:
    study, many = rows_of_size(2000, 3)
    safe = self_test(question_of(study), many, study.seed)
    assert abs(safe.auc - 0.5) < 0.04
    study, few = rows_of_size(60, 20)
    told = self_test(question_of(study), few, study.seed)
    assert told.auc > 0.75
    assert "50% is guessing" in str(told)


def test_the_test_is_deterministic_by_the_seed() -> None:
    study, rows = rows_of_size(200, 3)
    question = question_of(study)
    assert self_test(question, rows, 5) == self_test(question, rows, 5)
    assert self_test(question, rows, 5) != self_test(question, rows, 6)


def test_too_few_rows_for_half_of_them_give_none() -> None:
    study, rows = rows_of_size(20, 12)
    assert self_test(question_of(study), rows, 1) is None


def test_auc_of_equal_and_of_separate_scores() -> None:
    assert attack_auc(np.ones(5), np.ones(3)) == 0.5
    assert attack_auc(np.arange(3.0) + 10, np.arange(4.0)) == 1.0

"""Folds of rows and groups, and the standard error of a held-out density."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.errors import InvalidInputError
from consilience.fit.selection import HeldOut, cross_validate, folds_from_rows, random_folds
from consilience.model import Groups, Rows
from simulated import simulated


def test_random_folds_are_equal_in_size_and_of_groups() -> None:
    rows = simulated(n=60, group_size=3).rows
    folds = random_folds(rows, 6, np.random.default_rng(0))
    assert sorted(np.bincount(folds)) == [3, 3, 3, 3, 4, 4]
    assert np.array_equal(folds, random_folds(rows, 6, np.random.default_rng(0)))
    for count in (1, 21):
        with pytest.raises(InvalidInputError, match="20 rows or groups"):
            random_folds(rows, count, np.random.default_rng(0))


def test_given_folds_belong_to_groups() -> None:
    rows = Rows(np.zeros((4, 1)), np.zeros((4, 1)), groups=Groups.of(np.array([5, 2, 5, 2])))
    assert folds_from_rows(rows, np.array(["b", "a", "b", "a"])).tolist() == [0, 1]
    with pytest.raises(InvalidInputError, match="one fold"):
        folds_from_rows(rows, np.array(["b", "a", "a", "a"]))


def test_standard_error_is_that_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=50)
    held_out = HeldOut(values, np.ones(50))
    assert held_out.mean == pytest.approx(values.mean())
    assert held_out.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(50))


def test_a_row_is_predicted_without_itself() -> None:
    """Moving the response of one row changes its own density as under a fixed mixture: the fit has not seen it."""
    data = simulated(gate="constant", n=80)
    folds = np.arange(80) % 4
    before = cross_validate(data.truth, data.rows, data.specification, folds)
    Y = data.rows.Y.copy()
    Y[3] += 1.0
    changed = Rows(data.X, Y)
    after = cross_validate(data.truth, changed, data.specification, folds)
    same = folds == 3
    same[3] = False
    assert np.allclose(before.log_likelihood[same], after.log_likelihood[same], atol=1e-6)
    assert not np.allclose(before.log_likelihood[folds == 0], after.log_likelihood[folds == 0], atol=1e-6)

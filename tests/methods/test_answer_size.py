"""Answers of federated EM: their size as computed beforehand is their size, and large ones are announced."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from consilience import FederatedEM, LargeMessagesWarning
from consilience.datasets import soft
from consilience.fit import Expect, Problem, Specification
from consilience.messages import encode
from consilience.methods import Task
from consilience.methods.federated_em import LARGE, bytes_of_answer, warn_if_large
from consilience.model import Rows, expect
from consilience.model.summary import ColumnSummary


def problem(d: int, K: int, **kind: Any) -> Problem:
    return Problem(Specification(K=K, **kind), ColumnSummary.unit(d, 1))


@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_the_size_is_that_of_an_encoded_answer(gate: str) -> None:
    data = soft(200, n_experts=3, n_features=10, random_state=0)
    blank = problem(10, 3, gate=gate).blank
    informed = encode(expect(blank, Rows(data.X, data.y[:, None]), information=True))
    assert 0 < len(informed) - bytes_of_answer(blank, climbs=1) < 500


def test_small_answers_are_not_announced() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_large([problem(20, 4)], climbs=4)


def test_large_answers_are_announced_with_the_size_of_short_ones() -> None:
    wide = problem(500, 50)
    assert bytes_of_answer(wide.blank, climbs=1) > LARGE
    said = r"answer has 404 MB.*n_climbs=1 takes 101 MB; GradientEM takes 0.4 MB"
    with pytest.warns(LargeMessagesWarning, match=said):
        warn_if_large([problem(5, 2), wide], climbs=4)


def test_other_families_have_no_short_messages() -> None:
    with pytest.warns(LargeMessagesWarning, match="101 MB in a round .*: fewer covariates or experts take less"):
        warn_if_large([problem(500, 50, family="poisson")], climbs=1)


def test_federated_em_announces_them_before_it_asks_for_them() -> None:
    dialogue = FederatedEM(totals_only=True).dialogue(Task([Specification(K=30)], 400, 1, seed=0))
    asked = [next(dialogue)]
    summary = ColumnSummary(1e5, np.zeros(400), 1e5 * np.eye(400), np.zeros(1), 1e5 * np.eye(1))
    with pytest.warns(LargeMessagesWarning):
        asked.append(dialogue.send(summary))
    assert not any(isinstance(each.question, Expect) for each in asked)

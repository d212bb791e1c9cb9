"""The missing information has two ways to be summed; which one is taken is a matter of cost alone."""

import numpy as np
import pytest
from hypothesis import given

from consilience.model import expect, expectation
from consilience.model.expectation import observed_scores
from consilience.model.information import complete_information, score
from strategies import assert_same_sums, contributions, information_scale, shapes


@pytest.mark.slow
@given(shape=shapes(labels="row"))
def test_short_and_full_scores_give_the_same_information(shape):
    mixture, rows = shape.problem()
    ways = []
    for short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(expectation, "has_short_scores", lambda mixture, short=short: short)
            ways.append(expect(mixture, rows, information=True))
    assert_same_sums(*ways, contributions(mixture, rows))


@given(shape=shapes(K=1))
def test_with_one_expert_nothing_is_missing(shape):
    mixture, rows = shape.problem()
    statistics = expect(mixture, rows, information=True)
    room = 1e-12 * information_scale(mixture, rows)
    assert np.all(np.abs(statistics.information - complete_information(mixture, statistics)) <= room)


@pytest.mark.slow
@given(shape=shapes())
def test_labels_never_add_information(shape):
    mixture, rows = shape.problem()
    statistics = expect(mixture, rows, information=True)
    missing = complete_information(mixture, statistics) - statistics.information
    assert np.linalg.eigvalsh(missing).min() >= -1e-11 * information_scale(mixture, rows).max()


@pytest.mark.slow
@given(shape=shapes())
def test_scores_of_the_labels_sum_to_the_score(shape):
    mixture, rows = shape.problem()
    total = sum(
        (observed_scores(mixture, block, at) * at.mass).sum(axis=1) for block, at in mixture.posteriors(rows)
    )  # the mass of a group is 1, or 0 if it has no weight
    scale = np.sqrt(np.diagonal(information_scale(mixture, rows)) * max(expect(mixture, rows).weight, 1))
    assert np.all(np.abs(total - score(mixture, expect(mixture, rows))) <= 1e-12 * scale)

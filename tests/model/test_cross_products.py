"""Sums that no mixture changes: the same for all mixtures on the same rows, different for other rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from consilience.model import Mixture, Rows, expect
from consilience.model.received import CrossProducts, products_of_statistics, products_of_summary
from consilience.model.summary import column_summary
from strategies import FAMILIES, Shape, random_mixture, shapes


def of(mixture: Mixture, rows: Rows) -> CrossProducts:
    return products_of_statistics(mixture, expect(mixture, rows))


@given(shapes())
def test_all_mixtures_give_the_same_sums(shape: Shape) -> None:
    mixture, rows = shape.problem()
    other = random_mixture(shape, np.random.default_rng([shape.seed, 1]))
    summary = products_of_summary(column_summary(rows))
    first, second = of(mixture, rows), of(other, rows)
    for a, b in ((summary, first), (first, summary), (first, second), (summary.joined(first), second)):
        assert a.contradiction(b) == ""


BADLY_SCALED = [(0.0, 1e-8), (1e6, 1.0), (-1e3, 1e6), (1e9, 1e3), (1e12, 1.0)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("shift", "scale"), BADLY_SCALED)
def test_badly_scaled_covariates_raise_no_alarm(family: str, shift: float, scale: float) -> None:
    shape = Shape(family=family, n=500, K=3, d=3)
    _, rows = shape.problem()
    rows = replace(rows, X=shift + scale * rows.X)
    summary = column_summary(rows)
    known = products_of_summary(summary)
    for seed in range(5):
        mixture = replace(random_mixture(shape, np.random.default_rng(seed)), design=summary.design(intercept=True))
        given_sums = of(mixture, rows)
        assert known.contradiction(given_sums) == ""
        known = known.joined(given_sums)


@pytest.mark.parametrize("scale", [1e-10, 1e-3, 1.0, 1e5, 1e12])
def test_badly_scaled_responses_raise_no_alarm(scale: float) -> None:
    mixture, rows = Shape(n=500, K=3, q=2).problem()
    experts = replace(mixture.experts, B=scale * mixture.experts.B, covariance=scale**2 * mixture.experts.covariance)
    rows = replace(rows, Y=scale * (rows.Y + 1e4))
    assert products_of_summary(column_summary(rows)).contradiction(of(replace(mixture, experts=experts), rows)) == ""


def changed(rows: Rows) -> dict[str, Rows]:
    """The rows after small changes."""
    x, y = rows.X.copy(), rows.Y.copy()
    x[7, 1] += 1e-3
    y[7, 0] += 1e-3
    return {"covariate 2": replace(rows, X=x), "the response": replace(rows, Y=y)}


@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_one_changed_value_is_named(gate: str) -> None:
    mixture, rows = Shape(gate=gate, n=2000).problem()
    other = random_mixture(Shape(gate=gate), np.random.default_rng(5))
    known = products_of_summary(column_summary(rows))
    for name, later in changed(rows).items():
        assert known.contradiction(of(mixture, later)) == name
        assert of(other, rows).contradiction(of(mixture, later)) == name


def test_other_numbers_of_rows_and_labels_are_named() -> None:
    mixture, rows = Shape(n=100).problem()
    fewer = rows.take(np.arange(99))
    assert of(mixture, rows).contradiction(of(mixture, fewer)) == "the number of labels"
    assert products_of_summary(column_summary(rows)).contradiction(of(mixture, fewer)) == "the number of rows"


@pytest.mark.parametrize(("family", "what"), [("poisson", "response"), ("gamma", "covariate")])
def test_generalised_linear_experts_state_a_part(family: str, what: str) -> None:
    shape = Shape(family=family, n=500)
    mixture, rows = shape.problem()
    known = products_of_summary(column_summary(rows)).joined(of(mixture, rows))
    other = random_mixture(shape, np.random.default_rng(5))
    x, y = rows.X.copy(), rows.Y.copy()
    x[7, 1] += 1e-3
    y[7, 0] += 1.0
    later = replace(rows, Y=y) if what == "response" else replace(rows, X=x)
    assert what in known.contradiction(of(other, later))


def test_replayed_statistics_of_an_older_mixture_are_named() -> None:
    mixture, rows = Shape(n=500, K=3).problem()
    newer = random_mixture(Shape(K=3), np.random.default_rng(5))
    known = products_of_summary(column_summary(rows))
    assert known.contradiction(products_of_statistics(newer, expect(mixture, rows)))

"""Predictions of sites as rows: what they weigh, and that nothing is lost where there is nothing to average."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from combining import fitted_models
from consilience.aggregate.combine.combiner import ROWS, nearest_in_prediction, predict_rows, prediction_costs
from consilience.aggregate.combine.pool import Pool
from consilience.fit.climb import Ascent, climb, drive
from consilience.model import Design, Mixture, Penalty, Rows, expect
from simulated import simulated

DESIGN = Design.raw(2)


def pool_of(sites: int, support: object = "summaries") -> Pool:
    models = fitted_models(simulated("categorical", n=1_200, seed=4), sites)
    return Pool.of(models, DESIGN, support, np.random.default_rng(0))


def likeliest(start: Mixture, rows: Rows) -> Mixture:
    steps = climb(start, Penalty(0.0, 0.0), decrement=1e-14)
    return drive(steps, lambda q: expect(q.mixture, rows, information=q.information)).mixture


def test_rows_weigh_what_the_sites_do() -> None:
    pool = pool_of(3)
    everyone = np.ones(3, dtype=bool)
    rows = predict_rows(pool, everyone)
    assert rows.weight.sum() == pytest.approx(1_200, rel=0.01)
    assert rows.n <= ROWS + 2 * len(pool.points)
    some = predict_rows(pool, np.array([True, True, False]))
    assert some.weight.sum() == pytest.approx(sum(m.weight for m in pool.models[:2]), rel=0.01)


def test_each_point_has_every_class_by_its_mean_probability() -> None:
    X = np.random.default_rng(1).normal(size=(50, 2))
    pool = pool_of(2, X)
    rows = predict_rows(pool, np.ones(2, dtype=bool))
    first, second = (model.mixture.mean(X) for model in pool.models)
    share = np.array([model.weight for model in pool.models]) / 1_200
    expected = (share[0] * first + share[1] * second) * 1_200 / 50
    np.testing.assert_allclose(rows.weight.reshape(expected.shape[1], 50).T, expected, rtol=1e-9)
    np.testing.assert_array_equal(rows.Y[:50, 0], 0.0)


def test_one_site_is_its_own_average() -> None:
    pool = pool_of(1)
    only = pool.models[0].mixture
    rows = predict_rows(pool, np.ones(1, dtype=bool))
    found = likeliest(only, rows)
    np.testing.assert_allclose(found.mean(rows.X[:100]), only.mean(rows.X[:100]), atol=1e-9)
    assert prediction_costs(pool, only, np.ones(1, dtype=bool))[0] == pytest.approx(0.0, abs=1e-9)


def test_the_average_costs_the_sites_less_than_any_of_them_would() -> None:
    pool, everyone = pool_of(3), np.ones(3, dtype=bool)
    found = likeliest(pool.models[0].mixture, predict_rows(pool, everyone))
    cost = prediction_costs(pool, found, everyone).sum()
    assert all(cost < prediction_costs(pool, model.mixture, everyone).sum() for model in pool.models)


def test_costs_of_sites_that_are_not_asked_for_are_unknown() -> None:
    pool = pool_of(3)
    costs = prediction_costs(pool, pool.models[0].mixture, np.array([True, False, True]))
    assert np.isnan(costs[1])
    assert costs[0] == pytest.approx(0.0, abs=1e-9)
    assert costs[2] > 0
    worse = replace(pool.models[0].mixture, experts=pool.models[0].mixture.experts.permuted(np.array([1, 0])))
    assert prediction_costs(pool, worse, np.ones(3, dtype=bool))[0] > 0


@pytest.mark.slow
def test_sites_without_noise_are_averaged_in_few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []

    def counted(*arguments: object) -> Ascent:
        ascent = drive(*arguments)
        passes.append(ascent.passes)
        return ascent

    monkeypatch.setattr("consilience.aggregate.combine.combiner.drive", counted)
    pool = pool_of(3)
    rows = predict_rows(pool, np.ones(3, dtype=bool))
    found = nearest_in_prediction(pool.models[0].mixture, rows)
    assert passes[0] <= 60
    best = likeliest(pool.models[0].mixture, rows)
    np.testing.assert_allclose(found.mean(rows.X[:100]), best.mean(rows.X[:100]), atol=1e-6)

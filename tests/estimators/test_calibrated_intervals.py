"""Prediction intervals calibrated by counts: coverage, the same over sites and files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import erfc

from consilience import Federation, MixtureOfExpertsClassifier, MixtureOfRegressions, calibrate_intervals
from consilience.errors import InvalidInputError
from consilience.model import Rows
from consilience.model.tails import EDGES, TailCounts, count_tails


def long_tails(n: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X @ [1.0, -1.0] + scale * rng.standard_t(2, n)


def inside(intervals: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((intervals[:, 0] <= y) & (y <= intervals[:, 1])))


@pytest.fixture(scope="module")
def model() -> MixtureOfRegressions:
    return MixtureOfRegressions(1).fit(*long_tails(1500, 0))


def test_intervals_hold_their_level_where_the_models_own_do_not(model: MixtureOfRegressions) -> None:
    intervals = calibrate_intervals(model, *long_tails(6000, 1))
    X, y = long_tails(20_000, 2)
    for level in (0.5, 0.8, 0.9, 0.99):
        assert inside(intervals.predict(X, level), y) == pytest.approx(
            level, abs=4 * np.sqrt(level * (1 - level) / 4500)
        )
    own = model.predict_quantiles(X, [0.05, 0.95])
    assert abs(inside(own, y) - 0.9) > 0.03
    frame = intervals.coverage(0.9, held_out=calibrate_intervals(model, X, y))
    assert frame["model"].iloc[-1] == pytest.approx(inside(own, y), abs=1e-12)
    assert frame["calibrated"].iloc[-1] == pytest.approx(inside(intervals.predict(X), y), abs=1e-12)


def test_the_calibrated_tail_is_the_order_statistic_of_split_conformal_prediction(model: MixtureOfRegressions) -> None:
    X, y = long_tails(499, 3)
    lower = model.predict_quantiles(X, [0.5])[:, 0]
    scale = np.sqrt(model.variances_[0])
    t = np.sort(2 * np.minimum(*(0.5 * erfc(s * (y - lower) / scale / np.sqrt(2)) for s in (1, -1))))
    kept = int(np.ceil(0.9 * 500))  # of 499 rows
    found = calibrate_intervals(model, X, y).tail(0.9)
    assert found <= t[499 - kept] < EDGES[np.searchsorted(EDGES, found) + 1]


def test_sites_and_files_give_the_counts_of_one_table(model: MixtureOfRegressions, tmp_path: Path) -> None:
    X, y = long_tails(900, 4)
    whole = calibrate_intervals(model, X, y)
    parts = {"north": slice(0, 200), "south": slice(200, 900)}
    of_sites = Federation({name: (X[part], y[part]) for name, part in parts.items()}).calibrate(model)
    for name, part in parts.items():
        table = pd.DataFrame(X[part], columns=["x0", "x1"]).assign(y=y[part])
        table.to_parquet(tmp_path / f"{name}.parquet")
    of_files = Federation.from_parquet(f"{tmp_path}/*.parquet", target="y").calibrate(model)
    for found in (of_sites, of_files):
        assert np.array_equal(sum(each.counts for each in found.counts.values()), whole.counts["all"].counts)
        assert found.tail() == whole.tail()
    assert list(of_sites.coverage()["rows"]) == [200, 700, 900]


def test_a_site_may_have_intervals_of_its_own(model: MixtureOfRegressions) -> None:
    sites = {"quiet": long_tails(3000, 5, scale=0.3), "wild": long_tails(3000, 6, scale=3.0)}
    intervals = Federation(sites).calibrate(model)
    for name, scale in (("quiet", 0.3), ("wild", 3.0)):
        X, y = long_tails(10_000, 7, scale)
        assert abs(inside(intervals.predict(X), y) - 0.9) > 0.03
        assert inside(intervals.predict(X, site=name), y) == pytest.approx(0.9, abs=0.02)


def test_counts_of_events_are_within_both_ends_of_their_interval() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(3000, 1))
    y = rng.negative_binomial(2, 0.1, 3000)
    model = MixtureOfRegressions(1, family="poisson").fit(X[:1000], y[:1000])
    intervals = calibrate_intervals(model, X[1000:2000], y[1000:2000])
    counted = calibrate_intervals(model, X[2000:], y[2000:])
    found = intervals.predict(X[2000:])
    assert inside(found, y[2000:]) == pytest.approx(
        intervals.coverage(held_out=counted)["calibrated"].iloc[-1], abs=0.01
    )
    assert 0.87 < inside(found, y[2000:]) < 0.94


def test_weights_are_repetitions(model: MixtureOfRegressions) -> None:
    X, y = long_tails(200, 9)
    twice = count_tails(model.mixture_, model.rows(np.repeat(X, 2, axis=0), np.repeat(y, 2)))
    weighted = count_tails(model.mixture_, model.rows(X, y, sample_weight=np.full(200, 2.0)))
    assert np.array_equal(twice.counts, weighted.counts)


def test_what_cannot_be_calibrated_is_said(model: MixtureOfRegressions) -> None:
    X, y = long_tails(200, 10)
    with pytest.raises(InvalidInputError, match=r"8 rows cannot calibrate it. Pass at least 9"):
        calibrate_intervals(model, X[:8], y[:8]).tail(0.9)
    with pytest.raises(InvalidInputError, match="longer tails"):
        calibrate_intervals(model, X, y + 1000).tail(0.9)
    with pytest.raises(InvalidInputError, match="expected one of all"):
        calibrate_intervals(model, X, y).predict(X, site="north")
    with pytest.raises(InvalidInputError, match="groups"):
        calibrate_intervals(model, X, y, groups=np.arange(200))
    classes = MixtureOfExpertsClassifier(1).fit(X, (y > 0).astype(int))
    with pytest.raises(InvalidInputError, match="have no quantiles"):
        calibrate_intervals(classes, X, y > 0)
    assert np.isnan(TailCounts(np.zeros(len(EDGES) + 1)).coverage(0.1))
    assert count_tails(model.mixture_, Rows(X[:0], y[:0, None])).rows == 0

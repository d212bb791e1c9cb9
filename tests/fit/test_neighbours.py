"""Other maxima beside the best one on many rows, and what the starts then agree on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience.fit import Specification, fit_mixture
from consilience.fit.climb import Ascent, climb, drive
from consilience.fit.neighbours import EASY, climb_neighbours, has_neighbours
from consilience.fit.starts import SAMPLE, StartEnds, mixture_from, responder, start_sample
from consilience.model import Mixture, Rows
from consilience.model.summary import column_summary

SPECIFICATION = Specification(K=3, gate="constant")


def clusters(n: int = 900) -> tuple[Rows, np.ndarray]:
    """Three clusters of equal size on a line, two of them nearer to each other, and the cluster of each row."""
    rng = np.random.default_rng(0)
    z = np.arange(n) % 3
    return Rows(np.empty((n, 0)), (np.array([0.0, 30.0, 36.0])[z] + rng.standard_normal(n))[:, None]), z


def test_moves_lead_from_a_poor_maximum_to_the_best_on_all_rows() -> None:
    rows, z = clusters()
    summary = column_summary(rows)
    penalty, respond = SPECIFICATION.penalty(summary), responder(rows, "all rows", None)

    def reach(mixture: Mixture, bar: float) -> Ascent:
        return drive(climb(mixture, penalty, bar=bar), respond)

    def ended(labels: np.ndarray) -> Ascent:
        return reach(mixture_from(np.eye(3)[labels].T, start_sample(rows, SPECIFICATION, summary)), -np.inf)

    right, poor = ended(z), ended(np.where(z == 0, (rows.Y[:, 0] > 0).astype(np.intp), 2))
    assert poor.penalised < right.penalised - 100
    found = climb_neighbours(poor, rows, SPECIFICATION, summary, np.random.default_rng(0), reach=reach)
    assert max(end.penalised for end in found) == pytest.approx(right.penalised, abs=1e-3)


def test_only_difficult_climbs_on_many_rows_are_followed_by_moves() -> None:
    rows, _ = clusters()
    fit = fit_mixture(rows, SPECIFICATION, rng=np.random.default_rng(0))
    hard, easy = (replace(fit.ascent, informed_passes=passes) for passes in (EASY + 1, EASY))
    many = Rows(np.empty((SAMPLE + 1, 0)), np.zeros((SAMPLE + 1, 1)))
    assert has_neighbours(hard, many)
    assert not has_neighbours(easy, many)
    assert not has_neighbours(hard, rows)


def test_starts_that_met_below_the_end_of_a_move_do_not_agree() -> None:
    met = StartEnds((-10.0,) * 6, ("one", "two", "three", "four", "five", "six"))
    assert met.agree
    above = met.with_moves([-8.0, -12.0], returned=-8.0)
    assert (above.values[0], above.meeting, above.agree) == (-8.0, 1, False)
    assert met.with_moves([-12.0], returned=-10.0).agree


@pytest.mark.long
def test_flights_end_at_the_best_known_where_all_starts_met_elsewhere() -> None:
    columns = ("dep_delay", "air_time", "distance", "hour", "month", "arr_delay")
    try:
        found = load_table("flights")
    except DataNotFoundError as error:
        pytest.skip(str(error))
    Z = np.column_stack([found.column(name).to_numpy(zero_copy_only=False).astype(float) for name in columns])
    Z = Z[np.all(np.isfinite(Z), axis=1)]
    rows = Rows(np.ascontiguousarray(Z[:, :-1]), Z[:, -1:])
    fit = fit_mixture(rows, Specification(K=3), rng=np.random.default_rng(103))
    assert fit.log_likelihood == pytest.approx(-1319703.95, abs=1)

"""Search for starts: effort by agreement, samples with enough events, evidence in units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.fit import Ascent, Specification
from consilience.fit import starts as starts_module
from consilience.fit.climb import StopReason
from consilience.fit.starts import (
    CONTENDERS,
    SUBSAMPLE,
    End,
    Found,
    StartEnds,
    best_distinct_ends,
    is_sure,
    search,
    subsample,
)
from consilience.model import Penalty, Rows
from consilience.model.summary import column_summary
from simulated import simulated


def end(kind: str, value: float, stop: StopReason = StopReason.MAX_ITER) -> End:
    truth = simulated(n=20).truth
    ascent = Ascent.without_steps(
        truth,
        np.ones(2),
        log_likelihood=value,
        weight=20.0,
        penalty=Penalty(gate_ridge=0.0, expert_ridge=0.0),
        passes=1,
        stop=stop,
    )
    return End(kind, ascent)


def test_ends_within_a_unit_of_all_rows_are_one() -> None:
    ends = [end("a", -100.0), end("b", -100.4), end("c", -101.5)]
    assert [each.kind for each in best_distinct_ends(ends, 1.0)] == ["a", "c"]
    assert [each.kind for each in best_distinct_ends(ends, 10.0)] == ["a", "b", "c"]
    assert len(best_distinct_ends([end("a", -10.0 * i) for i in range(9)], 1.0)) == CONTENDERS


def test_ends_that_were_given_up_or_degenerate_are_not_compared_on_all_rows() -> None:
    best, outdone, other = end("a", -100.0), end("b", -200.0, StopReason.OUTDONE), end("c", -300.0)
    spike = replace(end("d", -400.0), degenerate=True)
    assert [each.kind for each in best_distinct_ends([best, outdone, other, spike], 1.0)] == ["a", "c"]
    assert [each.kind for each in best_distinct_ends([spike], 1.0)] == ["d"]


def test_one_kind_alone_is_no_agreement() -> None:
    assert not StartEnds((-10.0, -10.1), ("a", "a")).agree
    assert StartEnds((-10.0, -10.9, -10.1), ("a", "a", "b")).agree
    assert not StartEnds((-10.0, -11.1), ("a", "b")).agree
    assert str(StartEnds((-10.0, -10.5, -12.0), ("a", "b", "b"))).startswith("2 of 3 starts, of 2 kinds")


def test_a_higher_end_that_was_not_returned_is_no_agreement() -> None:
    assert not StartEnds((-10.0, -5.0), ("a", "b")).agree


def test_on_all_rows_ends_count_with_what_their_contender_reached() -> None:
    truth = simulated(n=20).truth
    ends = StartEnds((-10.0, -10.2, -13.0, -40.0), ("a", "b", "c", "d"))
    found = Found((truth, truth), (-10.0, -13.0), ends)
    apart = found.on_all_rows({0: -20.0, 1: -18.0}, best=1)
    assert apart.values[:2] == (-18.0, -20.0)
    assert (apart.meeting, apart.kinds[0], apart.agree) == (1, "c", False)
    same = found.on_all_rows({0: -20.0, 1: -19.9}, best=1)
    assert (same.meeting, same.kinds_meeting) == (3, 3)


def test_of_contenders_that_one_pass_compared_the_ends_of_the_chosen_one_meet() -> None:
    truth = simulated(n=20).truth
    ends = StartEnds((-10.0, -10.2, -13.0), ("a", "b", "c"))
    chosen = Found((truth, truth), (-10.0, -13.0), ends).on_all_rows({1: -18.0}, best=1)
    assert (chosen.kinds[0], chosen.meeting, chosen.agree) == ("c", 1, False)
    spurious = Found((truth, truth), (-10.0, -13.0), ends).on_all_rows({0: -1.0, 1: -18.0}, best=1)
    assert (spurious.values[0], spurious.meeting) == (-18.0, 1)  # an end at the floor is higher but not returned


def test_a_sample_of_counts_has_events_and_the_likelihood_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    rows = Rows(rng.normal(size=(n, 1)), (rng.random((n, 1)) < 0.01).astype(float))
    plain, weighted = (subsample(rows, SUBSAMPLE, np.random.default_rng(1), events=each) for each in (False, True))
    assert plain.Y.sum() < 60
    events = weighted.Y[:, 0] > 0
    assert events.sum() > 900
    assert weighted.n == SUBSAMPLE
    share = weighted.weight[events].sum() / weighted.weight.sum()
    assert share == pytest.approx(rows.Y.mean(), rel=1e-6)
    assert weighted.weight.min() == 1.0


def test_one_start_is_one_end() -> None:
    data = simulated(n=200)
    found = search(data.rows, Specification(K=2), column_summary(data.rows), np.random.default_rng(0), n_init=1)
    assert found.ends.count == 1
    assert len(found.contenders) == 1


@pytest.mark.parametrize(
    ("values", "kinds", "sure"),
    [
        ((-5.0, -5.2, -5.9, -5.0), ("a", "b", "c", "d"), True),
        ((-5.0, -5.2, -5.9, -5.0), ("a", "b", "c", "b"), False),
        ((-5.0, -5.2, -5.9), ("a", "b", "c"), False),
        ((-5.0, -5.2, -5.9, -5.0, -6.1), ("a", "b", "c", "d", "e"), False),
        ((-5.0,) * 7 + (-6.1,), tuple("abcdefga"), True),
        ((-5.0,) * 6 + (-6.1,) * 2, tuple("abcdefga"), False),
    ],
)
def test_no_more_is_tried_if_four_kinds_meet_and_hardly_any_start_ends_elsewhere(
    values: tuple[float, ...], kinds: tuple[str, ...], sure: bool
) -> None:
    assert is_sure(StartEnds(values, kinds)) is sure


@pytest.mark.slow
def test_a_tight_expert_inside_a_wide_one_is_found() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1500, 6))
    tight = rng.random(1500) < 0.15
    y = np.where(tight, X @ [3.0, -2, 1, 0, 0, 2], 0.0) + np.where(tight, 0.05, 4.0) * rng.standard_normal(1500)
    rows = Rows(X, y[:, None])
    for seed in range(3):
        found = search(
            rows,
            Specification(K=2, gate="constant", shape_ratio=1e5),
            column_summary(rows),
            np.random.default_rng(seed),
            n_init=6,
        )
        share = found.contenders[0].responsibilities(rows).mean(axis=0).min()
        assert share == pytest.approx(tight.mean(), abs=0.03)


def test_a_long_search_says_after_its_first_start_how_long_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows(np.empty((200, 0)), np.random.default_rng(0).normal(size=(200, 1)))
    specification = Specification(K=2, gate="constant")
    began = iter(np.arange(0.0, 1e6, 10.0))  # ten seconds pass between two looks at the clock
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(starts_module.time, "perf_counter", lambda: float(next(began)))
        search(rows, specification, column_summary(rows), np.random.default_rng(0), n_init=6)
    assert "takes up to 2 minutes" in caplog.text
    assert "n_jobs=-1" in caplog.text
    caplog.clear()
    search(rows, specification, column_summary(rows), np.random.default_rng(0), n_init=6)
    assert not caplog.text

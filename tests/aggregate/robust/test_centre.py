"""Centres of points some of which are wrong: invariances, convex optimisation, breakdown; shrinkage by simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import chi2, trim_mean

from consilience.aggregate import (
    Shrinkage,
    cap_weights,
    coordinate_median,
    draw_towards,
    geometric_median,
    huber_centre,
    shrink,
    trimmed_mean,
    usable_sites,
)
from consilience.errors import InvalidInputError

SEEDS = st.integers(0, 2**32 - 1)


def scalar(variances: np.ndarray, D: int) -> np.ndarray:
    """Covariances that are multiples of the identity, ``(M, D, D)``."""
    return np.asarray(variances)[:, None, None] * np.eye(D)


def turn(D: int, rng: np.random.Generator) -> np.ndarray:
    """A random rotation, perhaps with a reflection."""
    return np.linalg.qr(rng.normal(size=(D, D)))[0]


# ---------------------------------------------------------------------- the geometric median


def total_distance(points: np.ndarray, at: np.ndarray, weights: np.ndarray | None = None) -> float:
    distance = np.linalg.norm(points - at, axis=-1)
    return float(distance.sum() if weights is None else weights @ distance)


@st.composite
def clouds(draw: st.DrawFn, max_M: int = 12) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Points, some of them equal, on a line or not, with weights."""
    M, D = draw(st.integers(1, max_M)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(SEEDS))
    points = rng.normal(size=(M, D)) if draw(st.booleans()) else rng.integers(-2, 3, (M, D)).astype(float)
    if draw(st.booleans()):
        points = points[:, :1] * rng.normal(size=D)
    weights = rng.uniform(0.1, 3, M) if draw(st.booleans()) else np.ones(M)
    return points, weights, rng


@given(clouds())
def test_nothing_is_nearer_than_the_median(cloud) -> None:
    points, weights, rng = cloud
    here = geometric_median(points, weights)
    value = total_distance(points, here, weights)
    start = np.average(points, axis=0, weights=weights)
    found = minimize(lambda v: total_distance(points, v, weights), start, method="Nelder-Mead").x
    for other in [*points, found, *(here + 1e-3 * rng.standard_normal((8, len(here))))]:
        assert value <= total_distance(points, other, weights) + 1e-12 * (1 + value)


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_a_point_that_the_others_just_hold_is_the_median(scale: float) -> None:
    points = scale * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # ‖R‖ = η at the first
    np.testing.assert_allclose(geometric_median(points), 0.0, atol=1e-12 * scale)


@given(clouds())
def test_the_median_moves_with_the_points(cloud) -> None:
    points, weights, rng = cloud
    D = points.shape[1]
    Q, shift = turn(D, rng), rng.normal(size=D)
    moved = 3 * points @ Q + shift
    here, there = geometric_median(points, weights), geometric_median(moved, weights)
    order = rng.permutation(len(points))
    shuffled = geometric_median(points[order], weights[order])
    scale = 1 + total_distance(points, here, weights)
    for other in ((there - shift) @ Q.T / 3, shuffled):  # medians of points on a line need not be unique
        assert total_distance(points, other, weights) == pytest.approx(
            total_distance(points, here, weights), abs=1e-6 * scale
        )


@given(clouds())
def test_weights_of_the_geometric_median_are_repetitions(cloud) -> None:
    points, _, rng = cloud
    times = rng.integers(0, 4, len(points))
    times[0] += 1
    weighted = geometric_median(points, times.astype(float))
    np.testing.assert_allclose(weighted, geometric_median(np.repeat(points, times, axis=0)), atol=1e-9)


@given(clouds())
def test_in_one_dimension_it_is_the_median(cloud) -> None:
    points, _, _ = cloud
    assert geometric_median(points[:, :1])[0] == pytest.approx(np.median(points[:, 0]), rel=1e-12)


@given(clouds())
def test_a_point_with_most_of_the_weight_is_the_median_exactly(cloud) -> None:
    points, weights, rng = cloud
    heavy = rng.integers(len(points))
    weights[heavy] = 1.001 * weights.sum()
    assert np.array_equal(geometric_median(points, weights), points[heavy])


@pytest.mark.parametrize("angle", [121.0, 150.0, 179.0])
def test_a_wide_angle_is_the_median_exactly(angle: float) -> None:
    for first in (0.0, 0.7, 2.0):  # at 0 the iteration starts there
        turned = first + np.radians([0.0, angle])
        triangle = 0.3 + np.array([[np.cos(a), np.sin(a)] for a in turned] + [[0.0, 0.0]])[[0, 2, 1]]
        assert np.array_equal(geometric_median(triangle), triangle[1])


def test_at_a_narrow_angle_all_directions_are_120_degrees_apart() -> None:
    triangle = np.array([[0.0, 0.0], [4.0, 1.0], [1.0, 3.0]])
    directions = triangle - geometric_median(triangle)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(directions @ directions.T, np.where(np.eye(3), 1.0, -0.5), atol=1e-8)


def test_the_iteration_leaves_a_point_that_is_not_the_median() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.1], [-0.1, -1.0], [-0.1, -2.0]])
    assert np.array_equal(np.median(points, axis=0), points[0])  # where it starts
    here = geometric_median(points)
    assert total_distance(points, here) < total_distance(points, points[0]) - 0.1
    pull = (points - here) / np.linalg.norm(points - here, axis=1, keepdims=True)
    np.testing.assert_allclose(pull.sum(axis=0), 0.0, atol=1e-7)


def test_two_points_meet_in_the_middle_and_one_stays() -> None:
    np.testing.assert_allclose(geometric_median(np.array([[0.0, 1.0], [2.0, 5.0]])), [1.0, 3.0])
    assert np.array_equal(geometric_median(np.array([[2.0, 5.0]])), [2.0, 5.0])
    assert np.array_equal(geometric_median(np.full((4, 3), 0.1)), np.full(3, 0.1))


@given(SEEDS, st.integers(1, 5))
def test_less_than_half_of_the_points_cannot_carry_the_median_away(seed: int, D: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(21, D))
    points[:10] = 1e8 * rng.normal(size=D)
    assert np.linalg.norm(geometric_median(points)) < 2 * 21 * np.linalg.norm(points[10:], axis=1).max()


def test_points_far_off_do_not_make_the_median_less_exact() -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    points[:5] += 1e9
    gap = points - geometric_median(points)
    pull = gap / np.linalg.norm(gap, axis=1, keepdims=True)
    np.testing.assert_allclose(pull.sum(axis=0), 0.0, atol=1e-6)


# ---------------------------------------------------------------------- by coordinates


@given(clouds())
def test_equal_weights_give_the_plain_median(cloud) -> None:
    points, _, rng = cloud
    expected = np.median(points, axis=0)
    np.testing.assert_array_equal(coordinate_median(points), expected)
    np.testing.assert_array_equal(coordinate_median(points[rng.permutation(len(points))]), expected)
    np.testing.assert_array_equal(coordinate_median(points, np.full(len(points), 4.0)), expected)


@given(clouds())
def test_weights_of_the_coordinate_median_are_repetitions(cloud) -> None:
    points, _, rng = cloud
    times = rng.integers(0, 4, len(points))
    times[0] += 1
    expected = np.median(np.repeat(points, times, axis=0), axis=0)
    np.testing.assert_array_equal(coordinate_median(points, times.astype(float)), expected)


@given(clouds(), st.floats(0, 0.49))
def test_the_trimmed_mean_is_scipys(cloud, share: float) -> None:
    points, _, _ = cloud
    assume((share * len(points) + 1e-9) % 1 > 2e-9 or share == 0)  # scipy does not round
    np.testing.assert_allclose(trimmed_mean(points, share), trim_mean(points, share, axis=0), atol=1e-12)


def test_a_share_that_is_a_number_of_sites_cuts_that_number() -> None:
    squares = np.arange(100.0)[:, None] ** 2
    for cut in range(50):  # 0.29 * 100 is 28.999999999999996
        assert trimmed_mean(squares, cut / 100)[0] == squares[cut : 100 - cut].mean()


def test_half_cannot_be_trimmed() -> None:
    for share in (-0.1, 0.5, np.nan):
        with pytest.raises(InvalidInputError, match=r"from 0 to less than 0\.5"):
            trimmed_mean(np.zeros((4, 1)), share)


@given(clouds())
def test_no_weight_is_above_twice_the_median(cloud) -> None:
    _, weights, rng = cloud
    weights[0] = 1e9
    order = rng.permutation(len(weights))
    found = cap_weights(weights)
    assert np.all(found <= 2 * np.median(weights))
    small = weights <= 2 * np.median(weights)
    np.testing.assert_array_equal(found[small], weights[small])
    np.testing.assert_array_equal(cap_weights(weights[order]), found[order])
    np.testing.assert_allclose(cap_weights(7 * weights), 7 * found, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sites_that_are_not_finite_are_not_usable(bad: float) -> None:
    points = np.zeros((4, 2, 3))
    points[1, 1, 2] = points[3, 0, 0] = bad
    np.testing.assert_array_equal(usable_sites(points), [True, False, True, False])
    with pytest.raises(InvalidInputError, match="finite"):
        usable_sites(points[[1, 3]])


# ---------------------------------------------------------------------- the Huber centre


def huber_loss(points: np.ndarray, at: np.ndarray, threshold: np.ndarray | float, weights: np.ndarray) -> float:
    r = np.linalg.norm(points - at, axis=1)
    return float(weights @ np.where(r <= threshold, r**2 / 2, threshold * (r - threshold / 2)))


def joint_loss(
    points: np.ndarray, at: np.ndarray, drawn: np.ndarray, threshold: np.ndarray | float, weights: np.ndarray
) -> float:
    """``Σ w (½ ‖ν - z‖² + τ ‖ν - v‖)``."""
    near = np.sum((drawn - points) ** 2, axis=1) / 2
    return float(weights @ (near + threshold * np.linalg.norm(drawn - at, axis=1)))


@st.composite
def huber_cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray | float, np.ndarray, np.random.Generator]:
    """A cloud with one threshold, or one for each point."""
    points, weights, rng = draw(clouds())
    threshold = rng.uniform(0.3, 3, len(points)) if draw(st.booleans()) else float(rng.uniform(0.3, 3))
    return points, threshold, weights, rng


@given(huber_cases())
def test_pulls_on_the_huber_centre_cancel(case) -> None:
    points, threshold, weights, _ = case
    gap = points - huber_centre(points, threshold, weights)
    r = np.linalg.norm(gap, axis=1)
    pull = weights * np.minimum(1, threshold / np.maximum(r, 1e-300))
    np.testing.assert_allclose(pull @ gap, 0.0, atol=1e-7 * weights.sum())


@given(huber_cases())
def test_the_huber_centre_is_the_minimiser(case) -> None:
    points, threshold, weights, rng = case
    here = huber_centre(points, threshold, weights)
    value = huber_loss(points, here, threshold, weights)
    start = np.average(points, axis=0, weights=weights)
    found = minimize(lambda v: huber_loss(points, v, threshold, weights), start, method="BFGS").x
    for other in [*points, found, *(here + 1e-2 * rng.standard_normal((8, len(here))))]:
        assert value <= huber_loss(points, other, threshold, weights) + 1e-9 * (1 + value)


@given(huber_cases())
def test_the_centre_and_what_is_drawn_to_it_minimise_together(case) -> None:
    points, threshold, weights, rng = case
    centre = huber_centre(points, threshold, weights)
    drawn = draw_towards(points, centre, threshold)
    value = joint_loss(points, centre, drawn, threshold, weights)
    assert value == pytest.approx(huber_loss(points, centre, threshold, weights), abs=1e-9)  # Moreau
    for size in (1e-3, 1e-1, 1.0):
        for moves in rng.standard_normal((4, 2, *points.shape)):
            other = joint_loss(points, centre + size * moves[0, 0], drawn + size * moves[1], threshold, weights)
            assert value <= other + 1e-9 * (1 + value)
    together = rng.standard_normal((8, points.shape[1]))  # fused points move with the centre
    for move in 1e-2 * together:
        other = joint_loss(points, centre + move, draw_towards(points, centre + move, threshold), threshold, weights)
        assert value <= other + 1e-9 * (1 + value)


def test_no_optimiser_finds_a_better_pair() -> None:
    rng = np.random.default_rng(0)
    points, weights, threshold = rng.normal(size=(5, 2)), rng.uniform(0.5, 2, 5), 0.6
    centre = huber_centre(points, threshold, weights)
    value = joint_loss(points, centre, draw_towards(points, centre, threshold), threshold, weights)

    def loss(flat: np.ndarray) -> float:
        at, *drawn = flat.reshape(6, 2)
        return joint_loss(points, at, np.array(drawn), threshold, weights)

    start = np.concatenate([points.mean(axis=0), points.ravel()])
    best = minimize(loss, start, method="Powell", options={"maxiter": 50, "xtol": 1e-8, "ftol": 1e-12}).fun
    assert value <= best + 1e-9
    assert best < value + 0.05 * value  # it did look


@given(huber_cases())
def test_the_huber_centre_moves_with_the_points(case) -> None:
    points, threshold, weights, rng = case
    D = points.shape[1]
    Q, shift = turn(D, rng), rng.normal(size=D)
    here = huber_centre(points, threshold, weights)
    there = huber_centre(3 * points @ Q + shift, 3 * threshold, weights)
    back = (there - shift) @ Q.T / 3  # minimisers of points on a line need not be unique
    value = huber_loss(points, here, threshold, weights)
    assert huber_loss(points, back, threshold, weights) == pytest.approx(value, abs=1e-7 * (1 + value))
    drawn = draw_towards(points, here, threshold)
    turned = draw_towards(3 * points @ Q + shift, 3 * here @ Q + shift, 3 * threshold)
    np.testing.assert_allclose(turned, 3 * drawn @ Q + shift, atol=1e-9)


@given(huber_cases())
def test_the_order_of_points_does_not_matter_and_weights_of_the_huber_centre_are_repetitions(case) -> None:
    points, threshold, _, rng = case
    threshold = np.broadcast_to(threshold, len(points))
    times = rng.integers(0, 4, len(points))
    times[0] += 1
    order = rng.permutation(len(points))
    here = huber_centre(points, threshold, times.astype(float))
    there = huber_centre(points[order], threshold[order], times[order].astype(float))
    apart = huber_centre(np.repeat(points, times, axis=0), np.repeat(threshold, times))
    value = huber_loss(points, here, threshold, times)
    for other in (there, apart):
        assert huber_loss(points, other, threshold, times) == pytest.approx(value, abs=1e-9 * (1 + value))


@given(clouds())
def test_a_large_threshold_gives_the_mean_and_a_small_one_the_geometric_median(cloud) -> None:
    points, weights, _ = cloud
    np.testing.assert_allclose(
        huber_centre(points, 1e9, weights), np.average(points, axis=0, weights=weights), atol=1e-9
    )
    small = huber_centre(points, 1e-6, weights)
    best = total_distance(points, geometric_median(points, weights), weights)
    assert total_distance(points, small, weights) <= best + 2e-6 * weights.sum()


def test_within_the_threshold_all_become_the_centre_and_beyond_it_they_come_nearer_by_the_threshold() -> None:
    rng = np.random.default_rng(0)
    points, centre = rng.normal(size=(40, 3)), rng.normal(size=3)
    r, threshold = np.linalg.norm(points - centre, axis=1), np.linspace(0.5, 3, 40)
    drawn = draw_towards(points, centre, threshold)
    np.testing.assert_allclose(np.linalg.norm(drawn - centre, axis=1), np.maximum(r - threshold, 0), atol=1e-12)
    np.testing.assert_array_equal(drawn[r <= threshold], np.broadcast_to(centre, drawn[r <= threshold].shape))
    np.testing.assert_allclose(draw_towards(points, centre, 1e-12), points, atol=1e-11)


def test_uploads_of_norm_1000_do_not_hold_the_huber_centre_up() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(20, 10))
        points[:6] *= 1e3 / np.linalg.norm(points[:6], axis=1, keepdims=True)
        gap = points - huber_centre(points, 0.6, max_iter=12)  # from the mean it takes 20
        pull = np.minimum(1, 0.6 / np.linalg.norm(gap, axis=1))
        np.testing.assert_allclose(pull @ gap, 0.0, atol=1e-7)


def test_a_threshold_is_positive() -> None:
    for threshold in (0.0, -1.0, np.nan, np.array([1.0, 0.0])):
        with pytest.raises(InvalidInputError, match="positive"):
            huber_centre(np.zeros((2, 1)), threshold)


# ---------------------------------------------------------------------- breakdown

ROBUST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "coordinate median": coordinate_median,
    "trimmed mean": lambda points: trimmed_mean(points, 0.4),
    "geometric median": geometric_median,
    "huber centre": lambda points: huber_centre(points, 1.0),
    "shrunk": lambda points: shrink(points, scalar(np.ones(len(points)), points.shape[1])).centre,
}


@pytest.mark.slow
@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("centre", ROBUST)
def test_two_fifths_of_the_points_cannot_carry_a_centre_away(centre: str, far: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(20, 1 + seed % 5))
        kind = rng.normal(size=points[:8].shape) if seed % 2 else np.ones(points[:8].shape)  # apart, or all together
        points[:8] = far * kind
        radius = np.linalg.norm(points[8:], axis=1).max()
        assert np.linalg.norm(ROBUST[centre](points)) < 2 * radius
        assert np.linalg.norm(points.mean(axis=0)) > 10 * radius


# ---------------------------------------------------------------------- shrinkage


def honest(
    rng: np.random.Generator, *, M: int = 20, D: int = 5, between: float = 0.0, uneven: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truths of sites with variance ``between`` per coordinate, estimates, and their covariances."""
    variances = rng.uniform(0.5, 2, M) if uneven else np.ones(M)
    truth = np.sqrt(between) * rng.normal(size=(M, D))
    return truth, truth + np.sqrt(variances)[:, None] * rng.normal(size=(M, D)), scalar(variances, D)


@pytest.mark.slow
@given(SEEDS, st.integers(1, 15), st.integers(1, 5), st.sampled_from([0.0, 1.0, 100.0]))
def test_shrinkage_moves_with_the_points(seed: int, M: int, D: int, between: float) -> None:
    rng = np.random.default_rng(seed)
    _, points, variances = honest(rng, M=M, D=D, between=between)
    Q, shift, order = turn(D, rng), rng.normal(size=D), rng.permutation(M)
    here = shrink(points, variances)
    there = shrink((3 * points @ Q + shift)[order], 9 * variances[order])
    np.testing.assert_array_equal(there.kept, here.kept[order])
    np.testing.assert_allclose(there.shrinkage, here.shrinkage[order], atol=1e-6)
    np.testing.assert_allclose(there.weights, here.weights[order], atol=1e-6)
    np.testing.assert_allclose(there.between, 9 * here.between, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.centre, 3 * here.centre @ Q + shift, atol=1e-5 * (1 + between))
    np.testing.assert_allclose(there.estimates, (3 * here.estimates @ Q + shift)[order], atol=1e-5 * (1 + between))


def leave_one_out(points: np.ndarray, covariances: np.ndarray, found: Shrinkage) -> np.ndarray:
    """``θ_m`` by the formula, site by site, from the sites kept and ``ĥ²`` that were found."""
    expected, D = points.copy(), points.shape[1]
    usual = D / np.trace(np.linalg.inv(covariances), axis1=1, axis2=2)
    counted = covariances * np.maximum(1, np.median(usual) / 2 / usual)[:, None, None]
    W = found.kept[:, None, None] * np.linalg.inv(counted + found.between * np.eye(D))
    for m in range(len(points)):
        rest = np.delete(np.arange(len(points)), m)
        if found.kept[rest].any():
            spread = np.linalg.inv(W[rest].sum(axis=0))
            v = spread @ np.einsum("mab,mb->a", W[rest], points[rest])
            T, r = found.between * np.eye(D) + spread, points[m] - v
            most, q = max(2.5 * D, chi2.ppf(1 - 0.02 / len(covariances), D)), r @ np.linalg.solve(covariances[m] + T, r)
            B = covariances[m] @ np.linalg.inv(covariances[m] + T)
            expected[m] = points[m] - B @ r * (1 if found.kept[m] else min(1, most / q))
    return expected


@pytest.mark.slow
@given(SEEDS, st.integers(1, 15), st.integers(1, 5), st.sampled_from([0.0, 1.0, 100.0]))
def test_estimates_lie_between_their_own_and_the_centre_of_the_others(
    seed: int, M: int, D: int, between: float
) -> None:
    rng = np.random.default_rng(seed)
    _, points, variances = honest(rng, M=M, D=D, between=between)
    points[: M // 4] += 1e3 * (1 + between)
    found = shrink(points, variances)
    scale = 1 + np.abs(points).max()
    np.testing.assert_allclose(found.estimates, leave_one_out(points, variances, found), atol=1e-6 * scale)
    assert found.weights.sum() == pytest.approx(1)
    assert np.all((found.weights > 0) == found.kept)
    assert np.all((found.shrinkage >= 0) & (found.shrinkage <= 1))
    np.testing.assert_allclose(found.centre, found.weights @ points, atol=1e-9 * scale)


def test_the_variance_between_sites_agrees_with_the_distances_that_it_leads_to() -> None:
    for seed in range(6):  # with 2 a site at the border would be kept in every second turn
        _, points, variances = honest(np.random.default_rng(seed), M=30, D=8, between=1.0)
        found = shrink(points, variances)
        own = variances[:, 0, 0]
        w = found.kept / (found.between + np.maximum(own, np.median(own) / 2))
        rest = w.sum() - w
        others = (w @ points - w[:, None] * points) / rest[:, None]
        square = np.sum((points - others) ** 2, axis=1) / (found.between + own + 1 / rest)
        assert np.median(square[found.kept]) == pytest.approx(8 * (1 - 2 / 72) ** 3, rel=1e-3)


def alike(M: int, D: int) -> np.ndarray:
    """Points so near to each other that chance would have put them further apart."""
    return 0.1 * np.random.default_rng(M).normal(size=(M, D))


@pytest.mark.parametrize("M", [2, 3, 10, 40])
def test_where_sites_do_not_differ_all_have_the_mean(M: int) -> None:
    points = alike(M, 3)
    found = shrink(points, scalar(np.ones(M), 3))
    assert found.between == 0
    assert found.kept.all()
    np.testing.assert_allclose(found.estimates, np.tile(points.mean(axis=0), (M, 1)), atol=1e-12)
    np.testing.assert_allclose(found.shrinkage, 1 - 1 / M)


def test_where_sites_do_not_differ_all_have_the_mean_weighted_by_precision() -> None:
    points, variances = alike(10, 3), np.linspace(1, 1.9, 10)  # none below half the median
    found = shrink(points, scalar(variances, 3))
    assert found.between == 0
    expected = np.average(points, axis=0, weights=1 / variances)
    np.testing.assert_allclose(found.estimates, np.tile(expected, (10, 1)), atol=1e-12)


def test_where_sites_differ_much_each_keeps_its_own() -> None:
    rng = np.random.default_rng(0)
    moved, points = [], rng.normal(size=(20, 3))
    for spread in (1e1, 1e2, 1e4):
        found = shrink(spread * points, scalar(np.full(20, 1 / 3), 3))
        moved.append(np.abs(found.estimates - spread * points).max())
    assert moved[0] > 2 * moved[1] > 4 * moved[2]
    assert moved[2] < 1e-3
    assert found.shrinkage.max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.5, 1.0, 3.0])
def test_shrinkage_errs_less_than_own_estimates_and_than_the_centre(between: float) -> None:
    rng = np.random.default_rng(0)
    own, middle, found = 0.0, 0.0, 0.0
    for _ in range(40):
        truth, points, variances = honest(rng, between=between)
        sharing = shrink(points, variances)
        own += np.sum((points - truth) ** 2)
        middle += np.sum((sharing.centre - truth) ** 2)
        found += np.sum((sharing.estimates - truth) ** 2)
    assert found < 0.9 * own
    assert found < 0.9 * middle


def test_without_differences_shrinkage_is_nearly_as_good_as_the_centre() -> None:
    rng = np.random.default_rng(0)
    own, found = 0.0, 0.0
    for _ in range(40):
        truth, points, variances = honest(rng)
        own += np.sum((points - truth) ** 2)
        found += np.sum((shrink(points, variances).estimates - truth) ** 2)
    assert found < 0.12 * own  # the mean of all has 1 / 20


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 1.0])
@pytest.mark.parametrize("D", [1, 2, 10, pytest.param(50, marks=pytest.mark.long)])
def test_honest_sites_are_kept_and_their_variance_is_found(D: int, between: float) -> None:
    rng = np.random.default_rng(D)
    found = [shrink(*honest(rng, M=40, D=D, between=between)[1:]) for _ in range(40)]
    assert np.mean([each.kept for each in found]) >= 0.97
    estimated = np.mean([each.between for each in found])
    few = 0.35 / np.sqrt(D)  # at 0 it cannot fall below, so that its mean is above
    assert abs(estimated - between) < 0.05 + few


@pytest.mark.slow
@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
def test_sites_far_off_count_nothing_and_keep_their_own(far: float) -> None:
    for seed in range(5):
        _, points, variances = honest(np.random.default_rng(seed), M=15, uneven=False)
        points[:6] += far
        found, alone = shrink(points, variances), shrink(points[6:], variances[6:])
        assert not found.kept[:6].any()
        assert np.all(found.weights[:6] == 0)
        assert np.all(found.shrinkage[:6] <= 5 * 3.4 / far**2)  # a variance times the bound over a square
        np.testing.assert_allclose(found.estimates[:6], points[:6], atol=5 * 3.4 * 3 / far, rtol=1e-15)
        np.testing.assert_array_equal(found.kept[6:], alone.kept)
        np.testing.assert_allclose(found.centre, alone.centre, atol=1e-6)
        np.testing.assert_allclose(found.estimates[6:], alone.estimates, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0, 10.0])
def test_a_site_that_claims_to_know_all_has_no_more_than_twice_the_say(shift: float) -> None:
    for seed in range(20):
        _, points, variances = honest(np.random.default_rng(seed), uneven=False)
        without = shrink(points[1:], variances[1:])
        points[0] += shift
        variances[0] = 1e-12 * np.eye(5)
        found = shrink(points, variances)
        assert found.weights[0] <= 2 * np.median(found.weights) * (1 + 1e-12)
        moved = np.linalg.norm(found.estimates[1:] - without.estimates, axis=1)
        assert np.median(moved) < 0.3 * np.sqrt(5)  # 5 is the variance of one
        assert np.linalg.norm(found.centre - without.centre) < 0.3 * np.sqrt(5)


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 1.0, 3.0])
def test_a_big_site_is_kept_and_keeps_nearly_its_own(between: float) -> None:
    kept = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        _, points, variances = honest(rng, between=between, uneven=False)
        variances[0] /= 100
        points[0] = np.sqrt(between + 0.01) * rng.normal(size=5)
        found = shrink(points, variances)
        kept.append(found.kept[0])
        assert found.shrinkage[0] < 0.2
        assert np.linalg.norm(found.estimates[0] - points[0]) < np.sqrt(0.05)  # its standard error
    assert np.mean(kept) > 0.95


def test_one_site_keeps_its_own() -> None:
    found = shrink(np.array([[1.0, 2.0]]), scalar(np.ones(1), 2))
    np.testing.assert_array_equal(found.estimates, [[1.0, 2.0]])
    np.testing.assert_array_equal(found.centre, [1.0, 2.0])
    assert (found.shrinkage[0], found.weights[0], found.between, found.kept[0]) == (0, 1, 0, True)


def test_two_sites_share_what_they_agree_on() -> None:
    near = shrink(np.array([[0.0], [0.1]]), scalar(np.ones(2), 1))
    np.testing.assert_allclose(near.estimates, 0.05)
    apart = shrink(np.array([[0.0], [1e3]]), scalar(np.ones(2), 1))
    np.testing.assert_allclose(apart.estimates, [[0.0], [1e3]], atol=1e-2)
    big = shrink(np.array([[0.0], [2.0]]), scalar(np.array([1e-4, 1.0]), 1))  # the other has all to learn
    assert abs(big.estimates[0, 0]) < 0.02
    assert np.isfinite(big.estimates).all()


@pytest.mark.parametrize("M", [1, 2, 3, 10])
def test_sites_that_say_the_same_are_answered_the_same(M: int) -> None:
    found = shrink(np.full((M, 3), 0.3), scalar(np.linspace(1, 2, M), 3))
    assert found.between == 0
    assert found.kept.all()
    np.testing.assert_allclose(found.estimates, 0.3, rtol=1e-14)
    np.testing.assert_allclose(found.centre, 0.3, rtol=1e-14)


# ---------------------------------------------------------------------- shrinkage by matrix


def test_directions_that_a_site_determines_stay_and_others_are_the_centres() -> None:
    rng = np.random.default_rng(0)
    points, C = rng.normal(size=(8, 3)), np.tile(1e-6 * np.eye(3), (8, 1, 1))
    Q = turn(3, rng)
    C[0] = Q @ np.diag([1e-6, 1e-6, 1e6]) @ Q.T
    found = shrink(points, C)
    moved = Q.T @ (found.estimates[0] - points[0])
    np.testing.assert_allclose(moved[:2], 0.0, atol=1e-4)
    np.testing.assert_allclose(Q[:, 2] @ (found.estimates[0] - found.others[0]), 0.0, atol=1e-3)


@pytest.mark.slow
@given(SEEDS, st.integers(2, 10), st.integers(1, 5))
def test_the_pull_shrinks_by_what_is_stated(seed: int, M: int, D: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(M, D, D + 2))
    C, points = A @ np.swapaxes(A, 1, 2), rng.normal(size=(M, D))
    found = shrink(points, C)
    for m in range(M):
        P = np.linalg.inv(C[m])
        expected = np.linalg.solve(P + found.pull[m], P @ points[m] + found.pull[m] @ found.others[m])
        np.testing.assert_allclose(found.estimates[m], expected, atol=1e-6)


@pytest.mark.slow
def test_shrinkage_by_matrix_errs_less_than_by_trace_where_sites_know_different_directions() -> None:
    rng = np.random.default_rng(0)
    by_matrix, by_trace = 0.0, 0.0
    for _ in range(40):
        C = np.array([np.diag(rng.permutation([0.01, 1.0, 100.0])) for _ in range(10)])
        truth = 0.3 * rng.normal(size=(10, 3))
        points = truth + np.sqrt(np.diagonal(C, axis1=1, axis2=2)) * rng.normal(size=(10, 3))
        alike = scalar(np.trace(C, axis1=1, axis2=2) / 3, 3)
        by_matrix += np.sum((shrink(points, C).estimates - truth) ** 2)
        by_trace += np.sum((shrink(points, alike).estimates - truth) ** 2)
    assert by_matrix < 0.2 * by_trace

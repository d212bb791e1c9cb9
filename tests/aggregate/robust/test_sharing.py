"""Sharing between sites: changes of coordinates and of labels, priors by their formulas, robustness, camps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from consilience.aggregate import (
    Estimate,
    Sharing,
    division,
    geometric_median,
    in_common_labels,
    share_estimates,
    shrink,
)
from consilience.model import Mixture
from consilience.model.families.covariance import STRUCTURES
from families import GAUSSIAN
from strategies import Shape, random_experts, random_mixture, shapes

SEEDS = st.integers(0, 2**32 - 1)


def scatter(D: int, rng: np.random.Generator) -> np.ndarray:
    """A covariance."""
    A = rng.normal(size=(D, D + 3))
    return A @ A.T / (D + 3)


def with_coefficients(mixture: Mixture, coefficients: np.ndarray) -> Mixture:
    """The mixture with these free coefficients ``(K, f)``."""
    old: Any = mixture.experts
    experts = old.moved(coefficients.ravel() - old.free_coefficients(), np.zeros(old.shape_parameters))
    return Mixture(mixture.design, mixture.gate, experts)


def sites_of(
    shape: Shape, M: int, *, between: float = 0.0, rows: float = 200.0, alike: bool = True
) -> dict[str, Estimate]:
    """Sites about one mixture: per expert a covariance of one row's worth, divided by the rows that the site has.

    ``alike``: all sites have the same covariance of one row's worth.
    """
    rng = np.random.default_rng(shape.seed)
    common = random_mixture(shape, rng)
    centre = common.experts.free_coefficients().reshape(shape.K, -1)
    f = centre.shape[1]
    units, slope_unit = np.array([scatter(f, rng) for _ in range(shape.K)]), scatter(gate_slopes(common).size, rng)
    sites = {}
    for m in range(M):
        labels = rows * rng.uniform(0.7, 1.5, shape.K)
        own = units if alike else np.array([scatter(f, rng) for _ in range(shape.K)])
        covariance = own / labels[:, None, None]
        noise = [rng.multivariate_normal(np.zeros(f), c + between * u) for c, u in zip(covariance, units, strict=True)]
        gate: Any = common.gate
        if gate.reads_covariates:
            gate = gate.moved(0.1 * rng.normal(size=gate.parameter_count))
        family = random_experts(shape, common.design.p, rng)  # covariances of its own
        mixture = with_coefficients(Mixture(common.design, gate, family), centre + np.array(noise))
        slopes = slope_unit / labels.sum() if gate.reads_covariates and slope_unit.size else None
        sites[f"site {m}"] = Estimate(mixture, labels, covariance, slopes)
    return sites


def gate_slopes(mixture: Mixture) -> np.ndarray:
    """Free slopes of the gate, flat."""
    return mixture.gate.contrasts()[:, int(mixture.design.intercept) :].ravel()


def coefficients(mixture: Mixture) -> np.ndarray:
    return mixture.experts.free_coefficients().reshape(mixture.K, -1)


def every(mixtures: Sharing | dict[str, Estimate]) -> np.ndarray:
    """Coefficients of all sites, ``(M, K, f)``."""
    if isinstance(mixtures, Sharing):
        return np.array([coefficients(mixture) for mixture in mixtures.mixtures.values()])
    return np.array([site.coefficients for site in mixtures.values()])


def moved(sites: dict[str, Estimate], T: np.ndarray, shift: np.ndarray) -> dict[str, Estimate]:
    """Coefficients ``T θ + shift`` and their covariances ``T C Tᵀ``; the rest as it was."""
    return {
        name: Estimate(
            with_coefficients(site.mixture, site.coefficients @ T.T + shift),
            site.label_counts,
            T @ site.covariance @ T.T,
            site.slopes,
        )
        for name, site in sites.items()
    }


def same_but_for(one: Sharing, two: Sharing, fields: Sequence[str]) -> None:
    for field in fields:
        np.testing.assert_allclose(getattr(one, field), getattr(two, field), rtol=1e-5, atol=1e-7, err_msg=field)


SMALL = shapes(labels="row", weights=None)
GAUSSIANS = shapes(labels="row", weights=None, family=st.sampled_from(GAUSSIAN))


# ---------------------------------------------------------------------- coordinates


@pytest.mark.slow
@settings(max_examples=10)
@given(GAUSSIANS, st.integers(2, 9), st.booleans())
def test_coordinates_of_coefficients_do_not_matter(shape: Shape, M: int, alike: bool) -> None:
    sites = sites_of(shape, M, between=0.02, alike=alike)
    rng = np.random.default_rng(shape.seed)
    f = every(sites).shape[2]
    T = np.eye(f) + 0.3 * rng.normal(size=(f, f)) if alike else 7 * np.linalg.qr(rng.normal(size=(f, f)))[0]
    # a median of matrices turns with them, but does not follow any change of coordinates
    shift = rng.normal(size=f)
    here, there = share_estimates(sites), share_estimates(moved(sites, T, shift))
    scale = np.linalg.norm(T, 2) * (1 + np.abs(every(sites)).max())
    np.testing.assert_allclose(every(there), every(here) @ T.T + shift, atol=1e-6 * scale)
    np.testing.assert_allclose(coefficients(there.centre), coefficients(here.centre) @ T.T + shift, atol=1e-6 * scale)
    np.testing.assert_allclose(there.covariance, T @ here.covariance @ T.T, rtol=1e-5, atol=1e-9 * scale**2)
    same_but_for(here, there, ("shrinkage", "kept", "between", "division", "gate_shrinkage"))


@pytest.mark.slow
@settings(max_examples=10)
@given(SMALL, st.integers(1, 8), st.booleans())
def test_the_order_of_sites_does_not_matter(shape: Shape, M: int, equal: bool) -> None:
    sites = sites_of(shape, M, between=0.02, alike=False)
    order = np.random.default_rng(shape.seed).permutation(M)
    names = list(sites)
    here, there = (
        share_estimates(sites, equal=equal),
        share_estimates({names[m]: sites[names[m]] for m in order}, equal=equal),
    )
    assert list(there.mixtures) == [names[m] for m in order]
    np.testing.assert_allclose(every(there), every(here)[order], atol=1e-6)
    np.testing.assert_allclose(there.shrinkage, here.shrinkage[order], atol=1e-6)
    np.testing.assert_allclose(there.gate_shrinkage, here.gate_shrinkage[order], atol=1e-6)
    np.testing.assert_array_equal(there.kept, here.kept[order])
    same_but_for(here, there, ("between", "division", "covariance"))


@pytest.mark.slow
@settings(max_examples=10)
@given(GAUSSIANS, st.integers(2, 9))
def test_coefficients_are_shrunk_in_coordinates_of_one_row(shape: Shape, M: int) -> None:
    sites = sites_of(shape, M, between=0.02)
    found, theta = share_estimates(sites), every(sites)
    assume(found.kept.any(axis=1).all())  # a site that is far with most of its experts is left out of all of them
    for k in range(shape.K):
        unit = sites["site 0"].label_counts[k] * sites["site 0"].covariance[k]
        L = np.linalg.cholesky(unit)
        white = np.linalg.solve(L, theta[:, k].T).T
        rows = np.array([site.label_counts[k] for site in sites.values()])
        expected = shrink(white, np.eye(len(L)) / rows[:, None, None], tested=shape.K)
        np.testing.assert_allclose(every(found)[:, k], expected.estimates @ L.T, atol=1e-7)
        np.testing.assert_allclose(coefficients(found.centre)[k], L @ expected.centre, atol=1e-7)
        np.testing.assert_allclose(found.shrinkage[:, k], expected.shrinkage, atol=1e-6)
        np.testing.assert_array_equal(found.kept[:, k], expected.kept)
        assert found.between[k] == pytest.approx(np.sqrt(expected.between), abs=1e-6)
        chance = sum(w**2 * site.covariance[k] for w, site in zip(expected.weights, sites.values(), strict=True))
        differ = np.sum(expected.weights**2) * expected.between * unit
        np.testing.assert_allclose(found.covariance[k], chance + differ, rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_the_covariance_of_the_centre_is_how_far_it_is_from_the_truth() -> None:
    for between in (0.0, 0.02):
        square = []
        for seed in range(40):
            shape = Shape(family="gaussian-full", gate="constant", d=2, K=1, seed=seed)
            rng = np.random.default_rng(seed)
            truth = coefficients(random_mixture(shape, rng))[0]
            found = share_estimates(sites_of(shape, 12, between=between))
            gap = coefficients(found.centre)[0] - truth
            square.append(gap @ np.linalg.solve(found.covariance[0], gap) / len(gap))
        assert 0.7 < np.mean(square) < 1.5


# ---------------------------------------------------------------------- sites with little to say, or with wrong things


def thinned(sites: dict[str, Estimate], names: Sequence[str], k: int, rows: float) -> dict[str, Estimate]:
    """Sites some of which have few rows of expert ``k``, and far-off coefficients."""
    found = dict(sites)
    for name in names:
        site = sites[name]
        labels, own, covariance = site.label_counts.copy(), site.coefficients.copy(), site.covariance.copy()
        labels[k], covariance[k] = rows, covariance[k] * site.label_counts[k] / max(rows, 0.1)
        own[k] += 20.0
        found[name] = Estimate(with_coefficients(site.mixture, own), labels, covariance, site.slopes)
    return found


@pytest.mark.parametrize("rows", [0.0, 1.0, 3.99])
def test_experts_with_fewer_rows_than_coefficients_are_the_centres(rows: float) -> None:
    shape = Shape(family="gaussian-full", gate="constant", d=2, K=2)
    sites = thinned(sites_of(shape, 9), ["site 0", "site 4"], 1, rows)
    found = share_estimates(sites)
    assert not found.kept[[0, 4], 1].any()
    np.testing.assert_allclose(found.shrinkage[[0, 4], 1], 1.0, atol=1e-4)
    np.testing.assert_allclose(every(found)[[0, 4], 1], coefficients(found.centre)[[1, 1]], atol=1e-3)
    others = share_estimates({name: site for name, site in sites.items() if name not in ("site 0", "site 4")})
    np.testing.assert_allclose(coefficients(found.centre)[1], coefficients(others.centre)[1], atol=1e-3)
    np.testing.assert_allclose(found.covariance[1], others.covariance[1], rtol=0.2)  # ĥ² is another
    np.testing.assert_array_equal(found.kept[:, 0], True)  # of the other expert they have rows enough


def test_with_one_row_more_than_coefficients_an_expert_speaks_for_itself() -> None:
    shape = Shape(family="gaussian-full", gate="constant", d=2, K=2)  # three coefficients
    for rows, speaks in ((3.99, False), (4.0, True)):
        found = share_estimates(thinned(sites_of(shape, 9), ["site 0"], 1, rows))
        assert (found.shrinkage[0, 1] < 0.1) == speaks  # too far from the others to be kept
        assert not found.kept[0, 1]


@pytest.mark.parametrize("thin", [2, 4, 6])
def test_sites_that_say_nothing_of_an_expert_change_nothing_for_the_others(thin: int) -> None:
    sites = sites_of(Shape(family="gaussian-full", gate="constant", d=2, K=2), 10, between=0.05)
    names = list(sites)
    found = share_estimates(thinned(sites, names[:thin], 1, 2.0))
    others = share_estimates({name: sites[name] for name in names[thin:]})
    assert found.between[1] == pytest.approx(others.between[1], rel=1e-3)
    np.testing.assert_allclose(coefficients(found.centre)[1], coefficients(others.centre)[1], atol=1e-2)
    np.testing.assert_allclose(found.covariance[1], others.covariance[1], rtol=1e-2)
    np.testing.assert_array_equal(found.kept[thin:, 1], others.kept[:, 1])


@pytest.mark.parametrize("far", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("equal", [False, True])
def test_two_fifths_of_the_sites_cannot_carry_the_centre_away(far: float, equal: bool) -> None:
    shape = Shape(family="gaussian-full", gate="constant", d=2, K=2)
    sites = sites_of(shape, 10)
    bad = {
        name: Estimate(with_coefficients(s.mixture, s.coefficients + far), s.label_counts, s.covariance)
        for name, s in list(sites.items())[:4]
    }
    found, honest = share_estimates(sites | bad, equal=equal), every(sites)[4:]
    radius = np.linalg.norm(honest - honest.mean(axis=0), axis=2).max()
    assert np.linalg.norm(coefficients(found.centre) - honest.mean(axis=0), axis=1).max() < 3 * radius
    if not equal:
        assert not found.kept[:4].any()
        np.testing.assert_allclose(every(found)[:4], every(sites)[:4] + far, rtol=1e-12, atol=1 / far)
        assert np.linalg.norm(every(found)[4:] - honest.mean(axis=0), axis=2).max() < 3 * radius


# ---------------------------------------------------------------------- shares and covariances stay with the site


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
@settings(max_examples=10)
@given(seed=SEEDS, K=st.integers(1, 3), q=st.integers(1, 3), M=st.integers(1, 6))
def test_covariances_have_the_centres_as_a_few_rows(structure: str, seed: int, K: int, q: int, M: int) -> None:
    shape = Shape(family=f"gaussian-{structure}", gate="constant", K=K, q=q, d=1, seed=seed)
    sites = sites_of(shape, M, rows=20.0)
    found = share_estimates(sites)
    own = np.array([site.mixture.experts.matrices for site in sites.values()])
    centre = np.array([geometric_median(own[:, k].reshape(M, -1)).reshape(q, q) for k in range(K)])
    assert found.centre.experts.structure == structure
    np.testing.assert_allclose(found.centre.experts.matrices, centre, atol=1e-8)
    f, labels = every(sites).shape[2], np.array([site.label_counts for site in sites.values()])
    rows = np.repeat(labels.sum(axis=1, keepdims=True), K, axis=1) if structure == "tied" else labels
    size = np.log(np.linalg.norm(own, axis=(2, 3)) / np.linalg.norm(centre, axis=(1, 2)))
    nu = np.minimum(f, 2 / np.maximum(np.median(size**2 / 0.455 - 2 / rows, axis=0), 1e-9))  # fewer if sites differ
    for site, n, S, mixture in zip(sites.values(), rows, own, found.mixtures.values(), strict=True):
        expected = (n[:, None, None] * S + nu[:, None, None] * centre) / (n + nu)[:, None, None]
        assert mixture.experts.structure == structure
        assert mixture.experts.covariance.shape == site.mixture.experts.covariance.shape
        np.testing.assert_allclose(mixture.experts.matrices, expected, atol=1e-8)


@pytest.mark.slow
@settings(max_examples=10)
@given(shapes(labels="row", weights=None, gate="constant"), st.integers(1, 6))
def test_shares_have_the_centres_as_a_few_rows(shape: Shape, M: int) -> None:
    sites = sites_of(shape, M, rows=20.0)
    found = share_estimates(sites)
    rows = np.array([site.label_counts for site in sites.values()])
    middle = np.median(rows / rows.sum(axis=1, keepdims=True), axis=0)
    middle /= middle.sum()
    np.testing.assert_allclose(found.centre.gate.probabilities, middle, atol=1e-12)
    f = every(sites).shape[2]
    total, spread = rows.sum(axis=1), middle @ (1 - middle)
    differ = np.median(np.sum((rows / total[:, None] - middle) ** 2, axis=1) / 0.455 - spread / total)
    nu = min(f, spread / differ) if differ > 0 and shape.K > 1 else f  # fewer if sites differ
    for n, mixture in zip(rows, found.mixtures.values(), strict=True):
        np.testing.assert_allclose(mixture.gate.probabilities, (n + nu * middle) / (n.sum() + nu), atol=1e-9)
        assert mixture.gate.probabilities.sum() == pytest.approx(1)
    np.testing.assert_array_equal(found.gate_shrinkage, np.zeros(M))


# ---------------------------------------------------------------------- slopes of the gate

SOFT = Shape(family="gaussian-full", gate="softmax", d=2, K=3)


def without_slopes(sites: dict[str, Estimate], names: Sequence[str]) -> dict[str, Estimate]:
    return sites | {
        name: Estimate(s.mixture, s.label_counts, s.covariance) for name, s in sites.items() if name in names
    }


@pytest.mark.parametrize("intercept", [True, False])
def test_slopes_of_the_gate_are_shrunk_as_one_vector(intercept: bool) -> None:
    sites = sites_of(SOFT.but(intercept=intercept), 8)
    found = share_estimates(sites)
    own = np.array([gate_slopes(site.mixture) for site in sites.values()])
    unit = sites["site 0"].label_counts.sum() * sites["site 0"].slopes
    L = np.linalg.cholesky(unit)
    rows = np.array([site.label_counts.sum() for site in sites.values()])
    expected = shrink(np.linalg.solve(L, own.T).T, np.eye(len(L)) / rows[:, None, None])
    drawn = np.array([gate_slopes(mixture) for mixture in found.mixtures.values()])
    np.testing.assert_allclose(drawn, expected.estimates @ L.T, atol=1e-7)
    np.testing.assert_allclose(gate_slopes(found.centre), L @ expected.centre, atol=1e-7)
    np.testing.assert_allclose(found.gate_shrinkage, expected.shrinkage, atol=1e-7)
    assert 0 < expected.shrinkage.max() < 1


def test_intercepts_of_the_gate_stay_with_the_site() -> None:
    for equal in (False, True):
        sites = sites_of(SOFT, 7)
        found = share_estimates(sites, equal=equal)
        own = np.array([site.mixture.gate.contrasts()[:, 0] for site in sites.values()])
        drawn = np.array([mixture.gate.contrasts()[:, 0] for mixture in found.mixtures.values()])
        np.testing.assert_allclose(drawn, own, atol=1e-12)
        np.testing.assert_allclose(found.centre.gate.contrasts()[:, 0], np.median(own, axis=0), atol=1e-12)
        for mixture in (found.centre, *found.mixtures.values()):
            np.testing.assert_allclose(mixture.gate.alpha.sum(axis=0), 0.0, atol=1e-12)


@pytest.mark.slow
def test_who_does_not_know_its_slopes_has_the_centres_and_no_say() -> None:
    sites = sites_of(SOFT, 8)
    found = share_estimates(without_slopes(sites, ["site 2", "site 5"]))
    known = share_estimates({name: site for name, site in sites.items() if name not in ("site 2", "site 5")})
    np.testing.assert_allclose(gate_slopes(found.centre), gate_slopes(known.centre), atol=1e-9)
    for name, mixture in found.mixtures.items():
        expected = known.mixtures.get(name, known.centre)
        np.testing.assert_allclose(gate_slopes(mixture), gate_slopes(expected), atol=1e-9)
    np.testing.assert_array_equal(found.gate_shrinkage[[2, 5]], 1.0)
    np.testing.assert_allclose(np.delete(found.gate_shrinkage, [2, 5]), known.gate_shrinkage, atol=1e-9)


@pytest.mark.parametrize("known", [0, 1, 2])
def test_where_fewer_than_three_know_their_slopes_all_have_the_median(known: int) -> None:
    sites = sites_of(SOFT, 7)
    found = share_estimates(without_slopes(sites, list(sites)[known:]))
    middle = geometric_median(np.array([gate_slopes(site.mixture) for site in sites.values()]))
    for mixture in (found.centre, *found.mixtures.values()):
        np.testing.assert_allclose(gate_slopes(mixture), middle, atol=1e-9)
    np.testing.assert_array_equal(found.gate_shrinkage, np.ones(7))


def test_a_softmax_gate_without_covariates_has_no_slopes_to_share() -> None:
    sites = sites_of(SOFT.but(d=0), 4)
    found = share_estimates(sites)
    np.testing.assert_array_equal(found.gate_shrinkage, np.zeros(4))
    for name, mixture in found.mixtures.items():
        np.testing.assert_allclose(mixture.gate.alpha, sites[name].mixture.gate.alpha, atol=1e-12)


# ---------------------------------------------------------------------- all equal


@settings(max_examples=10)
@given(SMALL, st.integers(1, 8))
def test_equal_sites_have_the_geometric_median_all(shape: Shape, M: int) -> None:
    sites = sites_of(shape, M, between=1.0)
    found = share_estimates(sites, equal=True)
    for k in range(shape.K):
        unit = sites["site 0"].label_counts[k] * sites["site 0"].covariance[k]
        L = np.linalg.cholesky(unit)
        middle = L @ geometric_median(np.linalg.solve(L, every(sites)[:, k].T).T)
        np.testing.assert_allclose(coefficients(found.centre)[k], middle, atol=1e-6)
        np.testing.assert_allclose(every(found)[:, k], np.tile(middle, (M, 1)), atol=1e-6)
    if shape.gate == "softmax" and gate_slopes(found.centre).size:
        middle = geometric_median(np.array([gate_slopes(site.mixture) for site in sites.values()]))
        for mixture in (found.centre, *found.mixtures.values()):
            np.testing.assert_allclose(gate_slopes(mixture), middle, atol=1e-7)
        np.testing.assert_array_equal(found.gate_shrinkage, np.ones(M))
    np.testing.assert_array_equal(found.shrinkage, np.ones((M, shape.K)))
    np.testing.assert_array_equal(found.between, np.zeros(shape.K))


@settings(max_examples=10)
@given(SMALL)
def test_one_site_keeps_its_own(shape: Shape) -> None:
    sites = sites_of(shape, 1)
    found = share_estimates(sites)
    np.testing.assert_allclose(every(found), every(sites), atol=1e-12)
    np.testing.assert_allclose(coefficients(found.centre)[None], every(sites), atol=1e-12)
    assert found.kept.all()
    assert found.division == 0
    assert np.all(found.shrinkage == 0)


# ---------------------------------------------------------------------- labels


@pytest.mark.slow
@settings(max_examples=10)
@given(SMALL, st.integers(1, 6))
def test_another_order_of_experts_gives_the_same_in_that_order(shape: Shape, M: int) -> None:
    shape = shape.but(gate="constant")  # slopes are contrasts with the last expert, whichever that is
    sites = sites_of(shape, M, between=0.02)
    order = np.random.default_rng(shape.seed).permutation(shape.K)
    here = share_estimates(sites).permuted(order)
    there = share_estimates({name: site.permuted(order) for name, site in sites.items()})
    np.testing.assert_allclose(every(there), every(here), atol=1e-9)
    np.testing.assert_allclose(there.centre.gate.probabilities, here.centre.gate.probabilities, atol=1e-12)
    same_but_for(here, there, ("covariance", "shrinkage", "kept", "between", "division", "gate_shrinkage"))


@pytest.mark.slow
@settings(max_examples=10)
@given(SMALL, st.integers(1, 4))
def test_an_order_and_its_inverse_give_all_back(shape: Shape, M: int) -> None:
    found = share_estimates(sites_of(shape, M, between=0.02))
    order = np.random.default_rng(shape.seed).permutation(shape.K)
    turned = found.permuted(order)
    np.testing.assert_array_equal(turned.shrinkage, found.shrinkage[:, order])
    for name, mixture in turned.mixtures.items():
        np.testing.assert_array_equal(coefficients(mixture), coefficients(found.mixtures[name])[order])
    back = turned.permuted(np.argsort(order))
    np.testing.assert_array_equal(every(back), every(found))
    for field in ("covariance", "shrinkage", "kept", "between", "division", "gate_shrinkage"):
        np.testing.assert_array_equal(getattr(back, field), getattr(found, field))


@settings(max_examples=10)
@given(SMALL, st.integers(1, 6))
def test_common_labels_undo_any_order(shape: Shape, M: int) -> None:
    rng = np.random.default_rng(shape.seed)
    sites = sites_of(shape, M, rows=1e4)
    centre = random_mixture(shape, rng)
    apart = coefficients(centre) + 10.0 * rng.permutation(shape.K)[:, None]
    centre = with_coefficients(centre, apart)
    sites = {
        name: Estimate(
            with_coefficients(s.mixture, apart + 0.1 * rng.normal(size=apart.shape)), s.label_counts, s.covariance
        )
        for name, s in sites.items()
    }
    named = {name: site.permuted(rng.permutation(shape.K)) for name, site in sites.items()}
    found = in_common_labels(named, centre)
    assert list(found) == list(sites)
    for name, site in sites.items():
        np.testing.assert_array_equal(found[name].coefficients, site.coefficients)
        np.testing.assert_array_equal(found[name].label_counts, site.label_counts)
        np.testing.assert_array_equal(found[name].covariance, site.covariance)
        np.testing.assert_allclose(found[name].mixture.gate.contrasts(), site.mixture.gate.contrasts(), atol=1e-12)


def test_labels_go_by_what_is_known_well() -> None:
    shape = Shape(family="gaussian-full", gate="constant", d=1, K=2)
    mixture, _ = shape.problem()
    target, own = np.array([[0.0, 0.0], [10.0, 1.0]]), np.array([[10.0, 0.0], [0.0, 1.0]])  # slopes are known
    covariance = np.tile(np.diag([100.0, 1e-4]), (2, 1, 1))
    site = Estimate(with_coefficients(mixture, own[::-1]), np.full(2, 50.0), covariance)
    found = in_common_labels({"one": site}, with_coefficients(mixture, target))
    np.testing.assert_array_equal(found["one"].coefficients, own)


def test_the_covariance_of_slopes_is_lost_only_where_labels_change() -> None:
    site = sites_of(SOFT, 1)["site 0"]
    assert site.permuted(np.arange(3)).slopes is site.slopes
    assert site.permuted(np.array([0, 2, 1])).slopes is None


@settings(max_examples=10)
@given(SMALL)
def test_estimates_that_are_not_finite_are_seen(shape: Shape) -> None:
    site = sites_of(shape, 1)["site 0"]
    assert site.is_finite()
    for part in ("label_counts", "covariance"):
        spoiled = {"label_counts": site.label_counts.copy(), "covariance": site.covariance.copy()}
        spoiled[part].flat[-1] = np.nan
        assert not Estimate(site.mixture, **spoiled).is_finite()
    far = site.coefficients.copy()
    far[0, 0] = np.nan
    assert not Estimate(with_coefficients(site.mixture, far), site.label_counts, site.covariance).is_finite()


# ---------------------------------------------------------------------- camps


def divided(z: np.ndarray) -> tuple[float, np.ndarray]:
    """The division of sites with estimates ``z (M, D)`` of unit variance, and who is kept."""
    M, D = z.shape
    shape = Shape(family="gaussian-full", gate="constant", d=D - 1, K=1)
    mixture, _ = shape.problem()
    labels = np.full(1, 1e3)
    sites = {str(m): Estimate(with_coefficients(mixture, z[m : m + 1]), labels, np.eye(D)[None]) for m in range(M)}
    found = share_estimates(sites)
    return found.division, found.kept[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("M", [5, 10, 20, 50])
@pytest.mark.parametrize("D", [1, 2, 10, 30])
def test_honest_sites_do_not_fall_into_camps(M: int, D: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert division([rng.normal(size=(M, D)) for _ in range(3)]) < 1
        assert divided(np.sqrt(1 + seed % 3) * rng.normal(size=(M, D)))[0] < 1


@pytest.mark.slow
@pytest.mark.parametrize("M", [20, 50])
@pytest.mark.parametrize("D", [10, 30])
def test_sites_moved_the_same_way_are_a_camp_or_are_refused(M: int, D: int) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        direction = rng.normal(size=D)
        away = np.arange(M) < int(0.45 * M)
        z = rng.normal(size=(M, D)) + 3 * np.sqrt(D) * np.outer(away, direction / np.linalg.norm(direction))
        found, kept = divided(z)
        assert found > 1 or not kept[away].any()
        centred = z - z.mean(axis=0)
        assert division([centred / np.sqrt(np.mean(centred**2))]) > 1


@settings(max_examples=10)
@given(SEEDS, st.integers(2, 12), st.integers(1, 6), st.integers(1, 3))
def test_division_does_not_depend_on_coordinates_nor_on_order(seed: int, M: int, D: int, K: int) -> None:
    rng = np.random.default_rng(seed)
    residuals = [rng.normal(size=(M, D)) for _ in range(K)]
    order = rng.permutation(M)
    turned = [r[order] @ np.linalg.qr(rng.normal(size=(D, D)))[0] for r in residuals]
    assert division(turned) == pytest.approx(division(residuals), rel=1e-9)
    assert division([3 * r for r in residuals]) == pytest.approx(9 * division(residuals), rel=1e-9)
    refused = [np.concatenate([r, np.zeros((3, D))]) for r in residuals]
    assert division(refused) == pytest.approx(division(residuals), rel=1e-9)


def test_one_direction_in_common_is_measured_against_chance() -> None:
    rng = np.random.default_rng(0)
    M, D = 30, 8
    say, direction = rng.normal(size=M), rng.normal(size=D)
    largest = (say @ say) * (direction @ direction) / D  # of a likeness of rank 1
    assert division([np.outer(say, direction)]) == pytest.approx(largest / (1.5 * (1 + np.sqrt(M / D)) ** 2))


def test_one_site_is_no_camp() -> None:
    assert division([np.ones((1, 3))]) == 0
    assert division([np.zeros((4, 3))]) == 0
    assert division([np.zeros((4, 0))]) == 0

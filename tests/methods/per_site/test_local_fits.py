"""Local fits with common labels, and a summary of columns that no site can move far."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest

from consilience.engines import InProcess
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.fit import Specification
from consilience.messages import FitSite
from consilience.methods import Task
from consilience.methods.per_site.local_fits import LocalFits, local_fits, relabel, typical
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows
from consilience.model.mixture import alignment
from consilience.model.summary import ColumnSummary, column_summary
from consilience.runs import run
from consilience.site import Site, answer
from simulated import FAMILIES, simulated


def site_rows(seed: int, n: int = 60, shift: float = 0.0) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(3 + shift + 2 * rng.normal(size=(n, 2)), shift + rng.normal(size=(n, 2)) @ [[1.0, 0.5], [0.0, 1.0]])


def assert_same_columns(one: ColumnSummary, two: ColumnSummary) -> None:
    for name in ("weight", "x_mean", "x_variance", "y_mean", "y_covariance"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------- a typical site


@pytest.mark.parametrize("number", [1, 2, 5])
def test_of_equal_sites_the_typical_columns_are_those_of_the_sum(number: int) -> None:
    summaries = [column_summary(site_rows(0))] * number
    assert_same_columns(typical(summaries), reduce(add, summaries))


def test_columns_move_with_the_data() -> None:
    D, c = np.array([3.0, 0.01]), np.array([-50.0, 7.0])
    parts = [site_rows(seed) for seed in range(5)]
    plain = typical([column_summary(rows) for rows in parts])
    changed = typical([column_summary(Rows(rows.X * D + c, 4 * rows.Y - 9)) for rows in parts])
    np.testing.assert_allclose(changed.x_mean, plain.x_mean * D + c)
    np.testing.assert_allclose(changed.x_variance, plain.x_variance * D**2)
    np.testing.assert_allclose(changed.y_mean, 4 * plain.y_mean - 9)
    np.testing.assert_allclose(changed.y_covariance, 16 * plain.y_covariance, rtol=1e-6)


@pytest.mark.parametrize("weight", [1.0, 60.0, 1e9])
@pytest.mark.parametrize("size", [1e3, 1e12, 1e140])
def test_one_liar_moves_nothing_far(weight: float, size: float) -> None:
    honest = [column_summary(site_rows(seed)) for seed in range(6)]
    liar = ColumnSummary(weight, np.full(2, -size), size * np.eye(2), np.full(2, size), size * np.eye(2))
    found, before = typical([liar, *honest]), typical(honest)
    lower, upper = (np.array([s.x_mean for s in honest]).min(axis=0), np.array([s.x_mean for s in honest]).max(axis=0))
    assert np.all((found.x_mean >= lower) & (found.x_mean <= upper))
    np.testing.assert_allclose(found.x_variance, before.x_variance, rtol=0.5)
    np.testing.assert_allclose(np.diagonal(found.y_covariance), np.diagonal(before.y_covariance), rtol=0.5)
    assert found.weight <= before.weight + 2 * 60


def test_sites_that_lie_apart_are_as_wide_as_all_of_them() -> None:
    apart = [column_summary(site_rows(seed, shift=shift)) for seed, shift in enumerate((-40.0, 0.0, 40.0))]
    assert np.all(typical(apart).x_variance > 1000)
    assert np.all(np.diagonal(typical(apart).y_covariance) > 1000)


def test_the_covariance_of_responses_can_be_factored() -> None:
    found = typical([column_summary(site_rows(seed)) for seed in range(4)]).y_covariance
    np.testing.assert_allclose(found, found.T)
    assert np.linalg.eigvalsh(found)[0] > 0


# ---------------------------------------------------------------------- labels


def mixture_of(means: np.ndarray) -> Mixture:
    K, q = means.shape
    experts = GaussianExperts(means[:, :, None], np.tile(np.eye(q), (K, 1, 1)))
    return Mixture(Design.raw(0), ConstantGate(np.arange(1.0, K + 1) / (K * (K + 1) / 2)), experts)


@pytest.mark.parametrize("scale", [np.ones(3), np.array([1e-6, 1.0, 1e6])], ids=["one unit", "many units"])
def test_labels_are_made_common_whatever_the_sites_call_them(scale: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    means = 4 * rng.normal(size=(4, 3))
    sites = [mixture_of((means + 0.1 * rng.normal(size=means.shape)) * scale) for _ in range(6)]
    found = relabel([mixture.permuted(rng.permutation(4)) for mixture in sites])
    first = found[0].experts.B
    for mixture in found:
        assert np.all(np.abs(mixture.experts.B - first)[:, :, 0] < 1.0 * scale)
    for mixture, own in zip(found, sites, strict=True):  # the same mixtures, shares with their experts
        order = alignment(mixture, own)
        np.testing.assert_array_equal(mixture.permuted(order).gate.probabilities, own.gate.probabilities)
        np.testing.assert_array_equal(mixture.permuted(order).experts.B, own.experts.B)


def test_a_coordinate_in_large_units_does_not_decide_the_labels() -> None:
    rng = np.random.default_rng(2)
    means = np.column_stack([np.repeat([[0.0], [1e-3]], 8, axis=1), np.zeros(2)])  # the last column tells nothing
    noise = np.array([*np.full(8, 1e-5), 1e3])
    sites = [mixture_of(means + noise * rng.normal(size=means.shape)) for _ in range(8)]
    found = relabel([mixture.permuted(rng.permutation(2)) for mixture in sites])
    assert np.ptp([mixture.experts.B[0, 0, 0] for mixture in found]) < 2e-4


def test_labels_of_most_are_common_where_some_sites_lie() -> None:
    rng = np.random.default_rng(1)
    means = 4 * rng.normal(size=(3, 2))
    honest = [mixture_of(means + 0.1 * rng.normal(size=means.shape)).permuted(rng.permutation(3)) for _ in range(7)]
    found = relabel([*(mixture_of(1e3 * rng.normal(size=means.shape)) for _ in range(3)), *honest])
    B = np.array([mixture.experts.B for mixture in found[3:]])
    assert np.ptp(B, axis=0).max() < 1.0


def test_experts_that_are_all_alike_have_some_labels() -> None:
    (one, two) = relabel([mixture_of(np.zeros((2, 2)))] * 2)
    np.testing.assert_array_equal(one.experts.B, two.experts.B)


# ---------------------------------------------------------------------- the dialogue


def fits_of(sites: list[Site], question: FitSite, **options: object) -> LocalFits:
    return run(local_fits(question), InProcess().over(sites), **options).value


def question_of(case, n_sites_columns=(2, 1)) -> FitSite:
    return FitSite(case.specification, (2,), 0, start=case.truth, columns=n_sites_columns, describe=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_has_its_own_fit_in_common_coordinates(family: str) -> None:
    case = simulated(family, n=300)
    sites = [Site(name, case.rows.take(np.arange(300)[i::3])) for i, name in enumerate(("a", "b", "c"))]
    found = fits_of(sites, question_of(case))
    assert list(found.mixtures) == list(found.weights) == ["a", "b", "c"]
    design = found.summary.design(intercept=True)
    for site in sites:
        own, mixture = answer(question_of(case), site).model, found.mixtures[site.name]
        assert found.weights[site.name] == own.weight == 100
        np.testing.assert_array_equal(mixture.design.scale, design.scale)
        order = alignment(mixture.raw(), own.mixture)
        back = mixture.raw().permuted(order).experts.free_coefficients()
        np.testing.assert_allclose(back, own.mixture.experts.free_coefficients(), rtol=1e-6, atol=1e-8)


def test_sites_without_a_fit_are_counted_but_have_no_mixture() -> None:
    case = simulated(n=300)
    sites = [Site("large", case.rows), Site("small", case.rows.take(np.arange(4))), Site("none", case.rows.take([]))]
    found = fits_of(sites, question_of(case))
    assert list(found.mixtures) == ["large"]
    assert found.weights == {"large": 300.0, "small": 4.0, "none": 0.0}


def test_only_those_named_are_asked() -> None:
    case = simulated(n=300)
    sites = [Site(name, case.rows.take(np.arange(300)[i::3])) for i, name in enumerate(("a", "b", "c"))]
    done = run(local_fits(question_of(case), ("c", "a")), InProcess().over(sites))
    assert list(done.value.mixtures) == ["a", "c"]


def test_where_no_site_has_a_fit_another_method_is_named() -> None:
    case = simulated(n=300)
    sites = [Site(f"site {i}", case.rows.take(np.arange(4 * i, 4 * i + 4))) for i in range(5)]
    with pytest.raises(InvalidInputError, match="no site has enough rows for a fit of its own: use FederatedEM"):
        fits_of(sites, question_of(case))


def test_a_start_of_another_kind_is_refused_before_anybody_is_asked() -> None:
    case = simulated(n=60)
    question = replace(question_of(case), start=simulated("poisson", n=10).truth)
    with pytest.raises(InvalidInputError):
        next(local_fits(question))


def test_columns_that_nobody_can_fit_are_named() -> None:
    rows = Rows(np.random.default_rng(0).normal(size=(40, 2)), np.full((40, 1), 3.0))
    with pytest.raises(InvalidInputError, match="constant"):
        fits_of(
            [Site("a", rows), Site("b", rows.take(np.arange(39)))], replace(question_of(simulated(n=10)), start=None)
        )


def test_sites_of_other_columns_are_named() -> None:
    case = simulated(n=100)
    other = Site("other", Rows(case.X[:, :1], case.rows.Y))
    with pytest.raises(RoundStoppedError, match="other"):
        fits_of([Site("one", case.rows), other], question_of(case))


def test_one_number_of_experts_at_a_time() -> None:
    one = Specification(K=2)
    assert Task([one], 1, 1).only("FedGrEM") is one
    for several in ([one, Specification(K=3)], []):
        with pytest.raises(InvalidInputError, match="FedGrEM fits one number of experts at a time"):
            Task(several, 1, 1).only("FedGrEM")

"""Proper maxima: experts whose shapes are within a ratio of each other, with enough rows for their coefficients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import DegenerateFitWarning, InvalidInputError
from consilience.fit import Specification, fit_mixture
from consilience.model import FAMILIES, Design, GaussianExperts, Mixture, Penalty, Rows
from consilience.model.gates import ConstantGate

QUIET = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
RATIO = 100.0


def largest_ratio(matrices: np.ndarray) -> float:
    """The largest ratio of two covariances ``(K, q, q)`` in any direction."""
    return max(np.linalg.eigvals(np.linalg.solve(A, B)).real.max() for A in matrices for B in matrices)


# ---------------------------------------------------------------------- the bounds of each family


@pytest.mark.parametrize("structure", ["full", "diag", "spherical", "tied"])
def test_covariances_are_raised_to_the_ratio_in_every_direction(structure: str) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 4, 4))
    wide = A @ A.transpose(0, 2, 1) * np.array([1e4, 1.0, 1e-5])[:, None, None]
    stored = {
        "full": wide,
        "diag": np.diagonal(wide, axis1=1, axis2=2).copy(),
        "spherical": np.trace(wide, axis1=1, axis2=2),
        "tied": wide[0],
    }[structure]
    experts = GaussianExperts(np.zeros((3, 4, 1)), stored, structure)
    penalty = Penalty(floor=1e-9 * np.eye(4), shape_ratio=RATIO)
    bounded = experts.bounded(penalty)
    assert largest_ratio(bounded.matrices) <= (RATIO**2 if structure == "full" else RATIO) * (1 + 1e-6)
    assert experts.admissible(penalty) == (structure == "tied")
    assert bounded.is_above(bounded.lower_bound(penalty)) or structure == "full"
    widest = bounded.matrices[0] if structure != "spherical" else experts.matrices[0]
    assert np.allclose(widest, experts.matrices[0]), "the widest expert was changed"


def test_covariances_within_the_ratio_are_not_changed() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(3, 4, 9))
    experts = GaussianExperts(np.zeros((3, 4, 1)), A @ A.transpose(0, 2, 1))
    penalty = Penalty(floor=1e-9 * np.eye(4), shape_ratio=1e6)
    assert experts.bounded(penalty) is experts


def test_scales_and_dispersions_are_bounded_too() -> None:
    penalty = Penalty(floor=np.full((1, 1), 1e-9), shape_ratio=RATIO)
    student = FAMILIES["student"](np.zeros((2, 1)), np.array([1.0, 1e-3]), np.array([5.0, 5.0]))
    assert student.bounded(penalty).scale == pytest.approx([1.0, 0.1])
    gamma = FAMILIES["gamma"](np.zeros((2, 1)), np.array([1.0, 1e4]))
    assert gamma.bounded(penalty).nu == pytest.approx([1.0, 100.0])


# ---------------------------------------------------------------------- fits


def with_a_spike(rows: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Two regressions, and a few rows that happen to lie on a line."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 1))
    y = np.where(rng.random(300) < 0.6, X[:, 0], 4 - X[:, 0]) + 0.7 * rng.normal(size=300)
    y[:rows] = 2 + 0.5 * X[:rows, 0] + 1e-4 * rng.normal(size=rows)
    return X, y


@QUIET
def test_a_spike_does_not_take_an_expert() -> None:
    X, y = with_a_spike()
    free = MixtureOfRegressions(3, shape_ratio=1e9, random_state=0).fit(X, y)
    model = MixtureOfRegressions(3, random_state=0).fit(X, y)
    assert free.variances_.max() / free.variances_.min() > 1e4, "the data have no spike: change them"
    assert model.variances_.max() / model.variances_.min() <= RATIO * (1 + 1e-6)
    assert model.log_likelihood_ < free.log_likelihood_


@pytest.mark.parametrize("estimator", [MixtureOfExpertsRegressor, MixtureOfRegressions])
def test_a_narrow_expert_is_at_the_bound_with_a_warning_that_says_what_to_do(estimator) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    narrow = rng.random(400) < 0.5
    y = np.where(narrow, 3 + X[:, 0] + 0.02 * rng.normal(size=400), -X[:, 0] + rng.normal(size=400))
    said = r"variance of expert \d, with \d+ rows, is at its bound, 1/100 of the largest .*larger shape_ratio"
    with pytest.warns(DegenerateFitWarning, match=said):
        bounded = estimator(2, random_state=0).fit(X, y)
    assert bounded.degeneracy_
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateFitWarning)
        free = estimator(2, shape_ratio=1e4, random_state=0).fit(X, y)
    assert np.sqrt(free.variances_.min()) == pytest.approx(0.02, rel=0.15)
    assert free.degeneracy_ == ""


@QUIET
def test_a_start_beyond_the_ratio_is_brought_within_it() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(np.empty((100, 0)), rng.normal(size=(100, 1)))
    experts = GaussianExperts(np.array([[[0.0]], [[rows.Y[0, 0]]]]), np.array([[[1.0]], [[1e-8]]]))
    start = Mixture(Design.raw(0), ConstantGate(np.array([0.9, 0.1])), experts)
    fit = fit_mixture(rows, Specification(K=2, gate="constant"), rng=rng, start=start)
    assert largest_ratio(fit.mixture.experts.matrices) <= RATIO * (1 + 1e-6)


def test_an_expert_of_too_few_rows_is_named_with_its_number() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X.sum(axis=1) + rng.normal(size=60)
    y[:5] += 30
    with pytest.warns(DegenerateFitWarning, match="expert 2 has 5 rows for 4 coefficients, at least 10 are needed"):
        MixtureOfRegressions(2, random_state=0).fit(X, y)


@pytest.mark.parametrize("ratio", [0.5, np.inf, np.nan, "much", None])
def test_a_ratio_that_is_none_is_an_error(ratio: object) -> None:
    with pytest.raises(InvalidInputError, match=r"shape_ratio=.*: expected a finite number of at least 1"):
        GaussianMixture(2, shape_ratio=ratio).fit(np.random.default_rng(0).normal(size=(20, 2)))


@QUIET
def test_crossed_clusters_within_the_ratio_are_free() -> None:
    """Two elongated clusters that cross: standard deviations 1 and 6 along the axes, and 6 and 1."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(400, 2)) * [1, 6], rng.normal(size=(400, 2)) * [6, 1] + 4]
    bounded, free = (
        GaussianMixture(2, random_state=0).fit(X),
        GaussianMixture(2, shape_ratio=1e6, random_state=0).fit(X),
    )
    assert bounded.log_likelihood_ == pytest.approx(free.log_likelihood_, abs=1e-6)
    assert not bounded.degeneracy_

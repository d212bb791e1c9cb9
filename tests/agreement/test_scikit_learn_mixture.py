"""Gaussian mixtures: the same start leads where scikit-learn's leads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.mixture import GaussianMixture as Theirs

from consilience import GaussianMixture as Ours
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture
from consilience.model.families.covariance import STRUCTURES

K, D, N = 3, 3, 600


def points(seed: int) -> np.ndarray:
    """Three overlapping clusters of different shapes."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(K, N, p=[0.5, 0.3, 0.2])
    centres = np.array([[0.0, 0.0, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 2.0]])
    shapes = rng.normal(size=(K, D, D)) / 2 + np.eye(D)
    return centres[labels] + np.einsum("nij,nj->ni", shapes[labels], rng.normal(size=(N, D)))


def start(X: np.ndarray, structure: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances: three of the points, and the covariance of all."""
    rng = np.random.default_rng(seed)
    S = np.cov(X.T, bias=True)
    covariance = {
        "full": np.tile(S, (K, 1, 1)),
        "tied": S,
        "diag": np.tile(np.diag(S), (K, 1)),
        "spherical": np.full(K, np.trace(S) / D),
    }[structure]
    return np.array([0.2, 0.3, 0.5]), X[rng.choice(N, K, replace=False)], covariance


def both(X: np.ndarray, structure: str, seed: int) -> tuple[Ours, Theirs]:
    weights, means, covariance = start(X, structure, seed)
    precisions = 1 / covariance if structure in ("diag", "spherical") else np.linalg.inv(covariance)
    theirs = Theirs(
        K,
        covariance_type=structure,
        weights_init=weights,
        means_init=means,
        precisions_init=precisions,
        reg_covar=0.0,
        tol=1e-13,
        max_iter=20_000,
    ).fit(X)
    mixture = Mixture(Design.raw(0), ConstantGate(weights), GaussianExperts(means[:, :, None], covariance, structure))
    ours = Ours(K, covariance_type=structure, mixture_init=mixture, reg_covar=0.0, max_iter=5000).fit(X)
    return ours, theirs


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_start_ends_at_the_same_mixture(structure: str, seed: int) -> None:
    X = points(seed)
    ours, theirs = both(X, structure, seed)
    assert ours.converged_
    assert theirs.converged_
    assert ours.log_likelihood_ == pytest.approx(N * theirs.score(X), rel=1e-6)
    distance = np.linalg.norm(ours.means_[:, None] - theirs.means_, axis=2)
    k, l = linear_sum_assignment(distance)
    assert np.allclose(ours.means_[k], theirs.means_[l], atol=2e-3)
    assert np.allclose(ours.weights_[k], theirs.weights_[l], atol=2e-3)
    if structure == "tied":
        assert np.allclose(ours.covariances_, theirs.covariances_, atol=5e-3)
    else:
        assert np.allclose(ours.covariances_[k], theirs.covariances_[l], atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_same_mixture_has_the_same_densities_and_criteria(structure: str) -> None:
    X = points(0)
    ours, theirs = both(X, structure, 0)
    ours.mixture_ = Mixture(
        Design.raw(0),
        ConstantGate(theirs.weights_),
        GaussianExperts(theirs.means_[:, :, None], theirs.covariances_, structure),
    )
    assert np.allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-9)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-10)
    assert ours.aic(X) == pytest.approx(theirs.aic(X), rel=1e-10)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=1e-10)

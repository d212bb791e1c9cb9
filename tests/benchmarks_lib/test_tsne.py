"""t-SNE: its gradient against finite differences, and clusters that stay apart."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.lib.tsne import PERPLEXITY, affinities, conditional, gradient, tsne


def three_clusters(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = rng.integers(3, size=n)
    return rng.normal(size=(n, 6)) + 8 * np.eye(6)[label], label


def divergence(P: np.ndarray, Y: np.ndarray) -> float:
    q = 1 / (1 + cdist(Y, Y, "sqeuclidean"))
    np.fill_diagonal(q, 0)
    seen = P > 0
    return float((P[seen] * np.log(P[seen] / (q / q.sum())[seen])).sum())


def test_gradient_is_that_of_the_divergence():
    X, _ = three_clusters(150)
    P, Y = affinities(X).astype(float), np.random.default_rng(1).normal(size=(150, 4))
    slope, dense, step = gradient(P, Y, 1.0), P.toarray(), 1e-6
    for i, j in ((0, 0), (17, 3), (149, 2)):
        up, down = Y.copy(), Y.copy()
        up[i, j] += step
        down[i, j] -= step
        assert np.isclose(slope[i, j], (divergence(dense, up) - divergence(dense, down)) / (2 * step), rtol=1e-4)


def test_affinities_are_probabilities_of_pairs():
    P = affinities(three_clusters(200)[0])
    assert np.isclose(P.sum(), 1, atol=1e-5)
    assert abs(P - P.T).max() < 1e-9


def test_neighbours_have_the_perplexity():
    D2 = np.sort(np.random.default_rng(0).uniform(size=(5, 90)), axis=1)
    p = conditional(D2)
    assert np.allclose(np.exp(-(p * np.log(p)).sum(axis=1)), PERPLEXITY, rtol=1e-6)


def test_clusters_stay_apart():
    X, label = three_clusters(300)
    Y = tsne(X, 5, 300)
    assert adjusted_rand_score(label, KMeans(3, n_init=4, random_state=0).fit_predict(Y)) == 1

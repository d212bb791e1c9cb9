"""t-SNE in any number of dimensions, with the exact sum over all pairs of rows.

L. van der Maaten and G. Hinton, "Visualizing data using t-SNE", JMLR 9 (2008). Barnes and Hut's approximation, as in
scikit-learn, is for at most three dimensions; the sum over all pairs costs a second per step at some ten thousand rows.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

PERPLEXITY = 30.0
EXAGGERATION, EXAGGERATED = 12.0, 125
"""Factor of the affinities in the first steps, and their number."""
BLOCK = 128
"""Rows whose distances to all rows are held at once."""


def tsne(X: np.ndarray, dimensions: int, steps: int) -> np.ndarray:
    """Return the coordinates of each row ``(n, dimensions)``, from its first principal components."""
    P = affinities(X)
    Y = PCA(dimensions, random_state=0).fit_transform(X).astype(np.float32)
    Y *= 1e-4 / Y[:, 0].std()
    velocity, gains = np.zeros_like(Y), np.ones_like(Y)
    rate = max(len(X) / EXAGGERATION / 4, 50.0)
    for step in range(steps):
        early = step < EXAGGERATED
        slope = gradient(P, Y, EXAGGERATION if early else 1.0)
        gains = np.maximum(np.where(slope * velocity < 0, gains + 0.2, gains * 0.8), 0.01)
        velocity = (0.5 if early else 0.8) * velocity - rate * gains * slope
        Y = Y + velocity
    return Y.astype(float)


def affinities(X: np.ndarray) -> csr_matrix:
    """Return symmetric probabilities of pairs ``(n, n)``, between nearest neighbours, of the given perplexity."""
    n, count = len(X), min(len(X) - 1, int(3 * PERPLEXITY))
    distance, neighbour = NearestNeighbors(n_neighbors=count).fit(X).kneighbors()
    p = conditional(distance**2)
    P = csr_matrix((p.ravel(), neighbour.ravel(), np.arange(0, n * count + 1, count)), shape=(n, n))
    return ((P + P.T) / (2 * n)).tocsr().astype(np.float32)


def conditional(D2: np.ndarray) -> np.ndarray:
    """Return probabilities of the neighbours of each row ``(n, count)``, by bisection of the log precision."""
    D2 = D2 - D2[:, :1]
    centre = -np.log(D2.mean(axis=1, keepdims=True) + 1e-12)
    low, high = centre - 10, centre + 10
    for _ in range(40):
        middle = (low + high) / 2
        p = np.exp(-np.exp(middle) * D2)
        p /= p.sum(axis=1, keepdims=True)
        entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1, keepdims=True)
        wide = entropy > np.log(PERPLEXITY)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return p


def gradient(P: csr_matrix, Y: np.ndarray, exaggeration: float) -> np.ndarray:
    """Return the gradient ``(n, dimensions)`` of the divergence of the embedding's probabilities from ``P``."""
    pairs = P.tocoo()
    near = 1 + ((Y[pairs.row] - Y[pairs.col]) ** 2).sum(axis=1)
    W = csr_matrix((exaggeration * P.data / near, P.indices, P.indptr), shape=P.shape)
    attraction = np.asarray(W.sum(axis=1)) * Y - W @ Y
    repulsion, total = repelled(Y)
    return 4 * (attraction - repulsion / total).astype(Y.dtype)


def repelled(Y: np.ndarray) -> tuple[np.ndarray, float]:
    """Return ``Σ_j q_ij² (y_i - y_j)`` for each row, ``q = 1 / (1 + ‖y_i - y_j‖²)``, and ``Σ q`` over pairs."""
    n, one = len(Y), np.ones((len(Y), 1), Y.dtype)
    square = (Y**2).sum(axis=1, keepdims=True)
    left, right, with_one = np.hstack([-2 * Y, square + 1, one]), np.hstack([Y, one, square]).T, np.hstack([Y, one])
    sums, total = np.empty_like(with_one), 0.0
    for start in range(0, n, BLOCK):
        q = left[start : start + BLOCK] @ right
        np.maximum(q, 1, out=q)
        np.reciprocal(q, out=q)
        total += float(q.sum(dtype=float))
        np.square(q, out=q)
        sums[start : start + BLOCK] = q @ with_one
    return sums[:, -1:] * Y - sums[:, :-1], total - n

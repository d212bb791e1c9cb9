"""Simulated clients with few rows each, one regression per client, and few distinct regressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model import Design, Mixture, mixture_of_regressions
from consilience.numerics.arrays import Array, IntArray


@dataclass(frozen=True, eq=False)
class ClientSimulation:
    """Rows of clients, and the true regressions.

    Parameters
    ----------
    X : (n, d) array
        Covariates.
    y : (n,) array
        Responses, ``y = xᵀ θ_z + ε`` with the label ``z`` of the row's client.
    groups : (n,) array of int
        The client of each row.
    labels : (G,) array of int
        The cluster of each client.
    theta : (K, d) array
        The regression of each cluster.
    truth : Mixture
        The truth as a mixture, with the probabilities of the labels as weights; no intercept.

    Examples
    --------
    >>> from consilience.datasets import clients
    >>> simulation = clients([10, 10, 50], n_features=4, random_state=0)
    >>> simulation.X.shape, simulation.labels.shape, simulation.theta.shape
    ((70, 4), (3,), (3, 4))
    """

    X: Array
    y: Array
    groups: IntArray
    labels: IntArray
    theta: Array
    truth: Mixture


def clients(
    sizes: Sequence[int] | IntArray,
    *,
    n_clusters: int = 3,
    n_features: int = 100,
    shares: Sequence[float] | None = None,
    norm: float = 1.0,
    noise: float = 0.2,
    spread: float = 1.0,
    random_state: int | np.random.Generator | None = None,
) -> ClientSimulation:
    r"""Simulate clients in a few clusters, one regression per cluster.

    .. math::
        \theta_j \sim N(0, r^2 I_d / d), \qquad P(z_i = j) = p_j, \qquad
        x \mid z_i = j \sim N(0, \Sigma_j), \qquad y \mid x, z_i = j \sim N(x^\top \theta_j, \sigma^2),

    with ``Σ_j`` diagonal, its entries between ``1 / s`` and ``s``, log-uniform and drawn for each cluster.

    Parameters
    ----------
    sizes : sequence of int, (G,)
        Number of rows of each client.
    n_clusters, n_features : int
        ``K`` and ``d``.
    shares : sequence of float, (K,)
        Probabilities ``p`` of the clusters; equal by default.
    norm : float
        ``r``, approximately the norm of each ``θ_j``.
    noise : float
        Standard deviation ``σ`` of the noise.
    spread : float
        ``s``, at least 1; with 1 all covariates are standard normal.
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    ClientSimulation
        Rows are in the order of clients.

    Raises
    ------
    InvalidInputError
        If sizes are not counts, weights do not sum to 1, or numbers are not positive.

    References
    ----------
    L. Su, J. Xu and P. Yang, Global Convergence of Federated Learning for Mixed Regression, NeurIPS 2022,
    arXiv:2206.07279, section C.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import clients
    >>> data = clients(np.repeat([10, 50], [900, 20]), shares=(0.2, 0.3, 0.5), random_state=0)
    >>> data.X.shape, data.labels.shape
    ((10000, 100), (920,))
    >>> residuals = data.y - np.sum(data.X * data.theta[data.labels[data.groups]], axis=1)
    >>> round(float(residuals.std()), 1)
    0.2
    """
    counts = _counts(sizes)
    if not (n_clusters >= 1 and n_features >= 1 and norm > 0 and noise > 0 and spread >= 1):
        raise InvalidInputError("expected clusters and features from 1 up, norm and noise above 0, spread from 1 up")
    p = _shares(shares, n_clusters)
    rng = np.random.default_rng(random_state)
    theta = norm * rng.standard_normal((n_clusters, n_features)) / np.sqrt(n_features)
    scale = spread ** (rng.uniform(-1, 1, (n_clusters, n_features)) / 2)  # standard deviations
    labels = rng.choice(n_clusters, len(counts), p=p)
    groups = np.repeat(np.arange(len(counts)), counts)
    X = rng.standard_normal((len(groups), n_features)) * scale[labels[groups]]
    y = np.einsum("ij,ij->i", X, theta[labels[groups]]) + noise * rng.standard_normal(len(groups))
    truth = mixture_of_regressions(p, theta, noise**2, Design.raw(n_features, intercept=False))
    return ClientSimulation(X, y, groups, labels, theta, truth)


def _counts(sizes: Sequence[int] | IntArray) -> IntArray:
    counts = np.asarray(sizes)
    if counts.ndim != 1 or not len(counts) or counts.dtype.kind not in "iu" or counts.min() < 1:
        raise InvalidInputError("sizes: expected the number of rows of each client, whole numbers from 1 up")
    return counts.astype(np.intp)


def _shares(shares: Sequence[float] | None, K: int) -> Array:
    p = np.full(K, 1 / K) if shares is None else np.asarray(shares, dtype=np.float64)
    if p.shape != (K,) or not np.all(p > 0) or abs(p.sum() - 1) > 1e-9:
        raise InvalidInputError(f"shares: expected {K} numbers above 0 that sum to 1")
    return p

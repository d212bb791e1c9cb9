"""Simulated mixtures of experts with known truth: ``paper`` has a sharp gate, ``soft`` a well identified one.

The truth (centres and coefficients) and the rows come from two separate random streams, so that many data sets can be
drawn from one truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model import Design, Mixture, mixture_of_experts, mixture_of_regressions
from consilience.numerics.arrays import Array, IntArray, log_sum_exp

LARGEST = 5  # centres and coefficients are integers in [-5, 5]
CORRELATION = 0.25  # of neighbouring covariates
SOFTENING = 25.0  # what divides the gate slopes in `soft`
SMALLEST_SHARE = 0.05  # a truth with a smaller expert is drawn again
SHARE_POINTS = 4_000  # points on which the shares are computed
MAX_DRAWS = 2_000
BLOCK = 16_384  # rows drawn at a time; it fixes the order of the random numbers, hence the data

RandomState = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class Simulation:
    """A data set and the mixture it was drawn from.

    Parameters
    ----------
    X : (n, d) array
        Covariates.
    y : (n,) array
        Responses, drawn from ``p(y | x) = Σ_k π_k(x) N(y; x̃ᵀ β_k, σ_k²)`` with ``x̃ = (1, x)``.
    labels : (n,) array of int
        The expert that generated each row.
    truth : Mixture
        Gate and experts, in raw coordinates, intercept first.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> simulation = soft(500, n_experts=3, n_features=2, random_state=0)
    >>> simulation.X.shape, simulation.y.shape, simulation.labels.shape
    ((500, 2), (500,), (500,))
    >>> simulation.truth.gate.alpha.shape, simulation.truth.experts.B.shape
    ((3, 3), (3, 1, 3))
    """

    X: Array
    y: Array
    labels: IntArray
    truth: Mixture


def paper(
    n: int,
    *,
    n_experts: int = 4,
    n_features: int = 20,
    random_state: RandomState = None,
    truth_state: RandomState = None,
) -> Simulation:
    r"""Simulate Gaussian experts with a nearly hard softmax gate.

    ``n / K`` covariate vectors are drawn around each of ``K`` centres ``c_j``, and the response by the mixture:

    .. math::
        x \mid j \sim N(c_j, \Sigma), \quad \Sigma_{uv} = 0.25^{|u - v|}, \qquad
        P(z = k \mid x) \propto \exp(\tilde x^\top \alpha_k), \qquad
        y \mid x, z = k \sim N(\tilde x^\top \beta_k, 1).

    Centres, ``α`` and ``β`` are uniform on the integers from −5 to 5, intercepts included. A truth in which an
    expert has less than 5 % of the rows (``0.2 / K`` for more than 4 experts) is drawn again. At the default size the
    gate has a mean entropy of about 0.05 nat: its coefficients are weakly identified and small samples
    are nearly separated. Rows are in random order.

    Parameters
    ----------
    n : int
        Number of rows; a remainder of ``n / K`` goes to the first centres.
    n_experts, n_features : int
        ``K`` and ``d``.
    random_state : int, numpy.random.Generator or None
        Draws the rows.
    truth_state : int, numpy.random.Generator or None
        Draws the centres and the coefficients; ``None`` takes ``random_state``.

    Returns
    -------
    Simulation
        ``X (n, d)``, ``y (n,)``, ``labels (n,)`` and ``truth``. The gate coefficients are those above, centred to
        ``Σ_k α_k = 0``, which is the same gate.

    Raises
    ------
    InvalidInputError
        If a count is not a positive integer, or if there are too many experts for each to have 0.2 / K of the rows.

    References
    ----------
    F. Chamroukhi and T. Pham, Optimal Transport Aggregation for Distributed Mixture-of-Experts, arXiv:2312.09877,
    section S4.1. The variances, which the text leaves open, are 1 here.

    Examples
    --------
    Two data sets from one truth, for training and testing:

    >>> import numpy as np
    >>> from consilience.datasets import paper
    >>> train = paper(3_000, random_state=1, truth_state=0)
    >>> test = paper(1_000, random_state=2, truth_state=0)
    >>> bool(np.all(train.truth.experts.B == test.truth.experts.B))
    True
    >>> pi = train.truth.gate_weights(train.X)
    >>> bool(np.mean(pi.max(axis=1) > 0.99) > 0.8)
    True
    """
    return _simulate(n, n_experts, n_features, random_state, truth_state, softening=None)


def soft(
    n: int,
    *,
    n_experts: int = 4,
    n_features: int = 20,
    random_state: RandomState = None,
    truth_state: RandomState = None,
) -> Simulation:
    r"""Simulate Gaussian experts with a soft, well identified gate.

    As :func:`paper`, with gate slopes divided by 25 and intercepts that make every logit zero on average,

    .. math::
        P(z = k \mid x) \propto \exp\{(x - \bar c)^\top a_k / 25\}, \qquad \bar c = \frac{1}{K} \sum_j c_j,

    so that experts have similar weights. At the default size the gate has a mean entropy of 0.8 to
    0.9 nat (of ``log 4 = 1.39``).

    Parameters
    ----------
    n : int
        Number of rows; a remainder of ``n / K`` goes to the first centres.
    n_experts, n_features : int
        ``K`` and ``d``.
    random_state : int, numpy.random.Generator or None
        Draws the rows.
    truth_state : int, numpy.random.Generator or None
        Draws the centres and the coefficients; ``None`` takes ``random_state``.

    Returns
    -------
    Simulation
        ``X (n, d)``, ``y (n,)``, ``labels (n,)`` and ``truth``.

    Raises
    ------
    InvalidInputError
        If a count is not a positive integer, or if there are too many experts for each to have 0.2 / K of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> simulation = soft(2_000, random_state=0)
    >>> mean_logits = simulation.truth.gate.alpha @ np.append(1, simulation.X.mean(axis=0))
    >>> bool(np.abs(mean_logits).max() < 0.2)
    True
    """
    return _simulate(n, n_experts, n_features, random_state, truth_state, softening=SOFTENING)


# ---------------------------------------------------------------- the two streams


def _simulate(
    n: int, K: int, d: int, random_state: RandomState, truth_state: RandomState, *, softening: float | None
) -> Simulation:
    for name, value in (("n", n), ("n_experts", K), ("n_features", d)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InvalidInputError(f"{name}: got {value!r}, expected an integer >= 1")
    row_rng = _generator("random_state", random_state, stream=1)
    shared = truth_state is None and isinstance(random_state, np.random.Generator)
    state = random_state if truth_state is None else truth_state
    truth_rng = row_rng if shared else _generator("truth_state", state, stream=0)
    world = _draw_world(int(K), int(d), truth_rng, softening)
    X, y, labels = _draw_rows(world, int(n), row_rng)
    return Simulation(X, y, labels, mixture_of_experts(world.alpha, world.beta, 1.0))


def _generator(name: str, state: RandomState, stream: int) -> np.random.Generator:
    """Return the generator itself, or one stream of a seed: truth and rows have independent streams."""
    if state is None or isinstance(state, np.random.Generator):
        return np.random.default_rng(state)
    if isinstance(state, bool) or not isinstance(state, Integral) or state < 0:
        raise InvalidInputError(f"{name}: got {state!r}, expected an integer >= 0, a numpy Generator or None")
    return np.random.default_rng(np.random.SeedSequence(int(state), spawn_key=(stream,)))


# ---------------------------------------------------------------- the truth


@dataclass(frozen=True, eq=False)
class _World:
    centres: Array  # (K, d)
    alpha: Array  # (K, p)
    beta: Array  # (K, p)


def _draw_world(K: int, d: int, rng: np.random.Generator, softening: float | None) -> _World:
    noise = rng.standard_normal((max(SHARE_POINTS // K, 1), d)) @ _covariance_factor(d)
    smallest = min(SMALLEST_SHARE, 0.2 / K)
    for _ in range(MAX_DRAWS):
        centres, alpha, beta = (_integers(rng, (K, columns)) for columns in (d, d + 1, d + 1))
        if softening is not None:
            alpha /= softening
            alpha[:, 0] = -alpha[:, 1:] @ centres.mean(axis=0)
        alpha -= alpha.mean(axis=0)
        if _shares(centres, alpha, noise).min() >= smallest:
            return _World(centres, alpha, beta)
    raise InvalidInputError(
        f"n_experts, n_features: in {MAX_DRAWS} draws of the truth with K = {K}, d = {d}, some expert always had less "
        f"than {smallest:.2g} of the rows; take fewer experts, more features, or the generator soft"
    )


def _integers(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(np.float64)


def _covariance_factor(d: int) -> Array:
    """Return ``L`` with ``z L ~ N(0, Σ)`` for a standard normal row ``z``, ``Σ_uv = 0.25^|u - v|``."""
    index = np.arange(d)
    covariance: Array = CORRELATION ** np.abs(index[:, None] - index)
    return np.linalg.cholesky(covariance).T.astype(np.float64, copy=False)


def _shares(centres: Array, alpha: Array, noise: Array) -> Array:
    """Compute the mean of ``π_k(x)`` over the covariates, ``(K,)``, with the same noise ``(m, d)`` at every centre."""
    at_centres = centres @ alpha[:, 1:].T + alpha[:, 0]  # (K centres, K)
    logits = at_centres[:, None, :] + noise @ alpha[:, 1:].T  # (K centres, m, K)
    _, share = log_sum_exp(logits.reshape(-1, len(alpha)).T)
    return np.asarray(share.mean(axis=1))


# ---------------------------------------------------------------- the rows


def _draw_rows(world: _World, n: int, rng: np.random.Generator) -> tuple[Array, Array, IntArray]:
    K, d = world.centres.shape
    factor = _covariance_factor(d)
    X, y = np.empty((n, d)), np.empty(n)
    labels = np.arange(n) % K  # first the centre of each row, overwritten block by block by its expert
    rng.shuffle(labels)
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        centres = world.centres[labels[rows]]
        X[rows] = rng.standard_normal(centres.shape) @ factor + centres
        logits = X[rows] @ world.alpha[:, 1:].T + world.alpha[:, 0]
        labels[rows] = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        beta = world.beta[labels[rows]]
        y[rows] = np.einsum("ij,ij->i", X[rows], beta[:, 1:]) + beta[:, 0] + rng.standard_normal(len(beta))
    return X, y, labels


# ---------------------------------------------------------------- clients


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
    p = _cluster_shares(shares, n_clusters)
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


def _cluster_shares(shares: Sequence[float] | None, K: int) -> Array:
    p = np.full(K, 1 / K) if shares is None else np.asarray(shares, dtype=np.float64)
    if p.shape != (K,) or not np.all(p > 0) or abs(p.sum() - 1) > 1e-9:
        raise InvalidInputError(f"shares: expected {K} numbers above 0 that sum to 1")
    return p

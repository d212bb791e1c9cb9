"""What the studies of clustered clients share: sites of clients, runs that are watched, errors, and baselines.

The baselines are vectorised over clients. With residuals ``r = y - Xθ``, s gradient steps of length ``η`` of a client
are linear in ``θ``: ``θ + (η / n) Xᵀ P r`` with ``P = Σ_{t < s} (I - (η / n) X Xᵀ)^t``, and a proximal step is the same
with ``P = (I + (η / n) X Xᵀ)⁻¹``. So ``(η / n) Xᵀ P X`` and ``(η / n) Xᵀ P y`` are computed once for each client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from consilience import InProcess
from consilience.datasets import ClientSimulation
from consilience.fit import Specification
from consilience.methods import Task
from consilience.model import Groups, Mixture, Rows
from consilience.numerics.kmeans import kmeans, squared_distances
from consilience.published.client_steps import leading_step
from consilience.published.moment_descent import anchor_count, draw_anchors
from consilience.runs import Reply, Run, run
from consilience.site import Site

SITES = 4


def sites_of(data: ClientSimulation, count: int = SITES) -> list[Site]:
    """Sites with neighbouring clients; those of a site are in the order of the data."""
    of_client = np.arange(len(data.labels)) * count // len(data.labels)
    parts = [np.flatnonzero(of_client[data.groups] == m) for m in range(count)]
    return [
        Site(f"{m:05d}", Rows(data.X[part], data.y[part, None], groups=Groups.of(data.groups[part])))
        for m, part in enumerate(parts)
    ]


def specification_of(data: ClientSimulation) -> Specification:
    return Specification(K=len(data.theta), gate="constant", intercept=False)


def fitted(
    data: ClientSimulation,
    method: Any,
    seed: int,
    sites: list[Site],
    *,
    start: Mixture | None = None,
    absent: float = 0.0,
    **options: Any,
) -> tuple[Run, list]:
    """A method of the library over sites, and its requests in their order."""
    seen: list[Any] = []
    dialogue = method.dialogue(Task([specification_of(data)], data.X.shape[1], 1, start=start, seed=seed))
    engine = Absent(InProcess(threads=1).over(sites), absent, seed)
    return run(watched(dialogue, seen.append), engine, **options), seen


class Absent:
    """An engine that does not reach some sites, others in every round."""

    def __init__(self, engine: Any, share: float, seed: int) -> None:
        self.engine, self.share, self.seed = engine, share, seed

    @property
    def sites(self) -> tuple[str, ...]:
        return self.engine.sites

    def ask(self, number: int, question: bytes, sites: Sequence[str], **options: Any) -> Iterator[list[Reply]]:
        draws = np.random.default_rng([self.seed, number]).random(len(sites))
        there = [site for site, u in zip(sites, draws, strict=True) if u >= self.share]
        yield from self.engine.ask(number, question, there, **options)


def watched(dialogue: Generator, see: Callable[[Any], None]) -> Generator:
    """The same dialogue; each of its requests is shown first."""
    try:
        request = next(dialogue)
        while True:
            see(request)
            request = dialogue.send((yield request))
    except StopIteration as end:
        return end.value


# ---------------------------------------------------------------- errors


def distance(theta: np.ndarray, truth: np.ndarray) -> float:
    """``min_perm max_k ‖θ_k - θ*_k‖``; one θ alone stands for all clusters."""
    if len(theta) == 1:
        return float(np.linalg.norm(theta - truth, axis=1).max())
    apart = np.linalg.norm(theta[:, None] - truth, axis=2)
    return float(min(apart[list(order), range(len(truth))].max() for order in permutations(range(len(theta)))))


def separation(theta: np.ndarray) -> float:
    """``Δ``, the least distance of two clusters."""
    return float(np.sqrt(min(squared_distances(theta, theta)[np.triu_indices(len(theta), 1)])))


def least_squares(data: ClientSimulation, labels: np.ndarray) -> np.ndarray:
    """One regression for all rows of the clients with each label; 0 where there are none."""
    of_row = labels[data.groups]
    fits = [np.linalg.lstsq(data.X[of_row == k], data.y[of_row == k], rcond=None)[0] for k in range(len(data.theta))]
    return np.array(fits)


# ---------------------------------------------------------------- baselines


class LocalRounds:
    """FedAvg and FedProx with clusters, from any start; steps are taken on standardised covariates."""

    def __init__(self, data: ClientSimulation, *, steps: int, rate: float, prox: bool = False) -> None:
        self.data, (_, p) = data, data.X.shape
        self.scale = np.sqrt(np.mean(data.X**2, axis=0))
        self.X = data.X / self.scale
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(data.groups))])
        self.n = np.diff(self.bounds).astype(float)
        self.H, self.g = np.empty((len(self.n), p, p)), np.empty((len(self.n), p))
        for i, n in enumerate(self.n):
            X, y = (part[self.bounds[i] : self.bounds[i + 1]] for part in (self.X, data.y))
            values, vectors = np.linalg.eigh(rate / n * X @ X.T)
            weight = 1 / (1 + values) if prox else powers(values, steps)
            XtP = rate / n * (X.T @ vectors * weight) @ vectors.T
            self.H[i], self.g[i] = XtP @ X, XtP @ y
        self._labels, self._sums = np.empty(0), (np.empty(0), np.empty(0))

    def picked(self, theta: np.ndarray) -> np.ndarray:
        """Each client's cluster."""
        residuals = self.data.y[:, None] - self.X @ theta.T
        return np.add.reduceat(residuals**2, self.bounds[:-1]).argmin(axis=1)

    def trace(self, theta: np.ndarray, rounds: int) -> list[float]:
        """The error before each round, and at the end."""
        errors, (K, N) = [distance(theta, self.data.theta)], (len(theta), self.n.sum())
        theta = theta * self.scale
        for _ in range(rounds):
            labels = self.picked(theta)
            if not np.array_equal(labels, self._labels) or len(self._sums[1]) != K:
                weight = (labels == np.arange(K)[:, None]) * self.n / N  # (K, G)
                self._labels = labels
                self._sums = np.tensordot(weight, self.H, axes=1), weight @ self.g
            H, g = self._sums
            theta = theta + g - np.einsum("kab,kb->ka", H, theta)
            errors.append(distance(theta / self.scale, self.data.theta))
        return errors


def powers(values: np.ndarray, steps: int) -> np.ndarray:
    """``Σ_{t < s} (1 - v)^t``."""
    return sum((1 - values) ** t for t in range(steps))


def one_shot(data: ClientSimulation, rng: np.random.Generator) -> np.ndarray:
    """Minimum-norm fit of each client, k-means of these (the best of ten), least squares within the clusters."""
    bounds = np.concatenate([[0], np.cumsum(np.bincount(data.groups))])
    K, G = len(data.theta), len(data.labels)
    fits = np.array(
        [
            np.linalg.lstsq(data.X[bounds[i] : bounds[i + 1]], data.y[bounds[i] : bounds[i + 1]], rcond=None)[0]
            for i in range(G)
        ]
    )
    found = [kmeans(fits, K, np.ones(G), rng, max_iter=100) for _ in range(10)]
    return least_squares(data, min(found, key=lambda labels: inertia(fits, labels, K)))


def inertia(points: np.ndarray, labels: np.ndarray, K: int) -> float:
    """Sum of squares within clusters."""
    return sum(float(np.sum((own - own.mean(axis=0)) ** 2)) for k in range(K) if len(own := points[labels == k]))


def moment_descent(
    data: ClientSimulation, seed: int, *, all_pairs: bool, signed: bool, steps: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Moment descent on the pooled rows, subspaces by singular values: where anchors end, and who they are.

    The subspace is that of one pair of rows of each client, as the paper prints it, or of all pairs; the sign of a step
    is that of the anchor's mean, or either, as it comes out of a power iteration.
    """
    rng, K = np.random.default_rng([seed, 2]), len(data.theta)
    sizes = np.bincount(data.groups)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    (found,) = draw_anchors({"all": sizes.astype(float)}, anchor_count(K), rng).values()
    theta = np.tile(random_start(data, rng, 1), (len(found), 1))
    for _ in range(steps):
        for a, g in enumerate(found):
            E = data.X * (data.y - data.X @ theta[a])[:, None]
            if all_pairs:
                sums = np.add.reduceat(E, starts) / np.sqrt(sizes)[:, None]
                Y = sums.T @ sums - (E / np.repeat(sizes, sizes)[:, None]).T @ E
            else:
                Y = E[starts].T @ E[starts + 1]
            U = np.linalg.svd(Y)[0][:, :K]
            own = (E[starts[g] : starts[g] + sizes[g]] @ U).T
            step = leading_step(own, np.ones(sizes[g]))
            theta[a] += 0.5 * (1.0 if signed else rng.choice([-1.0, 1.0])) * U @ step
    return theta, np.array(found)


def random_start(data: ClientSimulation, rng: np.random.Generator, K: int) -> np.ndarray:
    return rng.standard_normal((K, data.X.shape[1])) / np.sqrt(data.X.shape[1])

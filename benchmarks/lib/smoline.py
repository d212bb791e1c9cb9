"""Symmetric mixtures of two linear experts, drawn at random, and how arXiv:2411.06056 fits them: EM and gradient EM.

x ~ N(0, I), P(z = 1 | x) = 1 / (1 + exp(-xᵀw)), y = z xᵀβ + ε with z = ±1 and ε ~ N(0, 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from scipy.special import expit, log_expit

D, N, NORM, AWAY = 10, 1000, 4.0, 2.0
"""Dimensions, rows, ‖β‖ = ‖w‖, and how far from each of them methods start."""


@dataclass(frozen=True, eq=False)
class Instance:
    """Rows of one symmetric mixture, its parameters and a start."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    beta: np.ndarray
    w: np.ndarray
    start: tuple[np.ndarray, np.ndarray]

    def objective(self, beta: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Mean negative log-likelihood, for columns ``(d, m)`` of parameters."""
        margin, gate = self.y[:, None] * (self.X @ beta), self.X @ w
        # log N(y; ±xβ, 1) without what both share: ±y xβ - (xβ)² / 2
        ll = np.logaddexp(log_expit(gate) + margin, log_expit(-gate) - margin)
        shared = 0.5 * (self.y[:, None] ** 2 + (self.X @ beta) ** 2 + np.log(2 * np.pi))
        return np.mean(shared - ll, axis=0)

    def responsibility(self, beta: np.ndarray, w: np.ndarray) -> np.ndarray:
        """``P(z = 1 | x, y)``, ``(n, m)``."""
        return expit(self.X @ w + 2 * self.y[:, None] * (self.X @ beta))


def instance(seed: int, norms: tuple[float, float] = (NORM, NORM)) -> Instance:
    rng = np.random.default_rng(seed)

    def direction() -> np.ndarray:
        u = rng.normal(size=(D, 1))
        return u / np.linalg.norm(u)

    beta, w = norms[0] * direction(), norms[1] * direction()
    start = beta + AWAY * direction(), w + AWAY * direction()
    X = rng.normal(size=(N, D))
    z = np.where(rng.random(N) < expit(X @ w)[:, 0], 1.0, -1.0)
    return Instance(X, z * (X @ beta)[:, 0] + rng.normal(size=N), beta, w, start)


# ---------------------------------------------------------------------- the methods

Iterates = Iterator[tuple[np.ndarray, np.ndarray, int]]
"""β, w and the passes that were made to get there."""
EXACT = 50
"""Most Newton steps of a gate that goes to its maximum."""


def em(data: Instance, *, newton_steps: int = EXACT, printed: bool = False) -> Iterates:
    """EM whose gate takes up to so many Newton steps; ``printed``: β as in the paper, which holds for Xᵀ X = n I."""
    (beta, w), passes = data.start, 0
    gram = len(data.X) * np.eye(D) if printed else data.X.T @ data.X
    while True:
        yield beta, w, passes
        p = data.responsibility(beta, w)
        beta = np.linalg.solve(gram, data.X.T @ ((2 * p - 1) * data.y[:, None]))
        w, made = gate_maximum(data.X, p, w, newton_steps)
        passes += made


def gate_maximum(X: np.ndarray, p: np.ndarray, w: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Logistic regression on the responsibilities by Newton, and its passes: one for each step and each halving."""

    def loss(eta: np.ndarray) -> float:
        return float(-np.mean(p * log_expit(eta) + (1 - p) * log_expit(-eta)))

    eta, passes = X @ w, 0
    for _ in range(most):
        pi = expit(eta)
        step = np.linalg.solve((X * (pi * (1 - pi))).T @ X, X.T @ (p - pi))
        while True:
            passes += 1
            trial = X @ (w + step)
            if loss(trial) <= loss(eta) + 1e-12:
                break
            step = step / 2
        w, eta = w + step, trial
        if np.abs(step).max() < 1e-10:
            break
    return w, passes


def gradient_em(data: Instance, pairs: tuple[tuple[float, float], ...]) -> Iterates:
    """Gradient EM, a column for each pair of steps; with equal steps it is gradient descent.

    For where the responsibilities are taken, the gradient of Q is that of the likelihood.
    """
    beta, w = (np.repeat(part, len(pairs), axis=1) for part in data.start)
    of_beta, of_w = np.array(pairs).T
    for passes in count():
        yield beta, w, passes
        of_q = gradients(data, beta, w)
        beta, w = beta + of_beta * of_q[0], w + of_w * of_q[1]


def gradients(data: Instance, beta: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of Q per row, upwards, ``(d, m)`` each."""
    p, n = data.responsibility(beta, w), len(data.X)
    to_beta = data.X.T @ ((2 * p - 1) * data.y[:, None] - data.X @ beta) / n
    return to_beta, data.X.T @ (p - expit(data.X @ w)) / n

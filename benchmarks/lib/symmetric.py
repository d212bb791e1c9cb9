"""Two regressions that are each other's negative: data as in arXiv:2106.07537, and methods, vectorised.

A method is a function that returns its path, the coefficients after 0, 1, ... rounds, ``(T + 1, d)``, and its last
noise variance. The first group are ours: exact EM by rows and by agents, gradient EM with the natural step, and the
steps of ``MinimaxRegression(symmetric=True)``. The second group are the methods of the paper as its authors' code has
them (github.com/tjdiamandis/WMLR), with what makes their figures: EM that takes ``Σ_X = I`` and inverts its variance,
gradients over ``2σ²``, one frozen draw in place of an expectation, an inner loop whose gradient never moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.numerics.linalg import whitening
from consilience.numerics.quadrature import hermite_nodes
from consilience.published.critic import NODES
from consilience.published.spectral import symmetric_pair

D, AGENT_ROWS = 128, 10
STILL = 1e-9
"""A path that moves by less, relative to its length, twice in a row, has ended: the rest of it is where it stands."""
CHUNK = 2000
"""Rows that are read once per round, while they are in a core's own cache."""
Path = tuple[np.ndarray, float]


@dataclass(frozen=True, eq=False)
class Data:
    """``y = z x'b + ε`` with ``x ~ N(0, I)``, ``ε ~ N(0, 1)``, ``‖b‖ = SNR`` and a sign ``z`` for every 10 rows.

    Methods that give each row a label of its own do not see whether signs are shared.
    """

    X: np.ndarray
    y: np.ndarray
    b: np.ndarray
    z: np.ndarray
    snr: int
    rng: np.random.Generator

    @classmethod
    def simulated(cls, n: int, snr: int, seed: int) -> Data:
        rng = np.random.default_rng([n, snr, seed])
        X, b = rng.standard_normal((n, D)), rng.standard_normal(D)
        b *= snr / np.linalg.norm(b)
        z = np.repeat(rng.choice([-1.0, 1.0], n // AGENT_ROWS), AGENT_ROWS)
        return cls(X, z * (X @ b) + rng.standard_normal(n), b, z, snr, rng)

    @property
    def n(self) -> int:
        return len(self.y)

    @cached_property
    def small(self) -> tuple[np.ndarray, np.ndarray]:
        """``X`` and ``y`` in single precision, for thousands of rounds."""
        return self.X.astype(np.float32), self.y.astype(np.float32)

    @cached_property
    def Sxx(self) -> np.ndarray:
        return self.X.T @ self.X / self.n

    @cached_property
    def squared(self) -> np.ndarray:
        return (self.X * (self.y**2)[:, None]).T @ self.X / self.n

    @cached_property
    def spectral(self) -> tuple[np.ndarray, float]:
        """The library's start."""
        return symmetric_pair(self.squared, self.Sxx, float(np.mean(self.y**2)))

    def random(self) -> np.ndarray:
        """``N(0, I/d)``: the paper's start of each of its vectors."""
        return self.rng.standard_normal(D) / np.sqrt(D)

    @cached_property
    def oracle(self) -> np.ndarray:
        """Least squares with known signs."""
        return np.linalg.solve(self.Sxx, self.X.T @ (self.z * self.y) / self.n)

    def errors(self, path: np.ndarray) -> np.ndarray:
        """``min_± ‖β ∓ b‖ / ‖b‖`` along a path."""
        gaps = [np.linalg.norm(path - sign * self.b, axis=-1) for sign in (1, -1)]
        return np.minimum(*gaps) / np.linalg.norm(self.b)

    def nll(self, beta: np.ndarray, sigma2: float) -> float:
        """Mean negative log-likelihood; a variance that is none is taken as 1, as in the authors' code."""
        s2 = sigma2 if sigma2 > 0 else 1.0
        m = self.X @ beta
        either = np.logaddexp(-((self.y - m) ** 2) / (2 * s2), -((self.y + m) ** 2) / (2 * s2))
        return float(np.log(2) + 0.5 * np.log(2 * np.pi * s2) - np.mean(either))


def rounds_needed(errors: np.ndarray) -> int:
    """The first round from which on all errors are at most 1.05 times the last."""
    above = np.flatnonzero(errors > 1.05 * errors[-1])
    return int(above[-1]) + 1 if len(above) else 0


def path_of(states: Iterator[tuple[np.ndarray, float]], T: int) -> Path:
    """At most ``T`` rounds of a method, less where it stands still."""
    beta, sigma2 = next(states)
    path, still = [beta], 0
    while len(path) <= T and still < 2:
        beta, sigma2 = next(states)
        still = still + 1 if np.linalg.norm(beta - path[-1]) <= STILL * np.linalg.norm(beta) else 0
        path.append(beta)
    path += [path[-1]] * (T + 1 - len(path))
    return np.array(path), sigma2


# ---------------------------------------------------------------- ours


def em(data: Data, beta: np.ndarray, sigma2: float, T: int, *, by_agent: bool = False) -> Path:
    """Exact EM: ``β = Sxx⁻¹ g``, ``σ² = mean y² - β'g`` with ``g = mean E[z | data] y x``, by rows or by agents."""
    X, y, square = data.X, data.y, float(np.mean(data.y**2))

    def states() -> Iterator[tuple[np.ndarray, float]]:
        at, s2 = beta, sigma2
        while True:
            yield at, s2
            evidence = y * (X @ at) / s2
            if by_agent:
                evidence = np.repeat(evidence.reshape(-1, AGENT_ROWS).sum(axis=1), AGENT_ROWS)
            g = X.T @ (np.tanh(evidence) * y) / data.n
            at = np.linalg.solve(data.Sxx, g)
            s2 = square - float(at @ g)

    return path_of(states(), T)


def natural_gradient_em(data: Data, beta: np.ndarray, sigma2: float, T: int) -> Path:
    """Gradient EM with the step of known labels and ``Sxx = I``: ``β += mean (E[z] y - m) x``, ``σ²`` as in EM."""
    X, y, square = data.X, data.y, float(np.mean(data.y**2))

    def states() -> Iterator[tuple[np.ndarray, float]]:
        at, s2 = beta, sigma2
        while True:
            yield at, s2
            m = X @ at
            t = np.tanh(y * m / s2)
            s2 = square + float(np.mean(m * (m - 2 * t * y)))
            at = at + X.T @ (t * y - m) / data.n

    return path_of(states(), T)


def minimax(data: Data, beta: np.ndarray, sigma2: float, T: int, *, refresh: int | None, penalty: float = 0.41) -> Path:
    """The steps of the library's ``MinimaxRegression(symmetric=True)``, without its rule to stop."""
    W = whitening(data.Sxx)
    Z, alpha, square = data.X @ W, 1 / (2 * penalty), float(np.mean(data.y**2))

    def states() -> Iterator[tuple[np.ndarray, float]]:
        u, s2 = np.linalg.solve(W.T @ W, W.T @ beta), sigma2
        above = below = reference = u / np.linalg.norm(u)
        number = 0
        while True:
            yield W @ u, s2
            number += 1
            sigma = np.sqrt(s2)
            g, q = minimax_gradients(Z, data.y, np.array([u, sigma * above, sigma * below]).T, s2)
            above = above + alpha * (g[:, 0] / sigma - penalty * (above - reference))
            below = below + alpha * (-g[:, 1] / sigma - penalty * (below - reference))
            u, s2 = u + alpha / 10 * g[:, 2], square + q
            if refresh is not None and number % refresh == 0:
                reference = u / np.sqrt(s2)

    return path_of(states(), T)


def minimax_gradients(Z: np.ndarray, y: np.ndarray, V: np.ndarray, s2: float) -> tuple[np.ndarray, float]:
    """Means over rows: what pulls the two critics and the coefficients, ``(d, 3)``, and ``m² - 2 E[z] y m``."""
    total, q = np.zeros((Z.shape[1], 3)), 0.0
    for i in range(0, len(y), CHUNK):
        part, of = Z[i : i + CHUNK], y[i : i + CHUNK]
        m, a, c = (part @ V).T
        (up, of_a), (down, of_c) = (against(of, each, m, s2) for each in (a, c))
        total += part.T @ np.array([up, down, of_a - of_c]).T
        q += float(np.sum(m * (m - 2 * np.tanh(of * m / s2) * of)))
    return total / len(y), q / len(y)


def against(y: np.ndarray, a: np.ndarray, m: np.ndarray, s2: float) -> tuple[np.ndarray, np.ndarray]:
    """``y tanh(ya/σ²) - E Y tanh(Ya/σ²)`` and ``a E tanh(Ya/σ²)`` for ``Y ~ N(m, σ²)``, by quadrature."""
    nodes, weights = hermite_nodes(NODES)
    drawn = m + np.sqrt(s2) * nodes[:, None]
    th = weights[:, None] * np.tanh(drawn * (a / s2))
    return y * np.tanh(y * a / s2) - np.sum(drawn * th, axis=0), a * th.sum(axis=0)


# ---------------------------------------------------------------- the paper's, as its code has them


def paper_em(data: Data, beta: np.ndarray, T: int) -> Path:
    """``Σ_X = I``, ``σ² = 1 / mean(...)`` at the old coefficients, and 1 where the likelihood is computed."""
    X, y, square = data.X, data.y, float(np.mean(data.y**2))

    def states() -> Iterator[tuple[np.ndarray, float]]:
        at, s2 = beta, 1.0
        while True:
            yield at, 1.0
            m = X @ at
            t = np.tanh(y * m / s2)
            at = X.T @ (t * y) / data.n
            s2 = 1 / (square + float(np.mean(m * (m - 2 * t * y))))

    return path_of(states(), T)


def paper_gradient_em(data: Data, beta: np.ndarray, step: float, T: int, *, until: float = 0.0) -> Path:
    """Steps over ``2σ²``; agents bound their own variances from below before they are averaged.

    Ends early where the error is below ``until``.
    """
    X, y = data.small
    at, s2, path = beta.astype(np.float32), 1.0, [beta]
    squares = np.mean((data.y**2).reshape(-1, AGENT_ROWS), axis=1)
    for _ in range(T):
        g, q = gradients(X, y, at, s2)
        at = at + np.float32(step / (2 * s2)) * g
        s2 = float(np.mean(np.maximum(s2 + step * ((squares + q) / (2 * s2**2) - 1 / (2 * s2)), 1e-4)))
        path.append(at)
        if until and data.errors(at) <= until:
            break
    return np.array(path, dtype=np.float64), s2


def gradients(X: np.ndarray, y: np.ndarray, at: np.ndarray, s2: float) -> tuple[np.ndarray, np.ndarray]:
    """``mean (E[z] y - m) x`` over all rows, and each agent's mean of ``m² - 2 E[z] y m``."""
    g, q = np.zeros(D, dtype=np.float32), []
    for i in range(0, len(y), CHUNK):
        part, of = X[i : i + CHUNK], y[i : i + CHUNK]
        m = part @ at
        t = np.tanh(of * m / np.float32(s2)) * of
        g += part.T @ (t - m)
        q.append(np.mean((m * (m - 2 * t)).reshape(-1, AGENT_ROWS), axis=1))
    return g / np.float32(len(y)), np.concatenate(q).astype(np.float64)


def paper_federated_em(data: Data, beta: np.ndarray, step: float, T: int) -> Path:
    """Up to 50 inner rounds whose gradient is that of the first: one long step, until it is shorter than 0.01."""
    X, y = data.small
    at, s2, path = beta.astype(np.float32), 1.0, [beta]
    squares = np.mean((data.y**2).reshape(-1, AGENT_ROWS), axis=1)
    while len(path) <= T:
        g, q = gradients(X, y, at, s2)
        g = g / np.float32(2 * s2)
        change = (squares + q) / (2 * s2**2) - 1 / (2 * s2)
        for _ in range(50 if np.linalg.norm(g) >= 0.01 else 1):
            at = at + np.float32(step) * g
            s2 = float(np.mean(np.maximum(s2 + step * change, 1e-4)))
            path.append(at)
    return np.array(path[: T + 1], dtype=np.float64), s2


def paper_wmlr(data: Data, start: tuple[np.ndarray, np.ndarray, np.ndarray], penalty: float, T: int) -> Path:
    """One frozen draw per row in place of the expectation, ``σ = 1``, the top eigenvector of ``y² x x'`` as ``γ̃``."""
    X, y = data.small
    noise = data.rng.standard_normal(data.n, dtype=np.float32)
    reference = np.linalg.eigh(data.squared)[1][:, -1].astype(np.float32)
    alpha = np.float32(1 / (2 * penalty))
    beta, above, below = (part.astype(np.float32) for part in start)
    path = [beta]
    for _ in range(T):
        g = np.zeros((D, 3), dtype=np.float32)
        V = np.array([beta, above, below]).T
        for i in range(0, data.n, CHUNK):
            part, of = X[i : i + CHUNK], y[i : i + CHUNK]
            m, a, c = (part @ V).T
            drawn = m + noise[i : i + CHUNK]
            ta, tc = np.tanh(drawn * a), np.tanh(drawn * c)
            pulls = (a * ta - c * tc, of * np.tanh(of * a) - drawn * ta, of * np.tanh(of * c) - drawn * tc)
            g += part.T @ np.array(pulls).T
        g /= np.float32(data.n)
        beta = beta + alpha / 10 * g[:, 0]
        above = above + alpha * (g[:, 1] - np.float32(penalty) * (above - reference))
        below = below + alpha * (-g[:, 2] - np.float32(penalty) * (below - reference))
        path.append(beta)
    return np.array(path, dtype=np.float64), 1.0

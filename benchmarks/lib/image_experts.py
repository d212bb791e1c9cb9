"""Softmax regressions on images, one alone or two behind a logistic gate: their likelihood, and ways to climb it.

Parameters are the rows of one matrix: the gate's contrast, then the classes of each expert. Arrays are float32, only
means over images are not: 60,000 images take 190 MB, and gradients are right to about 1e-6 of their size, far below
what a step here changes. A pass is two products with the matrix of images: one for predictors, one for a gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.optimize import OptimizeResult, minimize

C = 10
INNER = 5
"""L-BFGS steps in an M-step."""
MEMORY = 10
"""Steps that L-BFGS remembers."""


@dataclass
class Panel:
    """Images as columns below a row of ones, their classes as indicators, and the products made with them."""

    P: np.ndarray  # (p, n)
    Y: np.ndarray  # (C, n)
    products: int = 0

    @property
    def passes(self) -> float:
        return self.products / 2

    def at(self, theta: np.ndarray) -> Evaluated:
        """The model at ``theta (K - 1 + K C, p)``."""
        self.products += 1
        eta = theta @ self.P
        K = len(theta) // C
        classes = eta[K - 1 :].reshape(K, C, -1)
        classes -= classes.max(axis=1, keepdims=True)
        observed = np.sum(classes * self.Y, axis=1)
        np.exp(classes, out=classes)
        total = classes.sum(axis=1)
        classes /= total[:, None]
        contrast = eta[0] if K == 2 else np.full(eta.shape[1], np.inf, np.float32)
        log_gate = -np.logaddexp(0, np.array([-contrast, contrast])[:K])
        return Evaluated(self, theta, log_gate, observed - np.log(total), classes)


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A mixture of K experts at the n images of a panel."""

    panel: Panel
    theta: np.ndarray  # (K - 1 + K C, p)
    log_gate: np.ndarray  # (K, n)
    log_observed: np.ndarray  # (K, n), of the observed class
    classes: np.ndarray  # (K, C, n), probabilities

    def log_likelihood(self) -> float:
        """Per image."""
        joint = self.log_gate + self.log_observed
        return float(np.mean(np.logaddexp.reduce(joint, axis=0), dtype=np.float64))

    def responsibilities(self) -> np.ndarray:
        joint = self.log_gate + self.log_observed
        return np.exp(joint - np.logaddexp.reduce(joint, axis=0))

    def q(self, tau: np.ndarray) -> np.ndarray:
        """Expected complete log-likelihood per image at ``tau (K, n)``: the part of the gate, and of each expert."""
        gate, experts = tau * self.log_gate, tau * self.log_observed
        return np.mean([gate.sum(axis=0), *experts], axis=1, dtype=np.float64)

    def q_gradient(self, tau: np.ndarray) -> np.ndarray:
        """Its gradient; at the responsibilities of this place it is that of the log-likelihood."""
        self.panel.products += 1
        of_classes = tau[:, None] * (self.panel.Y - self.classes)
        of_gate = (tau - np.exp(self.log_gate))[:-1]
        residual = np.concatenate([of_gate, of_classes.reshape(-1, of_classes.shape[-1])])
        return residual @ self.panel.P.T / residual.shape[1]

    def accuracy(self) -> float:
        predicted = np.einsum("kn,kcn->cn", np.exp(self.log_gate), self.classes).argmax(axis=0)
        return float(np.mean(predicted == self.panel.Y.argmax(axis=0)))


# ---------------------------------------------------------------------- ways to climb


@dataclass(frozen=True, eq=False)
class Place:
    """Where an iteration of a method ended: log-likelihood per image, and all passes until then."""

    theta: np.ndarray
    log_likelihood: float
    passes: float


def place(at: Evaluated) -> Place:
    return Place(at.theta, at.log_likelihood(), at.panel.passes)


def gradient_em(panel: Panel, theta: np.ndarray, steps: tuple[float, float]) -> Iterator[Place]:
    """Gradient EM with a step for experts and one for the gate; with equal steps it is gradient descent."""
    of_rows = np.full((len(theta), 1), steps[0], np.float32)
    of_rows[: len(theta) % C] = steps[1]
    while True:
        at = panel.at(theta)
        yield place(at)
        theta = theta + of_rows * at.q_gradient(at.responsibilities())


def em(panel: Panel, theta: np.ndarray) -> Iterator[Place]:
    """EM whose M-steps are ``INNER`` steps of L-BFGS on Q; what one learns of the curvature is kept for the next."""
    at, memories = panel.at(theta), [Memory() for _ in range(3)]
    while True:
        yield place(at)
        tau = at.responsibilities()
        *_, at = islice(maximising_q(at, tau, memories), INNER)


def lbfgs(panel: Panel, theta: np.ndarray, passes: int) -> Iterator[Place]:
    """L-BFGS on the log-likelihood itself, as scipy has it."""
    found: list[Place] = []

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = panel.at(flat.astype(np.float32).reshape(theta.shape))
        gradient = at.q_gradient(at.responsibilities())
        return -at.log_likelihood(), -gradient.astype(np.float64).ravel()

    def see(intermediate_result: OptimizeResult) -> None:
        at = intermediate_result.x.astype(np.float32).reshape(theta.shape)
        found.append(Place(at, -float(intermediate_result.fun), panel.passes))

    start = theta.astype(np.float64).ravel()
    options = {"maxfun": passes, "maxiter": passes, "maxcor": MEMORY}
    minimize(loss, start, jac=True, method="L-BFGS-B", callback=see, options=options)
    yield from found


# ---------------------------------------------------------------------- L-BFGS that remembers earlier problems


class Memory:
    """The last steps of L-BFGS and how they changed the gradient."""

    def __init__(self) -> None:
        self.pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=MEMORY)

    def remember(self, step: np.ndarray, fall: np.ndarray) -> None:
        if np.vdot(step, fall) > 0:
            self.pairs.append((step, fall))

    def direction(self, uphill: np.ndarray) -> np.ndarray:
        """The gradient times the remembered inverse curvature, by the two-loop recursion."""
        if not self.pairs:
            return uphill / max(1.0, np.abs(uphill).sum())
        d, parts = uphill.copy(), []
        for s, y in reversed(self.pairs):
            parts.append(np.vdot(s, d) / np.vdot(s, y))
            d -= parts[-1] * y
        s, y = self.pairs[-1]
        d *= np.vdot(s, y) / np.vdot(y, y)
        for (s, y), part in zip(self.pairs, reversed(parts), strict=True):
            d += (part - np.vdot(y, d) / np.vdot(s, y)) * s
        return d


def maximising_q(at: Evaluated, tau: np.ndarray, memories: list[Memory]) -> Iterator[Evaluated]:
    """Places of L-BFGS on Q, three problems at a time that share their passes: the gate and the two experts.

    The step of each is halved until its part of Q rises.
    """
    rows = np.r_[0, np.repeat([1, 2], C)]  # whose they are
    heights, uphill = at.q(tau), at.q_gradient(tau)
    while True:
        step = np.vstack([memory.direction(uphill[rows == i]) for i, memory in enumerate(memories)])
        slopes = np.bincount(rows, np.sum(step * uphill, axis=1))
        fractions = np.ones(3)
        while True:
            new = at.panel.at(at.theta + (fractions[rows, None] * step).astype(np.float32))
            rises = new.q(tau) >= heights + 1e-4 * fractions * slopes
            if rises.all() or fractions.min() < 1e-6:
                break
            fractions = np.where(rises, fractions, fractions / 2)
        yield new
        after = new.q_gradient(tau)
        for i, memory in enumerate(memories):
            memory.remember((new.theta - at.theta)[rows == i], (uphill - after)[rows == i])
        at, heights, uphill = new, new.q(tau), after

"""Mixtures, rows and factors for tests of private contributions: ordinary ones, and hostile ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from consilience.model import ConstantGate, Design, Mixture, Rows, SoftmaxGate
from families import CASES

Rng = np.random.Generator
NAMES = tuple(CASES)
ONE_RESPONSE = tuple(name for name in NAMES if name not in ("gaussian-full", "gaussian-diag", "gaussian-tied"))
HOSTILE = (0.0, 1e-300, 1e8, -1e8, 1e150, -1e300, 1e308, np.inf, -np.inf, np.nan, 0.5, -1.0, 1e17)


def gate_of(kind: str, K: int, p: int, rng: Rng, scale: float = 0.7) -> SoftmaxGate | ConstantGate:
    if kind == "constant":
        share = rng.dirichlet(np.full(K, 4.0))
        return ConstantGate(share)
    alpha = scale * rng.normal(size=(K, p))
    return SoftmaxGate(alpha - alpha.mean(axis=0))


def mixture_of(
    name: str, rng: Rng, *, K: int = 2, d: int = 2, gate: str = "softmax", q: int = 1, C: int = 3
) -> Mixture:
    experts = CASES[name].experts(SimpleNamespace(K=K, q=q, C=C), d + 1, rng)
    return Mixture(Design(0.1 * np.ones(d), 1.3 * np.ones(d)), gate_of(gate, K, d + 1, rng), experts)


def drawn_rows(name: str, mixture: Mixture, n: int, rng: Rng) -> Rows:
    """Rows with responses from the mixture."""
    X = rng.normal(size=(n, mixture.design.d))
    X[:, 0] = rng.random(n) < 0.3
    sizes = None if CASES[name].sizes is None else CASES[name].sizes(n, rng)
    return Rows(X, mixture.sample(X, rng, exposure=sizes)[0], exposure=sizes)


def hostile_mixture(name: str, rng: Rng, **how: int | str) -> Mixture:
    """A mixture with coefficients of any size that a message may have."""
    mixture = mixture_of(name, rng, **how)
    scale = 10.0 ** rng.integers(-8, 9, size=mixture.design.p)
    centre = 10.0 ** rng.integers(-3, 9, size=mixture.design.d) * rng.choice([-1, 1], mixture.design.d)
    design = Design(centre, 10.0 ** rng.integers(-8, 9, size=mixture.design.d))
    gate, experts = mixture.gate.transformed(np.diag(scale)), mixture.experts.transformed(np.diag(scale[::-1]))
    shapes = experts.shape_parameters
    return Mixture(design, gate, experts.moved(np.zeros(len(experts.free_coefficients())), rng.normal(size=shapes) * 9))


def hostile_rows(name: str, mixture: Mixture, n: int, rng: Rng) -> Rows:
    """Rows of which a part of the cells has numbers that no table should have."""
    rows = drawn_rows(name, mixture_of(name, rng, K=mixture.K, d=mixture.design.d, q=mixture.experts.q), n, rng)

    def spoilt(cells: np.ndarray) -> np.ndarray:
        return np.where(rng.random(cells.shape) < 0.15, rng.choice(HOSTILE, cells.shape), cells)

    exposure = None if rows.exposure is None else spoilt(rows.exposure)
    return Rows(spoilt(rows.X * 10.0 ** rng.integers(-9, 10, rows.X.shape)), spoilt(rows.Y), exposure=exposure)


def hostile_factor(P: int, rng: Rng) -> np.ndarray:
    """A factor of any condition: large and small columns, columns that nearly cancel, zeros, numbers not finite."""
    W = rng.normal(size=(P, P)) * 10.0 ** rng.integers(-8, 9, size=P)
    kind = rng.integers(6)
    if kind == 1:
        W[:, 1:] = W[:, :1] * (1 + 1e-15 * rng.normal(size=(P, P - 1)))
    elif kind == 2:
        W *= 10.0 ** float(rng.integers(-300, 300))
    elif kind == 3:
        W[rng.integers(P), :] = rng.choice(HOSTILE)
    elif kind == 4:
        W[:] = 0.0
    return W


GATES = ("softmax", "constant")


@dataclass(frozen=True, eq=False)
class Asked:
    """What a question asks for: a mixture of a family and gate, a factor and a clip, hostile in three of four."""

    name: str
    gate: str
    mixture: Mixture
    factor: np.ndarray
    clip: float
    rng: Rng


def asked_of_each(seed: int) -> Iterator[Asked]:
    """Questions for all families and gates."""
    for place, name in enumerate(NAMES):
        for of_gate, gate in enumerate(GATES):
            rng = np.random.default_rng([seed, place, of_gate])
            hostile = bool(rng.integers(4))
            mixture = (hostile_mixture if hostile else mixture_of)(name, rng, K=int(rng.integers(1, 4)), gate=gate)
            P = mixture.parameter_count
            clip = float(rng.choice([1e-300, 1e-3, np.sqrt(P), 1e6, 1e300]) if hostile else np.sqrt(P))
            W = hostile_factor(P, rng) if hostile else np.linalg.cholesky(np.eye(P) + 0.1)
            yield Asked(name, gate, mixture, W, clip, rng)


def squared_lengths(k: np.ndarray) -> list[int]:
    """Squared lengths of the rows, in Python integers."""
    return [sum(int(x) ** 2 for x in row) for row in k]

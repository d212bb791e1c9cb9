"""One line per family of experts: random parameters, random responses, and experts that every fit finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.model import CategoricalExperts, Experts, GaussianExperts, PoissonExperts
from consilience.model.families.binomial import BinomialExperts
from consilience.model.families.covariance import STRUCTURES
from consilience.model.families.gamma import GammaExperts
from consilience.model.families.hurdle_poisson import HurdlePoissonExperts
from consilience.model.families.negative_binomial import NegativeBinomialExperts
from consilience.model.families.student import StudentExperts
from consilience.model.families.zero_inflated_poisson import ZeroInflatedPoissonExperts

Rng = np.random.Generator


@dataclass(frozen=True)
class FamilyCase:
    """How tests make experts and responses of a family."""

    experts: Callable[[Any, int, Rng], Experts]  # shape, p, rng: random parameters
    responses: Callable[[Any, np.ndarray | None, Rng], np.ndarray]  # shape, sizes, rng: (n, q), not drawn from experts
    apart: Callable[[np.ndarray, Any], Experts]  # slopes (p,), settings: two experts far from each other
    sizes: Callable[[int, Rng], np.ndarray] | None = None  # sizes of rows, where the family reads them


def random_covariance(structure: str, K: int, q: int, rng: Rng) -> np.ndarray:
    A = 0.5 * rng.normal(size=(K, q, q))
    S = A @ A.transpose(0, 2, 1) + rng.uniform(0.5, 1.5, (K, 1, 1)) * np.eye(q)
    return {"full": S, "tied": S[0], "diag": np.einsum("kqq->kq", S).copy(), "spherical": S[:, 0, 0].copy()}[structure]


def gaussian(structure: str) -> FamilyCase:
    def experts(shape: Any, p: int, rng: Rng) -> Experts:
        B = 0.7 * rng.normal(size=(shape.K, shape.q, p))
        return GaussianExperts(B, random_covariance(structure, shape.K, shape.q, rng), structure)

    def apart(slopes: np.ndarray, at: Any) -> Experts:
        tilt = 1 + 0.3 * np.arange(at.q)[:, None]
        S = 0.3 * np.eye(at.q) + 0.1
        covariance = {
            "full": np.array([S, 2 * S]),
            "tied": S,
            "diag": np.array([np.diag(S), 2 * np.diag(S)]),
            "spherical": np.array([0.4, 0.8]),
        }[structure]
        return GaussianExperts(np.array([tilt * slopes, 1 - tilt * slopes]), covariance, structure)

    return FamilyCase(experts, lambda shape, _, rng: 1.5 * rng.normal(size=(shape.n, shape.q)), apart)


def random_classes(shape: Any, p: int, rng: Rng) -> Experts:
    B = rng.normal(size=(shape.K, shape.C, p))
    return CategoricalExperts(B - B.mean(axis=1, keepdims=True))


def classes_apart(slopes: np.ndarray, at: Any) -> Experts:
    spread = np.linspace(-2.0, 2.0, at.C)[:, None] * slopes
    return CategoricalExperts(np.array([spread, -spread]))


def opposite(slopes: np.ndarray, at: Any, first: float, second: float, scale: float = 0.4) -> np.ndarray:
    """Coefficients ``(2, p)`` with opposite slopes and these intercepts."""
    B = scale * np.array([slopes, -slopes])
    if at.intercept:
        B[:, 0] = first, second
    return B


CASES = {
    **{f"gaussian-{structure}": gaussian(structure) for structure in STRUCTURES},
    "categorical": FamilyCase(
        random_classes, lambda shape, _, rng: rng.integers(0, shape.C, (shape.n, 1)).astype(float), classes_apart
    ),
    "poisson": FamilyCase(
        lambda shape, p, rng: PoissonExperts(0.4 * rng.normal(size=(shape.K, p))),
        lambda shape, _, rng: rng.poisson(2.0, (shape.n, 1)).astype(float),
        lambda slopes, at: PoissonExperts(opposite(slopes, at, 2.0, 0.5)),
        lambda n, rng: rng.uniform(0.5, 3.0, n),
    ),
    "gamma": FamilyCase(
        lambda shape, p, rng: GammaExperts(0.4 * rng.normal(size=(shape.K, p)), rng.uniform(0.7, 5.0, shape.K)),
        lambda shape, _, rng: rng.gamma(2.0, 0.7, (shape.n, 1)),
        lambda slopes, at: GammaExperts(opposite(slopes, at, 1.5, -0.5), np.array([8.0, 3.0])),
    ),
    "binomial": FamilyCase(
        lambda shape, p, rng: BinomialExperts(0.7 * rng.normal(size=(shape.K, p))),
        lambda shape, trials, rng: rng.binomial(trials.astype(int), 0.4)[:, None].astype(float),
        lambda slopes, at: BinomialExperts(opposite(slopes, at, 1.0, -1.0, scale=1.0)),
        lambda n, rng: rng.integers(1, 12, n).astype(float),
    ),
    "student": FamilyCase(
        lambda shape, p, rng: StudentExperts(
            0.7 * rng.normal(size=(shape.K, p)), rng.uniform(0.5, 1.5, shape.K), rng.uniform(2.5, 12.0, shape.K)
        ),
        lambda shape, _, rng: rng.standard_t(3.0, size=(shape.n, 1)),
        lambda slopes, at: StudentExperts(np.array([slopes, 1 - slopes]), np.array([0.5, 0.7]), np.array([3.0, 4.0])),
    ),
    "negative_binomial": FamilyCase(
        lambda shape, p, rng: NegativeBinomialExperts(
            0.4 * rng.normal(size=(shape.K, p)), rng.uniform(0.7, 5.0, shape.K)
        ),
        lambda shape, _, rng: rng.negative_binomial(2.0, 0.5, (shape.n, 1)).astype(float),
        lambda slopes, at: NegativeBinomialExperts(opposite(slopes, at, 3.0, 0.5), np.array([8.0, 1.5])),
        lambda n, rng: rng.uniform(0.5, 3.0, n),
    ),
    "zero_inflated_poisson": FamilyCase(
        lambda shape, p, rng: ZeroInflatedPoissonExperts(
            0.4 * rng.normal(size=(shape.K, p)), np.full(shape.K, rng.uniform(0.2, 0.8))
        ),
        lambda shape, _, rng: rng.poisson(2.0, (shape.n, 1)) * (rng.random((shape.n, 1)) < 0.7).astype(float),
        lambda slopes, at: ZeroInflatedPoissonExperts(opposite(slopes, at, 3.0, 1.5), np.full(2, 0.3)),
        lambda n, rng: rng.uniform(0.5, 3.0, n),
    ),
    "hurdle_poisson": FamilyCase(
        lambda shape, p, rng: HurdlePoissonExperts(
            0.4 * rng.normal(size=(shape.K, p)), np.full(shape.K, rng.uniform(0.2, 0.8))
        ),
        lambda shape, _, rng: rng.poisson(2.0, (shape.n, 1)) * (rng.random((shape.n, 1)) < 0.7).astype(float),
        lambda slopes, at: HurdlePoissonExperts(opposite(slopes, at, 3.0, 1.0), np.full(2, 0.3)),
    ),
}
"""For each family, and each covariance structure of the Gaussian one, how tests make it."""
GAUSSIAN = tuple(name for name in CASES if name.startswith("gaussian"))
NAMES = tuple(dict.fromkeys(name.split("-")[0] for name in CASES))
"""Families without their structures."""
SIZED = tuple(name for name, case in CASES.items() if case.sizes is not None)
"""Families whose rows have a size."""

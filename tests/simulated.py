"""Data drawn from known mixtures, one kind per family: experts far enough apart that every fit finds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.fit import Specification
from consilience.model import ConstantGate, Design, Groups, Mixture, Rows, SoftmaxGate
from families import CASES, NAMES

FAMILIES = NAMES


@dataclass(frozen=True, eq=False)
class Simulated:
    """Rows, the mixture that made them, and the specification that describes it."""

    rows: Rows
    truth: Mixture
    specification: Specification
    labels: np.ndarray  # (n,)

    @property
    def X(self) -> np.ndarray:
        return self.rows.X

    @property
    def y(self) -> np.ndarray:
        """Responses as people pass them: one column flat."""
        return self.rows.Y[:, 0] if self.rows.Y.shape[1] == 1 else self.rows.Y


@dataclass(frozen=True)
class Settings:
    """What experts far from each other are made for."""

    q: int
    C: int
    intercept: bool


def simulated(
    family: str = "gaussian",
    *,
    gate: str = "softmax",
    n: int = 300,
    d: int = 2,
    q: int = 1,
    C: int = 3,
    structure: str = "full",
    intercept: bool = True,
    group_size: int = 1,
    weights: bool = False,
    exposure: bool = False,
    seed: int = 0,
) -> Simulated:
    """Two experts with opposite slopes behind a soft gate; with ``group_size`` above 1 groups of rows share a label."""
    case = CASES.get(family) or CASES[f"{family}-{structure}"]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    p = d + intercept
    slopes = np.linspace(1.0, 2.0, p)
    truth = Mixture(Design.raw(d, intercept), _gate(gate, p, intercept), case.apart(slopes, Settings(q, C, intercept)))
    groups = Groups.of(np.arange(n) // group_size) if group_size > 1 else None
    E = case.sizes(n, rng) if exposure and case.sizes is not None else None
    labels = None if groups is None else _group_labels(truth, X, groups, rng)
    Y, labels = truth.sample(X, rng, labels, E)
    weight = rng.integers(0, 3, n).astype(float) if weights else None
    specification = Specification(K=2, family=family, gate=gate, structure=structure, n_classes=C, intercept=intercept)
    return Simulated(Rows(X, Y, weight, E, groups), truth, specification, labels)


def _gate(kind: str, p: int, intercept: bool) -> SoftmaxGate | ConstantGate:
    if kind == "constant":
        return ConstantGate(np.array([0.6, 0.4]))
    alpha = np.full(p, 0.5)
    if intercept:
        alpha[0] = 0.3
    return SoftmaxGate(np.array([alpha, -alpha]))


def _group_labels(truth: Mixture, X: np.ndarray, groups: Groups, rng: np.random.Generator) -> np.ndarray:
    means = np.array([X[groups.codes == g].mean(axis=0) for g in range(len(groups.bounds) - 1)])
    pi = truth.gate_weights(means)
    return (rng.random(len(pi)) > pi[:, 0]).astype(np.intp)[groups.codes]

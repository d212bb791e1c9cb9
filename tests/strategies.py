"""Random mixtures and rows: the shape drawn by hypothesis (so that it shrinks), the numbers by a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from consilience.model import ConstantGate, Design, Experts, Groups, Mixture, Rows, SoftmaxGate, Statistics, expect
from consilience.model.information import score
from consilience.numerics.arrays import pack, triangle_size, unpack
from families import CASES

FAMILIES = tuple(CASES)
GATES = ("softmax", "constant")
LABELS = ("row", "group")
WEIGHTS = (None, "positive", "counts")  # counts: 0, 1 or 2, so that zeros are among them


@dataclass(frozen=True)
class Shape:
    """All that distinguishes one random problem from another; ``Shape().problem()`` makes it."""

    family: str = "gaussian-full"
    gate: str = "softmax"
    labels: str = "row"
    weights: str | None = None
    K: int = 2
    d: int = 2
    q: int = 1  # responses of Gaussian experts
    C: int = 3  # classes of categorical experts
    n: int = 12
    intercept: bool = True
    seed: int = 0

    def problem(self) -> tuple[Mixture, Rows]:
        """A mixture and rows, not drawn from it: nothing is at an optimum, every expert has something to say."""
        rng = np.random.default_rng(self.seed)
        mixture = random_mixture(self, rng)
        return mixture, random_rows(self, rng)

    def but(self, **changes: Any) -> Shape:
        """The same shape with some changes."""
        return replace(self, **changes)


def random_design(d: int, intercept: bool, rng: np.random.Generator) -> Design:
    centre = rng.normal(size=d) if intercept else np.zeros(d)
    return Design(centre, rng.uniform(0.5, 2, d), intercept)


def random_gate(kind: str, K: int, p: int, rng: np.random.Generator) -> SoftmaxGate | ConstantGate:
    if kind == "constant":
        return ConstantGate(rng.dirichlet(np.full(K, 5.0)))
    alpha = 0.7 * rng.normal(size=(K, p))
    return SoftmaxGate(alpha - alpha.mean(axis=0))


def random_experts(shape: Shape, p: int, rng: np.random.Generator) -> Experts:
    return CASES[shape.family].experts(shape, p, rng)


def random_mixture(shape: Shape, rng: np.random.Generator) -> Mixture:
    design = random_design(shape.d, shape.intercept, rng)
    return Mixture(design, random_gate(shape.gate, shape.K, design.p, rng), random_experts(shape, design.p, rng))


def random_rows(shape: Shape, rng: np.random.Generator) -> Rows:
    n = shape.n
    X = rng.normal(size=(n, shape.d))
    case = CASES[shape.family]
    sizes = None if case.sizes is None else case.sizes(n, rng)
    Y = case.responses(shape, sizes, rng)
    weight = {
        None: None,
        "positive": rng.uniform(0.2, 2.5, n),
        "counts": rng.integers(0, 3, n).astype(float),
    }[shape.weights]
    groups = Groups.of(rng.integers(0, max(n // 3, 1), n)) if shape.labels == "group" else None
    return Rows(X, Y, weight, sizes, groups)


@st.composite
def shapes(draw: st.DrawFn, max_n: int = 14, **fixed: Any) -> Shape:
    """Shapes of random problems: K ≤ 4, d ≤ 4, q ≤ 3, C ≤ 4; ``fixed`` holds fields, or strategies for them."""
    intercept = draw(_given(fixed, "intercept", st.sampled_from([True, True, True, False])))
    drawn = {
        "family": _given(fixed, "family", st.sampled_from(FAMILIES)),
        "gate": _given(fixed, "gate", st.sampled_from(GATES)),
        "labels": _given(fixed, "labels", st.sampled_from(LABELS)),
        "weights": _given(fixed, "weights", st.sampled_from(WEIGHTS)),
        "K": _given(fixed, "K", st.integers(1, 4)),
        "d": _given(fixed, "d", st.integers(0 if intercept else 1, 4)),
        "q": _given(fixed, "q", st.integers(1, 3)),
        "C": _given(fixed, "C", st.integers(2, 4)),
        "n": _given(fixed, "n", st.integers(1, max_n)),
        "seed": _given(fixed, "seed", st.integers(0, 2**32 - 1)),
    }
    return Shape(intercept=intercept, **{name: draw(strategy) for name, strategy in drawn.items()})


def _given(fixed: dict[str, Any], name: str, default: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    value = fixed.get(name, default)
    return value if isinstance(value, st.SearchStrategy) else st.just(value)


# ---------------------------------------------------------------------- rows made from rows


def label_count(rows: Rows) -> int:
    """Latent labels of the rows: rows, or groups."""
    return rows.n if rows.groups is None else len(rows.groups.bounds) - 1


def take_labels(rows: Rows, keep: np.ndarray) -> Rows:
    """The rows, or the groups, named by ``keep`` (labels, or a mask of labels)."""
    if rows.groups is None:
        return rows.take(np.arange(rows.n)[keep])
    return rows.take(np.flatnonzero(np.isin(rows.groups.codes, np.arange(label_count(rows))[keep])))


def one_label_each(rows: Rows) -> list[Rows]:
    """The rows in parts with one label each: single rows, or single groups."""
    return [take_labels(rows, np.array([label])) for label in range(label_count(rows))]


def unweighted(rows: Rows) -> Rows:
    """Rows with integer weights as rows without: a row of weight 2 stands twice, one of weight 0 is gone."""
    assert rows.weight is not None
    return replace(rows.take(np.repeat(np.arange(rows.n), rows.weight.astype(int))), weight=None)


# ---------------------------------------------------------------------- how far two sums may differ

SUM_TOLERANCE = 1e-12  # of the sum of absolute contributions


def contributions(mixture: Mixture, rows: Rows) -> np.ndarray:
    """Sum of absolute contributions to each entry of ``expect(mixture, rows, information=True).to_array()``.

    A contribution is that of one label as expert k, weighted with its responsibility: ``E_τ|statistics given k|``.
    The information of a label is a difference, ``E_τ[complete information] - Cov_τ(complete score)``; both parts are
    positive semi-definite, so that an entry of either is at most the geometric mean of its two diagonal entries.
    """
    sums, diagonal = 0.0, 0.0
    for part in one_label_each(rows):
        tau = mixture.responsibilities(part)[0]
        mass = 1.0 if part.weight is None or part.groups is not None else max(part.weight[0], 1e-300)
        whole = expect(mixture, part, information=True)
        diagonal = diagonal + np.abs(np.diagonal(whole.information))
        for k in np.flatnonzero(tau):
            as_k = expect(mixture, part, given=np.eye(mixture.K)[:, [k]])
            terms = np.abs(as_k.to_array())
            if mixture.gate.reads_covariates:  # Σ w π (1 - π) is summed as Σ w π - Σ w π²
                terms[3 + mixture.K : 3 + 2 * mixture.K] += as_k.weight
            sums = sums + tau[k] * terms
            diagonal = diagonal + 2 * tau[k] * score(mixture, as_k) ** 2 / mass
    root = np.sqrt(diagonal)
    return np.concatenate([sums, pack(np.outer(root, root))])


def information_scale(mixture: Mixture, rows: Rows) -> np.ndarray:
    """Sums of absolute contributions to the information, ``(P, P)``."""
    return unpack(contributions(mixture, rows)[-triangle_size(mixture.parameter_count) :])


def assert_same_sums(actual: Statistics, expected: Statistics, scale: np.ndarray) -> None:
    """Equality of two statistics within rounding of the sums they are."""
    difference = np.abs(actual.to_array() - expected.to_array())
    worst = np.argmax(difference - SUM_TOLERANCE * scale[: len(difference)])
    assert difference[worst] <= SUM_TOLERANCE * scale[worst], (worst, difference[worst], scale[worst])

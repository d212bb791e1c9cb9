"""The simulated data sets that R and the library both fit.

:func:`simulate` makes the large one: softmax gate, Gaussian, Poisson and binomial experts. All responses share the
covariates and the latent label. :func:`simulate_small` and :func:`simulate_single` make small ones for gamma and
binomial experts. ``python simulate.py DIRECTORY`` writes each of ``TABLES`` to ``DIRECTORY/NAME.csv``, where
``make_values.R`` reads them; a test makes a table anew and compares :func:`checksums` with those stored in
``values.json``, so no table is ever stored.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 20240917
N, D, K, SIZE = 10_000, 5, 3, 10  # rows, covariates, experts, trials of a binomial record
START_KEPT = 0.6  # share of rows whose start label is the true one; the others are uniform

# Intercept first in each row.
ALPHA = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.4, 1.2, -0.8, 0.5, 0.0, 0.3], [-0.3, -1.0, 0.6, 0.9, -0.5, 0.0]])
BETA = np.array([[1.0, 2.0, -1.0, 0.5, 0.0, 1.0], [-2.0, -1.0, 1.5, 1.0, -0.5, 0.0], [3.0, 0.5, 0.5, -2.0, 1.0, -1.0]])
SIGMA = np.array([1.0, 1.5, 0.7])
BETA_LOG = np.array(  # log-linear
    [[1.0, 0.3, -0.2, 0.1, 0.0, 0.2], [2.5, -0.3, 0.2, 0.2, -0.1, 0.0], [-0.5, 0.2, 0.3, -0.3, 0.2, -0.2]]
)
BETA_LOGIT = np.array(  # logistic
    [[2.0, 1.0, -0.5, 0.3, 0.0, 0.5], [-0.5, -1.0, 0.8, 0.5, -0.3, 0.0], [-2.5, 0.4, 0.4, -1.0, 0.5, -0.5]]
)

SEED_SMALL = 20250311
N_SMALL, N_SINGLE = 400, 150
SHARE_SMALL = 0.6  # of the first of two experts, where the gate is constant
ALPHA_SMALL = np.array([[0.0, 0.0, 0.0], [-0.6, 1.2, 0.5]])
BETA_LOG_SMALL = np.array([[0.5, 0.4, -0.3], [2.0, -0.5, 0.4]])
BETA_LOGIT_SMALL = np.array([[-1.0, 0.8, 0.3], [1.0, -0.6, 0.5]])
SHAPE_SMALL = np.array([3.0, 8.0])
BETA_SINGLE, SHAPE_SINGLE = np.array([[1.0, 0.5, -0.4]]), 2.5


def simulate() -> dict[str, NDArray[np.float64]]:
    """The columns ``x1 … x5, gaussian, poisson, successes, failures, start``, each of shape ``(10000,)``.

    ``P(z = k | x) ∝ exp(x̃ᵀ α_k)`` with ``x̃ = (1, x)``; given ``z`` the responses are ``N(x̃ᵀβ_z, σ_z²)``,
    ``Poisson(exp x̃ᵀβ_z)`` and ``Binomial(10, logistic x̃ᵀβ_z)``. ``start`` counts from 0.
    """
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((N, D))
    design = np.column_stack([np.ones(N), X])
    z = np.argmax(_linear(design, ALPHA) + rng.gumbel(size=(N, K)), axis=1)
    gaussian = _pick(_linear(design, BETA), z) + SIGMA[z] * rng.standard_normal(N)
    poisson = rng.poisson(np.exp(_pick(_linear(design, BETA_LOG), z)))
    successes = rng.binomial(SIZE, 1 / (1 + np.exp(-_pick(_linear(design, BETA_LOGIT), z))))
    start = np.where(rng.random(N) < START_KEPT, z, rng.integers(0, K, N))
    columns = {f"x{j + 1}": X[:, j] for j in range(D)}
    columns |= {"gaussian": gaussian, "poisson": poisson, "successes": successes, "failures": SIZE - successes}
    columns |= {"start": start}
    return _floats(columns)


def simulate_small(*, gated: bool) -> dict[str, NDArray[np.float64]]:
    """The columns ``x1, x2, gamma, successes, failures, start``, each of shape ``(400,)``, of two experts.

    ``x2`` is 0 or 1. A row has 5 to 20 trials. The label is of constant probabilities, or of a softmax gate on both
    covariates where ``gated``. ``start`` counts from 0.
    """
    rng = np.random.default_rng([SEED_SMALL, int(gated)])
    x1 = rng.standard_normal(N_SMALL)
    x2 = rng.integers(0, 2, N_SMALL)
    design = np.column_stack([np.ones(N_SMALL), x1, x2])
    prior = np.log([SHARE_SMALL, 1 - SHARE_SMALL])
    score = _linear(design, ALPHA_SMALL) if gated else np.broadcast_to(prior, (N_SMALL, 2))
    z = np.argmax(score + rng.gumbel(size=(N_SMALL, 2)), axis=1)
    mean = np.exp(_pick(_linear(design, BETA_LOG_SMALL), z))
    gamma = rng.gamma(SHAPE_SMALL[z], mean / SHAPE_SMALL[z])
    trials = rng.integers(5, 21, N_SMALL)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-_pick(_linear(design, BETA_LOGIT_SMALL), z))))
    start = np.where(rng.random(N_SMALL) < START_KEPT, z, rng.integers(0, 2, N_SMALL))
    columns = {"x1": x1, "x2": x2, "gamma": gamma, "successes": successes, "failures": trials - successes}
    return _floats(columns | {"start": start})


def simulate_single() -> dict[str, NDArray[np.float64]]:
    """The columns ``x1, x2, gamma``, each of shape ``(150,)``: one gamma regression, no mixture."""
    rng = np.random.default_rng([SEED_SMALL, 2])
    X = rng.standard_normal((N_SINGLE, 2))
    mean = np.exp(_linear(np.column_stack([np.ones(N_SINGLE), X]), BETA_SINGLE)[:, 0])
    return _floats({"x1": X[:, 0], "x2": X[:, 1], "gamma": rng.gamma(SHAPE_SINGLE, mean / SHAPE_SINGLE)})


TABLES = {
    "simulated": simulate,
    "small": partial(simulate_small, gated=False),
    "small_gated": partial(simulate_small, gated=True),
    "single": simulate_single,
}


def checksums(columns: dict[str, NDArray[np.float64]]) -> dict[str, list[float]]:
    """Per column ``[Σ v, Σ v², Σ i v_i / n]``: they change when a value or the order of the rows does."""
    n = len(next(iter(columns.values())))
    rank = np.arange(1, n + 1) / n
    return {name: [float(v.sum()), float(v @ v), float(rank @ v)] for name, v in columns.items()}


def write(path: Path, columns: dict[str, NDArray[np.float64]]) -> None:
    """Write a table as CSV with 17 significant digits, so that R reads the very same numbers."""
    np.savetxt(
        path, np.column_stack(list(columns.values())), fmt="%.17g", delimiter=",", header=",".join(columns), comments=""
    )


def _floats(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    return {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}


def _linear(design: NDArray[np.float64], coefficients: NDArray[np.float64]) -> NDArray[np.float64]:  # (n, K)
    return design @ coefficients.T


def _pick(values: NDArray[np.float64], z: NDArray[np.intp]) -> NDArray[np.float64]:
    return np.take_along_axis(values, z[:, None], axis=1)[:, 0]


if __name__ == "__main__":
    for table, make in TABLES.items():
        write(Path(sys.argv[1]) / f"{table}.csv", make())

"""The simulated data set that R flexmix and the library both fit: softmax gate, Gaussian, Poisson and binomial experts.

All four responses share the covariates and the latent label. ``python simulate.py FILE.csv`` writes the table that
``make_values.R`` reads; a test calls :func:`simulate` and compares :func:`checksums` with those stored in
``values.json``, so the large table itself is never stored.
"""

from __future__ import annotations

import sys
from pathlib import Path

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
    return {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}


def checksums(columns: dict[str, NDArray[np.float64]]) -> dict[str, list[float]]:
    """Per column ``[Σ v, Σ v², Σ i v_i / n]``: they change when a value or the order of the rows does."""
    rank = np.arange(1, N + 1) / N
    return {name: [float(v.sum()), float(v @ v), float(rank @ v)] for name, v in columns.items()}


def write(path: Path) -> None:
    """Write the table as CSV with 17 significant digits, so that R reads the very same numbers."""
    columns = simulate()
    np.savetxt(
        path, np.column_stack(list(columns.values())), fmt="%.17g", delimiter=",", header=",".join(columns), comments=""
    )


def _linear(design: NDArray[np.float64], coefficients: NDArray[np.float64]) -> NDArray[np.float64]:  # (n, K)
    return design @ coefficients.T


def _pick(values: NDArray[np.float64], z: NDArray[np.intp]) -> NDArray[np.float64]:
    return np.take_along_axis(values, z[:, None], axis=1)[:, 0]


if __name__ == "__main__":
    write(Path(sys.argv[1]))

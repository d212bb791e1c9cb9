"""What private sums over groups say, from public covariates of whole groups and sets of responses that are drawn.

For the contributions of :mod:`consilience.model.group_contributions` the slope and the covariance of a total are those
of :mod:`consilience.fit.private_step`, with means over the S + 1 sets of responses of each group in place of nodes: any
of them may have been the observed one, and ``Σ_j ω_j (z_j - a) = 0``, so that

    E[u zᵀ] = E[(1 / (S + 1)) Σ_j ω_j (z_j - a)(z_j - a)ᵀ],    Cov u = E[(1 / (S + 1)) Σ_j ω_j² (z_j - a)(z_j - a)ᵀ],

both symmetric and positive.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.model.contributions import Frame, tied
from consilience.model.group_contributions import (
    SETS,
    GroupedCovariates,
    GroupScores,
    Seen,
    batches,
    centre_of,
    group_scores,
)
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array


def drawn_scores(frame: Frame, X: GroupedCovariates) -> Iterator[tuple[int, GroupScores]]:
    """Yield the scores of public groups at sets of drawn responses, and the number of groups that are no copies."""
    for places, batch in batches(frame, X.drawn(frame.mixture, np.random.default_rng(0)), Seen()):
        yield len(places), group_scores(frame, batch, observed=False)


def group_informations(frame: Frame, X: GroupedCovariates) -> tuple[Array, Array]:
    """Sum the observed and the complete-data information over public groups."""
    P = frame.mixture.parameter_count
    I, C = np.zeros((P, P)), np.zeros((P, P))
    for b, found in drawn_scores(frame, X):
        flat = found.scores[:, :, :b].reshape(P, -1)
        I += flat @ flat.T / SETS
        C += _complete(frame.mixture, found, b)
    return I, C


def group_clipped(frame: Frame, X: GroupedCovariates, W: Array, clip: float) -> tuple[Array, Array]:
    """Sum ``ω b bᵀ`` and ``ω² b bᵀ`` of the whitened and centred scores ``b`` over public groups and sets."""
    P = frame.mixture.parameter_count
    first, second = np.zeros((P, P)), np.zeros((P, P))
    for count, found in drawn_scores(frame, X):
        z = found.whitened(W)
        centre, omega = centre_of(z, clip)
        b = (z - centre[:, None])[:, :, :count].reshape(P, -1)
        weights = omega[:, :count].ravel()
        first += (b * weights) @ b.T / SETS
        second += (b * weights**2) @ b.T / SETS
    return first, second


def _complete(mixture: Mixture, found: GroupScores, b: int) -> Array:
    """Sum the complete-data information of the first b groups, ``(P, P)``."""
    K, P, experts = mixture.K, mixture.parameter_count, mixture.experts
    C, x, pi = np.zeros((P, P)), found.gate_panel[:, :b], found.pi[: K - 1, :b]
    own, p, s = experts.channels * mixture.design.p, len(x), experts.shapes
    first = (K - 1) * p if mixture.gate.reads_covariates else 0
    gate = 0 if mixture.gate.reads_covariates else K * own
    for k in range(K - 1):
        for m in range(K - 1):
            mass = pi[k] * (float(k == m) - pi[m])
            C[gate + k * p : gate + (k + 1) * p, gate + m * p : gate + (m + 1) * p] = (x * mass) @ x.T
    T = experts.tie()
    for k in range(K):
        shapes = tied(found.shape[k], T[k * s : (k + 1) * s])
        one = np.concatenate([found.linear[k], shapes])[:, :, :b].reshape(own + len(shapes), -1)
        place = np.r_[first + k * own : first + (k + 1) * own, P - len(shapes) : P]
        C[np.ix_(place, place)] += (one * found.tau[k, :, :b].ravel()) @ one.T / SETS
    return C

"""Contributions of rows to a private comparison of mixtures: their log densities, centred over the mixtures.

A row contributes ``u_s = log f_s(y | x) - (1 / S) Σ_t log f_t(y | x)`` to the sum of mixture s of S, clipped at ``c``
and rounded as in :mod:`consilience.model.contributions`: its integers are a function of the row and of the question
alone, and have a length of at most ``sensitivity(S)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model.contributions import COUNTED, Frame, Integers, portions, refusal, rounded
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows


def likelihood_total(mixtures: Sequence[Mixture], rows: Rows, clip: float) -> list[int]:
    """Compute the sum of the contributions of rows and ``COUNTED n``, ``S + 1`` integers without noise.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(10, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> likelihood_total((data.truth, data.truth), rows, 1.0)[:2]
    [0, 0]
    """
    k = likelihoods(mixtures, rows, clip)
    return [*map(int, k.sum(axis=0)), COUNTED * rows.n]


def likelihoods(mixtures: Sequence[Mixture], rows: Rows, clip: float) -> Integers:
    """Compute the contribution of each row, ``(n, S)``.

    Parameters
    ----------
    mixtures : sequence of S Mixture
        Of one layout.
    rows : Rows
        Without groups, clusters and weights.
    clip : float
    """
    if reason := refusal(rows):
        raise InvalidInputError(reason)
    frames, parts = [Frame(mixture) for mixture in mixtures], []
    with np.errstate(all="ignore"):
        for chunk in portions(frames[0], rows):
            log_densities = [frame.log_density(chunk) for frame in frames]
            mean = np.zeros(len(chunk.X))
            for each in log_densities:
                mean += each / len(frames)
            parts.append(rounded(np.stack([each - mean for each in log_densities]), clip, chunk.valid).T)
    return np.concatenate(parts)[: rows.n] if parts else np.empty((0, len(frames)), dtype=np.int64)

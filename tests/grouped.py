"""Groups of rows with one label for tests of private contributions: ordinary ones, and hostile ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.model import Groups, Mixture, Rows
from consilience.model.group_contributions import GroupedCovariates
from contributing import Rng, hostile_rows
from families import CASES


def public_groups(d: int, G: int, rng: Rng, most: int = 6) -> GroupedCovariates:
    """Covariates of groups of 1 to ``most`` rows: of two values, normal, and the last one equal in a group."""
    sizes = rng.integers(1, most + 1, size=G)
    X = rng.normal(size=(int(sizes.sum()), d))
    X[:, 0] = rng.random(len(X)) < 0.3
    if d > 2:
        X[:, -1] = np.repeat(rng.normal(size=G), sizes)
    return GroupedCovariates(X, sizes)


def grouped_rows(name: str, mixture: Mixture, G: int, rng: Rng, most: int = 6) -> Rows:
    """Groups with one label each and responses from the mixture."""
    X = public_groups(mixture.design.d, G, rng, most)
    sizes = None if CASES[name].sizes is None else CASES[name].sizes(len(X.X), rng)
    return drawn_groups(mixture, X, rng, sizes)


def drawn_groups(mixture: Mixture, X: GroupedCovariates, rng: Rng, sizes: np.ndarray | None = None) -> Rows:
    rows = replace(X.rows(np.zeros((len(X.X), mixture.experts.q))), exposure=sizes)
    blocks = rows.blocks(mixture.design, max(rows.n, 1), mixture.gate_design)
    pi = np.hstack([np.broadcast_to(mixture.gate.evaluate(b.groups.panel)[1], (mixture.K, len(X))) for b in blocks])
    labels = np.minimum((np.cumsum(pi, axis=0) < rng.random(len(X))).sum(axis=0), mixture.K - 1)
    return replace(rows, Y=mixture.sample(X.X, rng, labels[X.labels], sizes)[0])


def hostile_groups(name: str, mixture: Mixture, G: int, rng: Rng, most: int = 6) -> Rows:
    """Groups of which a tenth have numbers that no table should have."""
    sizes = rng.integers(1, most + 1, size=G)
    labels = rng.permutation(np.repeat(np.arange(G), sizes))
    found = hostile_rows(name, mixture, len(labels), rng)
    plain = grouped_rows(name, mixture, len(labels), rng, most=1)
    spoilt = np.isin(labels, np.flatnonzero(rng.random(G) < 0.5))
    pairs = ((found.X, plain.X), (found.Y, plain.Y))
    X, Y = (np.where(spoilt[:, None], one, other) for one, other in pairs)
    exposure = None if found.exposure is None else np.where(spoilt, found.exposure, plain.exposure)
    return Rows(X, Y, exposure=exposure, groups=Groups.of(labels))


def without(rows: Rows, group: int) -> Rows:
    """The rows without one group."""
    assert rows.groups is not None
    return rows.take(np.flatnonzero(rows.groups.codes != group))

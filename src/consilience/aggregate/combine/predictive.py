"""The mixture whose predictions are nearest to those of the sites, for responses that are few classes.

A class says little about which expert made it, so that the likelihood of a site has many maxima of nearly the same
height: sites differ in their experts where they agree in their predictions. Experts that are averaged one by one then
lose what the sites know, predictions do not. The reduction gives the start, the labels, and the sites to believe.
"""

from __future__ import annotations

import numpy as np

from consilience.aggregate.combine.pool import Pool
from consilience.errors import InvalidInputError
from consilience.fit.climb import climb, drive
from consilience.fit.fitting import responder
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, Mask

ROWS = 60_000
"""Most rows, points times classes, at which predictions are read: they have no noise, so that more change nothing."""


def nearest_in_prediction(start: Mixture, rows: Rows) -> Mixture:
    """The mixture with the largest likelihood on rows that models made up, from a start.

    It has no ridge: the sites' fits have had theirs.
    """
    return drive(climb(start, Penalty(0.0, 0.0)), responder(rows, "predictions", None)).mixture


def predicted_rows(pool: Pool, heard: Mask) -> Rows:
    """Rows that the models of the sites ``heard`` make up: at each point every class, by its probability.

    The mixture with the largest likelihood on them has the smallest ``Σ_m n_m E_m KL(P^m(y | x) ‖ P(y | x))``: the
    KL average of the sites' models, the best that can be made of local fits to second order (Q. Liu and A. Ihler,
    Distributed estimation, information loss and exponential families, NeurIPS 2014).

    Parameters
    ----------
    pool : Pool
        Of experts whose responses have few values (``outcomes``).
    heard : (M,) array of bool
        Some of the sites.
    """
    C = pool.models[0].mixture.experts.outcomes
    if C is None:
        raise InvalidInputError("predictions can be made up as rows only where responses have few values")
    step = -(-C * sum(len(part.X) for part in pool.points) // ROWS)
    points, masses = [], []
    for part in (part.thinned(step) for part in pool.points):
        members = [(j, int(m)) for j, m in enumerate(part.members) if heard[m]]
        mass, share = np.zeros((len(part.X), C)), np.zeros(len(part.X))
        for j, m in members:
            mass += part.share[j][:, None] * pool.models[m].mixture.mean(part.X)
            share += part.share[j]
        mine = ((part.owner < 0) | heard[part.owner]) & (share > 0)
        points.append(part.X[mine])
        masses.append(mass[mine] * (part.weight[mine] / share[mine])[:, None])
    X, mass = np.concatenate(points), np.concatenate(masses)
    classes = np.repeat(np.arange(C, dtype=np.float64), len(X))[:, None]
    return Rows(np.tile(X, (C, 1)), classes, mass.T.ravel())


def prediction_costs(pool: Pool, combined: Mixture, sites: Mask) -> Array:
    """``n_m E_m KL(P^m ‖ P)`` of each of ``sites``, ``(M,)``: what the combined predictions cost it; NaN for others."""
    costs, least = np.full(pool.M, np.nan), np.finfo(float).tiny
    for part in pool.points:
        for m in (m for m in part.members if sites[m]):
            at, weight = part.places(m)
            own, other = (np.maximum(each.mean(part.X[at]), least) for each in (pool.models[m].mixture, combined))
            costs[m] = float(weight @ np.sum(own * np.log(own / other), axis=1))
    return costs

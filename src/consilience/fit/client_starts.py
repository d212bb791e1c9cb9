"""Starting values for mixtures with one label per client, from the clients' moments in a low-dimensional subspace.

In the subspace that the experts span, a client's own least-squares fit is accurate enough to be clustered, and EM on
the clients' labels is cheap. Many starts are tried, and experts that are empty or duplicated are moved to clients that
the mixture fits worst.
"""

from __future__ import annotations

import numpy as np

from consilience.fit.climb import Ascent, climb, drive
from consilience.fit.specification import is_at_bound
from consilience.model import Design, Mixture, Penalty, mixture_of_regressions
from consilience.model.clients import ClientMoments, expect_clients
from consilience.model.families.registry import Regressions
from consilience.numerics.arrays import Array, IntArray, unpack
from consilience.numerics.kmeans import draw, kmeans, squared_distances

TOL = 1e-6
ITERATIONS = 200
LEAST_NOISE = 1e-3
"""Lower bound of the noise variance of a client's own fit, as a fraction of the mean square of residuals."""
RESEEDS = 3
"""Number of consecutive failed moves after which no expert is moved again."""


def client_ascents(
    moments: ClientMoments, spread: Array, K: int, structure: str, rng: np.random.Generator, *, n_init: int
) -> list[Ascent]:
    """Run EM on the labels of clients from ``n_init`` clusterings of their own fits; best first.

    Parameters
    ----------
    moments : ClientMoments
        Moments in ``f`` directions with covariates of unit variance.
    spread : (f,) array
        Mean squares over clients of the coefficients in each direction; coefficients of clients with few rows are
        shrunk to 0 by it.
    K : int
    structure : {"full", "diag", "spherical", "tied"}
        Covariance structure of the experts.
    rng : numpy.random.Generator
    n_init : int
    """
    fits = moments.ridge_fits(_noise(moments, spread) / spread)
    found = []
    for _ in range(n_init if K > 1 else 1):
        labels = kmeans(fits, K, moments.n, rng, max_iter=100)
        found.append(_ascent(_from_labels(moments, labels, K, structure), moments))
    found.append(_reseeded(min(found, key=lambda end: _place(end, moments)), moments, fits, rng))
    return sorted(found, key=lambda end: _place(end, moments))


def _place(end: Ascent, moments: ClientMoments) -> tuple[bool, float]:
    """Return the sort key of a result, best first; a shape at its bound suggests a spurious maximum."""
    return is_at_bound(end.mixture, _penalty(moments)), -end.penalised


def _noise(moments: ClientMoments, spread: Array) -> float:
    """Estimate the residual variance not explained by the coefficients."""
    square = float(moments.c.sum() / moments.n.sum())
    return max(square - float(spread.sum()), LEAST_NOISE * square)


def _from_labels(moments: ClientMoments, labels: IntArray, K: int, structure: str) -> Mixture:
    """Fit a mixture to clients with these labels."""
    square = max(float(moments.c.sum() / moments.n.sum()), np.finfo(float).tiny)
    design = Design.raw(moments.f, intercept=False)
    blank = mixture_of_regressions(np.full(K, 1 / K), np.zeros((K, moments.f)), square, design, structure)
    given = (labels == np.arange(K)[:, None]).astype(float)
    return blank.maximise(expect_clients(blank, moments, np.zeros(moments.f), given=given), _penalty(moments))


def _penalty(moments: ClientMoments) -> Penalty:
    return Penalty(floor=np.full((1, 1), 1e-6 * float(moments.c.sum() / moments.n.sum())))


def _ascent(start: Mixture, moments: ClientMoments) -> Ascent:
    steps = climb(start, _penalty(moments), tol=TOL, max_iter=ITERATIONS, newton=False)
    return drive(steps, lambda asked: expect_clients(asked.mixture, moments, np.zeros(moments.f)))


def _reseeded(best: Ascent, moments: ClientMoments, fits: Array, rng: np.random.Generator) -> Ascent:
    """Improve the best result by moving experts that are empty, or closest to another, to clients with a poor fit."""
    if best.mixture.K == 1:
        return best
    vain = 0
    while vain < RESEEDS:
        again = _ascent(_moved(best.mixture, moments, fits, rng), moments)
        floored, value = _place(best, moments)
        better = _place(again, moments) < (floored, value - TOL * moments.G)
        best, vain = (again, 0) if better else (best, vain + 1)
    return best


def _moved(mixture: Mixture, moments: ClientMoments, fits: Array, rng: np.random.Generator) -> Mixture:
    """Move one expert to the own fit of a client, drawn with probability proportional to the gain in likelihood."""
    B, K = Regressions.of(mixture).B, mixture.K
    spare = _least_needed(mixture, moments)
    explained = moments.squares(B[np.arange(K) != spare]).min(axis=0)
    own = moments.c - 2 * np.sum(fits * moments.b, axis=1) + np.einsum("ga,gab,gb->g", fits, unpack(moments.S), fits)
    B = B.copy()
    B[spare] = fits[draw(np.maximum(explained - own, 0.0), rng)]
    nearest = moments.squares(B).argmin(axis=0)
    return _from_labels(moments, nearest, K, mixture.experts.form)


def _least_needed(mixture: Mixture, moments: ClientMoments) -> int:
    """Return an expert without clients, otherwise the smaller of the two closest to each other."""
    share = np.asarray(mixture.gate.evaluate(np.empty((moments.f, 0)))[1]).ravel()
    if share.min() * moments.G < 1:
        return int(share.argmin())
    B = mixture.coefficients
    apart = squared_distances(B, B) + np.diag(np.full(len(B), np.inf))
    pair = np.array(np.unravel_index(apart.argmin(), apart.shape))
    return int(pair[share[pair].argmin()])

"""Cross-validated log density: each fold is predicted by a mixture fitted to the other folds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from consilience.errors import ConsilienceWarning, InvalidInputError
from consilience.fit.fitting import fit_mixture
from consilience.fit.specification import Specification
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, IntArray


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out log densities of rows, or of groups of rows with one label.

    Parameters
    ----------
    log_likelihood : (m,) array
        ``w log p(y | x)`` of each row, or the log density of each group, at a mixture fitted without its fold.
    weight : (m,) array
        Weight of each row; 1 for a group, 0 for a group without weight.

    Examples
    --------
    >>> held_out = HeldOut(np.array([-1.0, -3.0]), np.ones(2))
    >>> held_out.mean, held_out.standard_error
    (-2.0, 1.0)
    """

    log_likelihood: Array
    weight: Array

    @property
    def mean(self) -> float:
        """Mean held-out log density per row or group."""
        return float(self.log_likelihood.sum() / self.weight.sum())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over rows or groups."""
        m = len(self.weight)
        deviation = self.log_likelihood - self.mean * self.weight
        return float(np.sqrt(m / (m - 1) * np.sum(deviation**2)) / self.weight.sum())


def random_folds(rows: Rows, count: int, rng: np.random.Generator) -> IntArray:
    """Return a random fold ``0 … count - 1`` of each label (row or group), folds as equal in size as possible.

    Examples
    --------
    >>> np.bincount(random_folds(Rows(np.zeros((7, 1)), np.zeros((7, 1))), 3, np.random.default_rng(0)))
    array([3, 2, 2])
    """
    labels = rows.n if rows.groups is None else len(rows.groups.bounds) - 1
    if not 2 <= count <= labels:
        raise InvalidInputError(f"folds={count}: expected a number from 2 to the {labels} rows or groups")
    folds: IntArray = rng.permutation(labels) % count
    return folds


def given_folds(rows: Rows, names: np.ndarray) -> IntArray:
    """Return the fold of each label from the fold of each row ``(n,)``, such as its site.

    Examples
    --------
    >>> given_folds(Rows(np.zeros((3, 1)), np.zeros((3, 1))), np.array(["south", "north", "south"]))
    array([1, 0, 1])
    """
    if names.shape != (rows.n,):
        raise InvalidInputError(f"folds has shape {names.shape} for {rows.n} rows: pass one label per row")
    found, codes = np.unique(names, return_inverse=True)
    if len(found) < 2:
        raise InvalidInputError("folds: expected at least two different labels")
    if rows.groups is None:
        return codes
    first = codes[rows.groups.order[rows.groups.bounds[:-1]]]
    if np.any(first[rows.groups.codes] != codes):
        raise InvalidInputError("folds: the rows of a group must be in one fold")
    return first


def cross_validated(
    mixture: Mixture,
    rows: Rows,
    specification: Specification,
    folds: IntArray,
    *,
    tol: float = 1e-9,
    max_iter: int = 500,
) -> HeldOut:
    """Compute the log density of each label at a mixture fitted to the other folds.

    The fit of each fold starts from ``mixture``, the fit to all rows, so that it takes a few iterations instead of
    several starts. It finds the optimum next to that fit: variation between distant optima is not included.

    Parameters
    ----------
    mixture : Mixture
        The fit to all rows.
    rows : Rows
    specification : Specification
    folds : (m,) array of int
        Fold of each row, or of each group.
    tol, max_iter
        As in :func:`fit_mixture`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((400, 0)), rng.normal(size=(400, 1)))
    >>> one = Specification(K=1, gate="constant")
    >>> fit = fit_mixture(rows, one, rng=rng)
    >>> held_out = cross_validated(fit.mixture, rows, one, random_folds(rows, 5, rng))
    >>> bool(held_out.mean < fit.log_likelihood / 400)
    True
    """
    log_likelihood, weight = np.zeros(len(folds)), np.zeros(len(folds))
    of_rows = folds if rows.groups is None else folds[rows.groups.codes]
    rng = np.random.default_rng(0)  # not used: the start is given
    for fold in np.unique(folds):
        kept, left_out = (rows.take(np.flatnonzero(chosen)) for chosen in (of_rows != fold, of_rows == fold))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConsilienceWarning)  # the fit to all rows has warned
            fit = fit_mixture(kept, specification, rng=rng, start=mixture, tol=tol, max_iter=max_iter)
        log_likelihood[folds == fold], weight[folds == fold] = label_densities(fit.mixture, left_out)
    return HeldOut(log_likelihood, weight)


def label_densities(mixture: Mixture, rows: Rows) -> tuple[Array, Array]:
    """Compute the weighted log density and the weight of each row, or of each group, both ``(m,)``.

    Examples
    --------
    >>> from consilience.model import mixture_of_regressions
    >>> mixture = mixture_of_regressions(np.ones(1), np.zeros((1, 2)), 1.0)
    >>> log_density, weight = label_densities(mixture, Rows(np.zeros((2, 1)), np.zeros((2, 1)), np.array([1.0, 2.0])))
    >>> log_density.round(3), weight
    (array([-0.919, -1.838]), array([1., 2.]))
    """
    found = [(at.log_density * at.mass, at.mass + 0 * at.log_density) for _, at in mixture.posteriors(rows)]
    log_density, weight = (np.concatenate(part) for part in zip(*found, strict=True))
    return log_density, weight

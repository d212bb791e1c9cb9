"""Selection of the number of experts: comparison of fits, cross-validation, and the BIC of a single expert."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan

import numpy as np

from consilience.errors import ConsilienceWarning, InvalidInputError
from consilience.fit.criteria import bic, label_count
from consilience.fit.fitting import fit_mixture
from consilience.fit.specification import Specification
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import Array, IntArray

Scores = Mapping[str, Sequence[float]]
"""Values of each criterion, in the order of the numbers of experts."""


def positions_to_compare(orders: Sequence[int], set_aside: Mapping[int, str]) -> list[int]:
    """Return the positions of the orders that are compared: all that are not set aside, or all if every one is."""
    kept = [i for i, K in enumerate(orders) if K not in set_aside]
    return kept or list(range(len(orders)))


def least_order(orders: Sequence[int], values: Sequence[float], set_aside: Mapping[int, str]) -> int:
    """Return the order with the smallest value among those that are compared."""
    return orders[min(positions_to_compare(orders, set_aside), key=lambda i: values[i])]


def score_lines(orders: Sequence[int], scores: Scores) -> list[str]:
    r"""Return a table of the scores as lines of text; a dash for a score that is not known."""
    header = "".join(f"{name:>16}" for name in ("order", *scores))
    cells = {name: ["—" if isnan(value) else f"{value:.6g}" for value in values] for name, values in scores.items()}
    rows = [f"{K:>16}" + "".join(f"{column[i]:>16}" for column in cells.values()) for i, K in enumerate(orders)]
    return [header, *rows]


def html_table(orders: Sequence[int], scores: Scores, said: Sequence[str]) -> str:
    """Return a table of the scores, and sentences below it, as HTML."""
    head, *rows = (line.split() for line in score_lines(orders, scores))
    first = "".join(f"<th>{name}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div><table><tr>{first}</tr>{body}</table>{escape(' '.join(said))}</div>"


def set_aside_sentences(set_aside: Mapping[int, str]) -> list[str]:
    """Return one sentence for each order that is set aside."""
    return [f"{K} expert{'s are' if K > 1 else ' is'} set aside: {reason}." for K, reason in set_aside.items()]


# ---------------------------------------------------------------- cross validation


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out log densities of rows, or of groups of rows with one label.

    Parameters
    ----------
    log_likelihood : (m,) array
        ``w log p(y | x)`` of each row, or the log density of each group, at a mixture fitted without its fold.
    weight : (m,) array
        Weight of each row; 1 for a group, 0 for a group without weight.
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
    """Return a random fold ``0 … count - 1`` of each label (row or group), folds as equal in size as possible."""
    labels = rows.n if rows.groups is None else len(rows.groups.bounds) - 1
    if not 2 <= count <= labels:
        raise InvalidInputError(f"folds={count}: expected a number from 2 to the {labels} rows or groups")
    return rng.permutation(labels) % count


def folds_from_rows(rows: Rows, names: np.ndarray) -> IntArray:
    """Return the fold of each label from the fold of each row ``(n,)``, such as its site."""
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


def cross_validate(
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
    """Compute the weighted log density and the weight of each row, or of each group, both ``(m,)``."""
    found = [(at.log_density * at.mass, at.mass + 0 * at.log_density) for _, at in mixture.posteriors(rows)]
    log_density, weight = (np.concatenate(part) for part in zip(*found, strict=True))
    return log_density, weight


# ---------------------------------------------------------------- single

EXAMINED_UP_TO = 20_000
"""Number of labels up to which a fit of several experts is compared with one expert: one more fit, of a few passes."""


def single_bic(rows: Rows, specification: Specification) -> float | None:
    """Compute the BIC of one expert of the same family; None for a single expert, or more than 20,000 labels.

    If it is not above that of the mixture, nothing shows that there are several experts: the labels may follow the
    noise, and intervals that take them for real do not cover.
    """
    n = label_count(rows)
    if specification.K == 1 or n > EXAMINED_UP_TO:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)  # of a fit that is compared, not shown
        fit = fit_mixture(rows, specification.with_order(1), rng=np.random.default_rng(0), n_init=1)
    return bic(fit.log_likelihood, fit.parameter_count, n)

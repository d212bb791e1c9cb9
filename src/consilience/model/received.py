"""Checks of what came from a message or a file: mixtures and designs, and products of columns that must agree.

Answers of one site are compared by sums of products over its rows, which are the same at all mixtures. For Gaussian
experts, the statistics of a pass at any mixture contain the products of covariates and responses: ``Σ_k S_k = Σ w x
xᵀ``, ``Σ_k (g_k + B_k S_k) = Σ w y xᵀ``, and likewise ``Σ w y yᵀ``. Other families reveal a part of them
(:meth:`~consilience.model.Experts.row_products`). A site whose answers contradict each other answers from changed data,
or not from data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from consilience.errors import MessageError
from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array

LARGEST = 1e100
"""Upper limit of parameters and moments, so that their squares do not overflow."""
LARGEST_PARAMETER = 1e50
"""Upper limit of the coefficients of a mixture and of the scales of its design, and of their inverses."""


def check_mixture(mixture: Mixture) -> None:
    """Raise an error if the parts of a mixture have inconsistent shapes or invalid values."""
    design, gate, experts = mixture.design, mixture.gate, mixture.experts
    same = mixture.reads.d == design.d and mixture.reads.intercept == design.intercept
    if not (gate.K == experts.K >= 1 and experts.p == design.p and same):
        raise MessageError("the parts of a mixture have inconsistent shapes")
    problem = gate.invalid(mixture.reads.p) or experts.invalid()
    if problem:
        raise MessageError(f"invalid mixture: {problem}")
    if not is_in_range(mixture):
        raise MessageError("a mixture has parameters that are too large or too small")


def is_in_range(mixture: Mixture) -> bool:
    """Whether the parameters are neither too large nor too small for a message."""
    design, gate, experts = mixture.design, mixture.gate, mixture.experts
    numbers = (design.centre, design.scale, 1 / design.scale, gate.read(), experts.free_coefficients())
    with np.errstate(over="ignore"):
        shapes = np.exp(np.abs(np.where(np.isfinite(found := experts.log_shapes()), found, 0.0)))
    return all(bool(np.all(np.abs(each) < LARGEST_PARAMETER)) for each in (*numbers, np.sqrt(shapes)))


def check_design(design: Design) -> None:
    """Raise an error if the parts of a design have inconsistent shapes, or values that are not valid."""
    finite = is_moderate(design.centre) and np.all(np.isfinite(design.scale))
    if not (design.centre.shape == design.scale.shape and np.all(design.scale > 0) and finite):
        raise MessageError(
            "the parts of a design have inconsistent shapes, or values that are not finite or not positive"
        )
    if not ((design.columns is None) == (design.others is None) and (design.others is None or _reads_part(design))):
        raise MessageError("the columns of a design are not in increasing order, or the others have another shape")


def _reads_part(design: Design) -> bool:
    """Whether the columns of a design that reads some of the covariates are increasing, and the others fit them."""
    columns, others = design.columns or (), np.asarray(design.others)
    fits = others.shape[1] == design.p == len(columns) + design.intercept and is_moderate(others)
    return fits and all(a < b for a, b in pairwise((-1, *columns, design.d)))


def is_moderate(values: Array) -> bool:
    """Whether values are so small that sums of their squares over many sites are finite."""
    return bool(np.all(np.abs(values) < LARGEST))


# ---------------------------------------------------------------- cross products

ROUNDING = 1e-10
"""Rounding error of a sum, relative to the sum of the absolute terms."""
UNIT = 1e-14
"""Rounding error of a value in other coordinates, relative to its distance from zero."""
USUAL = 10.0
"""Size of a standardised covariate, where a family does not state it."""


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """``Σ w u uᵀ`` over rows, of ``u = (1, z)`` with columns ``z = ((x, y) - centre) / scale``; NaN where unknown.

    Parameters
    ----------
    d : int
        Number of covariates; the other columns are responses.
    centre, scale : (c,) array
        Coordinates of the columns.
    values, bounds : (c + 1, c + 1) array
        The sums, and bounds of their rounding errors.
    labels : float
        Number of labels: the weight of the rows, or the number of groups; NaN if unknown.
    """

    d: int
    centre: Array
    scale: Array
    values: Array
    bounds: Array
    labels: float = np.nan

    def on(self, centre: Array, scale: Array) -> CrossProducts:
        """Return the same sums in other coordinates."""
        if np.array_equal(centre, self.centre) and np.array_equal(scale, self.scale):
            return self
        a, b = np.append(1.0, self.scale / scale), np.append(0.0, (self.centre - centre) / scale)
        rounding = UNIT * _moved(np.abs(self.values), np.abs(a), np.abs(b))
        bounds = _moved(self.bounds, np.abs(a), np.abs(b)) + rounding
        return replace(self, centre=centre, scale=scale, values=_moved(self.values, a, b), bounds=bounds)

    @classmethod
    def counted(cls, rows: float = np.nan, labels: float = np.nan) -> CrossProducts:
        """Return the products of an answer that states only a weight of rows, or a number of labels."""
        return cls(0, np.empty(0), np.empty(0), np.full((1, 1), rows), np.full((1, 1), ROUNDING * rows), labels)

    def _like(self, other: CrossProducts) -> CrossProducts:
        """Return the same sums with the columns of ``other``, if these have none."""
        if len(self.centre) or not len(other.centre):
            return self
        values, bounds = np.full_like(other.values, np.nan), np.full_like(other.values, np.nan)
        values[0, 0], bounds[0, 0] = self.values[0, 0], self.bounds[0, 0]
        return CrossProducts(other.d, other.centre, other.scale, values, bounds, self.labels)

    def __add__(self, other: CrossProducts) -> CrossProducts:
        a = self._like(other)
        b = other._like(a).on(a.centre, a.scale)
        return replace(a, values=a.values + b.values, bounds=a.bounds + b.bounds, labels=a.labels + b.labels)

    @property
    def is_complete(self) -> bool:
        """Whether all sums are known."""
        return not (np.isnan(self.labels) or np.isnan(self.values).any())

    def like(self, other: CrossProducts) -> CrossProducts:
        """Return the same sums in the coordinates of ``other``, if that has columns."""
        return self if not len(other.centre) else self._like(other).on(other.centre, other.scale)

    def contradiction(self, other: CrossProducts) -> str:
        """Return of what the sums of other answers differ from these by more than rounding; empty if of nothing."""
        if abs(self.labels - other.labels) > ROUNDING * self.labels:
            return "the number of labels"
        known = self._like(other)
        with np.errstate(over="ignore", invalid="ignore"):
            given = other._like(known).on(known.centre, known.scale)
            differs = np.abs(given.values - known.values) > given.bounds + known.bounds
        if differs[0, 0]:
            return "the number of rows"
        if not differs.any():
            return ""
        column = int(np.argmax(differs[1:].sum(axis=1)))
        return f"covariate {column + 1}" if column < known.d else "the response"

    def joined(self, other: CrossProducts) -> CrossProducts:
        """Return the sums, with those that only ``other`` has."""
        known = self._like(other)
        if self.is_complete:
            return known
        with np.errstate(over="ignore", invalid="ignore"):
            given = other._like(known).on(known.centre, known.scale)
        unknown = np.isnan(known.values)
        return replace(
            known,
            values=np.where(unknown, given.values, known.values),
            bounds=np.where(unknown, given.bounds, known.bounds),
            labels=other.labels if np.isnan(self.labels) else self.labels,
        )


def _moved(values: Array, a: Array, b: Array) -> Array:
    """Return the products of ``a u + b`` from those of ``u``, whose first entry is 1."""
    W, sums = values[0, 0], values[0]
    shifted = _times(b, a * sums)  # [i, j]: b_i a_j Σ w u_j
    return np.asarray(np.outer(a, a) * values + shifted + shifted.T + np.outer(b, b) * W)


def _times(b: Array, sums: Array) -> Array:
    """Compute ``b sumsᵀ``; unknown sums do not count where ``b`` is 0."""
    return np.where(b[:, None] == 0, 0.0, np.outer(b, sums))


def products_of_summary(summary: ColumnSummary) -> CrossProducts:
    """Return what a summary of the columns states."""
    if not np.all(np.isfinite(np.concatenate([summary.x_products.ravel(), summary.y_products.ravel()]))):
        return CrossProducts.counted(summary.weight)  # a sum over sites may overflow
    d, q, W = len(summary.x_mean), len(summary.y_mean), summary.weight
    centre = np.concatenate([summary.x_mean, summary.y_mean])
    spread = np.sqrt(np.maximum(np.concatenate([summary.x_variance, np.diagonal(summary.y_covariance)]), 0.0))
    scale = np.where(spread > 0, spread, 1.0)
    values = np.full((1 + d + q, 1 + d + q), np.nan)
    values[0, :], values[:, 0], values[0, 0] = 0.0, 0.0, W
    values[1 : d + 1, 1 : d + 1] = summary.x_products / np.outer(scale[:d], scale[:d])
    values[d + 1 :, d + 1 :] = summary.y_products / np.outer(scale[d:], scale[d:])
    sizes = np.full(1 + d + q, np.sqrt(W))
    return CrossProducts(d, centre, scale, values, _bounds(np.outer(sizes, sizes), centre / scale))


def products_of_statistics(mixture: Mixture, statistics: Statistics) -> CrossProducts:
    """Return what the statistics of a pass at ``mixture`` state about the rows, whatever the mixture."""
    design, experts = mixture.design, mixture.experts
    values, sizes = experts.row_products(statistics.experts, intercept=design.intercept)
    if not design.intercept:
        values, sizes = (np.pad(part, ((1, 0), (1, 0)), constant_values=np.nan) for part in (values, sizes))
    W = float(statistics.experts.plain[: mixture.K].sum())
    values[0, 0] = sizes[0, 0] = W
    centre, scale = np.append(design.centre, np.zeros(experts.q)), np.append(design.scale, np.ones(experts.q))
    found = CrossProducts(design.d, centre, scale, values, _bounds(sizes, centre / scale), statistics.weight)
    return found if design.columns is None else _among_all(found, design)


def _among_all(found: CrossProducts, design: Design) -> CrossProducts:
    """Return the products of a design that reads some of the covariates, unknown for the others."""
    d, q = design.d, len(found.centre) - len(design.columns or ())
    places = [*(design.columns or ()), *range(d, d + q)]
    centre, scale = np.zeros(d + q), np.ones(d + q)
    centre[places], scale[places] = found.centre, found.scale
    values, bounds = np.full((1 + d + q, 1 + d + q), np.nan), np.full((1 + d + q, 1 + d + q), np.nan)
    own = np.ix_([0, *(j + 1 for j in places)], [0, *(j + 1 for j in places)])
    values[own], bounds[own] = found.values, found.bounds
    return CrossProducts(d, centre, scale, values, bounds, found.labels)


def _bounds(sizes: Array, distance: Array) -> Array:
    """Bound rounding errors, for sums of absolute products ``sizes`` and columns that far from zero, in scales."""
    e = UNIT * np.append(0.0, np.abs(distance))
    W = sizes[0, 0]
    rows = np.sqrt(W * np.diagonal(sizes))  # at least Σ w |u_i|
    rows = np.where(np.isnan(rows), USUAL * W, rows)
    return np.asarray(ROUNDING * sizes + np.outer(e, rows) + np.outer(rows, e) + W * np.outer(e, e))

"""Errors for problems without a solution, and warnings for degenerate solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.errors import DegenerateFitWarning, InvalidInputError, RankDeficientWarning, warn
from consilience.fit.climb import Ascent
from consilience.fit.specification import Specification
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.rows import Rows
from consilience.model.summary import ColumnSummary


def check_start(start: Mixture, blank: Mixture) -> None:
    """Raise an error if a start has another family, gate or shape than ``blank``, a mixture of the model to fit."""
    for part, got, expected in (
        ("gate", start.gate.kind, blank.gate.kind),
        ("family of experts", start.experts.family, blank.experts.family),
        ("covariance or degrees of freedom", start.experts.form, blank.experts.form),
        ("intercept", start.design.intercept, blank.design.intercept),
        ("number of coefficients", _shape(start), _shape(blank)),
    ):
        if got != expected:
            raise InvalidInputError(f"the start has another {part} than the model: got {got}, expected {expected}")
    problem = start.experts.invalid() or start.gate.invalid(start.reads.p)
    if problem:
        raise InvalidInputError(f"the start is not a valid mixture: {problem}; pass the mixture_ of a fit")


def _shape(mixture: Mixture) -> tuple[int, int, int]:
    return mixture.K, mixture.experts.channels, mixture.design.d + mixture.design.intercept


def checked_orders(orders: Any) -> tuple[int, ...]:
    """Return the numbers of experts to compare; raise an error if they are not whole numbers of at least 1.

    Examples
    --------
    >>> checked_orders(5)
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: orders=5: expected several numbers of experts, as in orders=range(1, 6)
    """
    several = "expected several numbers of experts"
    if isinstance(orders, int | np.integer):
        raise InvalidInputError(f"orders={orders!r}: {several}, as in orders=range(1, {max(int(orders), 1) + 1})")
    if not isinstance(orders, Iterable) or isinstance(orders, str | bytes):
        raise InvalidInputError(f"orders={orders!r}: {several}, as in orders=range(1, 7)")
    found = tuple(orders)
    if not found:
        raise InvalidInputError(f"orders is empty: {several}, as in orders=range(1, 7)")
    for K in found:
        if not isinstance(K, int | np.integer) or isinstance(K, bool) or K < 1:
            raise InvalidInputError(f"orders has {K!r}: expected whole numbers of at least 1")
    return found


def check_labels(parts: Sequence[Rows], K: int) -> None:
    """Raise an error if there are fewer labels than experts over all ``parts`` of the data."""
    labels = sum(rows.n if rows.groups is None else len(rows.groups.bounds) - 1 for rows in parts)
    what = "rows" if parts[0].groups is None else "groups"
    if labels < K:
        raise InvalidInputError(
            f"n_samples={labels} {what} for {K} experts: pass at least as many {what} as experts,"
            " or ask for fewer experts"
        )


def check_no_ridge(specification: Specification, method: str, instead: str) -> None:
    """Raise an error if experts have a ridge, for a method whose steps know none."""
    if specification.expert_ridge:
        raise InvalidInputError(f"{method} has no expert_ridge: leave it out, or use {instead}")


def check_same_covariates(specification: Specification, method: str, instead: str) -> None:
    """Raise an error if gate or experts read some of the covariates, for a method in which both read all."""
    if specification.gate_columns is not None or specification.expert_columns is not None:
        raise InvalidInputError(
            f"gate and experts of {method} read the same covariates: leave gate_features and expert_features out, "
            f"or use {instead}"
        )


def check_fittable(specification: Specification, summary: ColumnSummary) -> None:
    """Raise an error for data on which the likelihood has no maximum."""
    if not (np.all(np.isfinite(summary.x_products)) and np.all(np.isfinite(summary.y_products))):
        raise InvalidInputError(
            "X or y has values whose squares overflow: rescale the columns, or leave these rows out"
        )
    if not summary.weight > 0:
        raise InvalidInputError("all weights are zero: pass at least one positive sample_weight")
    problem = specification.experts.unfittable(summary)
    if problem:
        raise InvalidInputError(problem)


def warn_of_degeneracy(ascent: Ascent, penalty: Penalty) -> None:
    """Warn of experts without rows, on the variance floor, or with a rank-deficient design."""
    if reason := degeneracy(ascent, penalty):
        warn(f"{reason}: {_remedy(ascent, penalty)}", DegenerateFitWarning)
    if penalty.expert_ridge == 0 and not ascent.mixture.experts.full_rank(ascent.statistics.experts):
        warn(
            "the covariates are linearly dependent among the rows of an expert: its coefficients are the minimum-norm "
            "solution and have no standard errors; use fewer experts or covariates",
            RankDeficientWarning,
        )


def degeneracy(ascent: Ascent, penalty: Penalty) -> str:
    """Return the reason why a fit is degenerate: an expert without rows, or on the variance floor; empty if not."""
    mixture, statistics = ascent.mixture, ascent.statistics
    mass = np.maximum(statistics.gate.plain[: mixture.K], statistics.experts.plain[: mixture.K])  # labels, or rows
    empty = int(np.sum(mass < 1.0))
    if empty:
        return f"{empty} of {mixture.K} experts have less than one row"
    if on_floor(mixture, penalty):
        return f"an expert's {mixture.experts.shape_name} is at its floor (set by reg_covar)"
    return ""


def _remedy(ascent: Ascent, penalty: Penalty) -> str:
    if not on_floor(ascent.mixture, penalty):
        return "refit with fewer experts"
    return (
        "it fits a few rows exactly; refit with fewer experts, or drop duplicate rows and responses that are exact "
        "functions of X"
    )


def on_floor(mixture: Mixture, penalty: Penalty) -> bool:
    """Whether an expert's covariance is at the variance floor."""
    raised = replace(penalty, floor=1.001 * penalty.floor)
    return not mixture.experts.admissible(raised)

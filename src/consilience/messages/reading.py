"""Checks of a site's rows against a question, before the answer is computed."""

from __future__ import annotations

from typing import Any

from consilience.messages.failures import FailureCode, SiteError
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows


def check_columns(rows: Rows, d: int, q: int) -> None:
    """Raise a :class:`SiteError` if rows have other numbers of covariates or responses."""
    if rows.X.shape[1] != d or rows.Y.shape[1] != q:
        raise SiteError(FailureCode.OTHER_COLUMNS, f"{rows.X.shape[1]} covariates, {rows.Y.shape[1]} responses")


def check_rows(rows: Rows, mixture: Mixture) -> None:
    """Raise a :class:`SiteError` if rows have other columns than a mixture, or responses outside its range."""
    experts = mixture.experts
    check_columns(rows, mixture.design.d, experts.q)
    if not experts.in_range(rows):
        raise SiteError(FailureCode.OUT_OF_RANGE, experts.range_sentence)


def reads_columns(asked: Any, rows: Rows) -> None:
    """Check rows against the ``d`` and ``q`` of a question."""
    check_columns(rows, asked.d, asked.q)


def reads_mixture(asked: Any, rows: Rows) -> None:
    """Check rows against the mixture of a question."""
    check_rows(rows, asked.mixture)


def reads_design(asked: Any, rows: Rows) -> None:
    """Check rows against the design of a question about one response."""
    check_columns(rows, asked.design.d, 1)


def reads_ungrouped(asked: Any, rows: Rows) -> None:
    """Check rows against the mixture of a question; rows must have no groups."""
    check_rows(rows, asked.mixture)
    if rows.groups is not None:
        raise SiteError(FailureCode.GROUPED)

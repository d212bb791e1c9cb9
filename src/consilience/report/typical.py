"""Predictions for typical rows: the chance of each kind there, and what response to expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor, log10
from typing import Any

import numpy as np

from consilience.columns import Column, Dictionary
from consilience.errors import InvalidInputError
from consilience.fitted.effects import is_of_points, is_standardised
from consilience.fitted.protocols import FittedMixture, response_names
from consilience.numerics.arrays import Array
from consilience.report.kinds import RowKind, scatter
from consilience.report.scale import in_numbers, nearest_round, read_back, term_spreads
from consilience.report.wording import Words

REACH = 1.3
"""Standard deviations between typical rows."""
QUANTILES = (0.5, 0.9)


@dataclass(frozen=True)
class Prediction:
    """What is expected of a typical row.

    Parameters
    ----------
    name : str
        The row in words.
    values : mapping of str to value
        By column.
    chances : tuple of float
        Of each kind, in their order.
    expected : tuple of float
        Median and the value below which 9 of 10 lie; the mean alone, or a probability for each class, where there are
        no such quantiles.
    """

    name: str
    values: Mapping[str, Any]
    chances: tuple[float, ...]
    expected: tuple[float, ...]


def has_quantiles(model: FittedMixture) -> bool:
    """Whether predictions are said by quantiles: one response that varies continuously."""
    experts = model.mixture_.experts
    return not experts.classes and experts.q == 1 and experts.size_name is None


def predict_typical(model: FittedMixture, words: Words, kinds: Sequence[RowKind]) -> list[Prediction]:
    """Return predictions for the typical rows of the study, or for those that the data suggest."""
    if is_of_points(model) or not is_standardised(model) or len(response_names(model)) > 1:
        return []
    rows = words.typical or suggested_rows(model)
    if not rows:
        return []
    mixture, X = model.mixture_, encode_rows(model, rows)
    chances = mixture.gate_weights(X)[:, [kind.expert for kind in kinds]]
    if has_quantiles(model):
        found = read_back(np.column_stack([mixture.quantile(X, p) for p in QUANTILES]), words)
    else:
        found = mixture.mean(X)[:, -1:]
    return [
        Prediction(name_row(model, words, row), row, tuple(map(float, pi)), tuple(map(float, values)))
        for row, pi, values in zip(rows, chances, found, strict=True)
    ]


def name_row(model: FittedMixture, words: Words, row: Mapping[str, Any]) -> str:
    """Return a typical row in words: "age 40 years, severity 2"."""
    said = []
    for name, value in row.items():
        column = _column(model.columns_, name)
        own, unit = words.column(name), "" if column is None else column.rule.unit
        if column is not None and column.is_category:
            said.append(words.level(name, value))
        else:
            unit = own.unit or unit
            said.append(f"{words.label(name)} {in_numbers(float(value))}{f' {unit}' if unit else ''}")
    return ", ".join(said)


def _column(columns: Dictionary, name: str) -> Column | None:
    return next((column for column in columns.columns if column.name == name), None)


def encode_rows(model: FittedMixture, rows: Sequence[Mapping[str, Any]]) -> Array:
    """Return rows as covariates ``(n, d)``: columns that are not stated are at their mean, or at the reference.

    Terms that a formula computes follow from its columns; one whose columns are not known is at its own mean.
    """
    spreads = np.nan_to_num([mean for mean, _ in term_spreads(model)])[int(model.mixture_.design.intercept) :]
    means = dict(zip(model.columns_.terms, spreads, strict=True))

    def read(column: Column) -> Array:
        known = np.array([means.get(term, np.nan) for term in column.terms])
        return np.array([_encode(column, row, known) for row in rows], dtype=float).reshape(len(rows), -1)

    computed = {} if model.derivation_ is None else dict(model.derivation_.computed(lambda _, column: read(column)))
    parts = []
    for column in model.columns_.columns:
        values = computed[column.name][:, None] if column.name in computed else read(column)
        parts.append(np.where(np.isfinite(values), values, [means[term] for term in column.terms]))
    return np.hstack(parts)


def _encode(column: Column, row: Mapping[str, Any], mean: Array) -> Array:
    if column.is_category:
        if column.name not in row:
            return np.zeros(len(column.terms))
        if row[column.name] not in column.levels:
            raise InvalidInputError(f"typical: {column.name} has no level {row[column.name]!r}")
        return np.asarray(column.indicators(np.array([column.levels.index(row[column.name])]))[0])
    if column.name not in row:
        return mean
    return np.asarray(column.rule.values(np.array([float(row[column.name])])))


# ---------------------------------------------------------------------- rows that the data suggest


def suggested_rows(model: FittedMixture) -> list[dict[str, Any]]:
    """Return low, middle and high values of the two columns of numbers that matter most, in all combinations."""
    chosen = moving_columns(model)[:2]
    grids = [[(column.name, value) for value in grid_of(model, column)] for column in chosen]
    return [dict(pairs) for pairs in product(*grids)] if grids else []


def moving_columns(model: FittedMixture) -> list[Column]:
    """Return the columns of numbers that move the gate most per standard deviation, or else the experts."""
    design, gate_design = model.coordinates_
    mixture = model.mixture_.in_coordinates(design, gate_design)
    if model.mixture_.gate.reads_covariates and model.mixture_.K > 1:
        read, slopes = gate_design, np.ptp(mixture.gate.read()[:, int(gate_design.intercept) :], axis=0)
    else:
        B = (
            model.inference_.estimates.experts[:, 0, 1:]
            if design.intercept
            else model.inference_.estimates.experts[:, 0]
        )
        scales = np.zeros(B.shape[1])
        scales[list(design.read)] = design.scale
        read, slopes = design, (np.abs(B).max(axis=0) * scales)[list(design.read)]
    size = dict(zip(read.read, slopes, strict=True))
    found, place = [], 0
    alone = model.columns_.names if model.derivation_ is None else model.derivation_.sources
    for column in model.columns_.columns:
        if column.name in alone and not column.is_category and size.get(place, 0.0) > 0:
            found.append((float(size[place]), column))
        place += len(column.terms)
    return [column for _, column in sorted(found, key=lambda each: -each[0])]


def grid_of(model: FittedMixture, column: Column, reach: float = REACH) -> list[float]:
    """Return round values of a column below, at and above its mean; fewer if they coincide."""
    mean, deviation = term_spreads(model)[_place(model, column)]
    rule = column.rule
    values = rule.original(mean + deviation * np.array([-reach, 0.0, reach])).tolist()
    step = nearest_round(max(values[2] - values[0], 1e-12) / 8)
    low = -np.inf if rule.low is None else rule.low
    high = np.inf if rule.high is None else rule.high
    decimals = max(0, -floor(log10(step)))
    rounded = (round(min(max(round(v / step) * step, low), high), decimals) for v in values)
    return sorted(dict.fromkeys(rounded))


def _place(model: FittedMixture, column: Column) -> int:
    place = int(model.mixture_.design.intercept)
    for each in model.columns_.columns:
        if each.name == column.name:
            return place
        place += len(each.terms)
    raise InvalidInputError(f"there is no column {column.name!r}")


def kind_densities(model: FittedMixture, kinds: Sequence[RowKind], row: Mapping[str, Any], at: Array) -> Array | None:
    """Return the density of each kind times its chance at fitted responses ``at``, ``(K, n)``; None if not normal."""
    deviations = scatter(model)
    if deviations is None:
        return None
    X = encode_rows(model, [row])
    chances = model.mixture_.gate_weights(X)[0]
    means = model.mixture_.experts.mean(model.mixture_.design.panel(X))[:, 0, 0]
    found = []
    for kind in kinds:
        k = kind.expert
        z = (at - means[k]) / deviations[k]
        found.append(chances[k] * np.exp(-0.5 * z**2) / (deviations[k] * np.sqrt(2 * np.pi)))
    return np.array(found)

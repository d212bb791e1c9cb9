"""Standard errors as JSON: the covariance of the reported parameters in blocks, and what is withheld."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.files.numbers import listed, number, real, vector
from consilience.fit.inference import Between, Inference
from consilience.fit.parameters import Parameters
from consilience.numerics.arrays import Array

WHOLE_UP_TO = 1_500
"""Number of parameters up to which the whole covariance is written; above, that of the gate and of each expert."""
LARGEST = 20_000
"""Number of parameters up to which a covariance is read."""


def inference_document(inference: Inference, terms: Sequence[str]) -> dict[str, Any]:
    """Return standard errors as a JSON object; ``terms`` are the names of the coefficients."""
    found: dict[str, Any] = {
        "kind": inference.kind,
        "decrement": number(inference.decrement),
        "withheld": dict(inference.withheld),
        "not_identified": _not_identified(inference, terms),
        "covariance": [
            {"first": first, "rows": _triangle(inference.covariance[first:end, first:end])}
            for first, end in _blocks(inference.estimates)
            if not np.all(np.isnan(inference.covariance[first:end, first:end]))
        ],
    }
    if inference.degrees is not None:
        found["degrees_of_freedom"] = listed(inference.degrees)
    if inference.between is not None:
        found["between_sites"] = {name: listed(getattr(inference.between, name).flat()) for name in ("I2", "tau2")}
    return found


def inference_of(document: dict[str, Any], estimates: Parameters, terms: Sequence[str]) -> Inference:
    """Return the standard errors in a JSON object that matches the schema, for known estimates."""
    D = len(estimates.flat())
    degrees, between = document.get("degrees_of_freedom"), document.get("between_sites")
    return Inference(
        estimates,
        _covariance(document["covariance"], D),
        document["kind"],
        real(document["decrement"]),
        document["withheld"],
        None if degrees is None else vector(degrees, D, "inference.degrees_of_freedom"),
        None if between is None else Between(*(_flat(between, name, estimates) for name in ("I2", "tau2"))),
        _identified(document["not_identified"], estimates, terms),
    )


def _flat(between: dict[str, Any], name: str, estimates: Parameters) -> Parameters:
    return estimates.like(vector(between[name], len(estimates.flat()), f"inference.between_sites.{name}"))


# ---------------------------------------------------------------- covariance


def _blocks(estimates: Parameters) -> Iterator[tuple[int, int]]:
    """Yield first and last place of the blocks of the covariance that are written."""
    gate, experts, K = estimates.gate.size, estimates.experts.size, len(estimates.experts)
    D = gate + experts + estimates.log_shapes.size
    if D <= WHOLE_UP_TO:
        yield 0, D
        return
    yield 0, gate
    for k in range(K):
        yield gate + k * experts // K, gate + (k + 1) * experts // K
    for i in range(gate + experts, D):
        yield i, i + 1


def _triangle(matrix: Array) -> list[list[Any]]:
    return [listed(row[: i + 1]) for i, row in enumerate(matrix)]


def _covariance(blocks: list[dict[str, Any]], D: int) -> Array:
    """Return the covariance ``(D, D)`` of blocks, NaN elsewhere."""
    if not blocks:
        return np.broadcast_to(np.nan, (D, D))
    if D > LARGEST:
        raise InvalidInputError(f"the mixture has {D} parameters; a covariance is read for at most {LARGEST}")
    covariance = np.full((D, D), np.nan)
    end = 0
    for b, block in enumerate(blocks):
        first, rows = int(block["first"]), block["rows"]
        if not end <= first <= D - len(rows):
            raise InvalidInputError(f"inference.covariance[{b}] overlaps another block, or is beyond {D} parameters")
        for i, row in enumerate(rows):
            values = vector(row, i + 1, f"inference.covariance[{b}].rows[{i}]")
            covariance[first + i, first : first + i + 1] = covariance[first : first + i + 1, first + i] = values
        end = first + len(rows)
    if np.any(np.isinf(covariance)) or np.any(np.diagonal(covariance) < 0):
        raise InvalidInputError("inference.covariance has variances that are negative or infinite")
    return covariance


# ---------------------------------------------------------------- identified coefficients


def _not_identified(inference: Inference, terms: Sequence[str]) -> dict[str, list[str]]:
    """Return the terms whose coefficients are not identified, of the gate and of the experts."""
    known = inference.identified
    if known is None:
        return {"gate": [], "experts": []}
    missing = {"gate": np.isnan(known.gate).all(axis=0), "experts": np.isnan(known.experts).all(axis=(0, 1))}
    return {part: [terms[int(i)] for i in np.flatnonzero(none)] for part, none in missing.items()}


def _identified(names: dict[str, list[str]], estimates: Parameters, terms: Sequence[str]) -> Parameters | None:
    if not names["gate"] and not names["experts"]:
        return None
    ones = estimates.like(np.ones(len(estimates.flat())))
    place = {term: i for i, term in enumerate(terms)}
    for part, values in (("gate", ones.gate), ("experts", ones.experts)):
        unknown = [term for term in names[part] if place.get(term, len(terms)) >= values.shape[-1]]
        if unknown:
            raise InvalidInputError(f"inference.not_identified.{part} has {unknown[0][:40]!r}, which is not a term")
        values[..., [place[term] for term in names[part]]] = np.nan
    return ones

"""The parameters of a fit as a tidy table, with the names of its rows."""

from __future__ import annotations

from itertools import cycle
from typing import Any


def terms(estimator: Any) -> list[str]:
    """Return the names of the coefficients: the intercept and the covariates."""
    design = estimator.mixture_.design
    features = estimator.columns_.terms if design.d else ()
    return ["(intercept)", *features] if design.intercept else [*features]


def places_read(estimator: Any) -> tuple[list[int], list[int]]:
    """Return the places of the terms that the gate and the experts read, the intercept included."""
    chosen = estimator.specification()
    return _places(estimator, chosen.gate_columns), _places(estimator, chosen.expert_columns)


def _places(estimator: Any, columns: tuple[int, ...] | None) -> list[int]:
    intercept, p = int(estimator.mixture_.design.intercept), len(terms(estimator))
    return list(range(p)) if columns is None else [*range(intercept), *(j + intercept for j in columns)]


def responses(estimator: Any) -> list[str]:
    """Return the names of an expert's linear predictors: classes, components of x, or responses."""
    count = estimator.inference_.estimates.experts.shape[1]
    if estimator.mixture_.experts.classes:
        classes = [str(c) for c in estimator.classes_]
        return classes[1:] if count == 1 else classes
    if not estimator.mixture_.gate.reads_covariates and estimator.mixture_.design.d == 0:  # a Gaussian mixture
        names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(count)])
        return [str(name) for name in names]
    return ["y"] if count == 1 else [f"y{j}" for j in range(count)]


def unit(estimator: Any) -> str:
    """Return the name of a mixture component: expert or component."""
    return "component" if estimator.order_name == "n_components" else "expert"


def tidy(estimator: Any, level: float) -> dict[str, list[Any]]:
    """Return the columns of the tidy table: one entry per parameter."""
    inference = estimator.inference_
    keys = _keys(estimator)
    lower, upper = inference.interval(level)
    kept = [i for i, key in enumerate(keys) if key is not None]
    columns: dict[str, list[Any]] = {
        name: [keys[j][i] for j in kept]  # type: ignore[index]
        for i, name in enumerate(("part", "expert", "response", "term"))
    }
    between = inference.between
    for name, values in (
        ("estimate", inference.estimates),
        ("std_error", inference.standard_errors()),
        ("lower", lower),
        ("upper", upper),
        *(() if between is None else (("I2", between.I2), ("tau2", between.tau2))),
    ):
        columns[name] = values.flat()[kept].tolist()
    return columns


Key = tuple[str, int, str, str]


def _keys(estimator: Any) -> list[Key | None]:
    """Return part, expert, response and term of each parameter; None for those of terms that are not read."""
    K, names, outputs = estimator.mixture_.K, terms(estimator), responses(estimator)
    part, (read, expert_read) = estimator.mixture_.gate.part, map(set, places_read(estimator))
    of_gate = [name if i in read else None for i, name in enumerate(names)]
    of_gate = of_gate if estimator.mixture_.gate.reads_covariates else [""]
    of_expert = [name if i in expert_read else None for i, name in enumerate(names)]
    gate: list[Key | None] = [None if term is None else (part, k, "", term) for k in range(K) for term in of_gate]
    experts: list[Key | None] = [
        None if term is None else ("expert", k, response, term)
        for k in range(K)
        for response in outputs
        for term in of_expert
    ]
    shapes = list(zip(estimator.mixture_.experts.shape_names, cycle(outputs), strict=False))
    return [*gate, *experts, *((f"log_{name}", k, response, "") for k in range(K) for name, response in shapes)]

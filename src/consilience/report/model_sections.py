"""Sections on the model itself: what the experts are in words, coefficients, where each holds, and the fit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from consilience import plot
from consilience.estimators.conditional import ConditionalMixture
from consilience.estimators.table import responses, tidy, unit
from consilience.plot.subject import around_mean
from consilience.report.parts import Section, Table, number
from consilience.report.subject import Subject

SHOWN = 15
"""Maximum number of terms in a picture of coefficients; the table has all of them."""
CURVES = 2
"""Maximum number of covariates along which the gate is drawn."""


def words(subject: Subject, _draw: Any) -> Section:
    """Return the experts in plain words."""
    paragraphs = [" ".join(part.split()) for part in subject.model.describe().split("\n\n")]
    return Section(f"Who is in which {unit(subject.model)}, in words", tuple(paragraphs))


def coefficients(subject: Subject, draw: Any) -> Section:
    """Return all parameters with intervals, and a picture of the experts' coefficients."""
    model, table = subject.model, tidy(subject.model, 0.95)
    outputs = responses(model)
    header = (unit(model), "part", *(("response",) if len(outputs) > 1 else ()), "term", "estimate", "standard error",
              "lower 95 %", "upper 95 %")  # fmt: skip
    rows = []
    for i, part in enumerate(table["part"]):
        of = (table["response"][i],) if len(outputs) > 1 else ()
        figures = (number(table[name][i]) for name in ("estimate", "std_error", "lower", "upper"))
        rows.append((str(table["expert"][i]), part.replace("_", " "), *of, table["term"][i], *figures))
    first = len(header) - 4
    numbers = Table("All parameters with 95 % intervals", header, tuple(rows), tuple(range(first, first + 4)))
    terms = [name for name in _strongest_terms(model) if name != "(intercept)"][:SHOWN]
    alt = f"Coefficients of each {unit(model)} with 95 % intervals"
    alt += f": the {len(terms)} largest in standard errors" if len(_strongest_terms(model)) > SHOWN + 1 else ""
    if not terms:
        return Section("Effects", (), (numbers,))
    response = outputs[0] if len(outputs) > 1 else None
    make = partial(plot.coefficients, model, terms, response=response)
    return Section("Effects", (), (*draw(alt, make, None), numbers))


def _strongest_terms(model: Any) -> list[str]:
    """Return the terms of the experts, the largest in standard errors first; by size where these are not known."""
    table = tidy(model, 0.0)
    strength: dict[str, float] = {}
    for part, term, estimate, error in zip(
        table["part"], table["term"], table["estimate"], table["std_error"], strict=True
    ):
        if part == "expert":
            size = abs(estimate) / error if np.isfinite(error) and error > 0 else abs(estimate)
            strength[term] = max(strength.get(term, 0.0), size)
    return sorted(strength, key=lambda term: -strength[term])


def gate(subject: Subject, draw: Any) -> Section | None:
    """Return where each expert holds: shares, and the gate along the covariates that move it most."""
    model = subject.model
    K, name = model.mixture_.K, unit(model)
    if K == 1:
        return None
    shares = Table(
        f"Share of each {name} in all rows",
        (name, "share"),
        tuple((f"{name} {k}", f"{100 * share:.1f} %") for k, share in enumerate(model.weights_)),
        (1,),
    )
    if not model.mixture_.gate.reads_covariates:
        said = f"Every row belongs to a {name} with the same probabilities, whatever its columns."
        return Section(f"Where each {name} holds", (said,), (shares,))
    pictures = [
        picture
        for term in _moving(model)[:CURVES]
        for picture in draw(
            f"Probability of each {name} along {term}, with all other columns at their means",
            partial(plot.gate, model, feature=term),
            _curve(model, term),
        )
    ]
    return Section(f"Where each {name} holds", (), (shares, *pictures))


def _moving(model: Any) -> list[str]:
    """Return the numeric covariates that move the gate most per standard deviation, the first one first."""
    names = list(model.columns_.terms)
    design, reads = model.coordinates
    slopes = model.mixture_.in_coordinates(design, reads).gate.read()[:, int(reads.intercept) :]
    columns = range(len(names)) if reads.columns is None else reads.columns
    size = np.ptp(slopes, axis=0)
    found = [names[columns[j]] for j in np.argsort(-size, kind="stable") if size[j] > 0]
    return [name for name in found if model.columns_.category_of(name) is None]


def _curve(model: Any, term: str) -> Table:
    """Return the gate at five places along a covariate."""
    low, high = around_mean(model)
    at = np.tile((low + high) / 2, (5, 1))
    j = list(model.columns_.terms).index(term)
    at[:, j] = np.linspace(low[j], high[j], 5)
    found = model.mixture_.gate_weights(at)
    header = (term, *(f"{unit(model)} {k}" for k in range(found.shape[1])))
    rows = tuple((number(x), *(f"{p:.3f}" for p in line)) for x, line in zip(at[:, j], found, strict=True))
    return Table(f"Probability of each {unit(model)} along {term}", header, rows, tuple(range(1, len(header))))


def convergence(subject: Subject, draw: Any) -> Section:
    """Return how the computation ended."""
    model = subject.model
    facts = Table(
        "The fit",
        ("what", "value"),
        (
            ("end", str(model.stop_reason_)),
            ("iterations", f"{model.n_iter_}"),
            ("log-likelihood", number(model.log_likelihood_, 8)),
            ("parameters", f"{model.n_parameters_}"),
            ("rows or groups", number(model.n_labels_, 10)),
            ("searches", str(model.starts_)),
        ),
    )
    if len(model.trace_) < 2:
        return Section("Convergence", (), (facts,))
    trace = Table(
        "Penalised log-likelihood by iteration",
        ("iteration", "value"),
        tuple((str(i), f"{value:.6g}") for i, value in enumerate(model.trace_)),
        (1,),
    )
    alt = "Penalised log-likelihood at each iteration over all rows"
    make = partial(plot.convergence, model if subject.result is None else subject.result)
    return Section("Convergence", (), (facts, *draw(alt, make, trace)))


def data_pictures(subject: Subject, draw: Any) -> Section | None:
    """Return how well the model fits the rows that were passed, and how well it separates them."""
    if subject.X is None:
        return None
    model, y = subject.model, subject.y
    pictures = draw(
        f"Responsibilities of each {unit(model)}: peaks at 1 mean that rows are clearly told apart",
        partial(plot.posteriors, model, subject.X, y),
        None,
    )
    one = model.mixture_.experts.classes == 0 or len(model.classes_) == 2
    if one and len(responses(model)) == 1 and isinstance(model, ConditionalMixture):
        alt = "Calibration of the predictions: points on the line mean that the model predicts as it should"
        pictures += draw(alt, partial(plot.calibration, model, subject.X, y), None)
    return Section("The model on the rows", (), tuple(pictures))

"""Text summary of a fitted estimator."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtr

from consilience.estimators.table import places_read, responses, terms, unit
from consilience.fit import criteria
from consilience.fit.degrees import quantile
from consilience.fit.parameters import Parameters
from consilience.fit.stop import StopReason
from consilience.numerics.arrays import Array

LONG_UP_TO = 32
"""Maximum number of coefficients printed one per line; above it, one line per term and one column per expert."""
TERMS_SHOWN = 24
EXPERTS_SHOWN = 6
RESPONSES_SHOWN = 4


def summary(estimator: Any, *, reference: int | None, level: float) -> str:
    """Format the fit as text."""
    sections = [
        _head(estimator),
        *_expert_tables(estimator, level),
        _gate_table(estimator, reference, level),
        *_between_tables(estimator),
        *notes(estimator),
    ]
    lines = "\n".join(section for section in sections if section).split("\n")
    width = max(len(line) for line in lines)
    return "\n".join(["=" * width if line == "=" else "-" * width if line == "-" else line for line in lines])


def head_rows(estimator: Any) -> list[tuple[str, str, str, str]]:
    """Return the overview of the fit, two entries per row."""
    n, P = estimator.n_labels_, estimator.n_parameters_
    left = [
        (f"{unit(estimator).capitalize()}s", f"{estimator.mixture_.K}"),
        ("Rows or groups", f"{n:g}"),
        ("Parameters", f"{P}"),
    ]
    right = [
        ("Log-likelihood" + " ≈" * (estimator.stop_reason_ is StopReason.COMBINED), f"{estimator.log_likelihood_:.3f}"),
        ("AIC", f"{criteria.aic(estimator.log_likelihood_, P):.3f}"),
        ("BIC", f"{criteria.bic(estimator.log_likelihood_, P, n):.3f}"),
    ]
    return [(*a, *b) for a, b in zip(left, right, strict=True)]


def _head(estimator: Any) -> str:
    rows = [f"{a:<16}{b:>12}    {c:<16}{d:>16}" for a, b, c, d in head_rows(estimator)]
    return "\n".join([estimator.title, "=", *rows, f"{estimator.stop_reason_} ({estimator.n_iter_} iterations)", "="])


def _expert_tables(estimator: Any, level: float) -> list[str]:
    inference = estimator.inference_
    estimates, se, degrees = inference.estimates, inference.standard_errors(), inference.degrees_of_freedom()
    read, outputs = places_read(estimator)[1], responses(estimator)
    names = [terms(estimator)[i] for i in read]
    K = estimator.mixture_.K
    if estimates.experts[:, :, read].size <= LONG_UP_TO:
        labels = (
            outputs if len(names) == 1 else [t if len(outputs) == 1 else f"{o}: {t}" for o in outputs for t in names]
        )
        b, errors, df = (part.experts[:, :, read].reshape(K, -1) for part in (estimates, se, degrees))
        body = ["\n".join([_expert_head(estimator, k), _long(labels, b[k], errors[k], df[k], level)]) for k in range(K)]
        return ["\n-\n".join(body), "="]
    first, *others = wide_parts(estimator)
    tables = [wide_text(*first, facts=expert_facts(estimator)), *(wide_text(*part) for part in others)]
    if len(outputs) > RESPONSES_SHOWN and len(names) > 1:
        tables.append(f"… {len(outputs)} responses or classes in all: see to_frame()")
    return ["\n".join(tables), "="]


def expert_facts(estimator: Any) -> dict[str, list[str]]:
    """Return the weight of each expert and, for a single response, its shapes, such as the variance."""
    facts = {"(share)": [f"{share:.3f}" for share in estimator.weights_]}
    shapes = np.exp(estimator.inference_.estimates.log_shapes)
    for j, name in enumerate(_shapes(estimator)):
        facts[f"({name.replace('_', ' ')})"] = [number(shape) for shape in shapes[:, j]]
    return facts


def wide_parts(estimator: Any) -> list[tuple[str, list[str], Array, Array]]:
    """Return titles, terms, estimates and standard errors ``(K, terms)`` of the experts' wide tables."""
    inference, outputs, read = estimator.inference_, responses(estimator), places_read(estimator)[1]
    names = [terms(estimator)[i] for i in read]
    estimate, se = (part.experts[:, :, read] for part in (inference.estimates, inference.standard_errors()))
    if len(names) == 1:  # intercepts only: one table of all responses
        return [("Means", outputs, estimate[:, :, 0], se[:, :, 0])]
    name = f"{unit(estimator).capitalize()}s"
    titles = [name] if len(outputs) == 1 else [f"{name}, {output}" for output in outputs]
    return [(title, names, estimate[:, c], se[:, c]) for c, title in enumerate(titles)][:RESPONSES_SHOWN]


def _expert_head(estimator: Any, k: int) -> str:
    text = f"{unit(estimator).capitalize()} {k}: share {estimator.weights_[k]:.3f}"
    log_shapes = estimator.inference_.estimates.log_shapes
    se = estimator.inference_.standard_errors().log_shapes
    for j, name in enumerate(_shapes(estimator)):
        text += (
            f", {name.replace('_', ' ')} {np.exp(log_shapes[k, j]):.4g} (standard error of its log {number(se[k, j])})"
        )
    return text


def _shapes(estimator: Any) -> tuple[str, ...]:
    """Return the names of an expert's shapes; none for several responses, of which each has its own."""
    experts = estimator.mixture_.experts
    return experts.shape_names if experts.q == 1 else ()


def _long(labels: list[str], estimate: Array, se: Array, degrees: Array, level: float) -> str:
    reach = quantile(level, degrees) * se
    tail, t = (1 - level) / 2, "t" if np.isfinite(degrees).any() else "z"
    width = max(12, *(len(label) for label in labels))
    lines = [
        f"{'':<{width}}{'coef':>11}{'std err':>11}{t:>9}{f'P>|{t}|':>8}{f'[{tail:.3g}':>11}{f'{1 - tail:.3g}]':>11}"
    ]
    for i, label in enumerate(labels):
        z = estimate[i] / se[i] if se[i] > 0 else np.nan
        p = 2 * (stdtr(degrees[i], -abs(z)) if np.isfinite(degrees[i]) else ndtr(-abs(z)))
        lines.append(
            f"{label:<{width}}{number(estimate[i]):>11}{number(se[i]):>11}{_fixed(z, 2):>9}{_fixed(p, 3):>8}"
            f"{number(estimate[i] - reach[i]):>11}{number(estimate[i] + reach[i]):>11}"
        )
    return "\n".join(lines)


def wide_text(
    title: str,
    names: list[str],
    estimate: Array,
    se: Array,
    *,
    facts: Mapping[str, list[str]] | None = None,
    cells: str = "coefficient (standard error)",
) -> str:
    """Format a table with one line per term and one column per expert; ``estimate, se (K, p)``."""
    K = min(len(estimate), EXPERTS_SHOWN)
    width = max(12, *(len(name) for name in names[:TERMS_SHOWN]))
    lines = [
        f"{title}: {cells}",
        f"{'':<{width}}" + "".join(f"{k:>21}" for k in range(K)),
    ]
    for name, values in (facts or {}).items():
        lines.append(f"{name:<{width}}" + "".join(f"{value:>21}" for value in values[:K]))
    for j, name in enumerate(names[:TERMS_SHOWN]):
        shown = "".join(f"{f'{number(estimate[k, j])} ({number(se[k, j])})':>21}" for k in range(K))
        lines.append(f"{name:<{width}}{shown}")
    if len(names) > TERMS_SHOWN or len(estimate) > EXPERTS_SHOWN:
        lines.append(f"… {len(names)} terms of {len(estimate)} experts in all: see to_frame()")
    return "\n".join(lines)


def gate_part(estimator: Any, reference: int | None) -> tuple[str, list[str], Array, Array] | None:
    """Return title, terms, estimates and standard errors ``(K, p)`` of a softmax gate; None for a constant gate."""
    inference = estimator.inference_
    if estimator.mixture_.K == 1 or not estimator.mixture_.gate.reads_covariates:
        return None
    read = places_read(estimator)[0]
    names = [terms(estimator)[i] for i in read]
    if reference is not None:
        contrasts, errors = inference.gate_contrasts(reference)
        return f"Gate (against expert {reference})", names, contrasts[:, read], errors[:, read]
    title = "Gate (centred: sums to zero over experts)"
    return title, names, inference.estimates.gate[:, read], inference.standard_errors().gate[:, read]


def _gate_table(estimator: Any, reference: int | None, level: float) -> str:
    part = gate_part(estimator, reference)
    if part is None:
        return ""
    title, names, estimate, se = part
    K = len(estimate)
    if estimate.size > LONG_UP_TO:
        return wide_text(title, names, estimate, se) + "\n="
    normal = np.full(len(names), np.inf)
    tables = [
        f"{title}, expert {k}\n{_long(names, estimate[k], se[k], normal, level)}" for k in range(K) if k != reference
    ]
    return "\n-\n".join(tables) + "\n="


def _between_tables(estimator: Any) -> list[str]:
    """Format I² and τ² of each coefficient, log shape and gate, where sites sent fits of their own."""
    tables = [wide_text(*part, cells="I² (τ²)") for part in between_parts(estimator)]
    return ["\n".join(tables), "="] if tables else []


def between_parts(estimator: Any) -> list[tuple[str, list[str], Array, Array]]:
    """Return title, names, I² and τ² ``(K, terms)`` of the table of heterogeneity between sites; none without."""
    between, names, outputs = estimator.inference_.between, terms(estimator), responses(estimator)
    if between is None:
        return []
    of = [""] if len(outputs) == 1 else [f", {output}" for output in outputs]
    labels = [
        *(["(gate, log odds)"] if estimator.mixture_.K > 1 else []),
        *(f"(log {name}{each})" for name, each in zip(estimator.mixture_.experts.shape_names, cycle(of), strict=False)),
        *(f"{term}{each}" for each in of for term in names),
    ]
    I2, tau2 = (_stacked(part) for part in (between.I2, between.tau2))
    known = np.flatnonzero(np.isfinite(I2).any(axis=0))
    if not len(known):
        return []
    return [("Between sites", [labels[i] for i in known], I2[:, known], tau2[:, known])]


def _stacked(parts: Parameters) -> Array:
    """Return log odds of the gate, log shapes and coefficients, ``(K, ·)``."""
    K = len(parts.experts)
    return np.column_stack([parts.gate[:, : int(K > 1)], parts.log_shapes, parts.experts.reshape(K, -1)])


def notes(estimator: Any) -> list[str]:
    """Return notes on the standard errors, the log-likelihood and the starts."""
    inference = estimator.inference_
    kind = {
        "observed": "observed information",
        "sandwich": "sandwich",
        "larger": "larger of observed information and sandwich",
        "bootstrap": "parametric bootstrap",
        "summed": "sampling error at the sites",
        "between sites": "sampling error at the sites and variance between sites",
    }[inference.kind]
    said = [f"Standard errors: {kind}. All parameters with intervals: to_frame()."]
    if inference.between is not None:
        said.append("They include the variance between sites, τ², where Cochran's Q has a p-value below 0.01.")
    said += [f"Intervals withheld ({part}): {reason}." for part, reason in inference.withheld.items()]
    if estimator.unidentified_:
        said.append(f"Not identified: {'; '.join(estimator.unidentified_)}.")
    if estimator.follows_noise:
        P, n = estimator.n_parameters_, estimator.n_rows_
        said.append(f"{P} parameters on {n:g} rows: the fit follows the noise.")
    if estimator.stop_reason_ is StopReason.COMBINED:
        said.append("The log-likelihood is estimated from the sites' answers; a refinement round computes it exactly.")
    if not estimator.starts_agree_:
        said.append(f"Starts do not agree: {estimator.starts_}. Raise n_init before trusting this fit.")
    return said


def number(value: float) -> str:
    """Format with four significant digits; a dash for a missing value."""
    return "—" if not np.isfinite(value) else f"{value:.4g}"


def _fixed(value: float, digits: int) -> str:
    return "—" if not np.isfinite(value) else f"{value:.{digits}f}"

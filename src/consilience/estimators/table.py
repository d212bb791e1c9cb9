"""Tables of a fit: tidy, one screen of text, HTML."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from consilience.fit import criteria
from consilience.model import ConstantGate
from consilience.numerics.arrays import Array

LONG_UP_TO = 32
"""Coefficients up to which the summary has a line for each; above, a line per term and a column per expert."""
TERMS_SHOWN = 24
EXPERTS_SHOWN = 6


def terms(estimator: Any) -> list[str]:
    """Names of the coefficients: the intercept and the covariates."""
    design = estimator.mixture_.design
    names = getattr(estimator, "feature_names_in_", None)
    features = [f"x{j}" for j in range(design.d)] if names is None or design.d == 0 else [str(name) for name in names]
    return ["(intercept)", *features] if design.intercept else features


def responses(estimator: Any) -> list[str]:
    """Names of the linear predictors of an expert: classes, components of x, or responses."""
    count = estimator.inference_.estimates.experts.shape[1]
    if estimator.mixture_.experts.family == "categorical":
        classes = [str(c) for c in estimator.classes_]
        return classes[1:] if count == 1 else classes
    names = getattr(estimator, "feature_names_in_", None)
    if estimator.mixture_.design.d == 0 and names is not None:
        return [str(name) for name in names]
    return ["y"] if count == 1 else [f"y{j}" for j in range(count)]


def tidy(estimator: Any, level: float) -> dict[str, list[Any]]:
    """Columns of the tidy table: one entry per parameter."""
    inference = estimator.inference_
    keys = _keys(estimator)
    lower, upper = inference.interval(level)
    columns: dict[str, list[Any]] = {
        name: [key[i] for key in keys] for i, name in enumerate(("part", "expert", "response", "term"))
    }
    for name, values in (
        ("estimate", inference.estimates),
        ("std_error", inference.standard_errors()),
        ("lower", lower),
        ("upper", upper),
    ):
        columns[name] = values.flat().tolist()
    return columns


def _keys(estimator: Any) -> list[tuple[str, int, str, str]]:
    K, names, outputs = estimator.mixture_.K, terms(estimator), responses(estimator)
    if isinstance(estimator.mixture_.gate, ConstantGate):
        gate = [("weight", k, "", "") for k in range(K)]
    else:
        gate = [("gate", k, "", term) for k in range(K) for term in names]
    experts = [("expert", k, response, term) for k in range(K) for response in outputs for term in names]
    q = estimator.inference_.estimates.log_variances.shape[1]
    return [*gate, *experts, *(("log_variance", k, response, "") for k in range(K) for response in outputs[:q])]


# ---------------------------------------------------------------------- text


def summary(estimator: Any, *, reference: int | None, level: float) -> str:
    """The fit as text."""
    sections = [
        _head(estimator),
        *_expert_tables(estimator, level),
        _gate_table(estimator, reference, level),
        _notes(estimator),
    ]
    lines = "\n".join(section for section in sections if section).split("\n")
    width = max(len(line) for line in lines)
    return "\n".join(["=" * width if line == "=" else "-" * width if line == "-" else line for line in lines])


def _head(estimator: Any) -> str:
    n, P = estimator.n_labels_, estimator.mixture_.parameter_count
    left = [("Experts", f"{estimator.mixture_.K}"), ("Rows or groups", f"{n:g}"), ("Parameters", f"{P}")]
    right = [
        ("Log-likelihood", f"{estimator.log_likelihood_:.3f}"),
        ("AIC", f"{criteria.aic(estimator.log_likelihood_, P):.3f}"),
        ("BIC", f"{criteria.bic(estimator.log_likelihood_, P, n):.3f}"),
    ]
    rows = [f"{a:<16}{b:>12}    {c:<16}{d:>16}" for (a, b), (c, d) in zip(left, right, strict=True)]
    return "\n".join([estimator.title, "=", *rows, f"{estimator.stop_reason_} ({estimator.n_iter_} iterations)", "="])


def _expert_tables(estimator: Any, level: float) -> list[str]:
    inference = estimator.inference_
    estimates, se = inference.estimates, inference.standard_errors()
    names, outputs = terms(estimator), responses(estimator)
    K = estimator.mixture_.K
    heads = [_expert_head(estimator, k) for k in range(K)]
    if estimates.experts.size <= LONG_UP_TO:
        labels = [t if len(outputs) == 1 else f"{o}: {t}" for o in outputs for t in names]
        body = [
            "\n".join([heads[k], _long(labels, estimates.experts[k].ravel(), se.experts[k].ravel(), level)])
            for k in range(K)
        ]
        return ["\n-\n".join(body), "="]
    tables = [
        _wide(f"{title}: coefficient (standard error)", names, estimates.experts[:, c], se.experts[:, c])
        for c, title in enumerate(["Experts"] if len(outputs) == 1 else [f"Experts, {o}" for o in outputs])
    ]
    return ["\n".join(heads[:EXPERTS_SHOWN]), "-", "\n".join(tables), "="]


def _expert_head(estimator: Any, k: int) -> str:
    text = f"Expert {k}: share {estimator.weights_[k]:.3f}"
    log_variances = estimator.inference_.estimates.log_variances
    if log_variances.shape[1] == 1:
        se = estimator.inference_.standard_errors().log_variances[k, 0]
        text += f", variance {np.exp(log_variances[k, 0]):.4g} (standard error of its log {_number(se)})"
    return text


def _long(labels: list[str], estimate: Array, se: Array, level: float) -> str:
    lower, upper = _bounds(estimate, se, level)
    tail = (1 - level) / 2
    width = max(12, *(len(label) for label in labels))
    lines = [
        f"{'':<{width}}{'coef':>11}{'std err':>11}{'z':>9}{'P>|z|':>8}{f'[{tail:.3g}':>11}{f'{1 - tail:.3g}]':>11}"
    ]
    for i, label in enumerate(labels):
        z = estimate[i] / se[i] if se[i] > 0 else np.nan
        p = 2 * ndtr(-abs(z))
        lines.append(
            f"{label:<{width}}{_number(estimate[i]):>11}{_number(se[i]):>11}{_fixed(z, 2):>9}{_fixed(p, 3):>8}"
            f"{_number(lower[i]):>11}{_number(upper[i]):>11}"
        )
    return "\n".join(lines)


def _bounds(estimate: Array, se: Array, level: float) -> tuple[Array, Array]:
    reach = float(ndtri(0.5 + level / 2)) * se
    return estimate - reach, estimate + reach


def _wide(title: str, names: list[str], estimate: Array, se: Array) -> str:
    """One line per term, one column per expert; ``estimate, se (K, p)``."""
    K = min(len(estimate), EXPERTS_SHOWN)
    width = max(12, *(len(name) for name in names[:TERMS_SHOWN]))
    lines = [title, f"{'':<{width}}" + "".join(f"{f'expert {k}':>20}" for k in range(K))]
    for j, name in enumerate(names[:TERMS_SHOWN]):
        cells = "".join(f"{f'{_number(estimate[k, j])} ({_number(se[k, j])})':>20}" for k in range(K))
        lines.append(f"{name:<{width}}{cells}")
    if len(names) > TERMS_SHOWN or len(estimate) > EXPERTS_SHOWN:
        lines.append(f"… {len(names)} terms of {len(estimate)} experts in all: see to_frame()")
    return "\n".join(lines)


def _gate_table(estimator: Any, reference: int | None, level: float) -> str:
    inference, K = estimator.inference_, estimator.mixture_.K
    if K == 1 or isinstance(estimator.mixture_.gate, ConstantGate):
        return ""
    if reference is None:
        title, estimate, se = (
            "Gate (centred: sums to zero over experts)",
            inference.estimates.gate,
            inference.standard_errors().gate,
        )
    else:
        estimate, se = inference.gate_contrasts(reference)
        title = f"Gate (against expert {reference})"
    names = terms(estimator)
    if estimate.size > LONG_UP_TO:
        return _wide(f"{title}: coefficient (standard error)", names, estimate, se) + "\n="
    tables = [f"{title}, expert {k}\n{_long(names, estimate[k], se[k], level)}" for k in range(K) if k != reference]
    return "\n-\n".join(tables) + "\n="


def _notes(estimator: Any) -> str:
    inference = estimator.inference_
    kind = {"observed": "observed information", "sandwich": "sandwich", "bootstrap": "parametric bootstrap"}[
        inference.kind
    ]
    notes = [f"Standard errors: {kind}. All parameters with intervals: to_frame()."]
    notes += [f"Intervals withheld ({part}): {reason}." for part, reason in inference.withheld.items()]
    if not estimator.starts_agree_:
        notes.append("The two best starts disagree: raise n_init before trusting this fit.")
    return "\n".join(notes)


def _number(value: float) -> str:
    return "—" if not np.isfinite(value) else f"{value:.4g}"


def _fixed(value: float, digits: int) -> str:
    return "—" if not np.isfinite(value) else f"{value:.{digits}f}"


# ---------------------------------------------------------------------- HTML


def html(estimator: Any) -> str:
    """The fit as HTML, for notebooks."""
    return f"<pre>{escape(summary(estimator, reference=None, level=0.95))}</pre>"

"""Summary of a fitted model: its facts, tables and notes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from textwrap import fill
from typing import NamedTuple

import numpy as np

from consilience.fit import Parameters, StopReason, criteria
from consilience.fit.inference import BETWEEN_SITES, BY_SITE, FEW_CLUSTERS, quantile, two_sided
from consilience.fitted.protocols import (
    FittedMixture,
    expert_label,
    expert_term_names,
    follows_noise,
    labelled,
    model_title,
    noun,
    response_names,
    term_names,
    terms_read,
    withheld_part,
)
from consilience.fitted.typeset import Summary, TextTable
from consilience.numerics.arrays import Array

LONG_UP_TO = 32
"""Maximum number of coefficients printed one per line; above it, one line per term and one column per expert."""
TERMS_SHOWN = 24
EXPERTS_SHOWN = 6
RESPONSES_SHOWN = 4
NOTE_WIDTH = 110
"""Least width at which notes are wrapped."""
WHOLE = 1000
"""Number of rows from which a fraction, of weights or of noise, is not shown."""
STOP_WIDTH = 96
"""Width at which the reason of the stop is wrapped: it does not widen the rules of the tables."""
LONG = (12, 11, 11, 9, 8, 11, 11)
"""Least widths of the columns of a table with a line for each coefficient."""
WIDE = 21
"""Least width of an expert's column in a table with a line for each term."""


class CoefficientTable(NamedTuple):
    """A table with one line per term and one column per expert: estimates and standard errors ``(K, terms)``."""

    title: str
    names: list[str]
    estimate: Array
    se: Array
    experts: list[int]
    cells: str = "coefficient (standard error)"


def summarise_fit(estimator: FittedMixture, *, reference: int | None, level: float) -> Summary:
    """Return the summary of a fit: one screen of text, or its tables."""
    parts = [_expert_tables(estimator, level), _gate_tables(estimator, reference, level), _between_tables(estimator)]
    sections = [("\n-\n" if part[0].ruled else "\n").join(map(TextTable.text, part)) for part in parts if part]
    lines = "\n=\n".join([_head(estimator), *sections, ""]).rstrip("\n").split("\n")
    width = max(len(line) for line in lines)
    ruled = ["=" * width if line == "=" else "-" * width if line == "-" else line for line in lines]
    notes = fit_notes(estimator)
    wrapped = [fill(note, max(width, NOTE_WIDTH), subsequent_indent="  ") for note in notes]
    tables = [table for part in parts for table in part]
    said = [_stopped(estimator), *notes]
    return Summary("\n".join([*ruled, *wrapped]), model_title(estimator), head_rows(estimator), tables, said)


def head_rows(estimator: FittedMixture) -> list[tuple[str, str, str, str]]:
    """Return the overview of the fit, two entries per row."""
    n, P, value = estimator.n_labels_, estimator.n_parameters_, estimator.log_likelihood_
    left = [
        (f"{noun(estimator).capitalize()}s", f"{estimator.mixture_.K}"),
        (labelled(estimator).capitalize(), format_count(round(n) if n >= WHOLE else n)),
        ("Parameters", f"{P}"),
    ]
    right = [
        ("Log-likelihood" + " ≈" * (estimator.stop_reason_ is StopReason.COMBINED), _format_fixed(value, 3)),
        ("AIC", _format_fixed(criteria.aic(value, P), 3)),
        ("BIC", _format_fixed(criteria.bic(value, P, n), 3)),
    ]
    return [(*a, *b) for a, b in zip(left, right, strict=True)]


def _head(estimator: FittedMixture) -> str:
    rows = [f"{a:<16}{b:>12}    {c:<16}{d:>16}" for a, b, c, d in head_rows(estimator)]
    return "\n".join(
        [model_title(estimator), "=", *rows, fill(_stopped(estimator), STOP_WIDTH, subsequent_indent="  ")]
    )


def _stopped(estimator: FittedMixture) -> str:
    return f"{estimator.stop_reason_} ({estimator.n_iter_} iteration{'s' * (estimator.n_iter_ != 1)})"


def _expert_tables(estimator: FittedMixture, level: float) -> list[TextTable]:
    inference = estimator.inference_
    estimates, se, degrees = inference.estimates, inference.standard_errors(), inference.degrees_of_freedom()
    read, outputs = terms_read(estimator)[1], response_names(estimator)
    names = [expert_term_names(estimator)[i] for i in read]
    K = estimator.mixture_.K
    if estimates.experts[:, :, read].size <= LONG_UP_TO:
        labels = (
            outputs if len(names) == 1 else [t if len(outputs) == 1 else f"{o}: {t}" for o in outputs for t in names]
        )
        b, errors, df = (part.experts[:, :, read].reshape(K, -1) for part in (estimates, se, degrees))
        return [long_table(_expert_head(estimator, k), labels, (b[k], errors[k], df[k]), level) for k in range(K)]
    first, *others = wide_parts(estimator)
    tables = [wide_table(first, expert_facts(estimator)), *(wide_table(part) for part in others)]
    if len(outputs) > RESPONSES_SHOWN and len(names) > 1:
        more = [tables[-1].more, f"… {len(outputs)} responses or classes in all: see to_frame()"]
        tables[-1] = tables[-1]._replace(more="\n".join(line for line in more if line))
    return tables


def expert_facts(estimator: FittedMixture) -> dict[str, list[str]]:
    """Return the weight of each expert and, for a single response, its shapes, such as the variance."""
    facts = {"(share)": [f"{share:.3f}" for share in estimator.weights_]}
    shapes = np.exp(estimator.inference_.estimates.log_shapes)
    for j, name in enumerate(_shapes(estimator)):
        facts[f"({name.replace('_', ' ')})"] = [format_number(shape) for shape in shapes[:, j]]
    return facts


def wide_parts(estimator: FittedMixture) -> list[CoefficientTable]:
    """Return the experts' wide tables, one for each response."""
    inference, outputs, read = estimator.inference_, response_names(estimator), terms_read(estimator)[1]
    names, K = [expert_term_names(estimator)[i] for i in read], estimator.mixture_.K
    estimate, se = (part.experts[:, :, read] for part in (inference.estimates, inference.standard_errors()))
    if len(names) == 1:  # intercepts only: one table of all responses
        return [CoefficientTable("Means", outputs, estimate[:, :, 0], se[:, :, 0], list(range(K)))]
    name = f"{noun(estimator).capitalize()}s"
    titles = [name + _modelled_class(estimator)] if len(outputs) == 1 else [f"{name}, {output}" for output in outputs]
    tables = [
        CoefficientTable(title, names, estimate[:, c], se[:, c], list(range(K))) for c, title in enumerate(titles)
    ]
    return tables[:RESPONSES_SHOWN]


def _modelled_class(estimator: FittedMixture) -> str:
    """Return the class whose log odds the coefficients of two classes give; empty for other responses."""
    two = estimator.mixture_.experts.classes and len(estimator.classes_) == 2
    return f", log odds of class {estimator.classes_[1]}" if two else ""


def _expert_head(estimator: FittedMixture, k: int) -> str:
    text = f"{expert_label(estimator, k).capitalize()}: share {estimator.weights_[k]:.3f}{_modelled_class(estimator)}"
    log_shapes = estimator.inference_.estimates.log_shapes
    se = estimator.inference_.standard_errors().log_shapes
    for j, name in enumerate(_shapes(estimator)):
        shape, error = f"{np.exp(log_shapes[k, j]):.4g}", format_number(se[k, j])
        text += f", {name.replace('_', ' ')} {shape} (standard error of its log {error})"
    return text


def _shapes(estimator: FittedMixture) -> tuple[str, ...]:
    """Return the names of an expert's shapes; none for several responses, of which each has its own."""
    experts = estimator.mixture_.experts
    return experts.shape_names if experts.q == 1 else ()


def long_table(title: str, labels: list[str], figures: tuple[Array, Array, Array], level: float) -> TextTable:
    """Return a table with a line for each coefficient: its error, statistic, P and interval.

    ``figures`` are estimates, standard errors and degrees of freedom.
    """
    estimate, se, degrees = figures
    reach = quantile(level, degrees) * se
    tail, t = (1 - level) / 2, "t" if np.isfinite(degrees).any() else "z"
    statistic = np.divide(estimate, se, out=np.full(len(se), np.nan), where=se > 0)
    P = two_sided(statistic, degrees)
    header, lines = ["", "coef", "std err", t, f"P>|{t}|", f"[{tail:.3g}", f"{1 - tail:.3g}]"], []
    for i, label in enumerate(labels):
        bounds = (estimate[i] - reach[i], estimate[i] + reach[i])
        tested = _format_fixed(statistic[i], 2), _format_fixed(P[i], 3)
        lines.append([label, *map(format_number, (estimate[i], se[i])), *tested, *map(format_number, bounds)])
    return TextTable(title, header, lines, LONG, ruled=True)


def wide_table(table: CoefficientTable, facts: Mapping[str, list[str]] | None = None) -> TextTable:
    """Return a table with a line for each term; ``facts`` are further lines, such as the shares of all experts."""
    experts, names = table.experts[:EXPERTS_SHOWN], table.names[:TERMS_SHOWN]
    lines = [[name, *(values[k] for k in experts)] for name, values in (facts or {}).items()]
    lines += [[name, *(format_cell(table, k, j) for k in experts)] for j, name in enumerate(names)]
    header = ["", *(str(k + 1) for k in experts)]
    return TextTable(f"{table.title}: {table.cells}", header, lines, (12, *[WIDE] * len(experts)), cut_note(table))


def cut_note(table: CoefficientTable) -> str:
    """Say that a table has more terms or experts than are shown; empty if it has not."""
    cut = len(table.names) > TERMS_SHOWN or len(table.experts) > EXPERTS_SHOWN
    return f"… {len(table.names)} terms of {len(table.estimate)} experts in all: see to_frame()" if cut else ""


def format_cell(table: CoefficientTable, k: int, j: int) -> str:
    """Return the estimate of a term of an expert, with its standard error."""
    return f"{format_number(table.estimate[k, j])} ({format_number(table.se[k, j])})"


def gate_part(estimator: FittedMixture, reference: int | None) -> CoefficientTable | None:
    """Return the table of a softmax gate; None for a constant gate.

    The reference of contrasts has no column. Centred coefficients of two experts differ in sign only, so the second has
    none either.
    """
    inference, K = estimator.inference_, estimator.mixture_.K
    if K == 1 or not estimator.mixture_.gate.reads_covariates:
        return None
    read = terms_read(estimator)[0]
    names = [term_names(estimator)[i] for i in read]
    if reference is not None:
        others = [k for k in range(K) if k != reference]
        contrasts, errors = inference.gate_contrasts(reference)
        return CoefficientTable(
            f"Gate (against {expert_label(estimator, reference)})", names, contrasts[:, read], errors[:, read], others
        )
    title = "Gate (centred: sums to zero over experts" + "; expert 2 has the opposite signs" * (K == 2) + ")"
    experts = [0] if K == 2 else list(range(K))
    estimate, se = inference.estimates.gate[:, read], inference.standard_errors().gate[:, read]
    return CoefficientTable(title, names, estimate, se, experts)


def _gate_tables(estimator: FittedMixture, reference: int | None, level: float) -> list[TextTable]:
    table = gate_part(estimator, reference)
    if table is None:
        return []
    if table.estimate.size > LONG_UP_TO:
        return [wide_table(table)]
    normal = np.full(len(table.names), np.inf)
    heads = {k: f"{table.title}, {expert_label(estimator, k)}" for k in table.experts}
    return [long_table(head, table.names, (table.estimate[k], table.se[k], normal), level) for k, head in heads.items()]


def _between_tables(estimator: FittedMixture) -> list[TextTable]:
    """Return I² and τ² of each coefficient, log shape and gate, where sites sent fits of their own."""
    return [wide_table(part) for part in between_parts(estimator)]


def between_parts(estimator: FittedMixture) -> list[CoefficientTable]:
    """Return the table of heterogeneity between sites, I² and τ² of each term; none without."""
    between, names, outputs = estimator.inference_.between, term_names(estimator), response_names(estimator)
    if between is None:
        return []
    of = [""] if len(outputs) == 1 else [f", {output}" for output in outputs]
    labels = [
        *(["(gate, log odds)"] if estimator.mixture_.K > 1 else []),
        *(f"(log {name}{each})" for name, each in zip(estimator.mixture_.experts.shape_names, cycle(of), strict=False)),
        *(f"{term}{each}" for each in of for term in names),
    ]
    I2, tau2 = (_stack(part) for part in (between.I2, between.tau2))
    known = np.flatnonzero(np.isfinite(I2).any(axis=0))
    if not len(known):
        return []
    names, experts = [labels[i] for i in known], list(range(len(I2)))
    return [CoefficientTable("Between sites", names, I2[:, known], tau2[:, known], experts, cells="I² (τ²)")]


def _stack(parts: Parameters) -> Array:
    """Return log odds of the gate, log shapes and coefficients, ``(K, ·)``."""
    K = len(parts.experts)
    return np.column_stack([parts.gate[:, : int(K > 1)], parts.log_shapes, parts.experts.reshape(K, -1)])


def fit_notes(estimator: FittedMixture) -> list[str]:
    """Return notes on the standard errors and the log-likelihood, and what is in doubt."""
    return [*error_notes(estimator), *doubt_notes(estimator)]


def error_notes(estimator: FittedMixture) -> list[str]:
    """Return notes on the standard errors and the log-likelihood."""
    inference = estimator.inference_
    over = f" over {inference.clusters:,} clusters" if inference.clusters else ""
    kind = {
        "observed": "observed information, right if the model is right",
        "sandwich": f"sandwich{over}",
        "larger": f"larger of observed information and sandwich{over}",
        BY_SITE: f"sandwich over {inference.clusters:,} sites",
        "bootstrap": "parametric bootstrap",
        "simulated": "information simulated from the mixture, right if the model is right",
        "summed": "summed information of the sites, right if the model is right",
        "private": "information simulated from the mixture, and the noise; right if the model is right",
        BETWEEN_SITES: "sampling error at the sites and variance between sites",
    }[inference.kind]
    said = [f"Standard errors: {kind}. All parameters with intervals: to_frame()."]
    if 0 < inference.clusters < FEW_CLUSTERS:
        said.append(f"Fewer than {FEW_CLUSTERS} clusters: standard errors may be far too small.")
    if inference.between is not None:
        said.append("They include the variance between sites, τ², where Cochran's Q has a p-value below 0.01.")
    if estimator.stop_reason_ is StopReason.COMBINED:
        said.append("The log-likelihood is estimated from the sites' answers; a refinement round computes it exactly.")
    return said


def doubt_notes(estimator: FittedMixture) -> list[str]:
    """Return notes on what is withheld, not identified, or in doubt."""
    said = [
        f"Intervals withheld ({withheld_part(estimator, part)}): {reason}."
        for part, reason in estimator.inference_.withheld.items()
    ]
    if estimator.unidentified_:
        said.append(f"Not identified: {'; '.join(estimator.unidentified_)}.")
    if follows_noise(estimator):
        P, n = estimator.n_parameters_, estimator.n_rows_
        said.append(f"{P} parameters on {format_count(n)} rows: the fit follows the noise.")
    if not estimator.starts_agree_:
        said.append(f"Starts do not agree: {estimator.starts_}. Raise n_init before trusting this fit.")
    return said


def format_number(value: float) -> str:
    """Format with four significant digits; a dash for a missing value."""
    return "—" if not np.isfinite(value) else f"{value:.4g}"


def format_count(n: float) -> str:
    """Format a number of rows: whole, with commas; total weights keep their fractions."""
    return f"{n:,.10g}"


def _format_fixed(value: float, digits: int) -> str:
    return "—" if not np.isfinite(value) else f"{value:.{digits}f}"

"""What would leave a site, field by field and in words, with every check: for the person who approves it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from consilience.files.site_file import SiteFile
from consilience.fit.parameters import parameters
from consilience.site.entries import Entry
from consilience.site.fit_report import FitReport
from consilience.site.policy import Check

FIELDS = {
    "study": "which study this is for (a hash of the study file)",
    "site": "the name of this site",
    "terms": "names of the coefficients, from the study",
    "privacy": "that no noise was added",
    "evidence": "the policy by hash, its profile, and for each rule the limit and whether it was kept; no counts",
    "columns.rows": "the number of rows used",
    "columns.covariate_means": "the mean of each covariate",
    "columns.covariate_products": "variances and covariances of the covariates, times the number of rows; for "
    "categories these are exact counts of levels and pairs of levels",
    "columns.response_means": "the mean of the response",
    "columns.response_products": "the variance of the response, times the number of rows",
    "model.mixture": "the fitted model: gate, and coefficients and variance of each expert",
    "model.weight": "the number of rows of the fit",
    "model.log_likelihood": "how well the model fits the rows, one number",
    "model.exposure": "the mean exposure of the rows",
    "model.label_counts": "expected number of rows of each expert by the gate",
    "model.rows_of_experts": "number of rows of each expert",
    "model.second_moments": "sums of products of covariates among the rows of each expert; for categories counts",
    "model.precision": "how precisely each coefficient is known (inverse of a covariance matrix)",
    "model.covariates.weights": "a summary of the covariates by a few classes of rows: the share of each class",
    "model.covariates.means": "means of the numbers in each class",
    "model.covariates.covariances": "variances and covariances of the numbers in each class",
    "model.covariates.levels": "the values of covariates that have few of them",
    "model.covariates.shares": "how often each of these values occurs in each class",
    "stop_reason": "why the fit ended, such as converged",
}
"""What each field of a site file means, in words for a data manager."""

RULES = {
    "min_rows": "rows used",
    "max_experts": "experts",
    "rows_per_parameter": "rows for each estimated number",
    "rows_per_level": "rows of the rarest level",
    "rows_per_pair": "rows of the rarest pair of levels",
    "column_dominance": "percent of a column's sum of squares from the few largest rows",
    "rows_per_expert": "rows",
    "effective_rows": "rows, counted by their weights",
    "residual_degrees": "rows beyond the number of coefficients",
    "dominance": "percent of the weight from the few largest rows",
    "residual_dominance": "percent of the variance from the few largest rows",
    "missing_information": "percent of the uncertainty about labels from the few largest rows",
    "information": "percent of the information on coefficients from the few largest rows",
    "rows_per_class": "rows",
}
"""What each rule counts, in words."""


def fields_of(file: SiteFile) -> Iterator[tuple[str, str, Any]]:
    """Yield name, meaning and content of every field that would leave; a field without a meaning is an error.

    Examples
    --------
    >>> from consilience.messages.questions import LocalFit
    >>> from consilience.model.summary import ColumnSummary
    >>> nothing = LocalFit(ColumnSummary.unit(1, 1), None, None)
    >>> file = SiteFile("sha256:" + 64 * "0", "north", ("(intercept)", "age"), nothing)
    >>> [name for name, _, _ in fields_of(file)][:3]
    ['study', 'site', 'terms']
    """
    for name, value in _leaves("", file.content):
        yield name, FIELDS[name], value


def _leaves(prefix: str, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        name = f"{prefix}{key}"
        if name in FIELDS or not isinstance(value, dict):
            yield name, value
        else:
            yield from _leaves(f"{name}.", value)


def text_of(report: FitReport, entry: Entry, *, numbers: bool = False) -> str:
    """Return the whole preview as text; ``numbers`` adds every number that would leave."""
    file = report.file
    values = [f"  {name} = {json.dumps(value)}" for name, _, value in fields_of(file)]
    amounts = {name: _numbers(value) for name, _, value in fields_of(file)}
    kept = sum(check.kept for check in report.checks)
    made = f"{entry.time} (entry {entry.number} of the ledger)"
    size = f"one file of {len(file.to_text()):,} bytes and an envelope, with {sum(amounts.values()):,} numbers"
    parts = [
        f"Study {report.study_name} ({file.study[:15]}...), fitted {made} from {entry.details['rows']:,} rows.",
        f"What would leave {file.site}: {size}. No row is in it.",
        *(f"NOTE: {note}" for note in report.notes),
        "",
        *(f"  {name:<30} {_count(amounts[name]):>13}  {meaning}" for name, meaning, _ in fields_of(file)),
        f"  {'(envelope)':<30} {'':>13}  time of release, place in the ledger, signature",
        "",
        "The model",
        *(f"  {line}" for line in model_lines(file)),
        "",
        f"{kept} of {len(report.checks)} checks are kept. What was found stays here; the file has limits and results.",
        *(f"  {check_line(check)}" for check in sorted(report.checks, key=lambda check: check.kept)),
    ]
    if report.steps:
        parts += ["", "Changed to keep the policy", *(f"  {step}" for step in report.steps)]
    if numbers:
        parts += ["", "Every number", *values]
    return "\n".join([*parts, "", "Attack at the site", *(f"  {line}" for line in attack_lines(report)), "", UNSAID])


UNSAID = (
    "The limits refuse what is known to give rows away. They are no guarantee: no noise is added, and someone who "
    "knows nearly all rows, or the right question, may learn about the rest."
)


def model_lines(file: SiteFile) -> list[str]:
    """Return a few lines on the fitted experts: share of the rows, and coefficients."""
    model = file.fit.model
    if model is None:
        return ["none: there are too few rows for a fit, and only the summary of the columns leaves"]
    lines = []
    for k, coefficients in enumerate(parameters(model.mixture).experts):
        lines.append(f"expert {k + 1}, {model.mass[k] / model.mass.sum():.0%} of the rows:")
        for channel in coefficients:
            named = ", ".join(f"{term} {value:.3g}" for term, value in zip(file.terms, channel, strict=True))
            lines.append(f"  {named}")
    return lines


def check_line(check: Check) -> str:
    """Return a line on one check, with what was found."""
    found = f"{check.observed:,.4g}" if isfinite(check.observed) else "none"
    where = check.scope if not check.detail else f"{check.scope} ({check.detail})"
    return (
        f"{'kept  ' if check.kept else 'FAILED'} {check.rule}, {where}: {RULES[check.rule]} {found}, "
        f"limit {check.limit:g}"
    )


def attack_lines(report: FitReport) -> list[str]:
    """Return lines on the largest leverage and on the membership test."""
    leverage = f"Largest leverage of a row in an expert: {report.leverage:.3f} (at 1 it passes through the row)."
    if report.membership is None:
        return [leverage, "The membership test needs more rows: half of them are too few for a fit."]
    return [leverage, str(report.membership)]


def document_of(report: FitReport, entry: Entry) -> dict[str, Any]:
    """Return the preview as a JSON object; it has counts and stays at the site."""
    return {
        "site": report.file.site,
        "study": report.file.study,
        "study_name": report.study_name,
        "fitted": entry.time,
        "entry": entry.number,
        "hash": report.file.hash,
        "bytes": len(report.file.to_text()),
        "fields": [
            {"name": name, "meaning": meaning, "numbers": _numbers(value), "content": value}
            for name, meaning, value in fields_of(report.file)
        ],
        "checks": [
            {
                "rule": check.rule,
                "scope": check.scope,
                "limit": check.limit,
                "observed": check.observed if isfinite(check.observed) else None,
                "kept": check.kept,
            }
            for check in report.checks
        ],
        "steps": list(report.steps),
        "notes": list(report.notes),
        "leverage": report.leverage,
        "membership_auc": None if report.membership is None else report.membership.auc,
    }


def _numbers(value: Any) -> int:
    """Count the numbers in a JSON value."""
    if isinstance(value, dict):
        return sum(map(_numbers, value.values()))
    if isinstance(value, list):
        return sum(map(_numbers, value))
    return int(isinstance(value, int | float) and not isinstance(value, bool))


def _count(numbers: int) -> str:
    return "" if not numbers else "1 number" if numbers == 1 else f"{numbers:,} numbers"

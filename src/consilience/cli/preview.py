"""What would leave a site, in words and with every check: for the person who approves it; and the annex."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from consilience._version import __version__
from consilience.files.site_file import SiteFile
from consilience.fit.parameters import parameters
from consilience.kit.folder import SiteFolder
from consilience.kit.ledger import Entry
from consilience.kit.mail_run import Draft
from consilience.kit.policy.policy import COMMENTS, Policy
from consilience.kit.policy.rounds.leverage import largest_leverage
from consilience.kit.policy.rules import Check
from consilience.kit.release import FitReport
from consilience.kit.study import Study
from consilience.messages import Failure, decode

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
    """Yield name, meaning and content of every field that would leave; a field without a meaning is an error."""
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
        return [leverage, "There is no fit, and no membership attack on it."]
    return [leverage, str(report.membership)]


def preview_document(report: FitReport, entry: Entry) -> dict[str, Any]:
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
            {**check.stated, "observed": check.observed if isfinite(check.observed) else None, "kept": check.kept}
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


# ---------------------------------------------------------------- answer preview

SHOWN = 200
"""Numbers of one array that are printed."""


def answer_text(draft: Draft, study: Study, size: int, *, numbers: bool = False) -> str:
    """Return the preview of an answer as text; ``numbers`` adds every number that would leave.

    Parameters
    ----------
    draft : Draft
    study : Study
    size : int
        Size of the file in bytes.
    numbers : bool
    """
    letter, values = draft.letter, list(leaves("", decode(draft.reply)))
    lines = [
        f"Study {study.name} ({study.identity[:15]}...), round {letter.number} of run {letter.run[:15]}...",
        f"Asked: {letter.disclosed}.",
        *first_lines(draft),
        replay_line(draft),
        *refusal_lines(draft),
    ]
    if not isinstance(decode(draft.reply), Failure):
        count = sum(np.size(value) for _, value in values)
        lines += [
            f"What would leave: one file of {size:,} bytes, with {count:,} numbers. No row is in it. By part:",
            *(f"  {name:<44} {np.size(value):>6,}" for name, value in values),
            *influence_lines(draft),
        ]
        if numbers:
            lines += ["", "Every number", *(f"  {name} = {_short(value)}" for name, value in values)]
    return "\n".join([*lines, "", UNSAID])


def leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and numbers of an answer with their names."""
    if is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from leaves(f"{prefix}.{each.name}" if prefix else each.name, getattr(value, each.name))
    elif isinstance(value, tuple | list):
        for i, each in enumerate(value):
            yield from leaves(f"{prefix}[{i + 1}]", each)
    elif isinstance(value, np.ndarray | float | int) and not isinstance(value, bool) and np.size(value):
        yield prefix, value


def first_lines(draft: Draft) -> list[str]:
    """Return a request to read the study, before the first answer in a run."""
    first = draft.is_new and draft.outcome is not None and draft.outcome.asked.rounds <= 1
    return ["This is the first answer in this run: read the study before you approve it."] if first else []


def replay_line(draft: Draft) -> str:
    """Return whether the site has computed itself what the study asks next."""
    if draft.site is None:
        return "This question was answered before: the same answer leaves again, and nothing more is charged."
    rules = draft.site.run
    if rules.dialogue is None:
        return "Replay check: none, since the method asks for more than sums over sites; the limits below hold."
    if not rules.policy.rounds.replay_check:
        return "Replay check: not made, by the policy of this site."
    if draft.outcome is not None and draft.outcome.refusal is not None and draft.outcome.refusal.rule == "replay_check":
        return "Replay check: FAILED. The study does not ask this after the totals of the rounds before."
    return (
        f"Replay check: kept. From the totals of the {len(draft.letter.totals)} rounds before, this site computed "
        "itself that the study asks exactly this."
    )


def refusal_lines(draft: Draft) -> list[str]:
    """Return why the site refuses a question; nothing of it leaves."""
    refusal = None if draft.outcome is None else draft.outcome.refusal
    if refusal is None:
        return []
    return [
        f"THIS SITE REFUSES the question. {refusal.rule}: {refusal.reason}.",
        "What would leave: one file that says that this site refuses. The reason stays here.",
    ]


def influence_lines(draft: Draft) -> list[str]:
    """Return how much all answers so far rest on a single row, against the limit."""
    if draft.site is None or draft.outcome is None:
        return []
    asked, rules = draft.outcome.asked, draft.site.run.policy.rounds
    lines = [f"With it, {asked.rounds} questions of this run are answered; {asked.refusals} were refused in all runs."]
    if asked.span is not None:
        found = largest_leverage(asked.span, draft.site.site.chunks)
        lines.append(
            f"Largest influence of one row on all answers so far: {found:.3f} (limit {rules.max_leverage:g}; at 1 an "
            "answer could be about one row)."
        )
    return lines


def _short(value: Any) -> str:
    flat = np.ravel(value)
    shown = ", ".join(f"{number:.6g}" for number in flat[:SHOWN])
    return f"[{shown}{f', and {len(flat) - SHOWN} more' if len(flat) > SHOWN else ''}]"


# ---------------------------------------------------------------- annex

THREATS = (
    ("A row is computed from the file", "sums rest on enough rows, none of which dominates; see the limits"),
    ("A row is computed from two files (rows added, removed or swapped between them)",
     "rows are compared with each earlier release by keyed tags; sets that differ by few rows are refused"),
    ("The same with a column recoded, so that rows are not recognised",
     "sets with nearly as many rows and none in common are refused, unless people state that these are other people"),
    ("A rare group is identified", "every level and pair of levels has no row or enough of them"),
    ("The coordinator chooses a model that follows single rows",
     "the site makes its own starts; an expert that fails is merged away; the number of experts is limited"),
    ("The file is changed on its way, or somebody else sends one", "content hash; signature, if the site has a key"),
    ("Later denial of what left", "the ledger: hash-chained, and its position stands in each file"),
)  # fmt: skip
"""Threats and what is done against each."""

UNPROTECTED = (
    "No noise is added (privacy mechanism: none). The limits are no guarantee of anonymity.",
    "Whoever knows all rows but one can compute that row from the file.",
    (
        "Whoever has the values of a person can guess better than by chance whether the person is among the rows; "
        "'consilience site preview' states how much better, measured at the site."
    ),
    "The file states means, variances and group sizes of the site: they describe its patients as a whole.",
    "Rows are compared with one earlier release at a time, not with combinations of several.",
    "A second folder of the same site knows nothing of what the first released.",
    "People at the site may state that rows are those of other people, where they cannot be compared; it is recorded.",
    "A group of whom all have a property discloses it of each of them: the file has exact counts of pairs of levels.",
    "A site that asks for other levels because a group is too small tells that the group is small.",
    "The policy, the secret of the tags and the ledger are files of the site: who can write them can change the rules.",
)


def annex_of(folder: SiteFolder, study: Study) -> str:
    """Return the page as Markdown."""
    policy = Policy.from_text(folder.policy)
    made = f"Made by consilience {__version__}; no network connection was opened."
    applied = policy.stricter(study.minimum)
    sections = {
        "What is read": _columns(study),
        "What leaves": [
            "One JSON file, after a person approved it. It has no row. Its fields:",
            "",
            *(f"- `{name}`: {meaning}." for name, meaning in FIELDS.items()),
            "- `envelope`: time of release, place in the ledger, and the signature, if the site has a key.",
        ],
        "Releases for this study": _releases(folder, study),
        "Limits that the file keeps": _limits(applied, "site", "experts", "covariates"),
        "Settings of a release": _limits(applied, "release"),
        "Threats and what is done against them": (f"- {threat}: {answer}." for threat, answer in THREATS),
        "What is not protected": (f"- {each}" for each in UNPROTECTED),
    }
    head = [
        f"# Annex on disclosure: {study.name} at {folder.name}",
        f"Study {study.identity}. Policy {policy.identity}, profile {policy.profile_text}. {made}",
    ]
    return "\n\n".join([*head, *("\n".join([f"## {title}", "", *lines]) for title, lines in sections.items())])


def _columns(study: Study) -> Iterator[str]:
    for column in study.columns:
        kind = ", ".join(["category", *map(str, column.levels)]) if column.kind == "category" else "number"
        about = f": {column.about}" if column.about else ""
        yield f"- `{column.name}` ({kind}){about}"


def _releases(folder: SiteFolder, study: Study) -> Iterator[str]:
    found = [entry for entry in folder.entries if entry.kind == "release" and entry.details["study"] == study.identity]
    for entry in found:
        who, rows, file = (entry.details.get(name) for name in ("approved_by", "rows", "file"))
        yield f"- Entry {entry.number} of the ledger, {entry.time}: {rows} rows, approved by {who}, file {file}"
    if not found:
        yield "None yet."


def _limits(policy: Policy, *parts: str) -> Iterator[str]:
    tables = policy.model_dump()
    for part in parts:
        for name, limit in tables[part].items():
            said = COMMENTS[name].replace("\n", " ").removesuffix(", ...").removeprefix("... ").rstrip(".")
            yield f"- `{name}` = {str(limit).lower() if isinstance(limit, bool) else limit}: {said}."

"""What would leave a site, in words and with every check: for the person who approves it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from consilience.files.json_text import bytes_hash, count_numbers
from consilience.files.noisy_file import AnySiteFile, NoisyFile
from consilience.files.site_file import SiteFile
from consilience.fit.parameters import parameters
from consilience.kit.ledger import Entry
from consilience.kit.mail_run import Draft
from consilience.kit.policy.rules import Check
from consilience.kit.release import FitReport
from consilience.kit.study import Study, Trust
from consilience.kit.study_terms import say_formula
from consilience.messages import Failure, decode
from consilience.model.contributions import COUNTED

FIELDS = {
    "study": "which study this is for (a hash of what the study says)",
    "site": "the name of this site",
    "terms": "names of the coefficients, from the study",
    "privacy": "that no noise was added",
    "evidence": "the policy by hash, its profile, and for each rule the limit and whether it was kept; no counts",
    "columns.rows": "the number of rows used",
    "columns.covariate_means": "the mean of each covariate",
    "columns.covariate_products": "variances and covariances of the covariates, times the number of rows; for "
    "categories these are counts of levels and pairs of levels, within about two rows",
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
    "flow": "about how many rows each rule of the cohort left out, and how many lack a value; rounded at random to "
    "multiples of min_rows of the policy",
    "wave": "the wave of the study, as this site states it",
    "data_cut": "the day until which the data reach, as this site states it",
    "stop_reason": "why the fit ended, such as converged",
}
"""What each field of a site file means, in words for a data manager."""
ROUNDED = (
    "Numbers are rounded to a hundredth of their standard errors, or to what two rows move them, whichever is coarser; "
    "only the number of rows is exact."
)
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
NOISY_FIELDS = {
    "study": FIELDS["study"],
    "site": FIELDS["site"],
    "terms": FIELDS["terms"],
    "privacy": "ε, δ, what is protected, and ρ of all sums together",
    "evidence": "the policy by hash, and its profile",
    "steps": "sums of clipped scores and the number of rows, all with noise; and where they were asked, which follows "
    "from the start and from the sums before",
}
"""The same of a file with noise."""
HEAD = {
    "format": "which kind of file this is",
    "version": "version of its format",
    "hash": "hash of the content, by which a change is noticed",
}
LETTER = {
    "run": "which run this is for",
    "study": FIELDS["study"],
    "round": "the number of the round",
    "site": FIELDS["site"],
    "asked": "which question this answers (a hash of it)",
    "answer": "the answer itself, in base64",
}
SEALED = {
    "format": HEAD["format"],
    "version": HEAD["version"],
    "run": LETTER["run"],
    "round": LETTER["round"],
    "site": LETTER["site"],
    "asked": LETTER["asked"],
    "box": "the whole answer, encrypted for the coordinator",
}
ENVELOPE = {
    "time": "when the content was fitted, or answered",
    "ledger": "number and hash of an entry of the ledger: of the fit, or of the last one before the answer",
    "covers": "what the signature covers",
    "kit": "version of the library",
    "signature": "signature by the site's key, if it has one",
}
IN_ENVELOPE = "time of the fit, place in the ledger, version of the kit, signature"
"""What the other parts of a file mean: its head, the content of an answer in a round, the outside of one that only the
coordinator can read, and the envelope."""


def fields_of(file: AnySiteFile) -> Iterator[tuple[str, str, Any]]:
    """Yield name, meaning and content of every field that would leave; a field without a meaning is an error."""
    if isinstance(file, NoisyFile):
        yield from ((name, NOISY_FIELDS[name], value) for name, value in file.content.items())
        return
    for name, value in _leaves("", file.content):
        yield name, FIELDS[name], value


def _leaves(prefix: str, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        name = f"{prefix}{key}"
        if name in FIELDS or not isinstance(value, dict):
            yield name, value
        else:
            yield from _leaves(f"{name}.", value)


def text_of(report: FitReport, entry: Entry, file: bytes, *, numbers: bool = False) -> str:
    """Return the whole preview of the bytes that would leave as text; ``numbers`` adds every number in them."""
    if isinstance(report.file, NoisyFile):
        return _noisy_text(report, report.file, entry, file, numbers=numbers)
    made = f"{entry.time} (entry {entry.number} of the ledger)"
    head = (
        f"Study {report.study_name} ({report.file.study[:15]}...), fitted {made} from {entry.details['rows']:,} rows."
    )
    return f"{head}\n{text_of_report(report, file, numbers=numbers)}"


def text_of_report(report: FitReport, sent: bytes | None = None, *, numbers: bool = False) -> str:
    """Return what a fit would disclose, and every check, as text.

    Without the bytes that would leave, as in a rehearsal, their number is about that of the content.
    """
    file = report.file
    if isinstance(file, NoisyFile):
        raise TypeError("a file with noise is summed, and has no fit: see text_of")
    values = [f"  {name} = {json.dumps(value)}" for name, _, value in fields_of(file)]
    amounts = {name: count_numbers(value) for name, _, value in fields_of(file)}
    kept = sum(check.kept for check in report.checks)
    size = f"of about {len(file.to_text()):,} bytes" if sent is None else file_words(sent)
    parts = [
        f"What would leave {file.site}: one file {size}, with {sum(amounts.values()):,} numbers. No row is in it.",
        *(f"NOTE: {note}" for note in report.notes),
        *mapping_lines(report.mapped),
        *report.flow,
        "",
        *(f"  {name:<30} {_count(amounts[name]):>13}  {meaning}" for name, meaning, _ in fields_of(file)),
        f"  {'(envelope)':<30} {'':>13}  {IN_ENVELOPE}",
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


def _noisy_text(report: FitReport, file: NoisyFile, entry: Entry, sent: bytes, *, numbers: bool) -> str:
    """Return the preview of a file with noise as text."""
    amounts = {name: count_numbers(value) for name, _, value in fields_of(file)}
    size = f"one file {file_words(sent)}, with {sum(amounts.values()):,} numbers"
    privacy, rows = file.privacy, file.steps.sums[-1].values[-1] / COUNTED / file.steps.shares[-1]
    parts = [
        f"Study {report.study_name} ({file.study[:15]}...), summed {entry.time} (entry {entry.number} of the ledger).",
        f"What would leave {file.site}: {size}. No row is in it.",
        WAYS["noise"],
        *(f"NOTE: {note}" for note in report.notes),
        *mapping_lines(report.mapped),
        "",
        *(f"  {name:<30} {_count(amounts[name]):>13}  {meaning}" for name, meaning, _ in fields_of(file)),
        f"  {'(envelope)':<30} {'':>13}  {IN_ENVELOPE}",
        "",
        f"{len(file.steps.sums)} sums, charged as ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g} together.",
        f"The file states about {rows:,.0f} rows: their number has noise.",
    ]
    if numbers:
        parts += ["", "Every number", *(f"  {name} = {json.dumps(value)}" for name, _, value in fields_of(file))]
    return "\n".join(parts)


def mapping_lines(mapped: Sequence[str]) -> list[str]:
    """Return lines on the mapping through which a table was read; none without one."""
    if not mapped:
        return []
    return [f"Read through mapping.toml ({mapped[0]}), which stays here:", *(f"  {each}" for each in mapped[1:])]


def final_lines(report: FitReport) -> list[str]:
    """Return lines on what follows from a release, which a person reads before they approve it."""
    if isinstance(report.file, NoisyFile):
        return [FINAL_WITH_NOISE]
    fewest = next((f"{check.limit:g}" for check in report.checks if check.rule == "min_rows"), "few")
    return FINAL.format(fewest=fewest).splitlines()


FINAL = """\
This release is final. For these rows, in this study and in all others:
- A correction of fewer than {fewest} rows cannot be released later: the difference of the files would disclose them.
- If patients withdraw, they stay in this file. The next release leaves out at least {fewest} others with them, for good
  ('consilience site fit --leave-out-crowd')."""
FINAL_WITH_NOISE = (
    "This release is final. Its noise is drawn and charged: later corrections, and people who withdraw, change nothing "
    "in this file, and a new file spends the budget again."
)
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
        lines.append(f"expert {k + 1}, {100 * model.mass[k] / model.mass.sum():.0f} % of the rows:")
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
    return [leverage, str(report.membership), ROUNDED]


def preview_document(report: FitReport, entry: Entry, file: bytes) -> dict[str, Any]:
    """Return the preview of the bytes that would leave as a JSON object; it has counts and stays at the site."""
    return {
        "site": report.file.site,
        "study": report.file.study,
        "study_name": report.study_name,
        "fitted": entry.time,
        "entry": entry.number,
        "file": bytes_hash(file),
        "bytes": len(file),
        "fields": [
            {"name": name, "meaning": meaning, "numbers": count_numbers(value), "content": value}
            for name, meaning, value in fields_of(report.file)
        ],
        "checks": [
            {**check.stated, "observed": check.observed if isfinite(check.observed) else None, "kept": check.kept}
            for check in report.checks
        ],
        "steps": list(report.steps),
        "notes": list(report.notes),
        "flow": list(report.flow),
        "leverage": report.leverage,
        "membership_auc": None if report.membership is None else report.membership.auc,
    }


def _count(numbers: int) -> str:
    return "" if not numbers else "1 number" if numbers == 1 else f"{numbers:,} numbers"


# ---------------------------------------------------------------- answer preview

WAYS: Mapping[Trust, str] = {
    "limits": (
        "One file leaves, within limits that refuse what is known to give rows away; they are no guarantee, and "
        "someone who knows nearly all rows may learn about the rest."
    ),
    "noise": (
        "Only sums to which this site has added noise leave: whatever the coordinator asks and whatever else is known, "
        "what leaves is (ε, δ)-differentially private for one row."
    ),
    "coordinator": (
        "Exact sums leave, in as many rounds as the study has: the coordinator could compute rows from them, and has "
        "promised under contract not to."
    ),
}
"""What each way between owners means, in one sentence."""
SHOWN = 200
"""Numbers of one array that are printed."""


def answer_text(draft: Draft, study: Study, *, numbers: bool = False) -> str:
    """Return the preview of an answer as text; ``numbers`` adds every number that would leave."""
    letter = draft.letter
    lines = [
        f"Study {study.name} ({study.identity[:15]}...), round {letter.number} of run {letter.run[:15]}...",
        f"Asked: {letter.disclosed}.",
        WAYS[draft.way],
        *say_formula(study),
        *draft.said,
    ]
    if not draft.is_new:
        lines.append("This question was answered before: the same answer leaves again, and nothing more is charged.")
    if draft.reason:
        lines += [
            f"THIS SITE REFUSES the question: {draft.reason}.",
            f"What would leave: one file that says that this site refuses, {file_words(draft.file or b'')}.",
            "The reason stays here.",
        ]
    elif draft.reply is None or draft.file is None:
        lines.append(
            "What would leave: one file with these sums after noise was added. The noise is drawn if you approve."
        )
    elif not isinstance(answer := decode(draft.reply), Failure):
        lines += answer_lines(list(leaves("", answer)), draft.file, numbers=numbers)
    return "\n".join(lines)


def file_words(file: bytes) -> str:
    """Return size and hash of a file in words: those of its bytes on disk."""
    return f"of {len(file):,} bytes, SHA-256 {bytes_hash(file).removeprefix('sha256:')}"


def answer_lines(values: Sequence[tuple[str, Any]], file: bytes, *, numbers: bool) -> list[str]:
    """Return lines on the numbers of an answer that is known, and on the file that has them."""
    count = sum(np.size(value) for _, value in values)
    lines = [
        f"What would leave: one file {file_words(file)}, with {count:,} numbers. No row is in it. By part:",
        *(f"  {name:<44} {np.size(value):>6,}" for name, value in values),
    ]
    return lines + ["", "Every number", *(f"  {name} = {_short(value)}" for name, value in values)] * numbers


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


def _short(value: Any) -> str:
    flat = np.ravel(value)
    shown = ", ".join(f"{number:.6g}" for number in flat[:SHOWN])
    return f"[{shown}{f', and {len(flat) - SHOWN} more' if len(flat) > SHOWN else ''}]"

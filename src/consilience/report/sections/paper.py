"""Text for a paper, ready to be taken over, and what the report cannot say."""

from __future__ import annotations

import numpy as np

from consilience.fitted.protocols import join_words, shared_columns
from consilience.report.findings import Findings
from consilience.report.page import Bullets, Note, Paste, Section
from consilience.report.scale import NaturalStep, round_to, write_minus
from consilience.report.sections.found import percent
from consilience.report.site_words import is_left_out
from consilience.report.verdict import count_word, judge, one_model_bic, own_bic
from consilience.report.wording import with_article

LISTED = 12
"""Maximum number of sites that the text lists."""
STATED = 12
"""Maximum number of effects that the text states."""


def paste_section(findings: Findings) -> Section:
    """Return paragraphs for the methods and the results of a paper."""
    paragraphs = (
        ("Methods", _methods(findings)),
        ("Results", _results(findings)),
        ("Citation", _citation(findings.subject.made.version)),
    )
    small = Note(
        "Written from the numbers of this report; authors add setting, dates, ethics and funding, and read it."
    )
    return Section("Methods and results, ready to paste", "paste", (Paste(paragraphs), small))


def _citation(version: str) -> str:
    what = "one interpretable mixture model from data in many places"
    return f"The Consilience developers. Consilience: {what}, version {version}."


def _methods(findings: Findings) -> str:
    subject, words, model = findings.subject, findings.words, findings.subject.model
    K, experts = model.mixture_.K, model.mixture_.experts
    name = experts.in_papers or experts.family
    names = [words.label(column.name) for column in model.columns_.columns] if model.mixture_.design.d else []
    family = "log-normal" if name == "linear" and words.response.back == "exp" else name.replace("_", " ")
    kind = f"a mixture of {count_word(K)} {family} models" if K > 1 else f"one {family} model"
    what = f"{kind} of {findings.response}"
    given = f" with {join_words(names)} as covariates" if names else ""
    shared = [words.label(name) for name in shared_columns(model)]
    given += f", the coefficients of {join_words(shared)} being equal in all components" if shared else ""
    gate = (
        ", and with the probability of each component depending on covariates (softmax gate)"
        if K > 1 and model.mixture_.gate.reads_covariates
        else ""
    )
    said = [_where(findings, f"{what}{given}{gate}")]
    if subject.is_combined:
        said.append(
            f"{'The components of these' if K > 1 else 'These'} fits were matched and combined by optimal-transport "
            f"aggregation. Heterogeneity is given as I² with test-based 95 % intervals{_of_next(findings)}."
        )
    if any(each.without for each in findings.effects):
        said.append(f"The result was repeated without each {words.sites[0]} in turn.")
    if one_model_bic(subject) is not None and K > 1:
        said.append("It was compared with one model for all by the Bayesian information criterion.")
    said.append(
        f"Analyses used consilience {subject.made.version} (Python {subject.made.python}), seed "
        f"{getattr(model, 'random_state', None)}."
    )
    return " ".join(said)


def _of_next(findings: Findings) -> str:
    """Return how prediction intervals of a further site were computed; empty if there are none."""
    known = [each.agreement for each in findings.effects if each.agreement is not None]
    if not any(np.isfinite(each.next_site[0]) for each in known):
        return ""
    one, several = findings.words.sites
    how = f"(Student’s t, two degrees of freedom fewer than {several})"
    return f" and as 95 % prediction intervals for a further {one} {how}"


def _where(findings: Findings, what: str) -> str:
    subject, words = findings.subject, findings.words
    used = [site for site in subject.sites if not is_left_out(subject, site)]
    if subject.evidence is None:
        return f"We fitted {what}."
    count = len(used) or len(subject.evidence.asked)
    n = f"{count_word(count)} {words.sites[count != 1]}"
    if subject.is_from_files:
        return (
            f"{n[0].upper()}{n[1:]} took part. Each fitted {what} to its own {words.rows[1]} and sent the fit once; no "
            f"record left {with_article(words.sites[0])}."
        )
    noise = f" Noise was added for privacy ({subject.privacy})." if subject.privacy else ""
    fitted = f"We fitted {what} to their {words.rows[1]} without a record leaving {with_article(words.sites[0])}."
    return f"{n[0].upper()}{n[1:]} took part. {fitted}{noise}"


def _results(findings: Findings) -> str:
    subject, words, kinds = findings.subject, findings.words, findings.kinds
    rows = subject.rows_by_site
    listed = f" ({', '.join(f'{name} {n:,.0f}' for name, n in rows.items())})" if 1 < len(rows) <= LISTED else ""
    about = "about " if subject.privacy else ""
    said = [f"We analysed {about}{words.count_rows(subject.model.n_labels_)}{listed}."]
    if len(kinds) > 1:
        several = f"{count_word(len(kinds)).capitalize()} kinds of {words.rows[1]}"
        said.append(f"{several} were distinguished: {join_words([_kind(findings, i) for i in range(len(kinds))])}.")
    stated = [_effect_text(findings, step) for step in findings.steps[:STATED]]
    said += stated
    if len(findings.steps) > STATED:
        said.append("Further effects are in the table.")
    one = one_model_bic(subject)
    if one is not None and len(kinds) > 1:
        figures = write_minus(f"BIC {one:,.0f} against {own_bic(subject.model):,.0f}")
        described = (
            f"described the {words.rows[1]} {'worse' if one > own_bic(subject.model) else 'no worse'} ({figures})"
        )
        estimated = subject.is_from_files and one <= own_bic(subject.model)
        said.append(f"{'As far as the files tell, one' if estimated else 'One'} model for all {described}.")
    return " ".join(said)


def _kind(findings: Findings, i: int) -> str:
    kind, unit = findings.kinds[i], findings.words.response.unit
    value, low, high = kind.typical
    if not np.isfinite(value):
        return f"{kind.name} ({percent(kind.share)})"
    classes = findings.subject.model.mixture_.experts.classes
    shown = [percent(v) if classes else round_to(v) for v in (value, low, high)]
    unit = f" {unit}" if unit and not classes else ""
    interval = f" (95 % CI {shown[1]} to {shown[2]})" if np.isfinite(low) else ""
    return f"{kind.name} ({percent(kind.share)}), typically {shown[0]}{unit}{interval}"


def _effect_text(findings: Findings, step: NaturalStep) -> str:
    own = [each for each in findings.effects if each.step is step]
    several = len(findings.kinds) > 1
    parts = [
        f"{findings.scale.sentence(*each.all)}{f' among {each.kind.name}' if several else ''}"
        f"{f' for {each.response}' if each.response else ''}"
        for each in own
    ]
    return f"{step.title}: {join_words(parts)}."


def limit_section(findings: Findings) -> Section:
    """Return what the report cannot say, each with what would mend it."""
    subject, words = findings.subject, findings.words
    items = [("", each) for each in judge(subject).not_computed]
    if subject.absent:
        named = join_words([f"{name} ({subject.why_absent(name)})" for name in subject.absent])
        items.append(("Absent.", f"The result says nothing about {named}."))
    if subject.is_from_files and findings.subject.model.mixture_.K > 1:
        items.append(("Other numbers of kinds.", f"They need a model of each {words.sites[0]} with as many kinds."))
    if subject.study and not words.period:
        items.append(("Period.", "The study does not state when the data were collected."))
    items.append(("Cause.", "The data are observed, not randomised."))
    return Section("What this report cannot say", "limits", (Bullets(tuple(items)),))

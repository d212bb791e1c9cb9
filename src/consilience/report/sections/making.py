"""How the result was made: the number of kinds, what left each site, and how to get the same result again."""

from __future__ import annotations

from math import isfinite

import numpy as np

from consilience.files.documents import MixtureDocument
from consilience.files.json_text import content_hash
from consilience.fitted.protocols import response_names
from consilience.numerics.arrays import Array
from consilience.report import svg
from consilience.report.findings import Findings
from consilience.report.page import Block, Code, Facts, Figure, Note, Panel, Section, Table
from consilience.report.run_evidence import Exchanged, OrdersCompared
from consilience.report.scale import write_minus
from consilience.report.subject import Subject
from consilience.report.verdict import count_word, in_study_words, one_model_bic, own_bic
from consilience.report.wording import with_article

# ---------------------------------------------------------------------- number of kinds


def number_section(findings: Findings) -> Section | None:
    """Return the comparison of numbers of kinds; of files only those that can be computed from them."""
    subject, K = findings.subject, findings.subject.model.mixture_.K
    orders = subject.orders
    rows = _orders_compared(subject, orders) if orders is not None and len(orders.orders) > 1 else _one_against(subject)
    if len(rows) < 2:
        return None
    what = f"Is {count_word(K)} the right number?" if K > 1 else "Is one model enough?"
    header, caption = ("kinds", "BIC", "remark"), "Number of kinds by Schwarz’s criterion."
    blocks: list[Block] = [Table(caption, header, tuple(rows), (1,), "Less is better.", "number-of-kinds")]
    if any(row[1] == "—" for row in rows):
        blocks.append(
            Note(
                f"A number that cannot be computed from these files needs a model of each {subject.words.sites[0]} "
                "with as many kinds."
            )
        )
    if subject.is_from_files and any(row[0] != "1" and row[1] != "—" for row in rows):
        blocks.append(
            Note("Likelihoods of several kinds are estimated from the files; that of one follows from them by algebra.")
        )
    blocks += _rivals(subject)
    return Section(what, "number", tuple(blocks))


def _one_against(subject: Subject) -> list[tuple[str, str, str]]:
    found, model = one_model_bic(subject), subject.model
    if found is None:
        return []
    by = "by algebra from the files" if subject.is_from_files else ""
    own = (str(model.mixture_.K), write_minus(f"{own_bic(model):,.0f}"), "this report")
    return [("1", write_minus(f"{found:,.0f}"), by), own]


def _orders_compared(subject: Subject, orders: OrdersCompared) -> list[tuple[str, str, str]]:
    """Return one row for each number; a dash where the files of the sites cannot give it."""
    rows = []
    sent = _numbers_sent(subject)
    for i, K in enumerate(orders.orders):
        value, remark = float(orders.values[i]), orders.set_aside.get(str(K), "")
        if sent and K not in sent:
            one = one_model_bic(subject) if K == 1 else None
            value = np.nan if one is None else one
            kinds = " or ".join(map(str, sorted(sent)))
            what = f"cannot be computed from these files, whose models have {kinds}"
            remark = what if one is None else "by algebra from the files"
        if K == subject.model.mixture_.K:
            remark = "this report"
        rows.append((str(K), write_minus(f"{value:,.0f}") if isfinite(value) else "—", remark))
    return rows


def _numbers_sent(subject: Subject) -> set[int]:
    """Return how many kinds the models of the sites have, where sites sent nothing else."""
    return {len(labels) for labels in subject.plan.values()} if subject.is_from_files else set()


def _rivals(subject: Subject) -> list[Block]:
    """Return the log-likelihoods of simpler models beside that of the result."""
    rivals = (None if subject.evidence is None else subject.evidence.rivals) or []
    known = [(each.name, each.log_likelihood) for each in rivals if isfinite(each.log_likelihood)]
    if not known:
        return []
    own = subject.model.log_likelihood_
    shown = [(name.replace("all rows", f"all {subject.words.rows[1]}"), value) for name, value in known]
    rows = tuple((name, write_minus(f"{value:,.1f}")) for name, value in (("this result", own), *shown))
    caption, header = "Log-likelihood beside simpler models.", ("model", "log-likelihood")
    return [Table(caption, header, rows, (1,), "More is better.", "simpler-models")]


# ---------------------------------------------------------------------- the model on rows


def row_section(findings: Findings) -> Section | None:
    """Return how clearly the rows that were passed are told apart, and how predictions agree with them."""
    subject, model = findings.subject, findings.subject.model
    if subject.X is None:
        return None
    rows = model.rows(subject.X, subject.y)
    panels = []
    if model.mixture_.K > 1:
        largest = model.mixture_.responsibilities(rows).max(axis=1)
        shares = [float(np.mean(largest >= p)) for p in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)]
        said = f"{100 * shares[-2]:.0f} % of the rows have one kind with a probability of 90 % or more"
        panels.append(
            Panel(
                "How clearly kinds are told apart",
                svg.curves([50, 60, 70, 80, 90, 95], [(shares, "c0")], [], said),
                -1,
                f"{said}. Across: probability of the likeliest kind in per cent.",
            )
        )
    if len(response_names(model)) == 1 and model.mixture_.design.d:
        panels.append(_calibration(findings, rows.X, rows.Y[:, 0]))
    if not panels:
        return None
    figure = Figure(
        "The model on the rows that it was fitted to.", "New rows agree a little less.", (("", tuple(panels)),)
    )
    return Section("Does the model describe the rows?", "fit", (figure,))


def _calibration(findings: Findings, X: Array, y: Array) -> Panel:
    """Return the shares of rows below each predicted quantile, or the frequency of a class by its probability."""
    model = findings.subject.model
    p = np.linspace(0.1, 0.9, 9)
    if model.mixture_.experts.classes or model.mixture_.experts.size_name is not None:
        predicted, seen = model.mixture_.mean(X)[:, -1], y
        order = np.array_split(np.argsort(predicted, kind="stable"), 10)
        pairs = [(float(predicted[part].mean()), float(np.mean(seen[part]))) for part in order if len(part)]
        worst = max(abs(a - b) for a, b in pairs)
        said = f"Ten groups of rows by predicted {findings.response}: the means seen differ by {worst:.3g} at most"
        top = max(max(pair) for pair in pairs) or 1.0
        lines = [([b / top for _, b in pairs], "c0"), ([a / top for a, _ in pairs], "thin")]
        return Panel(
            "Predicted and seen",
            svg.curves(list(range(1, len(pairs) + 1)), lines, [], said),
            -1,
            f"{said}. Thick: seen. Thin: predicted.",
        )
    below = [float(np.mean(y <= model.mixture_.quantile(X, float(q)))) for q in p]
    worst = max(abs(a - b) for a, b in zip(below, p, strict=True))
    said = f"Share of rows below each predicted quantile: at most {100 * worst:.1f} points from what it should be"
    lines = [(below, "c0"), (list(p), "thin")]
    return Panel(
        "Predicted and seen",
        svg.curves([100 * q for q in p], lines, [], said),
        -1,
        f"{said}. Thick: seen. Thin: ideal.",
    )


# ---------------------------------------------------------------------- noise

MEANING = (
    "Each {site} added noise to what it sent. However much else is known, and whatever the coordinator asked, what "
    "left it says little of any one {row}: the smaller ε, the less. The number of {rows} is known up to noise, too."
)
"""What the noise is for, for a reader without statistics."""


def noise_section(findings: Findings) -> Section | None:
    """Return budget, rounds and forecast of a fit with noise; None without noise."""
    subject, words = findings.subject, findings.words
    if not subject.privacy:
        return None
    facts = {"guarantee": subject.privacy}
    noise = None if subject.evidence is None else subject.evidence.noise
    if noise is not None:
        shares = ", ".join(f"{100 * share:.0f} %" for share in noise.shares)
        facts |= {
            f"spent at each {words.sites[0]}": f"ε = {noise.epsilon:g} at δ = {noise.delta:g} (ρ = {noise.rho:.4f})",
            "what is protected": f"one {noise.unit} of {with_article(words.sites[0])}, added or removed",
            "standard errors, as forecast at the start": f"{noise.ratio:.2f} times those without noise",
        }
        found = ", ".join(f"{each:.2g}" for each in noise.surprises)
        if noise.by_file:
            facts |= {
                "end": "settled: the files agree up to noise and chance" if noise.settled else noise.unsettled,
                "misfit of the files, 1 is noise and chance": found,
            }
        else:
            facts |= {
                "rounds": f"{len(noise.shares)}, with {shares} of the budget",
                "end": "settled: the last total is no more than noise and chance" if noise.settled else noise.unsettled,
                "totals by round, 1 is noise and chance": found,
            }
    meaning = MEANING.format(site=words.sites[0], row=words.rows[0], rows=words.rows[1])
    return Section("What noise protects, and what it costs", "noise", (meaning, Facts(tuple(facts.items()))))


# ---------------------------------------------------------------------- what left, and how to repeat it


def left_section(findings: Findings) -> Section | None:
    """Return what left each site: its file, or its answers."""
    subject, words = findings.subject, findings.words
    if subject.evidence is None:
        return None
    blocks: list[Block] = []
    if subject.files:
        blocks += [_file_table(subject), *_on_files(subject)]
    else:
        blocks += _answers(subject, subject.evidence.exchanged)
    if subject.study:
        stated = tuple((name, value or "not stated") for name, value in subject.governance.items())
        blocks += ["What the study states about the use of the data:", Facts(stated)] if stated else []
    return Section(f"What left each {words.sites[0]}", "left", tuple(blocks))


def _file_table(subject: Subject) -> Table:
    rows = tuple(
        (f.site, f.name, f"{f.size:,}", f"{f.numbers:,}", "0", f.policy or "—", f.released or "—", f.kit or "—")
        for f in subject.files
    )
    header = (subject.words.sites[0], "file", "bytes", "numbers", subject.words.rows[1], "policy", "fitted", "kit")
    note = "Bytes are those on disk; kit is the version of consilience that fitted."
    return Table("One file of each.", header, rows, (2, 3, 4), note, "files")


def _on_files(subject: Subject) -> list[Block]:
    if subject.is_noise_by_file:
        sums = f"sums of clipped scores and the number of {subject.words.rows[1]}, all with noise"
        where = "the models at which each sum was computed, which follow from the start and from the sums before"
        return [f"The numbers are {sums}, and {where}. Noise was added: {subject.privacy}."]
    limits = "No noise was added: limits refuse what is known to give records away, and are no guarantee."
    return [
        f"The numbers are means and products of the columns, the {subject.words.sites[0]}’s own model with its "
        "precision, a coarse summary of the covariates, and the limits of the policy that were kept. Each file can be "
        "read as text. " + (f"Noise was added: {subject.privacy}." if subject.privacy else limits),
    ]


def _answers(subject: Subject, record: Exchanged) -> list[Block]:
    """Return what was asked, and how many bytes left each site."""
    site = subject.words.sites[0]
    seen = {True: "the sum alone", False: f"the answer of each {site}"}
    asked = tuple(
        (in_study_words(subject, each.discloses), str(each.times), seen[each.request == "Total"])
        for each in record.asked
    )
    rows = tuple((each.site, f"{each.answers:.0f}", f"{each.size:,.0f}") for each in record.answered)
    header = ("what an answer has", "times", "what the coordinator sees")
    times = f"{record.rounds} {'round' if record.rounds == 1 else 'rounds'}"
    return [
        f"{times}; {record.received:,} bytes came from the {subject.words.sites[1]}. No record left one.",
        *(f"Limit of the run: {in_study_words(subject, each)}." for each in record.limits),
        *([f"Noise was added: {subject.privacy}."] if subject.privacy else []),
        Table("What was asked.", header, asked, (1,), key="questions"),
        Table(f"Answers of each {site}.", (site, "answers", "bytes"), rows, (1, 2), key="answers", long=len(rows) > 24),
    ]


def _provenance(subject: Subject) -> list[tuple[str, str]]:
    """Return what a model file alone states of where the model is from."""
    stored = {} if subject.evidence is not None else getattr(subject.model, "provenance_", {})
    return [(name.replace("_", " "), str(value)) for name, value in stored.items()]


def again_section(findings: Findings) -> Section:
    """Return the commands, hashes, seed and versions by which the result is got again."""
    subject, model, made = findings.subject, findings.subject.model, findings.subject.made
    facts = [
        *subject.origin.items(),
        *((f"SHA-256 of {file.name}", file.digest) for file in subject.files),
        ("hash of the model’s parameters", content_hash(MixtureDocument.of(model.mixture_))),
        ("seed", str(getattr(model, "random_state", None))),
        *_provenance(subject),
        ("software", f"consilience {made.version}, Python {made.python}, {made.system}"),
    ]
    blocks: list[Block] = [Code("\n".join(subject.commands))] if subject.commands else []
    blocks.append(Facts(tuple(facts)))
    if subject.files:
        blocks.append(
            "The same files give the same model. A hash is that of the bytes of a file, as sha256sum prints it."
        )
    return Section("How to get the same result again", "again", tuple(blocks))

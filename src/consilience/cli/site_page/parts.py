"""The sections of the local page of a site: what is asked, was read, would leave and has left."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from consilience._version import __version__
from consilience.cli.output import plain_time
from consilience.cli.preview import FIELDS, IN_ENVELOPE, NOISY_FIELDS, RULES, UNSAID, WAYS, attack_lines, fields_of
from consilience.cli.site_page.live_run import live_blocks
from consilience.cli.site_page.next_step import STATES, Standing
from consilience.cli.site_page.state import SiteState
from consilience.files.json_text import count_numbers
from consilience.files.noisy_file import NoisyFile
from consilience.kit import ledger
from consilience.kit.policy.rules import Check
from consilience.kit.release import LastFit
from consilience.kit.spending import NOT_COVERED, say_spent
from consilience.kit.study import Study
from consilience.kit.study_notes import ColumnNote, StudyNotes
from consilience.kit.study_words import governance_of, words_of
from consilience.report.page import Block, Bullets, Cell, Drawing, Facts, Note, Section, Table, Tag
from consilience.report.svg import histogram, limit_bar
from consilience.report.wording import Words

AT_MOST = {
    "max_experts", "column_dominance", "dominance", "residual_dominance", "missing_information", "information",
}  # fmt: skip
"""Rules that limit from above; the others from below."""
MOST_NUMBERS = 20_000
"""Maximum number of numbers of a file that the page lists."""
MOST_ENTRIES = 500
"""Maximum number of entries of the ledger that the page lists."""


def page_sections(state: SiteState, found: Sequence[Standing]) -> list[Section]:
    """Return the sections of the page; those of a study are of the one that was at work last."""
    current = found[0].study if found else ""
    study, notes = state.studies.get(current, (None, None))
    mine = None if state.last is None or state.last.report.file.study != current else state.last
    return [
        _asked(state, study, found),
        *_live(state),
        *_read(notes, study),
        *_leaves(mine),
        *_about_one(mine),
        _budget(state),
        _left(state),
        _ledger(state),
        _identity(state),
        *_numbers(mine),
    ]


NOT_STATED = Tag("not stated", "care")


def _asked(state: SiteState, study: Study | None, found: Sequence[Standing]) -> Section:
    """Return what the study asks in words, and the studies of this site."""
    blocks: list[Block] = []
    if study is not None:
        words = words_of(study)
        rounds = "answers in rounds, each of which a person approves, or within a mandate that people signed"
        once = "one file, once" if study.is_one_file else rounds
        read = ", ".join(_label(words, study, each.name) for each in (study.response, *study.sources.columns))
        facts: list[tuple[str, str | Tag]] = [
            ("Study", f"{study.name}: {words.title}"),
            ("Question", words.question or NOT_STATED),
            ("What leaves", WAYS[study.way]),
            ("How often", once),
            ("Columns that are read", read),
        ]
        facts += [("Rows that are used", "; ".join(rule.text for rule in study.cohort))] if study.cohort else []
        facts += [(name.capitalize(), said or NOT_STATED) for name, said in governance_of(study).items()]
        blocks.append(Facts(tuple(facts)))
        if any(value is NOT_STATED for _, value in facts):
            blocks.append(Note("Ask the coordinator for what is not stated before anything leaves."))
    rows = tuple((state.name_of(e.study), f"{e.study[:23]}…", plain_time(e.time), STATES[e.state][0]) for e in found)
    if rows:
        blocks.append(Table("Studies at this site.", ("study", "hash", "since", "state"), rows))
    return Section("What is asked", "asked", tuple(blocks) or ("No study was looked at here yet.",))


def _live(state: SiteState) -> Iterator[Section]:
    """Yield the live run: the mandate, what is asked now, and where the program stands."""
    if state.live is not None:
        yield Section("The live run and its mandate", "live", live_blocks(state.live))


def _label(words: Words, study: Study, name: str) -> str:
    """Return the label of a column with its name."""
    label = words.response.label if name == study.response.name else words.label(name)
    return name if label == name else f"{label} ({name})"


def _read(notes: StudyNotes | None, study: Study | None) -> Iterator[Section]:
    """Yield what the table gave: the flow, and its columns."""
    if notes is None or notes.reading is None or study is None:
        return
    reading, words = notes.reading, words_of(study)
    rows = tuple(_column_row(_label(words, study, each.name), each, reading.fewest) for each in reading.columns)
    blocks: list[Block] = [
        "If a mean or a unit looks wrong here, stop and correct the table: others see only the means.",
        Facts((("Table", reading.table_path), ("Read", f"{plain_time(reading.time)} UTC"))),
        Bullets(tuple(("", line) for line in reading.lines)),
    ]
    if rows:
        note = (
            f"Groups of fewer than {reading.fewest} rows are not counted, and their bars are drawn as {reading.fewest}."
        )
        header = ("column", "missing", "in words", "distribution")
        blocks.append(Table("What was read, column by column.", header, rows, (1,), note))
    found = tuple(("", each) for each in reading.findings)
    blocks += [Bullets(found)] if found else []
    yield Section("What was read", "read", tuple(blocks))


def _column_row(label: str, column: ColumnNote, fewest: int) -> tuple[Cell, ...]:
    missing = f"{column.missing:,}"
    if column.levels:
        total = sum(each.rows or 0 for each in column.levels)
        said = "; ".join(_level_words(each.level, each.rows, total, fewest) for each in column.levels[:12])
        more = f"; and {len(column.levels) - 12} more" if len(column.levels) > 12 else ""
        bars = [fewest if each.rows is None else each.rows for each in column.levels]
        return (label, missing, said + more, Drawing(histogram(bars, f"Bars of the levels of {label}")))
    if not column.bars or column.low is None or column.high is None:
        return (label, missing, column.said or "too few values to describe", "")
    drawn = histogram(column.bars, f"Distribution of {label} from {column.low:.3g} to {column.high:.3g}")
    said = f"{column.said}; drawn from {column.low:.3g} to {column.high:.3g}".replace("-", "−")
    return (label, missing, said, Drawing(drawn))


def _level_words(level: str, rows: int | None, total: int, fewest: int) -> str:
    return f"{level}: under {fewest}" if rows is None else f"{level}: {rows:,} ({100 * rows / max(total, 1):.0f} %)"


def _leaves(last: LastFit | None) -> Iterator[Section]:
    """Yield what would leave, field by field, and each rule with its worst case."""
    if last is None:
        return
    report = last.report
    meaning = NOISY_FIELDS if isinstance(report.file, NoisyFile) else FIELDS
    fields = tuple((meaning[name], _said_count(value)) for name, _, value in fields_of(report.file))
    blocks: list[Block] = [
        "One file for people to read, without any row. Its parts, and how many numbers each has:",
        Table("What the file has.", ("part", "numbers"), (*fields, (IN_ENVELOPE, "")), (1,), long=True),
    ]
    if report.checks:
        note = "Closest to its limit first, and of each rule the closest case. What was found stays here."
        header = ("rule", "found", "limit", "used of the limit", "share", "where", "result")
        blocks.append(Table("Your policy, rule by rule.", header, tuple(_rule_rows(report.checks)), (1, 2, 4), note))
    notes = (*report.notes, *report.steps, *report.mapped[1:])
    blocks += [Bullets(tuple(("", each) for each in notes))] if notes else []
    yield Section("The file, against your policy", "leaves", tuple(blocks))


def _said_count(value: Any) -> str:
    return f"{count_numbers(value):,}" if count_numbers(value) else ""


PARTS = {"rows_per_expert": "rows of an expert", "rows_per_class": "rows of a class of the covariates"}
"""Rules whose words need the place where they apply."""


def _rule_rows(checks: Sequence[Check]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each rule, of its case closest to the limit; a number of rows below the limit is not said."""
    worst: dict[str, tuple[float, Check]] = {}
    for check in checks:
        share = _share(check)
        if check.rule not in worst or share > worst[check.rule][0]:
            worst[check.rule] = (share, check)
    for share, check in sorted(worst.values(), key=lambda each: -each[0]):
        most, percent = check.rule in AT_MOST, " %" if RULES[check.rule].startswith("percent") else ""
        words = PARTS.get(check.rule) or RULES[check.rule].removeprefix("percent of ")
        found = f"{check.observed:,.3g}{percent}" if check.kept and check.observed < 1e6 else f"under {check.limit:g}"
        found = f"{check.observed:,.0f}" if check.kept and not percent and 10 <= check.observed < 1e6 else found
        said = "none" if check.observed == float("inf") else found if check.kept or not most else "over"
        limit = f"{'at most' if most else 'at least'} {check.limit:g}{percent}"
        used = f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"
        where = "whole table" if check.scope == "site" else check.scope
        result = Tag("kept", "yes") if check.kept else Tag("failed", "no")
        yield words, said, limit, Drawing(limit_bar(share, f"{used} of the limit is used")), used, where, result


def _share(check: Check) -> float:
    if check.rule in AT_MOST:
        return check.observed / check.limit if check.limit else 0.0
    return check.limit / check.observed if check.observed > 0 else (2.0 if check.limit > 0 else 0.0)


def _about_one(last: LastFit | None) -> Iterator[Section]:
    """Yield what the file says about one person, as far as it was measured."""
    if last is not None and not isinstance(last.report.file, NoisyFile):
        lines = tuple(("", line) for line in attack_lines(last.report))
        yield Section("How much it says about one person", "person", (Bullets(lines), Note(UNSAID)))


def _budget(state: SiteState) -> Section:
    """Return what answers with noise have spent, and on what."""
    found = state.budget
    blocks: list[Block] = [say_spent(found)]
    rows = tuple(
        (state.name_of(each["study"]), f"{each['answers']:,}", plain_time(each["first"]), plain_time(each["last"]),
         f"{each['epsilon']:.3g}")
        for each in found["spent_on"]
    )  # fmt: skip
    if rows:
        header = ("study", "sums", "first", "last", "ε alone")
        blocks.append(Table("What the budget was spent on.", header, rows, (1, 4)))
    if found["not_covered"]:
        entries = [str(each["entry"]) for each in found["not_covered"]]
        said = f"{'entry' if len(entries) == 1 else 'entries'} {', '.join(entries)}"
        blocks.append(Note(f"Left without noise: {said} of the ledger. {NOT_COVERED}"))
    return Section("Budget of answers with noise", "budget", tuple(blocks))


def _left(state: SiteState) -> Section:
    """Return the files and answers that left: when, size, hash, and who approved."""
    rows = tuple(_left_row(state, entry) for entry in state.entries if entry.kind in ledger.LEFT)
    if not rows:
        return Section("What has left", "left", ("Nothing has left this site.",))
    header = ("entry", "when (UTC)", "study", "what", "bytes", "sha256", "approved by")
    note = "The hash is that of 'sha256sum FILE'."
    return Section("What has left", "left", (Table("What has left this site.", header, rows, (4,), note, long=True),))


def _left_row(state: SiteState, entry: ledger.Entry) -> tuple[Cell, ...]:
    details = entry.details
    named = str(details.get("file", "")).removeprefix("sha256:")
    size = f"{state.sizes.get(entry.number, details.get('bytes', 0)):,}"
    who = str(details.get("approved_by") or "")
    return (
        str(entry.number),
        plain_time(entry.time),
        state.name_of(state.study_of(entry)),
        _what_left(entry),
        size,
        named,
        who or NOT_STATED,
    )


LONGEST_ASKED = 80
"""Maximum length of what an answer was asked for, in the table of what left; the live run has it as a whole."""


def _what_left(entry: ledger.Entry) -> str:
    asks = str(entry.details.get("asks", ""))
    asks = f"{asks[:LONGEST_ASKED]}…" if len(asks) > LONGEST_ASKED else asks
    return f"{ledger.what_left(entry)}{f': {asks}' if asks else ''}"


SAID_OF = {
    "init": "folder of the site made", "check": "table checked", "fit": "own model fitted; nothing left",
    "preview": "preview read", "decline": "not approved", "release": "file released", "refusal": "refused",
    "run": "run begun", "answer": "answer approved", "policy": "policy changed", "key": "key made",
    "repair": "ledger repaired", "charge": "noise charged", "retraction": "earlier file retracted",
    "withdrawal": "site withdrew", "signature": "file signed with a new key",
    "draft": "prepared for approval", "approval": "approved or signed",
}  # fmt: skip
"""What each kind of entry of the ledger means."""


def _ledger(state: SiteState) -> Section:
    """Return the ledger in words."""
    entries = state.entries[-MOST_ENTRIES:]
    rows = tuple(
        (str(e.number), plain_time(e.time), SAID_OF.get(e.kind, e.kind), state.name_of(state.study_of(e)), _by_whom(e))
        for e in entries
    )
    note = f"The chain of its {len(state.entries):,} entries is whole."
    if len(entries) < len(state.entries):
        note += f" The last {len(entries)} are listed; 'consilience site log show' lists all."
    header = ("entry", "when (UTC)", "what", "study", "by")
    return Section("What happened here", "ledger", (Table("The ledger.", header, rows, (), note, long=True),))


def _by_whom(entry: ledger.Entry) -> str:
    found = (entry.details.get(name) for name in ("approved_by", "declined_by", "decided_by"))
    return next((str(each) for each in found if each), "")


def _identity(state: SiteState) -> Section:
    """Return key, policy, version and the end of the ledger."""
    copy = "Keep a copy of the whole folder: without secret.key it cannot be used again."
    return Section("Key, policy and version", "identity", (
        Facts((
            ("Public key", state.key or Tag("none", "care", "Files are unsigned: 'consilience site key' makes one.")),
            ("Policy", f"profile {state.policy.profile_text}; {state.policy.identity}"),
            ("Ways it allows", ", ".join(state.policy.privacy.allow) or "none"),
            ("Program", f"consilience {__version__}"),
            ("Ledger", f"{len(state.entries):,} entries; the last is {ledger.head_of(state.entries)}"),
            ("Copy", copy),
        )),
    ))  # fmt: skip


def _numbers(last: LastFit | None) -> Iterator[Section]:
    """Yield every number of the file."""
    if last is None:
        return
    found = [each for each in fields_of(last.report.file) if each[0] != "evidence"]  # the rules stand above
    if sum(count_numbers(value) for _, _, value in found) > MOST_NUMBERS:
        yield Section(
            "Every number", "numbers", ("They are too many for a page: 'consilience site preview --numbers'.",)
        )
        return
    rows = tuple((name, meaning, json.dumps(value)) for name, meaning, value in found)
    table = Table("Every number of the file.", ("field", "in words", "content"), rows, long=True)
    yield Section("Every number", "numbers", (table,), supplement=True)

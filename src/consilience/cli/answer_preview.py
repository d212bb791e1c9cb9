"""What the answer to a question would disclose, in words and numbers: for the person who approves it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from consilience.cli.preview import UNSAID
from consilience.files.study import Study
from consilience.messages.failures import Failure
from consilience.messages.table import decode
from consilience.site.policy.rounds.leverage import largest_leverage
from consilience.studies.mail import Draft

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
        f"Asked: {letter.asks}.",
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
    """Yield the arrays and numbers of an answer with their names.

    Examples
    --------
    >>> from consilience.model.summary import ColumnSummary
    >>> [name for name, _ in leaves("", ColumnSummary.unit(1, 1))][:2]
    ['weight', 'x_mean']
    """
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

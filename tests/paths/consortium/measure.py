"""Count what each role does in the trial, and write benchmarks/results/consortium.json: ``just consortium``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.lib.provenance import provenance
from benchmarks.lib.study import RESULTS, Record, table, versions
from paths.consortium.trial import (
    COORDINATOR,
    READER,
    ROLES,
    SITES,
    Act,
    Trial,
    one_file_per_site,
    under_contract,
    with_noise,
)

WAYS: dict[str, Callable[[Trial], object]] = {
    "One file per site": one_file_per_site,
    "In rounds under contract, with the same folders": under_contract,
    "In rounds with noise, with the same folders": with_noise,
}


def main() -> None:
    """Carry out the trial in all ways and write its figures."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        tables = measure(Trial(Path(root), Path(sys.executable).parent))
    result = {"command": "just consortium", "seconds": round(time.perf_counter() - began), "versions": versions()}
    text = json.dumps({**result, **provenance("consortium"), "tables": tables}, indent=1, ensure_ascii=False)
    (RESULTS / "consortium.json").write_text(text + "\n", encoding="utf-8")


def measure(trial: Trial) -> list[Record]:
    """Carry out the trial in all ways; one table for each."""
    tables = []
    for title, carry_out in WAYS.items():
        before = len(trial.acts)
        carry_out(trial)
        tables.append(table(title, figures(trial.acts[before:])))
    return tables


def figures(acts: Sequence[Act]) -> list[Record]:
    """Return what each role did: numbers of all places together, minutes of one person."""
    return [row(role, mine) for role in ROLES if (mine := [act for act in acts if act.role == role])]


def row(role: str, acts: Sequence[Act]) -> Record:
    people = 1 if role in {COORDINATOR, READER} else len(SITES)
    number = {kind: sum(act.kind == kind for act in acts) for kind in ("command", "text", "file")}
    return {
        "role": role,
        "people": people,
        "commands": number["command"],
        "texts by hand": number["text"],
        "files sent": number["file"],
        "words to read": sum(act.words for act in acts),
        "computing (s)": round(sum(act.seconds for act in acts)),
        "minutes of one person": round(sum(act.minutes for act in acts) / people, 1),
    }


if __name__ == "__main__":
    main()

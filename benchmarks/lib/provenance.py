"""Where a stored result comes from: its command, commit, date and machine, its draws, and whether they had been seen.

``Study.save`` writes all of it. Results of studies that began before it did so lack some entries: ``python -m
benchmarks.lib.provenance`` (``just provenance``) fills in what the history of the file tells, and says of the rest
that it was not recorded. No figure is changed.
"""

from __future__ import annotations

import json
import platform
import subprocess
import tomllib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
ENTRIES = ("command", "commit", "date", "machine", "seeds", "seen")
SEEN = ("yes", "no", "in part", "nothing is tuned")
"""Whether draws were seen while rules were tuned; ``draws.toml`` says what the words mean."""
UNKNOWN = "not recorded"


def provenance(name: str) -> dict[str, str]:
    """Return what is known of a study that ends now."""
    commit = git("rev-parse", "--short=12", "HEAD") + "-changed" * bool(
        git("status", "--porcelain", "src", "benchmarks/*.py")
    )
    return {"commit": commit, "date": datetime.now(UTC).date().isoformat(), "machine": machine(), **drawn(name)}


def drawn(name: str) -> dict[str, str]:
    """Return the seeds of a result, and whether its draws had been seen."""
    seeds, seen = draws().get(name, (UNKNOWN, UNKNOWN))
    return {"seeds": seeds, "seen": seen}


@cache
def draws() -> dict[str, tuple[str, str]]:
    """Return the table of draws by the name of the result."""
    table: dict[str, tuple[str, str]] = tomllib.loads((HERE / "draws.toml").read_text(encoding="utf-8"))
    return table


def completed(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with all entries: those that it lacks are from the history of its file."""
    if set(ENTRIES) <= set(result):
        return result
    commit, _, date = git("log", "-1", "--format=%h %cs", "--abbrev=12", "--", str(path)).partition(" ")
    known = {
        "commit": f"{commit} (when it was stored)" if commit else UNKNOWN,
        "date": date or UNKNOWN,
        "machine": UNKNOWN,
    }
    known |= drawn(path.stem) | {entry: result[entry] for entry in ENTRIES if entry in result}
    first = {entry: known.pop(entry) for entry in ENTRIES if entry in known}
    return {**first, **{entry: value for entry, value in result.items() if entry not in ENTRIES}}


def machine() -> str:
    """Return the processor, its cores and the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    cores = f"{len(models)} processors, " if models else ""
    return f"{models[0] if models else platform.processor() or platform.machine()}, {cores}{platform.system()}"


def git(*arguments: str) -> str:
    """Return what git prints; nothing where there is no repository."""
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def main() -> None:
    for path in sorted((HERE / "results").glob("*.json")):
        text = path.read_text(encoding="utf-8")
        stamped = json.dumps(completed(path, json.loads(text)), indent=1, ensure_ascii=False) + "\n"
        if stamped != text:
            path.write_text(stamped, encoding="utf-8")


if __name__ == "__main__":
    main()

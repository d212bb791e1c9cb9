"""Studies import, their stored results name the commands that made them, and short ones show what they claim.

``just studies`` runs the quick forms of all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "benchmarks").glob("*/[a-z]*.py")
)
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def python(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def quick(module: str) -> list[list[dict[str, Any]]]:
    """The rows of each table that the quick form of a study writes."""
    python("-m", module, "--quick")
    name = module.rpartition(".")[2]
    result = json.loads((ROOT / "benchmarks" / "scratch" / f"{name}-quick.json").read_text(encoding="utf-8"))
    assert result["command"] == f"python -m {module} --quick"
    return [table["rows"] for table in result["tables"]]


def test_studies_import() -> None:
    python("-c", "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]", *MODULES)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_name_the_study_that_made_them(path: Path) -> None:
    interpreter, module = json.loads(path.read_text(encoding="utf-8"))["command"].split(" -m ")
    assert interpreter == "python"
    assert module in MODULES
    assert module.rpartition(".")[2] == path.stem

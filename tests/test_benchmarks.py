"""Studies import, their stored results name the commands that made them, and short ones show what they claim.

``just studies`` runs the quick forms of all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.provenance import ENTRIES, SEEN, UNKNOWN, completed, draws, provenance

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


@pytest.mark.slow
def test_studies_import() -> None:
    python("-c", "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]", *MODULES)


def names_its_study(path: Path) -> bool:
    whole = json.loads(path.read_text(encoding="utf-8"))["command"]
    if whole == f"just {path.stem}":
        return f"\n{path.stem}:\n" in (ROOT / "Justfile").read_text(encoding="utf-8")
    interpreter, command = whole.split(" -m ")
    module, *flags = command.split()
    name = "_".join([module.rpartition(".")[2], *(flag.removeprefix("--") for flag in flags)])
    return interpreter == "python" and module in MODULES and name == path.stem


def test_results_name_the_study_that_made_them() -> None:
    assert [path.name for path in RESULTS if not names_its_study(path)] == []


def test_results_name_commit_date_machine_and_draws() -> None:
    for path in RESULTS:
        made = completed(path, json.loads(path.read_text(encoding="utf-8")))
        assert all(made[entry] for entry in ENTRIES), path.name
        assert made["seen"] in SEEN, f"{path.name}: add it to benchmarks/draws.toml"
        assert (made["seeds"], made["seen"]) == tuple(draws()[path.stem]), path.name


def test_a_hold_out_was_not_seen_and_a_result_without_a_note_is_completed(tmp_path: Path) -> None:
    kept_apart = {name for name, (_, seen) in draws().items() if name.endswith("_hold-out") and seen == "no"}
    assert "wrong_sites_hold-out" in kept_apart
    assert "wrong_sites" not in kept_apart
    old = {"command": "python -m benchmarks.em.starts", "seconds": 1, "versions": {}, "tables": [{"rows": [{"a": 1}]}]}
    made = completed(tmp_path / "starts.json", old)
    assert {name: made[name] for name in old} == old
    assert (made["machine"], made["commit"]) == (UNKNOWN, UNKNOWN)
    assert provenance("starts")["machine"] != UNKNOWN


@pytest.mark.slow
def test_honest_sites_agree_on_labels() -> None:
    (rows,) = quick("benchmarks.sites.alignment")
    assert {(row["30 % of the sites"], row["sites"]) for row in rows} == set(
        product(("noise", "one wrong model"), (100, 1000))
    )
    for row in rows:
        assert row["all honest sites agree"] == f"{row['draws']} of {row['draws']}"


@pytest.mark.slow
def test_em_is_as_fast_as_the_missing_information_says() -> None:
    methods, _, rates = quick("benchmarks.em.smoline")
    gaps = {row["method"].split(",")[0]: row["gap after 50"] for row in reversed(methods)}  # plain EM comes first
    assert gaps["EM"] <= gaps["gradient EM"] < gaps["gradient descent"]
    assert gaps["EM"] < 1e-12
    printed = next(row for row in methods if "as printed" in row["method"])
    assert printed["to 1e-02"] == "never"
    assert len(rates) == 8
    for row in rates:
        assert row["EM's own, median"] == pytest.approx(row["predicted rate, median"], rel=0.01)


@pytest.mark.long
def test_a_round_over_many_sites_costs_little_more_than_its_sums() -> None:
    def costs() -> list[float]:
        (rows,) = quick("benchmarks.speed.many_sites")
        assert [row["information"] for row in rows] == [False, True]
        return [row["CPU / bare kernel, median"] for row in rows]

    assert max(costs()) <= 3 or max(costs()) <= 3  # once more, since other programs use the machine too


@pytest.mark.long
def test_of_many_honest_sites_none_is_named() -> None:
    ((row,),) = quick("benchmarks.one_shot.one_shot_scale")
    assert row["sites"] == 50
    assert row["sites named"] == 0
    assert row["memory, MB"] - row["of which before"] < 500

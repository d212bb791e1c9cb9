"""Size of the source tree, and the files that common tasks cross, now and at an earlier commit.

Code lines are lines without docstrings, comments and blanks. A file is crossed by a task if one of its functions runs,
in any thread. The earlier commit is checked out into a temporary folder; without the history of the repository only
the present tree is measured.
"""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from benchmarks.lib.study import Record, Study, rounded, table

ROOT = Path(__file__).parents[2]
BEFORE = "3cab395"
Value = TypeVar("Value")
SMALL = 60
"""Code lines below which a module with a single importer needs a reason."""
FIT = """
from sklearn.datasets import load_iris
from consilience import MixtureOfExpertsRegressor
data = load_iris().data
begin()
MixtureOfExpertsRegressor(2, random_state=0).fit(data[:, :3], data[:, 3])
"""
FEDERATED = """
from sklearn.datasets import load_iris
from consilience import Federation, MixtureOfExpertsRegressor, FederatedEM, OneShot
data = load_iris().data
sites = Federation({name: (data[i::3, :3], data[i::3, 3]) for i, name in enumerate(("a", "b", "c"))})
begin()
sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=METHOD)
"""
KIT = """
import os
import shutil
import pyarrow.parquet as pq
from typer.testing import CliRunner
from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY, hospitals
open("study.toml", "w").write(STUDY)
def command(text, answer=None):
    done = CliRunner().invoke(app, text.split(), input=answer)
    assert done.exit_code == 0, done.output + repr(done.exception)
tables = hospitals()
for name, each in tables.items():
    pq.write_table(each, f"{name}.parquet")
begin()
for name in tables:
    command(f"site init {name}")
    command(f"site fit {name} study.toml {name}.parquet")
    command(f"site preview {name}")
    command(f"site release {name} -o {name}.json --by A", "y\\n")
files = " ".join(f"{name}.json" for name in tables)
command(f"combine study.toml {files} -o model.json --report report.html")
command("report model.json -o again.html")
"""
TASKS = {
    "local fit": FIT,
    "FederatedEM, three sites": FEDERATED.replace("METHOD", "FederatedEM()"),
    "OneShot, three sites": FEDERATED.replace("METHOD", "OneShot(refine=1)"),
    "site fit, preview, release, combine, report": KIT,
}
PROFILE = """
import json, sys, threading, warnings
warnings.simplefilter("ignore")
crossed, top = set(), sys.argv[1]
def note(frame, event, _):
    if event == "call" and frame.f_code.co_name != "<module>" and frame.f_code.co_filename.startswith(top):
        crossed.add((frame.f_code.co_filename, frame.f_code.co_qualname))
def begin():
    threading.setprofile(note)
    sys.setprofile(note)
"""
REPORT = """
sys.setprofile(None)
threading.setprofile(None)
print(json.dumps(sorted(crossed)))
"""


def crossed(tree: Path, task: str) -> list[tuple[str, str]]:
    """The functions that run in a task: their files and their names."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "CONSILIENCE_DATA": ""}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROFILE + task + REPORT, str(tree / "src" / "consilience")],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(file, name) for file, name in json.loads(done.stdout.splitlines()[-1])]


def count_crossed(tree: Path, task: str) -> tuple[int, int]:
    """The numbers of files and of functions that run in a task."""
    functions = crossed(tree, task)
    return len({file for file, _ in functions}), len(functions)


def modules_of(tree: Path) -> dict[str, Path]:
    source = tree / "src" / "consilience"
    return {".".join(file.relative_to(source).with_suffix("").parts): file for file in sorted(source.rglob("*.py"))}


def code_lines(text: str) -> tuple[int, int]:
    """The numbers of code lines and of those that import."""
    tree, docstrings, imports, lines = ast.parse(text), set[int](), set[int](), set[int]()
    for node in ast.walk(tree):
        span = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", None) or 0) + 1)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(span)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(span)
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings), len(imports)


def importers(modules: dict[str, Path]) -> dict[str, set[str]]:
    """The modules that import each module; an ``__init__`` that hands a name on is no importer."""
    users = defaultdict(set)
    for module, file in modules.items():
        for each in imported(file.read_text(encoding="utf-8"), modules):
            if each != module and not module.endswith("__init__"):
                users[each].add(module)
    return users


def imported(text: str, modules: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "consilience":
            base = (node.module or "").removeprefix("consilience").lstrip(".")
            for name in node.names:
                yield from [each for each in (f"{base}.{name.name}".lstrip("."), base) if each in modules][:1]


def single_importers(modules: dict[str, Path]) -> dict[str, int]:
    """Modules with one importer, and their code lines."""
    users = importers(modules)
    return {
        module: code_lines(modules[module].read_text(encoding="utf-8"))[0]
        for module in modules
        if len(users[module]) == 1 and not module.endswith("__init__")
    }


def homonyms(modules: dict[str, Path]) -> dict[str, list[str]]:
    """Public functions and classes that several modules define."""
    homes = defaultdict(list)
    for module, file in modules.items():
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    return {name: where for name, where in homes.items() if len(where) > 1}


def measured(tree: Path) -> dict[str, Record]:
    modules = modules_of(tree)
    counts = [code_lines(file.read_text(encoding="utf-8")) for file in modules.values()]
    code, imports = (sum(each) for each in zip(*counts, strict=True))
    single = single_importers(modules)
    size = {
        "files": len(modules),
        "code lines": code,
        "imports, % of code lines": rounded(100 * imports / code),
        "median code lines of a file": sorted(each for each, _ in counts)[len(counts) // 2],
        "modules with one importer": len(single),
        f"of these below {SMALL} code lines": sum(lines < SMALL for lines in single.values()),
        "public names defined in several modules": len(homonyms(modules)),
    }
    return {"size": size, "crossed": {name: count_crossed(tree, task) for name, task in TASKS.items()}}


def at_commit(commit: str, measure: Callable[[Path], Value] = measured) -> Value | None:
    """What is measured at an earlier commit; None if this copy does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = shutil.which("git") or "git"
        made = subprocess.run(
            [git, "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, capture_output=True, check=False
        )
        if made.returncode:
            return None
        try:
            return measure(tree.resolve())
        finally:
            subprocess.run([git, "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def main() -> None:
    study = Study(__file__, __doc__)
    now, before = measured(ROOT), None if study.quick else at_commit(BEFORE)
    sizes = [
        {"measure": name, f"at {BEFORE}": before and before["size"][name], "now": value}
        for name, value in now["size"].items()
    ]
    ways = []
    for name, (files, functions) in now["crossed"].items():
        old = before["crossed"][name] if before else (None, None)
        fewer = None if old[0] is None else f"{100 * (1 - files / old[0]):.0f} %"
        ways.append({
            "task": name, f"files at {BEFORE}": old[0], "files now": files, "fewer": fewer,
            f"functions at {BEFORE}": old[1], "functions now": functions,
        })  # fmt: skip
    study.save(table("The source tree", sizes), table("Files and functions that run in a task", ways))


if __name__ == "__main__":
    main()

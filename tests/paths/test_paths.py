"""The scripts of docs/paths, from the built wheel in a fresh environment, print what the documentation shows.

If a transcript should change, the test names the file with the new one: look at it, and copy it to docs/paths.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from shells import ROOT, shell

PATHS = ROOT / "docs" / "paths"
SCRIPTS = sorted(PATHS.glob("*.py"))
LONGEST = 120.0
"""Seconds from an empty folder to the first model, with the installation."""
TOLERANCE = 0.02
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
VARYING = {
    r"^(round \d+, \w+).*": r"\1",  # seconds, and whether it came from the journal
    r"interrupted in round \d+": "interrupted in round …",  # a round or two may end before the signal arrives
    r"[\d,]+ bytes sent, [\d,]+ received": "… bytes sent, … received",  # since the run was resumed
    r"\(\d+ iterations\)": "(… iterations)",
    r"[=-]{4,}": "----",  # lines of a table are as long as its numbers
    r"\d{4}-\d\d-\d\dT[\d:]+Z": "…",
    r"sha256:[0-9a-f.]+|\b[0-9a-f]{64}\b|ed25519:[\w+/=]+": "…",
    r"(fitted_by|account) \w+": r"\1 …",
    r"kit [\w.]+": "kit …",
    r"\s+": " ",
}


@dataclass(frozen=True)
class Environment:
    """A virtual environment, the wheel for it, and the seconds that it took to make it: on the wall and of CPU."""

    python: Path
    wheel: Path
    wall: float = 0.0
    cpu: float = 0.0

    def variables(self) -> dict[str, str]:
        """What a shell outside any project sets: no PYTHONPATH, no other environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        return {**kept, "PYTHONUNBUFFERED": "1"}

    def install(self, *requirements: str) -> None:
        checked(self.python, "-m", "pip", "install", "--quiet", *requirements, env=self.variables())

    def start(self, script: Path, folder: Path, errors: Path) -> subprocess.Popen[str]:
        with errors.open("w") as file:
            before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by jobs in the background
            try:
                return subprocess.Popen(
                    [self.python, script],
                    cwd=folder,
                    env=self.variables(),
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,
                )
            finally:
                signal.signal(signal.SIGINT, before)

    def transcript(self, script: Path, folder: Path) -> tuple[str, float]:
        """What a script prints in its folder, and after how many seconds its first line."""
        errors, began = folder.parent / "errors.txt", time.monotonic()
        with self.start(script, folder, errors) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            first = time.monotonic() - began
            said += process.stdout.read()
        assert process.returncode == 0, errors.read_text(encoding="utf-8")
        return said, first


def clocks() -> tuple[float, float]:
    """Wall time, and CPU time of the processes that this one started and that have ended."""
    times = os.times()
    return time.monotonic(), times.children_user + times.children_system


def checked(*command: str | Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel without extras, and pandas, which a user of pandas has."""
    folder = tmp_path_factory.mktemp("paths")
    checked(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    wall, cpu = clocks()
    checked(sys.executable, "-m", "venv", folder / "venv")
    Environment(python, wheel).install(str(wheel), "pandas")
    yield Environment(python, wheel, clocks()[0] - wall, clocks()[1] - cpu)
    shutil.rmtree(folder)  # some hundred megabytes


@pytest.fixture(scope="module")
def complete(core: Environment) -> Environment:
    """The same with the extras."""
    core.install(f"{core.wheel}[dask,plot,secure]")
    return core


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def compare(printed: str, name: str, folder: Path, *, left_out: str = "") -> None:
    """Words are the same, numbers nearly: other versions of numerical libraries round differently."""
    new = folder.parent / f"{name}.txt"
    new.write_text(printed, encoding="utf-8")
    shown = (PATHS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    expected = [line for line in shown if not left_out or left_out not in line]
    for line, other in zip_longest(map(plain, printed.splitlines()), map(plain, expected), fillvalue=""):
        assert NUMBER.sub("#", line) == NUMBER.sub("#", other), f"the new transcript is {new}"
        for a, b in zip(NUMBER.findall(line), NUMBER.findall(other), strict=True):
            close = math.isclose(value(a), value(b), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            assert close, f"{line!r} instead of {other!r}; the new transcript is {new}"


def plain(line: str) -> str:
    for pattern, text in VARYING.items():
        line = re.sub(pattern, text, line)
    return line.strip()


def value(number: str) -> float:
    return float(number.replace(",", ""))


@pytest.mark.long
def test_scikit_learn_user_has_a_model_within_two_minutes(core: Environment, empty: Path) -> None:
    printed, first = core.transcript(PATHS / "scikit_learn_user.py", empty)
    sys.stdout.write(f"installed in {core.wall:.0f} s ({core.cpu:.0f} s of CPU), first model {first:.0f} s later\n")
    compare(printed, "scikit_learn_user", empty)
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    assert (core.cpu if busy else core.wall) + first <= LONGEST  # the time of others does not count


@pytest.mark.long
def test_biostatistician(complete: Environment, empty: Path) -> None:
    printed, _ = complete.transcript(PATHS / "biostatistician.py", empty)
    compare(printed, "biostatistician", empty)


@pytest.mark.long
def test_data_manager_and_privacy_officer(complete: Environment, empty: Path) -> None:
    began = time.monotonic()
    script = (PATHS / "data_manager.sh").read_text(encoding="utf-8")
    printed = shell(f"exec 2>&1\n{script}", empty, complete.python.parent)
    sys.stdout.write(f"from the study to the file in {time.monotonic() - began:.0f} s, with the demonstration\n")
    compare(printed, "data_manager", empty)
    assert json.loads((empty / "ash.json").read_text(encoding="utf-8"))["content"]["site"] == "ash"
    assert "What would leave" not in (empty / "demonstration.txt").read_text(encoding="utf-8")


@pytest.mark.long
def test_r_user(complete: Environment, empty: Path) -> None:
    with_r = shutil.which("Rscript") is not None
    if with_r and subprocess.run(["Rscript", "-e", "library(jsonlite)"], capture_output=True, check=False).returncode:
        pytest.skip("R is here, but without jsonlite")
    printed, _ = complete.transcript(PATHS / "r_user.py", empty)
    compare(printed, "r_user", empty, left_out="" if with_r else "R predicts the same")
    assert (empty / "rootogram.png").stat().st_size > 0


@pytest.mark.long
def test_platform_engineer_presses_ctrl_c_and_goes_on(complete: Environment, empty: Path) -> None:
    script, errors = PATHS / "platform_engineer.py", empty.parent / "errors.txt"
    with complete.start(script, empty, errors) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("round 3,"):
                time.sleep(0.3)  # into the next round
                os.killpg(process.pid, signal.SIGINT)
                break
        process.stdout.read()
    *_, sentence = errors.read_text(encoding="utf-8").strip().splitlines()
    assert process.returncode == -signal.SIGINT, errors.read_text(encoding="utf-8")

    printed, _ = complete.transcript(script, empty)
    command = f"$ python {script.name}\n"
    printed = re.sub(r"predict: [0-7] of 8 files\n", "", printed)  # a line now and then on a slow machine
    whole = "".join([command, *said, "^C\n", f"{sentence}\n", command, printed]).replace(f"{empty}/", "")
    compare(whole, script.stem, empty)
    replayed = [line.endswith("from the journal") for line in printed.splitlines() if line.startswith("round ")]
    assert all(replayed[:3])
    assert not all(replayed)
    assert len(list((empty / "scores").glob("*.parquet"))) == len(list((empty / "claims").iterdir())) == 8


def listed() -> set[str]:
    """The names of docs/reference.rst, in full."""
    module, names = "", set()
    for line in (ROOT / "docs" / "reference.rst").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(r"   (\w[\w.]*)", line):
            names.add(f"{module}.{found[1]}")
    return names


def used(script: Path) -> set[str]:
    """The names of consilience that a script uses, in full: those that it imports, with what it reads of them."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    local = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "consilience":
            local |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            local |= {alias.asname or "consilience": alias.name for alias in node.names if "consilience" in alias.name}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    chains = [dotted(node) for node in ast.walk(tree) if id(node) not in inner]
    return {".".join([local[root], *rest]) for root, *rest in filter(None, chains) if root in local}


def dotted(node: ast.AST) -> list[str]:
    """The parts of a dotted name; none of other expressions."""
    if isinstance(node, ast.Name):
        return [node.id]
    before = dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*before, node.attr] if before else []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_names_of_a_script_are_in_the_reference(script: Path) -> None:
    names, documented = used(script), listed()
    assert names
    for name in names:
        parts = name.split(".")
        assert any(".".join(parts[: i + 1]) in documented for i in range(1, len(parts))), name
    assert not re.search(r"\._\w", script.read_text(encoding="utf-8"))  # nothing private of a result either


def test_five_users_have_short_scripts_with_transcripts() -> None:
    names = ["biostatistician", "platform_engineer", "r_user", "scikit_learn_user"]
    assert [script.stem for script in SCRIPTS] == names
    page = (PATHS / "index.rst").read_text(encoding="utf-8")
    for script in [*SCRIPTS, PATHS / "data_manager.sh"]:
        assert len(script.read_text(encoding="utf-8").splitlines()) <= 60, script.name
        assert f"literalinclude:: {script.name}" in page
        assert f"literalinclude:: {script.stem}.txt" in page

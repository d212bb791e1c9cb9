"""The command line elsewhere: from the README alone, from a bundle without a network, and without a socket."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from consilience.datasets.hospitals import STUDY, hospitals

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = 180.0
"""Seconds that the demonstration may take."""
pytestmark = pytest.mark.long


def variables(*first: Path) -> dict[str, str]:
    """The environment of a shell outside any project, with a folder of programs in front."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "PATH": os.pathsep.join([*map(str, first), kept["PATH"]]), "NO_COLOR": "1"}


def shell(text: str, folder: Path, *first: Path) -> str:
    """Run lines of a shell in a folder; the first that fails is an error."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=folder,
        env=variables(*first),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def console_of(title: str) -> str:
    """The console lines of a section of the README."""
    section = re.search(rf"^## {title}$(.*?)^## ", README, flags=re.MULTILINE | re.DOTALL)
    assert section, f"README.md has no section {title!r}"
    return "".join(re.findall(r"^```console\n(.*?)^```$", section[1], flags=re.MULTILINE | re.DOTALL))


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def test_the_commands_of_the_readme_in_a_fresh_environment(tmp_path: Path) -> None:
    install = console_of("Quick start")
    assert "pip install" in install
    shell(f"{sys.executable} -m venv venv", tmp_path)
    programs = tmp_path / "venv" / "bin"
    shell(install, ROOT, programs)
    used, began = os.times(), time.monotonic()
    said = shell(console_of("One file per site"), tmp_path, programs)
    after = os.times()
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    assert (cpu if busy else time.monotonic() - began) < LONGEST
    assert "one exchange against pooled: max |Δcoef|/SE = 0." in said
    assert "What would leave ash" in said
    shutil.rmtree(programs.parent)  # some hundred megabytes


def test_a_bundle_installs_and_runs_where_there_is_no_network(tmp_path: Path) -> None:
    needs("just")
    needs("unshare")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow a network namespace of one's own")
    bundle = tmp_path / "bundle"
    shell(f"just --justfile {ROOT / 'Justfile'} bundle {bundle}", ROOT, Path(sys.executable).parent)
    lines = f"""
    ! grep -v -e lo: -e Inter -e face /proc/net/dev
    {sys.executable} -m venv venv
    venv/bin/python -m pip install --quiet --no-index --find-links {bundle} 'consilience[secure]'
    venv/bin/consilience doctor
    venv/bin/consilience demo hospitals --no-input
    """
    (tmp_path / "lines.sh").write_text(lines)
    said = shell("unshare -rn bash -e lines.sh", tmp_path)
    assert "max |Δcoef|/SE = 0." in said
    shutil.rmtree(bundle)
    shutil.rmtree(tmp_path / "venv")


TOUR = """
consilience init draft.toml --from ash.parquet --response log_days
consilience site init ash --profile research
consilience site check ash study.toml ash.parquet
consilience site fit ash study.toml ash.parquet
consilience site preview ash
consilience site release ash -o ash.json --no-input
consilience site log verify ash ash.json
consilience site annex ash study.toml
consilience doctor --site ash
consilience combine study.toml ash.json -o model.json
consilience show model.json --words
consilience predict model.json ash.parquet -o scored.csv
consilience demo hospitals --no-input
"""


def test_the_whole_tour_opens_no_internet_socket(tmp_path: Path) -> None:
    needs("strace")
    (tmp_path / "study.toml").write_text(STUDY)
    pq.write_table(hospitals()["ash"], tmp_path / "ash.parquet")
    (tmp_path / "tour.sh").write_text(TOUR)
    programs = Path(sys.executable).parent
    tracing = "strace -f -qq -e trace=network -o calls.txt"
    shell(f"{tracing} bash -e tour.sh > /dev/null", tmp_path, programs)
    assert not re.findall(r"AF_INET6?\b.*", (tmp_path / "calls.txt").read_text())
    probe = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM)"  # the trace would show one
    shell(f"{tracing} {sys.executable} -c '{probe}'", tmp_path, programs)
    assert "AF_INET" in (tmp_path / "calls.txt").read_text()

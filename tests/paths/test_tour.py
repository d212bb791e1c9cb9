"""The command line elsewhere: from the README alone, and without a socket. From a bundle: test_bundle.py."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from consilience.datasets.hospitals import STUDY, hospitals
from shells import ROOT, needs, shell

README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = 60.0
"""Seconds that the demonstration may take."""
pytestmark = pytest.mark.long


def console_of(title: str) -> str:
    """The console lines of a section of the README."""
    section = re.search(rf"^## {title}$(.*?)^## ", README, flags=re.MULTILINE | re.DOTALL)
    assert section, f"README.md has no section {title!r}"
    return "".join(re.findall(r"^```console\n(.*?)^```$", section[1], flags=re.MULTILINE | re.DOTALL))


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

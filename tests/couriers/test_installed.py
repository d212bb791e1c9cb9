"""What a live run needs beside the library itself: the package cryptography, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement

from consilience.couriers.letter_stores import FolderStore
from letter_servers import needs_nginx
from mail_office import TABLES, study_with
from serving_office import ServingOffice

pytestmark = pytest.mark.slow
PLAN = study_with('name = "OneShot", refine = 1')
FEW = {name: TABLES[name].slice(0, 300) for name in list(TABLES)[:2]}
ANSWERING, WAITING = FEW
"""The site that answers with all that is needed, and one that has not: an answer that was made needs no key."""
WITHOUT = """
from importlib.machinery import PathFinder
names, found = set({names!r}), PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name.partition(".")[0] in names else found(name, *more)
from consilience.cli.app import main
main()
"""


def closure(extras: tuple[str, ...]) -> set[str]:
    """Names of the packages that an installation with these extras brings."""
    found, waiting = set[str](), [("consilience", extras)]
    while waiting:
        name, asked = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for text in metadata.requires(name) or ():
            each = Requirement(text)
            environments = [{"extra": extra} for extra in (*asked, "")]
            if each.marker is None or any(each.marker.evaluate(where) for where in environments):
                waiting.append((canonical(each.name), tuple(each.extras)))
    return found


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def absent(*extras: str) -> set[str]:
    """Modules that are installed here, and would not be in an installation with these extras."""
    kept = closure(extras)
    modules = metadata.packages_distributions().items()
    return {module for module, owners in modules if not kept & {canonical(owner) for owner in owners}}


def command(place: Path, without: set[str], *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command where modules are missing."""
    code = WITHOUT.format(names=sorted(without))
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=place,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def first_line(place: Path, without: set[str], name: str) -> str:
    """What the program of a site says first."""
    serve = ("site", "serve", name, "--in", "sites", "--store", "store", "--table", f"{name}.parquet")
    code = WITHOUT.format(names=sorted(without))
    running = subprocess.Popen([sys.executable, "-c", code, *serve], cwd=place, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    with running:
        line = running.stderr.readline()
        running.terminate()
        running.stderr.read()
    return line


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> ServingOffice:
    place = tmp_path_factory.mktemp("office")
    found = ServingOffice(place, PLAN, lambda _: FolderStore(place / "store"), tables=FEW)
    assert found.advance() is None
    found.post.step()
    lines = [f'[[sites]]\nname = "{name}"\nkey = "{each.public_key}"' for name, each in found.folders.items()]
    (place / "roster.toml").write_text("\n".join(['format = "consilience-roster"', "version = 1", *lines]) + "\n")
    (place / "study.toml").write_text(PLAN.to_text())
    for name, table in FEW.items():
        pq.write_table(table, place / f"{name}.parquet")
    return found


def test_the_extra_has_one_package_and_what_that_one_needs() -> None:
    assert closure(("secure",)) - closure(()) <= {"cryptography", "cffi", "pycparser"}
    assert {"boto3", "moto", "requests"} <= absent("secure")


@needs_nginx
def test_signing_enrolling_carrying_and_answering_need_no_other_package(office: ServingOffice) -> None:
    place, without = office.path, absent("secure")
    begin = ("run", "study.toml", "--mailbox", "box", "--roster", "roster.toml")
    enrol = ("live", "enrol", "box", "--roster", "roster.toml", "--url", "https://localhost:8443")
    for words, status in (
        (begin, 6),
        (enrol, 0),
        (("live", "nginx", "box", "store"), 0),
        (("live", "post", "box", "store2"), 0),
        (("live", "watch", "box", "--json"), 0),
    ):
        ended = command(place, without, *words)
        assert ended.returncode == status, ended.stderr
    assert "state=answered" in first_line(place, without, ANSWERING)


def test_without_cryptography_each_command_names_the_extra(office: ServingOffice) -> None:
    place, without = office.path, absent()
    assert "cryptography" in without
    ended = command(place, without, "live", "enrol", "box", "--roster", "roster.toml", "--url", "https://localhost:1")
    assert ended.returncode != 0
    assert "consilience[secure]" in ended.stderr, ended.stderr
    said = first_line(place, without, WAITING)
    assert "state=fault" in said
    assert "consilience[secure]" in said

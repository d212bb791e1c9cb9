"""The offline bundle: what is in it for which platform, and the whole way from it where there is no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from consilience._version import __version__
from consilience.datasets.hospitals import STUDY, hospitals
from console import check_shown, console_steps
from paths.consortium.trial import COORDINATOR, HUB, Trial, one_file_per_site, under_contract
from shells import ROOT, needs, shell, variables
from tools.bundle import EXTRAS, platform_of_uv, requirement, tags_of, write_sums


def test_a_newer_glibc_runs_wheels_for_older_ones_and_other_platforms_have_one_tag() -> None:
    assert tags_of("manylinux_2_18_x86_64") == [
        "manylinux_2_18_x86_64",
        "manylinux_2_17_x86_64",
        "manylinux2014_x86_64",
    ]
    assert tags_of("win_amd64") == ["win_amd64"]


def test_a_platform_has_the_name_that_the_resolver_knows() -> None:
    assert platform_of_uv("win_amd64") == "x86_64-pc-windows-msvc"
    assert platform_of_uv("manylinux_2_28_aarch64") == "aarch64-manylinux_2_28"
    assert platform_of_uv("macosx_14_0_arm64") == "aarch64-apple-darwin"
    with pytest.raises(SystemExit, match="expected win_amd64"):
        platform_of_uv("windows")


def test_the_extras_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [extra for extra in EXTRAS if not re.search(rf"^{extra} = \[", project, flags=re.MULTILINE)] == []


def test_requirements_and_sums_name_the_hash_of_each_file(tmp_path: Path) -> None:
    wheel = tmp_path / "some_package-1.2-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    digest = sha256(b"a wheel").hexdigest()
    assert requirement(wheel) == f"some_package==1.2 --hash=sha256:{digest}\n"
    write_sums(tmp_path)
    write_sums(tmp_path)  # its own is not among them
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  {wheel.name}\n"


# ---------------------------------------------------------------- bundles


def bundled(folder: Path, *options: str) -> Path:
    """Make a bundle by the command of the house."""
    needs("just")
    shell(f"just --justfile {ROOT / 'Justfile'} bundle {folder} {' '.join(options)}", ROOT, Path(sys.executable).parent)
    shell("sha256sum --check --strict --quiet SHA256SUMS", folder)
    return folder


def packages(folder: Path) -> dict[str, str]:
    """Platform of each wheel, by the name of its package."""
    names = (path.stem.split("-") for path in folder.glob("*.whl"))
    return {name: platform for name, *_, platform in names}


@pytest.mark.long
def test_a_bundle_for_windows_has_what_windows_needs_and_a_list_of_it(tmp_path: Path) -> None:
    folder = bundled(tmp_path / "bundle", "--platform", "win_amd64", "--python", "3.12")
    found = packages(folder)
    assert set(found.values()) == {"any", "win_amd64"}
    assert {"consilience", "colorama", "cryptography", "matplotlib", "openpyxl", "pyreadstat"} <= set(found)
    listed = json.loads((folder / "sbom.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert {each["name"] for each in listed["components"]} == set(found)
    assert all(each["externalReferences"][0]["hashes"] for each in listed["components"])
    shutil.rmtree(folder)


# ---------------------------------------------------------------- without a network


@pytest.fixture(scope="module")
def namespace() -> str:
    """A program that runs others in a namespace without interfaces."""
    needs("unshare")
    for command in ("unshare -n", "unshare -rn"):  # as root; otherwise with a user namespace
        if not subprocess.run([*command.split(), "true"], capture_output=True, check=False).returncode:
            return command
    pytest.skip("this system does not allow a network namespace of one's own")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, namespace: str) -> Iterator[Path]:
    """A folder with the bundle, and an environment that was made of it in the namespace."""
    folder = tmp_path_factory.mktemp("offline")
    bundled(folder / "bundle")
    pip = "venv/bin/python -m pip install --quiet --no-index --find-links bundle"
    lines = [
        "! grep -v -e lo: -e Inter -e face /proc/net/dev",
        f"{sys.executable} -m venv venv",
        f"{pip} consilience",  # a report needs no extra
        "! venv/bin/python -c 'import matplotlib' 2> /dev/null",
        "venv/bin/consilience demo hospitals --no-input",
        "test -s hospitals/report.html",
        f"{pip} --require-hashes -r bundle/requirements.txt",
    ]
    assert "max |Δcoef|/SE = 0." in within(namespace, "\n".join(lines), folder)
    yield folder
    shutil.rmtree(folder)  # some hundred megabytes


def within(namespace: str, lines: str, folder: Path) -> str:
    (folder / "lines.sh").write_text(f"set -o pipefail\n{lines}\n")
    return shell(f"{namespace} bash -e lines.sh 2>&1", folder)


@pytest.mark.long
def test_from_a_bundle_to_the_report_without_a_network(place: Path, namespace: str) -> None:
    """Carry out the trial of tests/paths/consortium, by files and in rounds, without an interface."""
    needs("script")
    trial = Trial(place / "trial", place / "venv" / "bin", within=namespace)
    trial.root.mkdir()
    report = one_file_per_site(trial)
    assert report.count("<svg") >= 3
    assert "4 of 4 hospitals were used" in report
    assert "4 of 4 hospitals were used" in under_contract(trial)
    trial.run(COORDINATOR, HUB, "report model.json -o again.html")
    trial.run(COORDINATOR, HUB, "show model.json --words")
    trial.run(COORDINATOR, HUB, "predict model.json ../delft/delft.csv -o scored.csv")
    assert all(act.typed.startswith("consilience ") for act in trial.acts if act.kind == "command")


# ---------------------------------------------------------------- the page for administrators

PAGE = ROOT / "docs" / "how-to" / "administrators.rst"
INIT = "consilience site init north --quiet"
MARK = "=== the next command of the page ==="
CONTRACT = 'trust = "coordinator"\nmethod = { name = "OneShot", refine = 1 }\n[model]'


LATER = "99.0"
SHOWN = {"kit 0.1.0,": f"kit {__version__},", "kit 0.1.1,": f"kit {LATER},"}
"""Versions on the page, and those of the bundles that are made here."""


def upgraded(bundle: Path, folder: Path) -> None:
    """Make the bundle of a later version: this checkout with another number."""
    shutil.copytree(bundle, folder)
    with tempfile.TemporaryDirectory() as copy:
        for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
            shell(f"cp -r {ROOT / name} {copy}", ROOT)
        version = Path(copy) / "src" / "consilience" / "_version.py"
        version.write_text(version.read_text().replace(__version__, LATER))
        (earlier,) = folder.glob("consilience-*.whl")
        earlier.unlink()
        shell(f"{sys.executable} -m pip wheel --quiet --no-deps --wheel-dir {folder} {copy}", ROOT)
    wheels = sorted(folder.glob("*.whl"))
    (folder / "requirements.txt").write_text("".join(map(requirement, wheels)))
    write_sums(folder)


def carried_out(steps: Sequence[tuple[str, str]], first: str, folder: Path, within: str = "") -> None:
    """Run commands of the page in one shell, a person saying yes to every question, and look for what is shown."""
    lines = [line for command, _ in steps for line in (f"echo; echo '{MARK}'", command)]
    (folder / "page.sh").write_text("\n".join([first, *lines]))
    done = subprocess.run(
        [*within.split(), "bash", "-c", "bash page.sh 2>&1"],
        cwd=folder,
        env={**variables(), "PYTHONUNBUFFERED": "1"},
        input="y\n" * 100_000,
        capture_output=True,
        text=True,
        check=False,
    )
    _, *printed = done.stdout.split(MARK)
    assert len(printed) == len(steps)
    for (command, shown), text in zip(steps, printed, strict=True):
        check_shown(shown, text, command)
        assert "error CSL" not in text or "error CSL" in shown, f"{command}\n{text}"


def is_of_container(step: tuple[str, str]) -> bool:
    return re.search(r"\b(podman|kit|10001)\b", step[0]) is not None


@pytest.mark.long
def test_the_commands_of_the_page_for_administrators_do_what_it_shows(
    place: Path, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "bundle").symlink_to(place / "bundle")
    upgraded(place / "bundle", tmp_path / "bundle-new")
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "rounds.toml").write_text(STUDY.replace("[model]", CONTRACT))
    pq.write_table(hospitals()["ash"], tmp_path / "north.parquet")
    steps = [
        (command, re.sub(r"kit [\d.]+,", lambda found: SHOWN[found[0]], shown))
        for command, shown in console_steps(PAGE)
        if not is_of_container((command, shown))
    ]
    begin = next(i for i, (command, _) in enumerate(steps) if command == INIT)
    steps.insert(begin + 1, ('sed -i \'s/^allow = .*/allow = ["limits", "coordinator"]/\' north/policy.toml', ""))
    carried_out(steps, "", tmp_path, namespace)
    for name in ("venv", "venv-new", "bundle-new"):
        shutil.rmtree(tmp_path / name)  # some hundred megabytes


@pytest.mark.long
def test_an_image_is_built_of_the_bundle_and_runs_as_the_page_says(place: Path, tmp_path: Path) -> None:
    """Use the base that CONSILIENCE_BASE_IMAGE names: an image with this version of Python."""
    needs("podman")
    base = os.environ.get("CONSILIENCE_BASE_IMAGE")
    if base is None:
        pytest.skip("CONSILIENCE_BASE_IMAGE names no image with Python to build on")
    (tmp_path / "bundle").symlink_to(place / "bundle")
    steps = [step for step in console_steps(PAGE) if is_of_container(step)]
    steps = [(re.sub(r"BASE=\S+", f"BASE={base}", command), shown) for command, shown in steps]
    assert len(steps) == 5
    carried_out(steps, "shopt -s expand_aliases", tmp_path)

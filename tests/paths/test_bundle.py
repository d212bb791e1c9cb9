"""The offline bundle: what is in it for which platform, and the whole way from it where there is no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from consilience.datasets.hospitals import STUDY, hospitals
from shells import ROOT, needs, shell
from tools.bundle import EXTRAS, platform_of_uv, requirement, tags_of, write_sums

NAMES = sorted(hospitals())


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


@pytest.fixture
def namespace() -> str:
    """A program that runs others in a namespace without interfaces."""
    needs("unshare")
    for command in ("unshare -n", "unshare -rn"):  # as root; otherwise with a user namespace
        if not subprocess.run([*command.split(), "true"], capture_output=True, check=False).returncode:
            return command
    pytest.skip("this system does not allow a network namespace of one's own")


def site_lines(name: str) -> Iterator[str]:
    """What a site runs, from its folder to its file."""
    yield f"consilience site init {name} --in sites --quiet"
    yield f"consilience site check {name} study.toml {name}.parquet --in sites"
    yield f"consilience site fit {name} study.toml {name}.parquet --in sites"
    yield f"echo y | consilience site release {name} -o {name}.json --in sites"
    key = f"$(consilience site key {name} --in sites)"
    yield f'printf \'\\n[[sites]]\\nname = "{name}"\\nkey = "%s"\\n\' {key} >> roster.toml'
    yield f"consilience doctor --site {name} --in sites"


@pytest.mark.long
def test_from_a_bundle_to_the_report_without_a_network(tmp_path: Path, namespace: str) -> None:
    bundle = bundled(tmp_path / "bundle")
    (tmp_path / "study.toml").write_text(STUDY)
    for name in NAMES:
        pq.write_table(hospitals()[name], tmp_path / f"{name}.parquet")
    pip = "venv/bin/python -m pip install --quiet --no-index --find-links bundle"
    files = " ".join(f"{name}.json" for name in NAMES)
    lines = [
        "set -o pipefail",
        "! grep -v -e lo: -e Inter -e face /proc/net/dev",
        f"{sys.executable} -m venv venv",
        "export PATH=$PWD/venv/bin:$PATH",
        f"{pip} consilience",  # a report needs no extra
        "! python -c 'import matplotlib' 2> /dev/null",
        "consilience demo hospitals --no-input",
        "test -s hospitals/report.html",
        f"{pip} --require-hashes -r bundle/requirements.txt",
        "venv/bin/python -m pip check",
        "printf 'format = \"consilience-roster\"\\nversion = 1\\n' > roster.toml",
        *(line for name in NAMES for line in site_lines(name)),
        f"consilience combine study.toml {files} --roster roster.toml --report report.html --tables tables",
        "consilience report model.json -o again.html",
        "consilience show model.json --words",
        "consilience predict model.json ash.parquet -o scored.csv",
    ]
    (tmp_path / "lines.sh").write_text("\n".join(lines))
    said = shell(f"{namespace} bash -e lines.sh 2>&1", tmp_path)
    assert "max |Δcoef|/SE = 0." in said
    assert said.count("signed by") == len(NAMES)
    assert "PROBLEM" not in said
    report = (tmp_path / "report.html").read_text()
    assert report.count("<svg") >= 3
    assert all(name in report for name in NAMES)
    assert len(list((tmp_path / "tables").glob("*.csv"))) > 3
    for folder in (bundle, tmp_path / "venv"):
        shutil.rmtree(folder)  # some hundred megabytes

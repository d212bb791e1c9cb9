"""Make an offline bundle: the project and all that sites and coordinators need, for one platform and Python.

``python tools/bundle.py FOLDER [--platform win_amd64] [--python 3.12]`` writes wheels, ``requirements.txt`` with the
hash of each wheel, a ``Dockerfile``, ``SHA256SUMS`` and ``sbom.json`` (CycloneDX). Without options it is for this one.

Versions are resolved for the platform of the bundle, whose markers may ask for other packages than those of this
machine; pip fetches wheels only, so that nothing is built.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("excel", "plot", "secure", "statistics")
"""Extras of sites and coordinators; the others are for clusters, large fits and runtimes of models."""
OLDEST_GLIBC = 17
"""Least minor version of glibc 2 for which there are wheels of all packages."""
ALIASES = {17: "manylinux2014"}


def main() -> None:
    """Make the bundle that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--platform", help="as wheels name it: win_amd64, macosx_14_0_arm64, manylinux_2_28_x86_64")
    parser.add_argument("--python", default="{}.{}".format(*sys.version_info), help="such as 3.12")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if any(given.folder.iterdir()):
        parser.error(f"{given.folder} is not empty: name a new folder, or empty it")
    fetch(given.folder, given.platform, given.python)
    wheels = sorted(given.folder.glob("*.whl"))
    (given.folder / "requirements.txt").write_text("".join(map(requirement, wheels)), encoding="utf-8")
    shutil.copy(ROOT / "tools" / "Dockerfile", given.folder)
    write_sbom(given.folder)
    write_sums(given.folder)
    size = sum(path.stat().st_size for path in wheels)
    sys.stdout.write(f"{given.folder}: {len(wheels)} wheels, {size / 1e6:.0f} MB\n")


def run(*command: str | Path) -> str:
    """Run a program in the folder of the project and return what it prints; end if it fails."""
    done = subprocess.run([str(each) for each in command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: see above")
    return done.stdout


def fetch(folder: Path, platform: str | None, python: str) -> None:
    """Put the wheel of the project and those of all that it needs into a folder."""
    folder = folder.resolve()
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    target = ["--python-platform", platform_of_uv(platform)] if platform else []
    resolve = ("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")
    pins = run(*resolve, "--python-version", python, *target, *extras, "pyproject.toml").split()
    tags = [part for tag in tags_of(platform) for part in ("--platform", tag)] if platform else []
    only = ("--only-binary=:all:", "--no-deps", "--python-version", python)
    run(*pip, "download", "--quiet", "--dest", folder, *only, *tags, *pins)


def platform_of_uv(platform: str) -> str:
    """Return the name that uv has for a platform of wheels."""
    if glibc := re.fullmatch(r"(manylinux_2_\d+)_(\w+)", platform):
        return f"{glibc[2]}-{glibc[1]}"
    known = {r"win_amd64": "x86_64-pc-windows-msvc", r"macosx_\d+_\d+_arm64": "aarch64-apple-darwin",
             r"macosx_\d+_\d+_x86_64": "x86_64-apple-darwin"}  # fmt: skip
    found = [name for pattern, name in known.items() if re.fullmatch(pattern, platform)]
    if not found:
        raise SystemExit(f"--platform {platform}: expected win_amd64, macosx_14_0_arm64 or manylinux_2_28_x86_64")
    return found[0]


def tags_of(platform: str) -> list[str]:
    """Return the tags of wheels that run on a platform; a newer glibc runs what was built for an older one."""
    glibc = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)
    if glibc is None:
        return [platform]
    minors = range(int(glibc[1]), OLDEST_GLIBC - 1, -1)
    return [f"{name}_{glibc[2]}" for i in minors for name in filter(None, (f"manylinux_2_{i}", ALIASES.get(i)))]


def requirement(wheel: Path) -> str:
    """Return the line by which pip installs a wheel only if it has its hash."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n"


def write_sbom(folder: Path) -> None:
    """Write the list of packages in the CycloneDX format."""
    tool = ("uvx", "--from", "cyclonedx-bom>=7", "cyclonedx-py", "requirements", "--pyproject", "pyproject.toml")
    where = folder.resolve()
    options = ("--mc-type", "library", "--output-reproducible", "--output-file", where / "sbom.json")
    run(*tool, *options, where / "requirements.txt")


def write_sums(folder: Path) -> None:
    """Write the checksums of all files, as ``sha256sum --check`` reads them."""
    files: Sequence[Path] = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

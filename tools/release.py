"""Build a release and check it: the same bytes twice, its metadata, what it holds, and each way to install it.

``python tools/release.py [--dry-run]`` writes the wheel, the source distribution and ``sbom.json`` into ``dist/``. The
work tree must be clean; both builds are made from exports of its commit. Without ``--dry-run`` the version may not be a
development version, and no fragment may be left out of the changelog. Nothing is published from here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TRIED = "import consilience; consilience.MixtureOfExpertsRegressor(2).fit"
PYTHONS = ("3.11", "3.12", "3.13")
MADE = {"PKG-INFO"}
"""Files of a source distribution that are not in the repository."""


def main() -> None:
    """Build and check the release of the current commit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="a development version, with fragments, is allowed")
    given = parser.parse_args()
    if run("git", "status", "--porcelain"):
        raise SystemExit("the work tree has changes: commit them, so that the release is that of a commit")
    if not given.dry_run:
        check_version()
    with tempfile.TemporaryDirectory() as folder:
        built = build_twice(Path(folder))
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        wheel, source = sorted(
            (Path(shutil.copy2(path, DIST)) for path in built), key=lambda path: path.suffix == ".gz"
        )
    run("uvx", "twine", "check", "--strict", wheel, source)
    check_source(source)
    say(f"{wheel.name}: {wheel.stat().st_size / 1e3:.0f} kB, {len(zipfile.ZipFile(wheel).namelist())} files")
    say(f"{source.name}: {source.stat().st_size / 1e3:.0f} kB")
    for python in PYTHONS:
        install(wheel, python, "")
    extras = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for extra in [*extras, ",".join(extras)]:
        install(wheel, PYTHONS[0], f"[{extra}]")
    write_sbom(wheel)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(*command: str | Path, **environment: str) -> str:
    """Run a program in the folder of the project and return what it prints; end if it fails."""
    given = {**os.environ, **environment}
    words = [str(each) for each in command]
    done = subprocess.run(words, cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words[:4])} failed: see above. {done.stdout[-2000:]}")
    return done.stdout.strip()


def check_version() -> None:
    """End if the version is one of development, or if a fragment is not in the changelog."""
    version = re.search(r'"(.+)"', (ROOT / "src/consilience/_version.py").read_text().split("=")[1])[1]
    if "dev" in version:
        raise SystemExit(f"{version} is a development version: set src/consilience/_version.py, or use --dry-run")
    if left := sorted(path.name for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"):
        raise SystemExit(f"changelog.d has {len(left)} fragments: run 'towncrier build --version {version}'")


def build_twice(folder: Path) -> list[Path]:
    """Build a commit in two folders, and return wheel and source of the first; end if their bytes differ."""
    moment, found = run("git", "log", "-1", "--format=%ct"), []
    for name in ("first", "second"):
        tree = folder / name
        tree.mkdir()
        run("git", "archive", "--format=tar", "--output", folder / f"{name}.tar", "HEAD")
        with tarfile.open(folder / f"{name}.tar") as archive:
            archive.extractall(tree, filter="data")
        run("uv", "build", "--quiet", "--out-dir", tree / "dist", tree, SOURCE_DATE_EPOCH=moment)
        found.append([next((tree / "dist").glob(kind)) for kind in ("*.whl", "*.tar.gz")])
    sums = [[sha256(path.read_bytes()).hexdigest() for path in files] for files in found]
    if sums[0] != sums[1]:
        raise SystemExit(f"two builds of one commit have different bytes: {sums}")
    for path, digest in zip(found[0], sums[0], strict=True):
        say(f"{digest}  {path.name}, the same twice")
    return found[0]


def check_source(source: Path) -> None:
    """End if a source distribution holds a file that is not in the repository, or a link."""
    ours = set(run("git", "ls-files").splitlines())
    with tarfile.open(source) as archive:
        members = [each for each in archive.getmembers() if not each.isdir()]
    names = {each.name.partition("/")[2] for each in members if each.isfile()}
    if strange := sorted(names - ours - MADE) or [each.name for each in members if not each.isfile()]:
        raise SystemExit(f"{source.name} holds what is not in the repository: {', '.join(strange[:10])}")


def install(wheel: Path, python: str, extras: str) -> None:
    """Install a wheel into an environment of its own, and import it with every warning an error."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        run("uv", "venv", "--quiet", "--python", python, place)
        run("uv", "pip", "install", "--quiet", "--python", place, f"consilience{extras} @ {wheel.as_uri()}")
        inside = place / ("Scripts" if os.name == "nt" else "bin")
        code = f"{TRIED}; import time; print(round(time.process_time(), 2))"
        seconds = run(inside / "python", "-W", "error", "-c", code, OPENBLAS_NUM_THREADS="1")
        version = run(inside / "consilience", "--version")
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        say(f"{version}{extras} on Python {python}: {size / 1e6:.0f} MB, imported in {seconds} s of CPU time")


def write_sbom(wheel: Path) -> None:
    """Write the list of the packages of an installation without extras, in the CycloneDX format."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        run("uv", "venv", "--quiet", "--python", PYTHONS[0], place)
        run("uv", "pip", "install", "--quiet", "--python", place, wheel)
        tool = ("uvx", "--from", "cyclonedx-bom>=7", "cyclonedx-py", "environment", "--pyproject", "pyproject.toml")
        options = ("--mc-type", "library", "--output-reproducible", "--output-file", DIST / "sbom.json")
        run(*tool, *options, place)


if __name__ == "__main__":
    main()

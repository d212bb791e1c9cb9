"""Build a release and check it: the same bytes twice, its metadata, what it holds, its types, each way to install it.

``python tools/release.py [--dry-run] [--tag vX.Y.Z]`` writes the wheel, the source distribution and ``sbom.json`` into
``dist/``. The work tree must be clean; both builds are made from exports of its commit. Without ``--dry-run`` the
version may not be a development version, and no fragment may be left out of the changelog. Nothing is published from
here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TRIED = "import consilience; consilience.MixtureOfExpertsRegressor(2).fit"
WITH = {
    "dask": "from consilience.engines import DaskCluster; import distributed",
    "excel": "import consilience.data.foreign_files, openpyxl",
    "fast": "import consilience.model.kernels.compiled",
    "onnx": "import consilience.estimators.onnx_export, onnx",
    "plot": "import consilience.plot, matplotlib.pyplot",
    "secure": "from consilience.kit.folder import SiteIdentity; SiteIdentity.new()",
    "statistics": "import consilience.data.foreign_files, pyreadstat",
}
"""What is imported with each extra."""
PYTHONS = ("3.11", "3.12", "3.13")
MADE = {"PKG-INFO"}
"""Files of a source distribution that are not in the repository."""
KEPT = ("src/", ".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml")
"""What a source distribution is made of: the package, what builds it, and what describes it."""
LARGE = 1e6
"""Bytes from which the size of a dependency is printed."""
SIZES = """
from importlib.metadata import distributions
for each in distributions():
    files = [each.locate_file(file) for file in each.files or ()]
    print(each.name, sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink()))
"""


def main() -> None:
    """Build and check the release of the current commit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="a development version, with fragments, is allowed")
    parser.add_argument("--tag", help="the tag that starts the release, which names the version")
    given = parser.parse_args()
    if run("git", "status", "--porcelain"):
        raise SystemExit("the work tree has changes: commit them, so that the release is that of a commit")
    if not given.dry_run:
        check_version()
    if given.tag and given.tag != f"v{version()}":
        raise SystemExit(f"the tag {given.tag} is not that of version {version()}")
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
    extras = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for python in PYTHONS:
        for extra in [(), *((each,) for each in extras), extras]:
            install(wheel, python, extra)
    check_types(wheel)
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


def version() -> str:
    """Return the version of the package."""
    return (ROOT / "src/consilience/_version.py").read_text().split('"')[-2]


def check_version() -> None:
    """End if the version is one of development, or if a fragment is not in the changelog."""
    if "dev" in version():
        raise SystemExit(f"{version()} is a development version: set src/consilience/_version.py, or use --dry-run")
    if left := sorted(path.name for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"):
        raise SystemExit(f"changelog.d has {len(left)} fragments: run 'towncrier build --version {version()}'")


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
    """End if a source distribution holds a file that is not in the repository or not needed, or a link."""
    ours = set(run("git", "ls-files").splitlines())
    with tarfile.open(source) as archive:
        members = [each for each in archive.getmembers() if not each.isdir()]
    names = {each.name.partition("/")[2] for each in members if each.isfile()}
    unneeded = {name for name in names - MADE if not name.startswith(KEPT)}
    if strange := sorted(names - ours - MADE | unneeded) or [each.name for each in members if not each.isfile()]:
        raise SystemExit(f"{source.name} holds what is not in the repository, or not needed: {', '.join(strange[:10])}")


def install(wheel: Path, python: str, extras: Sequence[str]) -> None:
    """Install a wheel with extras into an environment of its own, and import it with every warning an error."""
    named = f"[{','.join(extras)}]" if extras else ""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        inside = installed(place, python, f"consilience{named} @ {wheel.as_uri()}")
        used = "; ".join(WITH[each] for each in extras) or "pass"
        code = f"{TRIED}; import time; print(round(time.process_time(), 2)); {used}"
        seconds = run(inside / "python", "-W", "error", "-c", code, OPENBLAS_NUM_THREADS="1")
        found = run(inside / "consilience", "--version")
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        say(f"{found}{named} on Python {python}: {size / 1e6:.0f} MB, imported in {seconds} s of CPU time")
        if not extras and python == PYTHONS[0]:
            say_sizes(inside)


def installed(place: Path, python: str, *packages: str | Path) -> Path:
    """Make an environment with packages, and return the folder of its programs."""
    run("uv", "venv", "--quiet", "--python", python, place)
    run("uv", "pip", "install", "--quiet", "--python", place, *packages)
    return place / ("Scripts" if os.name == "nt" else "bin")


def say_sizes(inside: Path) -> None:
    """Print the installed sizes of the package and of its larger dependencies."""
    found = [line.split() for line in run(inside / "python", "-c", SIZES).splitlines()]
    sizes = {name: int(size) for name, size in found}
    large = sorted((name for name in sizes if sizes[name] >= LARGE), key=sizes.__getitem__, reverse=True)
    rest = sum(size for size in sizes.values() if size < LARGE)
    said = ", ".join(f"{name} {sizes[name] / 1e6:.1f}" for name in large)
    say(f"installed, in MB: {said}, {len(sizes) - len(large)} others {rest / 1e6:.1f}")


def check_types(wheel: Path) -> None:
    """Let mypy and pyright read a program of a user, beside the wheel in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        inside = installed(Path(folder) / "environment", PYTHONS[0], wheel, "mypy", "pyright[nodejs]")
        program = shutil.copy2(ROOT / "tests" / "typed_user.py", folder)
        settings = {"include": ["*.py"], "typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": True}
        (Path(folder) / "pyrightconfig.json").write_text(json.dumps(settings))
        python = ("--python-executable", inside / "python")
        say(f"mypy: {run(inside / 'mypy', '--strict', '--cache-dir', folder, *python, program)}")
        found = run(inside / "pyright", "--pythonpath", inside / "python", "--project", folder)
        say(f"pyright: {found.splitlines()[-1]}")


def write_sbom(wheel: Path) -> None:
    """Write the list of the packages of an installation without extras, in the CycloneDX format."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        installed(place, PYTHONS[0], wheel)
        tool = ("uvx", "--from", "cyclonedx-bom>=7", "cyclonedx-py", "environment", "--pyproject", "pyproject.toml")
        options = ("--mc-type", "library", "--output-reproducible", "--output-file", DIST / "sbom.json")
        run(*tool, *options, place)


if __name__ == "__main__":
    main()

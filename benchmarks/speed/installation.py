"""What an installation without extras pulls in: packages, their size on disk, and the time to install and to import.

A wheel of this checkout is installed with pip into a fresh virtual environment. Sizes are those of the files that each
package lists, before Python compiles them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table

ROOT = Path(__file__).parents[2]
LISTING = """
import json
from importlib.metadata import distributions
found = {}
for each in distributions():
    files = [each.locate_file(file) for file in each.files or [] if file.suffix != ".pyc"]
    found[each.name] = [each.version, sum(file.stat().st_size for file in files if file.is_file())]
print(json.dumps(found))
"""


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def installed(folder: Path) -> tuple[dict[str, tuple[str, int]], Record]:
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("consilience-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv")
    with stopwatch() as install:
        run(python, "-m", "pip", "install", "--quiet", wheel)
    with stopwatch() as first:
        run(python, "-c", "import consilience")
    with stopwatch() as command:
        run(folder / "venv" / "bin" / "consilience", "doctor")
    seconds = {"install": install.wall, "first import": first.wall, "consilience doctor": command.wall}
    return json.loads(run(python, "-c", LISTING)), {f"{name} (s)": rounded(value) for name, value in seconds.items()}


def main() -> None:
    study = Study(__file__, __doc__)
    with tempfile.TemporaryDirectory() as folder:
        found, seconds = installed(Path(folder))
    found = {name: each for name, each in found.items() if name not in ("pip", "setuptools")}
    sizes = sorted(found.items(), key=lambda item: -item[1][1])
    rows = [{"package": name, "version": version, "MB": rounded(size / 2**20)} for name, (version, size) in sizes]
    whole = {"packages": len(rows), "MB": rounded(sum(size for _, (_, size) in sizes) / 2**20), **seconds}
    study.save(table("An installation without extras", [whole]), table("Its packages", rows))


if __name__ == "__main__":
    main()

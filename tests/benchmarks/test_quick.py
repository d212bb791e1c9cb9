"""Every benchmark runs, in its quick form."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from consilience.datasets import DataNotFoundError, load_images, load_table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NEEDED = {"mmash": "mmash_actigraph", "shared_centre_digits": "pendigits"}
"""The table that the quick form of a study reads."""
IMAGES = {"inverted_fashion": "fashion_mnist"}
"""The images that it reads."""
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_quick_form_runs_and_says_what_it_found(name: str) -> None:
    if name == "flexmix_speed" and shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed: flexmix is not measured")
    for needed, load in ((NEEDED, load_table), (IMAGES, load_images)):
        if name in needed:
            try:
                load(needed[name])
            except DataNotFoundError as error:
                pytest.skip(str(error))
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()

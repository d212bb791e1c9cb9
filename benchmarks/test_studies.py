"""Run the quick form of every study: ``just studies``, which is no part of the test suite."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lib.datasets import DataNotFoundError, load_images, load_table
from benchmarks.lib.processes import NGINX

HERE = Path(__file__).parent
TABLES = {
    "conformal": "beijing_air",
    "flexmix_starts": "seizure",
    "mmash": "mmash_actigraph",
    "mmash_users": "mmash_actigraph",
    "real_refinement": "mmash_actigraph",
    "real_releases": "parkinsons",
    "real_starts": "seizure",
    "shared_centre_digits": "pendigits",
}
IMAGES = {"inverted_fashion": "fashion_mnist", "tsne_digits": "mnist"}
"""Real data that the quick form of a study reads."""
STUDIES = sorted(path for path in HERE.glob("*/[a-z]*.py") if path.parent.name != "lib")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_quick_form_runs_and_prints_its_tables(path: Path) -> None:
    skip_without_needs(path.stem)
    command = [sys.executable, "-m", f"benchmarks.{path.parent.name}.{path.stem}", "--quick"]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def skip_without_needs(name: str) -> None:
    if name in ("flexmix_speed", "flexmix_starts") and shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed: flexmix is not measured")
    if name in ("idle_site", "many_letters") and NGINX is None:
        pytest.skip("nginx is not installed: no server of letters")
    try:
        if name in TABLES:
            load_table(TABLES[name])
        if name in IMAGES:
            load_images(IMAGES[name])
    except DataNotFoundError as error:
        pytest.skip(str(error))

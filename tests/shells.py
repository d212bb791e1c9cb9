"""Lines of a shell outside any project, as an administrator runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def variables(*first: Path) -> dict[str, str]:
    """The environment of a shell outside any project, with a folder of programs in front."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "PATH": os.pathsep.join([*map(str, first), kept["PATH"]]), "NO_COLOR": "1"}


def shell(text: str, folder: Path, *first: Path) -> str:
    """Run lines of a shell in a folder; the first that fails is an error."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=folder,
        env=variables(*first),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")

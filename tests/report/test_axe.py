"""axe-core finds nothing serious in a report, in light and dark; it and the browser are not part of the project."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shells import needs


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, from its package in the registry of npm."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install --group look")
    for program in ("npm", "chromium", "chromedriver"):
        needs(program)
    folder = tmp_path_factory.mktemp("axe")
    packed = subprocess.run(
        ["npm", "pack", "--silent", "axe-core@4"], cwd=folder, capture_output=True, text=True, check=False
    )
    if packed.returncode:
        pytest.skip("axe-core could not be had from npm")
    from screenshots import script_of

    return script_of(folder / packed.stdout.strip())


@pytest.mark.long
@pytest.mark.parametrize("broken", [False, True])
def test_axe_finds_nothing_serious_in_the_report_and_finds_what_is_broken(
    broken: bool, script: str, page: str, tmp_path: Path
) -> None:
    from screenshots import driver, findings

    path = tmp_path / "report.html"
    path.write_text(page.replace('<html lang="en">', "<html>") if broken else page, encoding="utf-8")
    with driver() as browser:
        assert findings(browser, path, script) == (2 if broken else 0)  # in light and dark

"""From nothing to a live run by the pages alone, with nothing but one outbound port open at a site."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from consilience.estimators.saving import load
from consilience.kit.combination import simulate_study
from consilience.kit.study import Study
from letter_servers import needs_nginx
from mail_office import TABLES as HOSPITALS
from paths.live.trial import HUB, IT, PAGES, PLAN, PORT, SITES, TABLES, commands, connected, live_run
from shells import needs

LISTENS, ESTABLISHED = "0A", "01"
"""States of connections, as Linux names them."""


def test_the_pages_name_the_commands_of_a_live_run() -> None:
    assert [line.split()[1] for line in commands("serve-a-site", "The mandate")] == ["site"] * 3
    assert len(commands("live-runs", "Begin")) == 8
    assert commands("serve-a-site", "The program")[0].startswith("consilience site serve north")


@pytest.mark.long
@needs_nginx
@pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")
def test_from_nothing_to_a_live_run_by_the_pages_alone(tmp_path: Path) -> None:
    needs("ip")
    if subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        pytest.skip("this system has no network namespaces")
    with connected(tmp_path, Path(sys.executable).parent) as trial:
        seen = live_run(trial)
    assert not [state for state, _ in seen if state == LISTENS]  # a site listens on no port
    assert {port for state, port in seen if state == ESTABLISHED} == {PORT}
    tables = {site: HOSPITALS[TABLES[site]] for site in SITES}
    expected = simulate_study(Study.from_text(PLAN), tables).best.model.mixture_.to_vector()
    assert load(tmp_path / HUB / "model.json").mixture_.to_vector().tolist() == expected.tolist()
    assert (tmp_path / HUB / "report.html").stat().st_size > 10_000
    assert sum(act.role == IT for act in trial.acts) == 4 * len(SITES)
    assert PAGES.exists()

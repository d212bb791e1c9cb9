"""The report of the demonstration, which several files of tests read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit.combination import combine_files
from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import site_file
from consilience.kit.study import Study
from consilience.kit.study_words import governance_of, words_of
from consilience.report import SentFile, html_report
from consilience.report.subject import Made


@pytest.fixture(scope="module")
def demo() -> Any:
    """The demonstration: its study, the combined result, and what the report knows of it."""
    study = Study.from_text(STUDY)
    files = [site_file(study, name, table, Policy.of_profile("hospital")) for name, table in hospitals().items()]
    orders = combine_files(study, files)
    sent = tuple(
        SentFile(f.site, f"{f.site}.json", 13_000, "0" * 64, 250, "hospital", "2026-11-19", f.fit.model.mixture)
        for f in files
    )
    known = {"words": words_of(study), "study": study.name, "files": sent, "governance": governance_of(study)}
    return orders, known | {"invited": (*hospitals(), "fir"), "commands": ("consilience combine study.toml",)}


@pytest.fixture(scope="module")
def page(demo: Any) -> str:
    orders, known = demo
    return html_report(orders, **known, made=replace(Made.here(), day="19 November 2026"))

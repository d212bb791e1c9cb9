"""Files of the site kit that version 1 wrote stay readable for ever, and mean the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from consilience.files.site_file import SiteFile
from consilience.kit import ledger
from consilience.kit.policy.policy import Policy
from consilience.kit.release import FitReport
from consilience.kit.roster import Roster, check_signature
from consilience.kit.row_tags import RowTags
from consilience.kit.study import Study

FOLDER = Path(__file__).parent / "site-kit-1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def test_a_study_and_a_policy_have_the_identity_that_files_name():
    assert Study.read(FOLDER / "study.toml").identity == EXPECTED["study"]
    assert Policy.read(FOLDER / "policy.toml").identity == EXPECTED["policy"]


def test_a_site_file_has_its_content_and_its_signature():
    file = SiteFile.from_text((FOLDER / "site.json").read_text())
    assert (file.study, file.hash) == (EXPECTED["study"], EXPECTED["hash"])
    assert file.evidence["policy"] == EXPECTED["policy"]
    np.testing.assert_array_equal(file.fit.model.mixture.experts.B, EXPECTED["coefficients"])
    pytest.importorskip("cryptography")
    assert check_signature(file, Roster.read(FOLDER / "roster.toml"), require_signatures=True).status == "signed"


def test_a_ledger_its_tags_and_its_fit_belong_together():
    verdict = ledger.verify(FOLDER / "ledger.jsonl")
    assert verdict.is_whole
    assert (len(verdict.entries), verdict.head) == (EXPECTED["entries"], EXPECTED["head"])
    tags = RowTags.read(FOLDER / "rows.tags")
    assert (tags.n, tags.hash) == (EXPECTED["rows"], verdict.entries[-1].details["tags"])
    report = FitReport.from_text((FOLDER / "fit-report.json").read_text())
    assert report.file.hash == EXPECTED["hash"]
    assert all(check.kept for check in report.checks)

"""Rehearsals at a site: what would be read, sent and spent, while nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.errors import InvalidInputError
from consilience.kit.folder import SiteFolder
from consilience.kit.forecast import doubts_beforehand
from consilience.kit.policy.policy import Policy
from consilience.kit.rehearsal import noise_lines, rehearse
from consilience.kit.release import last_fit
from consilience.kit.site_fit import fit_at_site
from consilience.kit.spending import charge, spent_in
from consilience.kit.study import Study
from consilience.numerics.budget import rho_of
from mail_office import PRIVATE, TABLES, start, study_with, with_noise

FILE = study_with()
CONTRACT = study_with('name = "OneShot", refine = 1')


@pytest.fixture
def folder(tmp_path: Path) -> SiteFolder:
    return SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), tmp_path)


def everything(folder: SiteFolder) -> dict[str, bytes]:
    """All files of a site, byte by byte."""
    return {str(path): path.read_bytes() for path in sorted(folder.path.rglob("*")) if path.is_file()}


def spoilt(row: int = 3) -> pa.Table:
    table = TABLES["ash"]
    values = table["age"].to_pylist()
    values[row] = 999.0
    return table.set_column(table.column_names.index("age"), "age", pa.array([float(each) for each in values]))


def test_noise_is_rehearsed_with_budget_and_forecast_and_nothing_is_spent(folder: SiteFolder) -> None:
    before = everything(folder)
    found = rehearse(folder, PRIVATE, spoilt(), start=start(), others=(700, 800))
    assert everything(folder) == before
    assert spent_in(folder) == 0
    noise = found.noise
    assert noise is not None
    assert not found.refusal
    assert found.rows == TABLES["ash"].num_rows - 1
    assert "1 of 900 rows do not fit" in found.told[0]
    assert "age 1" in found.told[0]
    assert (noise.before, noise.most, noise.answers) == (0.0, 8.0, 8)
    assert noise.after == pytest.approx(3.0, abs=1e-6)
    assert noise.sites == (899, 700, 800)
    said = "\n".join(noise_lines(noise))
    assert "spent ε = 0 of 8; a whole run of 8 sums would make it 3" in said
    assert "899 rows alone" in said
    assert "2,399 rows at 3 sites" in said


def test_a_column_that_is_not_as_the_dictionary_says_is_told_at_the_site(folder: SiteFolder) -> None:
    assert not [line for line in rehearse(folder, PRIVATE, TABLES["ash"]).told if "the study counts on" in line]
    text = PRIVATE.to_text().replace("centre = 60.0", "centre = 30.0")
    (said,) = [line for line in rehearse(folder, Study.from_text(text), TABLES["ash"]).told if "counts on" in line]
    assert said.startswith("age: mean ")
    assert "the study counts on 3" in said  # the mean of a normal around 30 that is cut at 18


def test_a_start_that_is_far_from_the_rows_is_said_to_be(folder: SiteFolder) -> None:
    near = rehearse(folder, PRIVATE, TABLES["ash"], start=start()).noise
    vector = start().to_vector()
    moved = start().with_vector(
        vector + 0.3 * np.where(np.arange(len(vector)) % 2, 1, -1) * (np.arange(len(vector)) < 9)
    )
    far = rehearse(folder, PRIVATE, TABLES["ash"], start=moved).noise
    assert near is not None
    assert far is not None
    assert near.away is not None
    assert far.away is not None
    assert near.away < 3 < far.away
    assert rehearse(folder, PRIVATE, TABLES["ash"]).noise.away is None  # type: ignore[union-attr]


def test_a_budget_that_is_spent_or_too_small_is_said_before_anything_leaves(folder: SiteFolder) -> None:
    charge(folder, Policy.from_text(folder.policy).privacy, rho_of(7.5, 1e-6), {"study": "sha256:0", "run": "r"})
    found = rehearse(folder, PRIVATE, TABLES["ash"], start=start())
    assert "max_epsilon_ever" in found.refusal
    assert found.noise is not None
    assert found.noise.before == pytest.approx(7.5, abs=1e-3)
    greedy = rehearse(folder, with_noise("epsilon = 5.0"), TABLES["ash"], start=start())
    assert "max_epsilon" in greedy.refusal


def test_one_file_is_rehearsed_with_every_check_and_no_entry(folder: SiteFolder) -> None:
    before = everything(folder)
    found = rehearse(folder, FILE, TABLES["ash"])
    assert everything(folder) == before
    assert found.report is not None
    assert found.report.checks
    fit_at_site(folder, FILE, TABLES["ash"])
    assert last_fit(folder).report.file.content == found.report.file.content
    text = Policy.of_profile("hospital").to_text().replace("min_rows = 50", "min_rows = 5000")
    strict = SiteFolder.init("strict", text, folder.path.parent)
    refused = rehearse(strict, FILE, TABLES["ash"])
    assert "more rows" in refused.refusal
    assert refused.report is None
    assert [entry.kind for entry in strict.entries] == ["init"]  # a refusal of a rehearsal is not recorded


def test_a_contract_is_refused_by_the_profile_and_says_what_would_leave(folder: SiteFolder) -> None:
    before = everything(folder)
    found = rehearse(folder, CONTRACT, TABLES["ash"])
    assert 'trust = "coordinator"' in found.refusal
    assert "exact sums" in found.told[0]
    assert everything(folder) == before
    with pytest.raises(InvalidInputError):
        rehearse(folder, CONTRACT, spoilt())


def test_doubts_are_said_before_a_run_begins() -> None:
    assert "can succeed" in doubts_beforehand(PRIVATE, start(), 5)[0]
    assert doubts_beforehand(PRIVATE, start(), 5, (900,) * 5) == []
    assert "cannot succeed" in doubts_beforehand(PRIVATE, start(), 5, (20,) * 5)[0]
    assert "No shipped profile" in doubts_beforehand(CONTRACT, None, 5)[0]
    assert doubts_beforehand(FILE, None, 5) == []

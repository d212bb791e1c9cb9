"""Studies whose experts share coefficients: one table, sites in one process and runs by files are alike."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.datasets.hospitals import STUDY
from consilience.engines import InProcess
from consilience.errors import InvalidInputError
from consilience.kit.combination import run_study, simulate_study, sites_of
from consilience.kit.study import Study
from consilience.methods import OneShot
from mail_office import TABLES, Office, study_with

EM = 'name = "FederatedEM", n_climbs = 1'
SHARED = 'shared = ["age"]'


@cache
def plan() -> Study:
    return study_with(EM, SHARED)


@cache
def simulated() -> Any:
    return simulate_study(plan(), TABLES).best


@pytest.mark.slow
def test_a_study_shares_what_it_names() -> None:
    model = simulated().model
    place = list(model.columns_.names).index("age")
    assert np.ptp(model.coef_[:, place]) == 0
    assert np.all(np.ptp(np.delete(model.coef_, place, axis=1), axis=0) > 0)
    assert "(shared)" in model.summary()
    assert Study.from_text(plan().to_text()) == plan()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_a_run_by_files_has_the_bits_of_one_process(tmp_path: Path) -> None:
    done = Office(tmp_path, plan(), tables=TABLES).to_the_end()
    assert done.fit.log_likelihood == simulated().fit.log_likelihood
    np.testing.assert_array_equal(done.fit.mixture.coefficients, simulated().fit.mixture.coefficients)


def refusal(method: str, more: str, text: str = STUDY) -> str:
    with pytest.raises(InvalidInputError) as refused:
        study_with(method, more, text=text)
    return str(refused.value)


def test_mistakes_are_named_before_a_site_is_asked() -> None:
    assert "there is no covariate 'agee'; the covariates are age" in refusal(EM, 'shared = ["agee"]')
    assert 'state method = {name = "FederatedEM"}' in refusal('name = "OneShot", refine = 1', SHARED)
    assert "without per_site" in refusal(f'{EM}, per_site = "gate"', SHARED)


def test_another_method_refuses_such_a_study() -> None:
    with pytest.raises(InvalidInputError, match="OneShot fits no shared coefficients"):
        run_study(plan(), InProcess().over(sites_of(plan(), TABLES)), OneShot())

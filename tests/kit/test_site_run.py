"""Runs under contract at a site: what a policy allows, the rows of a run, and what the ledger says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError, RefusedError
from consilience.fit import Expect
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.release import release_fit
from consilience.kit.site_fit import fit_at_site, site_file, validate_rows
from consilience.kit.site_rounds import ContractSite, RunPart, open_contract, stored_reply
from consilience.kit.study import Study
from consilience.kit.study_model import task_of
from consilience.messages import Failure, LocalFit, LogLikelihood, Summarise, decode, encode
from consilience.messages.questions import ProposeStart
from consilience.model.summary import column_summary
from policy_cases import policy_with

PLAN = Study.from_text(STUDY)
CONTRACT = Study.from_text(
    STUDY.replace("[model]", 'trust = "coordinator"\nmethod = {name = "FederatedEM"}\n[model]', 1)
)
TABLES = hospitals()
ALLOWED = ["noise", "limits", "coordinator"]


def folder_in(path: Path, name: str = "ash", **limits: Any) -> SiteFolder:
    policy = policy_with(**({"allow": ALLOWED} | limits))
    return SiteFolder.init(name, policy.to_text(), path)


def part(number: int = 1, run: str = "a") -> RunPart:
    return RunPart(f"sha256:{run * 64}", number, f"sha256:{number:064d}", "/table.parquet", "A. Person")


def opened(folder: SiteFolder, number: int = 1, table: pa.Table = TABLES["ash"], run: str = "a") -> ContractSite:
    return open_contract(folder, CONTRACT, table, part(number, run))


def test_a_site_answers_a_contract_only_if_people_have_allowed_it(tmp_path: Path) -> None:
    strict = SiteFolder.init("birch", Policy.of_profile("hospital").to_text(), tmp_path)
    with pytest.raises(RefusedError, match=r"could compute rows.*policy\.toml"):
        opened(strict)
    with pytest.raises(RefusedError, match="at least 1000 rows"):
        opened(folder_in(tmp_path, min_rows=1000))
    with pytest.raises(InvalidInputError, match="does not fit"):
        opened(folder_in(tmp_path, "cedar"), table=TABLES["ash"].drop_columns(["age"]))


def test_the_first_answer_records_the_rows_and_each_answer_its_reply(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    site = opened(folder)
    found = site.considered(encode(Summarise(4, 1)))
    assert [entry.kind for entry in folder.entries] == ["init"]  # nothing is recorded before it is accepted
    reply = site.accept(found, bytes)
    assert decode(reply).weight == 900
    second = opened(folder, 2)
    mixture = site_file(PLAN, "ash", TABLES["ash"]).fit.model.mixture
    second.accept(second.considered(encode(LogLikelihood(mixture))), bytes)
    assert [entry.kind for entry in folder.entries] == ["init", "run", "answer", "answer"]
    run = folder.entries[1].details
    assert (run["study"], run["table"]) == (CONTRACT.identity, "/table.parquet")
    assert folder.entries[2].details["way"] == "coordinator"
    assert stored_reply(folder, part().run, 1, part().asked) == reply
    with pytest.raises(RefusedError, match="another question of round 1"):
        stored_reply(folder, part().run, 1, part(7).asked)
    assert stored_reply(folder, part().run, 3, part(3).asked) is None


def test_a_run_is_over_the_rows_with_which_it_began(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    site = opened(folder)
    site.accept(site.considered(encode(Summarise(4, 1))), bytes)
    with pytest.raises(RefusedError, match="not those with which the run"):
        opened(folder, 2, TABLES["ash"].slice(1))
    opened(folder, 1, TABLES["ash"].slice(1), run="b")  # another run may have other rows, as after a correction


def test_a_file_after_a_run_is_held_against_its_rows(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    site = opened(folder)
    site.accept(site.considered(encode(Summarise(4, 1))), bytes)
    with pytest.raises(RefusedError, match="differ"):
        fit_at_site(folder, PLAN, TABLES["ash"].slice(1))
    fit_at_site(folder, PLAN, TABLES["ash"])
    assert len(release_fit(folder, "A. Person")) > 1_000


def test_any_method_is_answered_and_no_answer_depends_on_the_weights_of_rows(tmp_path: Path) -> None:
    """Questions that an earlier guard refused: a start, a site's own fit, and the sums and information of an expert."""
    site, task = opened(folder_in(tmp_path)), task_of(CONTRACT)
    rows = validate_rows(CONTRACT, TABLES["ash"])
    own = decode(site.considered(encode(task.fit_site(describe=True))).reply)
    assert isinstance(own, LocalFit)
    start = ProposeStart(task.specifications[0], column_summary(rows), 1, 4)
    for question in (start, Expect(own.model.mixture, information=True), LogLikelihood(own.model.mixture)):
        found = site.considered(encode(question))
        assert not found.reason
        assert not isinstance(decode(found.reply), Failure)


def test_a_question_that_the_policy_does_not_list_is_refused_and_the_reason_stays(tmp_path: Path) -> None:
    folder = folder_in(tmp_path, questions=["Summarise"])
    site = opened(folder)
    mixture = site_file(PLAN, "ash", TABLES["ash"]).fit.model.mixture
    found = site.considered(encode(LogLikelihood(mixture)))
    assert "does not list LogLikelihood" in found.reason
    reply = decode(site.accept(found, bytes))
    assert isinstance(reply, Failure)
    assert reply.detail == ""
    assert [entry.kind for entry in folder.entries] == ["init", "run", "refusal"]
    assert "LogLikelihood" in folder.entries[-1].details["reason"]
    again = opened(folder, 2)  # a refusal ends nothing: the next question is answered
    assert decode(again.accept(again.considered(encode(Summarise(4, 1))), bytes)).weight == 900

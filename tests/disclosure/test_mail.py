"""Attacks through files: the questions of a coordinator who lies, and sentinels in all that is outside of the sites."""

from __future__ import annotations

import re
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import round_attacks as attacks
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_run import draft_answer, seal_answer
from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import site_file, validate_rows
from consilience.kit.study import Study
from consilience.messages import Failure, LogLikelihood, Summarise, decode, encode
from consilience.messages.questions import ScoreSums
from consilience.model import Mixture
from consilience.site import Site
from mail_office import TABLES, Office, study_with
from policy_cases import policy_with, study_of
from round_attacks import Refused, hospital

UNBOUND: dict[str, Any] = {"max_leverage": 1.0, "effective_rows": 1, "max_operations": 1e18, "max_memory": 10**6}


def asked_by_mail(place: Path, where: Site, policy: Policy, method: dict[str, Any]) -> attacks.Ask:
    """What asks a site by files; a refusal is raised with the rule in the site's ledger."""
    rows = where.data
    names = [f"x{j}" for j in range(rows.X.shape[1])]
    table = pa.table(dict(zip(names, rows.X.T, strict=True)) | {"y": rows.Y[:, 0]})
    study = Study.model_validate(study_of(names, gate="softmax").model_dump() | {"method": method})
    folder = SiteFolder.init("north", policy.to_text(), place)
    run = RunFile(study.identity, ("north",), {}, "sha256:" + 64 * "1")
    number = 0

    def ask(question: Any) -> Any:
        nonlocal number
        number += 1
        letter = QuestionLetter(run.identity, run.study, number, ("north",), question.disclosed, encode(question))
        draft = draft_answer(folder, study, table, run, letter)
        found = decode(AnswerLetter.from_text(seal_answer(folder, draft).to_text()).answer)
        if isinstance(found, Failure):
            raise Refused(folder.entries[-1].details["rule"])
        return found

    return ask


def smooth(n: int = 1000) -> Site:
    """The hospital of the attacks, without its rare level, which a rule on columns would refuse first."""
    site = hospital(n)
    site.data.X[:, 3] = np.random.default_rng(9).normal(size=n)
    return site


ATTACKS = {
    "A2 histogram": (attacks.histogram, smooth, "effective_rows", 1e-5),
    "A3 thin experts": (attacks.thin_experts, smooth, "effective_rows", 1e-9),
    "A4 moved past one row": (attacks.moved_past_one_row, smooth, "max_leverage", 1e-9),
    "batch": (attacks.in_one_batch, smooth, "effective_rows", 1e-6),
    "four sets": (attacks.four_sets, partial(smooth, 2000), "max_leverage", 1e-9),
    "A7 likelihoods": (attacks.likelihoods, smooth, "max_leverage", 1e-6),
    "A15 sums of scores": (partial(attacks.histogram, question=ScoreSums), smooth, "effective_rows", 1e-4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_by_files_are_refused_and_work_without_the_rules(name: str, tmp_path: Path) -> None:
    attack, build, rule, accuracy = ATTACKS[name]
    where, method = build(), {"name": "FederatedEM"}
    ask = asked_by_mail(tmp_path / "guarded", where, Policy.of_profile(), method)
    assert ask(Summarise(d=4, q=1)).weight == where.data.n  # an honest question is answered
    with pytest.raises(Refused, match=rule):
        attack(ask, where)
    free = asked_by_mail(tmp_path / "free", where, policy_with(**UNBOUND), method)
    assert attack(free, where) < accuracy


def test_a_question_that_the_study_does_not_ask_is_refused_by_replay(tmp_path: Path) -> None:
    where = smooth()
    ask = asked_by_mail(tmp_path, where, Policy.of_profile(), {"name": "FederatedEM", "totals_only": True})
    assert ask(Summarise(d=4, q=1)).weight == where.data.n
    with pytest.raises(Refused, match="replay_check"):
        ask(LogLikelihood(attacks.one(4)))


@pytest.mark.slow
def test_no_value_of_a_table_is_in_a_file_outside_of_its_site(tmp_path: Path) -> None:
    """Every file of the folder and of the coordinator, as text and with its numbers decoded."""
    rng = np.random.default_rng(0)
    tables = {name: _with_sentinels(table, rng) for name, table in TABLES.items()}
    study = study_with('name = "FederatedEM", totals_only = true')
    start = _start(study)
    office = Office(tmp_path, study, start=start, tables=tables)
    office.to_the_end()
    outside = b"".join(_decoded(path) for folder in (office.mail, office.own) for path in sorted(folder.rglob("*.*")))
    starts = {outside[i : i + 8] for i in range(len(outside))}

    def is_outside(found: bytes) -> bool:
        return (len(found) < 8 or found[:8] in starts) and found in outside

    assert is_outside(outside[-40:])
    for table in tables.values():
        raw = np.concatenate([table[name].to_numpy() for name in RANGES])
        read = validate_rows(study, table).X[:, :2].ravel()  # as the study's rules code them
        assert not [value for value in (*raw, *read) if is_outside(np.float64(value).tobytes())]
        assert not [value for value in (*raw, *read) if is_outside(repr(float(value)).encode())]


RANGES = {"log_days": (-3, 7), "age": (18, 110), "severity": (0, 10)}


def _with_sentinels(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The table with values of so many digits that none of them can be elsewhere by chance."""
    for name, (low, high) in RANGES.items():
        values = np.clip(table[name].to_numpy(), low + 1e-3, high - 1e-3) + 1e-4 * rng.random(len(table))
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def _start(study: Study) -> Mixture:
    files = [site_file(study, name, table) for name, table in TABLES.items()]
    model = files[0].fit.model
    assert model is not None
    return model.mixture


def _decoded(path: Path) -> bytes:
    """The bytes of a file, and those of all texts in base64 in it."""
    data = path.read_bytes()
    texts = re.findall(rb'"((?:[A-Za-z0-9+/]{4}){4,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"', data)
    return data + b"".join(map(b64decode, texts))

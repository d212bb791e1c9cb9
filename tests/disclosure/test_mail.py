"""Attacks through files: the questions of a coordinator who lies, and sentinels in all that is outside of the sites."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import round_attacks as attacks
from consilience.errors import RefusedError
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_run import draft_answer, finish_answer
from consilience.kit.site_fit import site_file, validate_rows
from consilience.kit.study import Study
from consilience.messages import Failure, decode, encode
from consilience.messages.questions import ScoreSums
from consilience.model import Mixture
from consilience.site import Site
from mail_office import TABLES, Office, study_with
from policy_cases import policy_with, study_of
from round_attacks import Refused, hospital

METHODS: dict[str, dict[str, Any]] = {
    "coordinator": {"trust": "coordinator", "method": {"name": "FederatedEM"}},
    "noise": {"trust": "noise", "method": {"name": "PrivateScoring"}, "privacy": {"epsilon": 3.0}},
}


def asked_by_mail(place: Path, where: Site, way: str) -> attacks.Ask:
    """What asks a site by files; what the site refuses is raised."""
    rows = where.data
    names = [f"x{j}" for j in range(rows.X.shape[1])]
    table = pa.table(dict(zip(names, rows.X.T, strict=True)) | {"y": rows.Y[:, 0]})
    stated = study_of(names, gate="softmax").model_dump() | METHODS[way]
    stated["columns"] = [each | {"low": -200.0, "high": 200.0} for each in stated["columns"]]
    study = Study.model_validate(stated)
    folder, key = SiteFolder.init("north", policy_with(allow=[way]).to_text(), place), SiteIdentity.new()
    run = RunFile(study.identity, ("north",), {}, "sha256:" + 64 * "1", signer=key.public_key)
    run = replace(run, signature=key.sign(run.identity))
    number = 0

    def ask(question: Any) -> Any:
        nonlocal number
        number += 1
        letter = QuestionLetter(run.identity, run.study, number, "north", question.disclosed, encode(question))
        letter = replace(letter, envelope={"signature": key.sign(letter.signed_hash)})
        try:
            draft = draft_answer(folder, study, table, run, letter)
            found = decode(AnswerLetter.from_text(finish_answer(folder, draft)).answer)
        except RefusedError as error:
            raise Refused(str(error)) from error
        if isinstance(found, Failure):
            raise Refused(found.code.name)
        return found

    return ask


ATTACKS = {
    "histogram": (attacks.histogram, 1e-5),
    "thin experts": (attacks.thin_experts, 1e-9),
    "moved past one row": (attacks.moved_past_one_row, 1e-9),
    "likelihoods": (attacks.likelihoods, 1e-6),
    "sums of scores": (partial(attacks.histogram, question=ScoreSums), 1e-4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_by_files_work_under_contract_and_find_nothing_at_a_site_with_noise(name: str, tmp_path: Path) -> None:
    (attack, accuracy), where = ATTACKS[name], hospital()
    assert attack(asked_by_mail(tmp_path / "contract", where, "coordinator"), where) < accuracy
    with pytest.raises(Refused, match="nothing leaves"):
        attack(asked_by_mail(tmp_path / "noise", where, "noise"), where)
    assert [entry.kind for entry in SiteFolder.open(tmp_path / "noise" / "north").entries] == ["init"]


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

"""Answers that left in rounds, as people read them at the site."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.files.json_text import bytes_hash
from consilience.messages import decode
from mail_office import PRIVATE, TABLES, Office, start, study_with

FEW = {name: TABLES[name].slice(0, 400) for name in ("ash", "oak")}


def show(office: Office, *more: object) -> Any:
    place = ("--in", str(office.path / "sites"))
    return CliRunner().invoke(app, ["site", "show-answer", "ash", *map(str, more), *place])


def test_an_answer_is_printed_with_its_question_every_part_size_and_hash(tmp_path: Path) -> None:
    office = Office(tmp_path, study_with('name = "OneShot", refine = 1'), tables=FEW)
    office.advance()
    assert "no answer of a round has left" in str(show(office).exception)
    paths = [office.answer(name) for name in office.names]
    office.advance()
    second = office.answer("ash")
    for path, which, kind in ((paths[0], paths[0], "FitSite"), (second, "", "Several")):
        shown = show(office, *([which] if which else [])).stdout
        data, answer = path.read_bytes(), decode(office.opened(path).answer)
        assert f"The file that left: {len(data):,} bytes, SHA-256 {bytes_hash(data)[7:]}" in shown, kind
    assert "Asked: the parameters of a mixture of 2 experts fitted to all rows" in show(office, paths[0]).stdout
    assert "x_mean: the mean of each covariate" in show(office, paths[0]).stdout
    found = json.loads(show(office, "--json").stdout)
    parts = {(each["place"], each["name"]): each["values"] for each in found["parts"]}
    np.testing.assert_array_equal(parts["1. ", "experts.first"], answer.items[0].experts.first)
    assert parts["3. ", "log_likelihood"] == answer.items[2].log_likelihood
    every = show(office, "--numbers").stdout
    numbers = {float(each) for each in re.findall(r"(?<![\w.])-?\d[\d.]*(?:e[+-]\d+)?", every)}
    for value in np.ravel(answer.items[0].experts.second):
        assert float(f"{value:.6g}") in numbers
    paths[0].write_bytes(data + b" ")
    assert "no answer that the ledger of this site names" in str(show(office, paths[0]).exception)
    assert "entry 1 of the ledger is no answer" in str(show(office, 1).exception)


def test_an_answer_with_noise_is_printed_as_the_whole_numbers_that_left(tmp_path: Path) -> None:
    office = Office(tmp_path, PRIVATE, tables=FEW, start=start())
    office.advance()
    path = office.answer("ash")
    shown = show(office, "--numbers").stdout
    answer = decode(office.opened(path).answer)
    assert all(str(value) in shown.split() for value in answer.values)
    assert f"{path.stat().st_size:,} bytes" in shown
    assert "all with noise" in shown


def test_a_refusal_is_printed_as_what_it_says(tmp_path: Path) -> None:
    office = Office(tmp_path, study_with('name = "OneShot", refine = 1'), tables=FEW)
    folder = office.folders["ash"]
    text = folder.policy
    (folder.path / "policy.toml").write_text(re.sub(r'"FitSite", ', "", text))
    office.advance()
    office.answer("ash")
    shown = show(office).stdout
    assert "It says that this site did not answer: refused, and nothing else" in shown
    assert "does not list FitSite" not in shown  # the reason stays in the ledger


def test_an_answer_of_an_earlier_version_without_its_file_is_printed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(tmp_path, PRIVATE, tables=FEW, start=start())
    office.advance()
    office.answer("ash")
    folder = type(office.folders["ash"])
    entries = office.folders["ash"].entries
    for entry in entries:
        for name in ("file", "bytes", "asks"):
            dict.pop(entry.details, name, None)  # type: ignore[arg-type]
    monkeypatch.setattr(folder, "entries", property(lambda _: entries))
    shown = show(office).stdout
    assert "The file that left" not in shown
    assert "not recorded by the version that answered" in shown

"""The commands of docs/studies, in the order of their pages, print what the pages show.

Each page is run in a copy of docs/studies. Of what a command prints it shows passages, with ``...`` between them.
"""

from __future__ import annotations

import math
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience.cli.app import app
from consilience.cli.catalogue import CommandError

STUDIES = Path(__file__).parents[1] / "docs" / "studies"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
LOOP = re.compile(r"for (\w+) in (.+?); do (.+); done")
RELATIVE, ABSOLUTE = 1e-3, 0.02
"""Tolerance of the numbers on a page: other versions of numerical libraries round differently."""


def steps(page: str) -> Iterator[tuple[list[str], str]]:
    """Yield the commands of a page, loops written out, each with the passages that are shown of what is printed."""
    text = (STUDIES / f"{page}.rst").read_text(encoding="utf-8")
    for block in re.findall(r"^\.\. code-block:: console\n\n((?:(?:   .*)?\n)+)", text, flags=re.MULTILINE):
        for step in re.split(r"^   \$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.replace("\\\n", " ").partition("\n")
            yield written_out(command), shown


def written_out(command: str) -> list[str]:
    loop = LOOP.fullmatch(command.strip())
    return [loop[3].replace(f"${loop[1]}", each) for each in loop[2].split()] if loop else [command]


def printed(command: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process, a person saying yes to every question; return all that it prints."""
    program, *arguments = shlex.split(command)
    if program == "python":
        patch.setattr(sys, "argv", arguments)
        runpy.run_path(arguments[0])
        return capsys.readouterr().out
    assert program == "consilience", command
    done = CliRunner().invoke(app, arguments, input="y\n")
    if isinstance(done.exception, CommandError):
        return f"{done.output}\nerror {done.exception.problem.value.code}: {done.exception.said}"
    assert done.exit_code == 0, f"{command}\n{done.output}{done.exception!r}"
    return done.output


def is_same(word: str, other: str) -> bool:
    """Whether two words are the same, numbers in them nearly."""
    if NUMBER.sub("#", word) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(word), NUMBER.findall(other), strict=True)
    values = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for a, b in values)


def check_shown(shown: str, text: str, command: str) -> None:
    """Find the passages in a text, one after the other."""
    words, at = text.split(), 0
    for passage in filter(None, (part.split() for part in re.split(r"(?:^|\s)\.\.\.(?=\s|$)", shown))):
        for start in range(at, len(words) - len(passage) + 1):
            if all(map(is_same, passage, words[start : start + len(passage)])):
                at = start + len(passage)
                break
        else:
            raise AssertionError(f"{command} does not print {' '.join(passage)!r}:\n{text}")


@pytest.mark.long
@pytest.mark.parametrize("page", ["heart_disease", "parkinsons", "beijing_air"])
def test_a_study_prints_what_its_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        load_table(page)
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    shutil.copytree(STUDIES, tmp_path / "studies")
    monkeypatch.chdir(tmp_path / "studies" / page)
    for commands, shown in steps(page):
        text = "\n".join(printed(each, monkeypatch, capsys) for each in commands)
        check_shown(shown, text, commands[0])


def test_every_page_has_a_study_and_commands() -> None:
    pages = sorted(path.stem for path in STUDIES.glob("*.rst") if path.stem != "index")
    assert pages == ["beijing_air", "heart_disease", "parkinsons"]
    for page in pages:
        assert page in (STUDIES / "index.rst").read_text(encoding="utf-8")
        assert (STUDIES / page / "study.toml").is_file()
        assert any(shown.strip() for _, shown in steps(page))


def test_what_is_not_printed_is_found() -> None:
    check_shown("a 1,000.4 ... of 3", "so a 1,000.5 b c of 3 d", "command")
    with pytest.raises(AssertionError, match="does not print 'of 4'"):
        check_shown("a ... of 4", "a b of 3", "command")
    assert written_out("for x in a b; do run $x; done") == ["run a", "run b"]

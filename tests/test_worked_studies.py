"""The commands of docs/studies, in the order of their pages, print what the pages show.

Each page is run in a copy of docs/studies. Of what a command prints it shows passages, with ``...`` between them.
"""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience.cli.app import app
from consilience.cli.catalogue import CommandError
from console import check_shown, console_steps

STUDIES = Path(__file__).parents[1] / "docs" / "studies"
LOOP = re.compile(r"for (\w+) in (.+?); do (.+); done")


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
    for command, shown in console_steps(STUDIES / f"{page}.rst"):
        commands = written_out(command)
        text = "\n".join(printed(each, monkeypatch, capsys) for each in commands)
        check_shown(shown, text, commands[0])


def test_every_page_has_a_study_and_commands() -> None:
    pages = sorted(path.stem for path in STUDIES.glob("*.rst") if path.stem != "index")
    assert pages == ["beijing_air", "heart_disease", "parkinsons"]
    for page in pages:
        assert page in (STUDIES / "index.rst").read_text(encoding="utf-8")
        assert (STUDIES / page / "study.toml").is_file()
        assert any(shown.strip() for _, shown in console_steps(STUDIES / f"{page}.rst"))


def test_what_is_not_printed_is_found() -> None:
    check_shown("a 1,000.4 ... of 3", "so a 1,000.5 b c of 3 d", "command")
    with pytest.raises(AssertionError, match="does not print 'of 4'"):
        check_shown("a ... of 4", "a b of 3", "command")
    assert written_out("for x in a b; do run $x; done") == ["run a", "run b"]

"""Progress without a terminal: plain lines, now and then and at the end."""

from __future__ import annotations

import io
import re
import threading
import time

import pytest

from consilience.display import display_progress, write_lines


def test_lines_come_now_and_then_and_at_the_end() -> None:
    file = io.StringIO()
    with write_lines("fit", file, first=0.02) as show:
        show("round 1, Expect, sites", 1200, 2000)
        deadline = time.monotonic() + 5
        while not file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert re.match(r"fit: round 1, Expect, sites, 1,200 of 2,000, \d s\n", file.getvalue())
        show("after round 1, computing with the answers", None, None)
    assert re.fullmatch(r"fit: after round 1, computing with the answers, \d s", file.getvalue().splitlines()[-1])


def test_nothing_is_written_where_nothing_was_shown() -> None:
    file = io.StringIO()
    with write_lines("fit", file, first=0.001):
        time.sleep(0.02)
    assert file.getvalue() == ""


def interrupted() -> None:
    with display_progress("fit") as show:
        show("round 1", 0, 3)
        raise KeyboardInterrupt


def test_an_interrupt_ends_the_thread(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"fit: round 1, 0 of 3, \d s\n", captured.err)
    assert not [thread for thread in threading.enumerate() if thread.name == "consilience-progress"]


class Notebook:
    """A console of rich in a notebook."""

    is_terminal = False
    is_jupyter = True

    def __init__(self, file: io.StringIO) -> None:
        self.file = file


def test_a_notebook_without_widgets_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich shows a bar in a notebook by ipywidgets, and nothing but a warning without them."""
    file = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Notebook(file))
    monkeypatch.setattr("consilience.display.find_spec", lambda _: None)
    with display_progress("fit") as show:
        show("round 1, sites", 1, 3)
    assert re.fullmatch(r"fit: round 1, sites, 1 of 3, \d s\n", file.getvalue())

"""The local page of a site: what it says after each command, and what it never says."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
import socket
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.cli.site_commands import log, site
from consilience.cli.site_page import PAGE, PagedCommand
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit.folder import SiteFolder
from consilience.kit.study import Study
from consilience.kit.study_notes import BARS, FOLDER, column_notes, notes_of

RUNNER = CliRunner()
TABLES = hospitals()
CHANGES_NOTHING = {"open", "rehearse", "show-answer", "status"}
"""Commands after which the page is not written: the first writes nothing, the second writes it by itself."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study and the table of one hospital, in which commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    pq.write_table(TABLES["ash"], tmp_path / "ash.parquet")
    return tmp_path


def run(*arguments: object, answer: str | None = None) -> Any:
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None) -> Any:
    found = run(*arguments, answer=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def page() -> str:
    return Path("ash", PAGE).read_text(encoding="utf-8")


def said(text: str) -> str:
    """The page as a person reads it."""
    return html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)).replace("\u00a0", " ")


def box(text: str) -> str:
    found = re.search(r'<section class="verdict.*?</section>', text, flags=re.DOTALL)
    assert found is not None
    return found[0]


def next_command(text: str) -> list[str]:
    """The command in the box at the top, as a shell reads it."""
    found = re.search(r"<pre>(.*?)</pre>", box(text))
    assert found is not None
    return shlex.split(html.unescape(found[1]))


def test_each_step_of_a_site_is_the_command_that_the_page_names(place: Path) -> None:
    done("site", "init", "ash")
    assert "Nothing waits for you" in page()
    first = next_command(page())
    assert first[:4] == ["consilience", "site", "check", "ash"]
    done(*first[1:4], "study.toml", "ash.parquet")
    assert "The next step is a fit" in page()
    done(*next_command(page())[1:])
    assert "One decision waits for you" in page()
    declined = next_command(page())[1:]
    assert run(*declined, answer="n\n").exit_code != 0
    assert "You said no: nothing has left" in page()
    assert "Nothing has left this site." in page()
    done(*next_command(page())[1:], answer="y\n")
    assert "the file was released" in page()
    done(*next_command(page())[1:])
    kinds = [entry["kind"] for entry in json.loads(done("site", "log", "show", "ash", "--json").stdout)["entries"]]
    assert kinds == ["init", "fit", "decline", "release"]
    done("site", "fit", "ash", "study.toml", "ash.parquet")
    assert "these rows were released before (entry 4)" in page()
    done(*next_command(page())[1:], "--overwrite")


def test_the_page_says_what_was_asked_read_and_left(place: Path) -> None:
    done("site", "init", "ash")
    done("site", "fit", "ash", "study.toml", "ash.parquet")
    done("site", "release", "ash", "-o", "ash.json", "--by", "A. Person", answer="y\n")
    text, sent = said(page()), (place / "ash.json").read_bytes()
    assert "How long do patients stay, and which patients are alike?" in text
    assert page().count(">not stated<") == 6  # what the study does not say of the use of the data
    ages = TABLES["ash"]["age"].to_numpy()
    assert f"mean {ages.mean():.3g}, SD {ages.std(ddof=1):.3g}" in text
    assert "900 rows were read." in text
    assert "Spent: ε = 0 of 8" in text
    left = re.search(r"What has left this site\..*?What happened here", text, flags=re.DOTALL)
    assert left is not None
    for part in (hashlib.sha256(sent).hexdigest(), f"{len(sent):,}", "A. Person"):
        assert part in left[0]
    numbers = json.loads(sent)["content"]["columns"]["covariate_means"]
    assert json.dumps(numbers) in text


def test_the_page_is_static_private_and_opens_no_connection(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    done("site", "init", "ash")
    done("site", "fit", "ash", "study.toml", "ash.parquet")
    monkeypatch.setattr(socket, "socket", refuse)
    shown = done("site", "open", "ash").stdout.strip()
    assert Path(shown) == (place / "ash" / PAGE).resolve()
    text = page()
    for never in ("<script", "http:", "https:", "style=", "<form", "<button", "<input", '<a href="file', " src="):
        assert never not in text, never
    assert "default-src 'none'" in html.unescape(text)
    assert set(re.findall(r'href="([^"]*)"', text)) == {
        f"#{each}" for each in re.findall(r'<h2 id="([^"]*)"', text)
    } - {"#top"}
    paths = [place / "ash" / PAGE, *(place / "ash" / FOLDER).iterdir()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600] * len(paths)


def test_what_others_wrote_is_escaped(place: Path) -> None:
    mark = "<img src=x onerror=alert(1)>\"'&amp;"
    text = STUDY.replace('"How long do patients stay, and which patients are alike?"', json.dumps(mark))
    text = text.replace('male = "men"', f"male = {json.dumps(mark)}").replace('"days"', json.dumps(mark))
    text = text.replace("[minimum]", f"[governance]\npurpose = {json.dumps(mark)}\n\n[minimum]")
    name = "<b>'study'.toml"
    (place / name).write_text(text)
    done("site", "init", "ash")
    done("site", "fit", "ash", name, "ash.parquet")
    done("site", "release", "ash", "-o", "ash.json", "--by", mark, answer="y\n")
    done("site", "check", "ash", name, "ash.parquet")
    text = page()
    assert "<img" not in text
    assert "<b>'study" not in text
    assert said(text).count(mark) >= 4
    assert next_command(text) == ["consilience", "site", "fit", "ash", name, "ash.parquet"]


def test_no_row_extreme_or_small_group_is_on_the_page(place: Path) -> None:
    table = TABLES["ash"]
    ages = table["age"].to_numpy().copy()
    ages[0], ages[1] = 109.4375, 18.0625
    sexes = ["female"] * (len(ages) - 3) + ["male"] * 3
    pq.write_table(
        table.set_column(table.column_names.index("age"), "age", pa.array(ages)).set_column(
            table.column_names.index("sex"), "sex", pa.array(sexes)
        ),
        "ash.parquet",
    )
    done("site", "init", "ash")
    assert run("site", "check", "ash", "study.toml", "ash.parquet").exit_code != 0  # the policy refuses 3 men
    texts = [said(page()), *((path).read_text() for path in (place / "ash" / FOLDER).iterdir())]
    for text in texts:
        for value in ("109.4", "18.06"):
            assert value not in text
    assert "men: under 10" in texts[0] or "male: under 10" in texts[0]
    assert '"rows": 3' not in texts[1]


def test_groups_are_counted_from_the_limit_on() -> None:
    rng = np.random.default_rng(0)
    study = Study.from_text(STUDY)
    table = TABLES["ash"].slice(0, 200).set_column(1, "age", pa.array(rng.normal(50, 10, 200)))
    notes = {each.name: each for each in column_notes(study, table, 20)}
    bars = notes["age"].bars
    assert len(bars) == BARS
    assert all(n == 0 or n >= 20 for n in bars)
    few = {each.name: each for each in column_notes(study, table.slice(0, 19), 20)}
    assert (few["age"].said, few["age"].bars) == ("", [])
    assert all(each.rows is None or each.rows == 0 or each.rows >= 20 for each in few["sex"].levels)


def test_every_command_that_changes_a_site_writes_the_page() -> None:
    unpaged = {each.name or each.callback.__name__ for each in site.registered_commands if each.cls is not PagedCommand}
    assert unpaged == CHANGES_NOTHING
    assert [each.name for each in log.registered_commands if each.cls is PagedCommand] == ["repair"]


def test_a_table_that_does_not_fit_is_said_with_what_to_do(place: Path) -> None:
    done("site", "init", "ash")
    pq.write_table(TABLES["ash"].drop_columns("age"), "other.parquet")
    assert run("site", "fit", "ash", "study.toml", "other.parquet").exit_code != 0
    assert "The table does not fit the study" in page()
    assert "column 'age'" in said(box(page()))
    assert next_command(page())[-1] == "other.parquet"
    few = TABLES["ash"].slice(0, 150)
    pq.write_table(few, "few.parquet")
    run("site", "fit", "ash", "study.toml", "few.parquet")
    assert "Nothing leaves: the site refuses" in page() or "The table does not fit" in page()


def test_a_page_that_cannot_be_written_stops_nothing(place: Path) -> None:
    done("site", "init", "ash")
    (place / "ash" / PAGE).unlink()
    (place / "ash" / PAGE).mkdir()
    found = done("site", "fit", "ash", "study.toml", "ash.parquet")
    assert f"{PAGE} was not written" in found.stderr
    assert run("site", "open", "ash").exit_code != 0


def test_notes_that_were_changed_are_left_out_and_made_anew(place: Path) -> None:
    done("site", "init", "ash")
    done("site", "check", "ash", "study.toml", "ash.parquet")
    folder = SiteFolder.open(place / "ash")
    (path,) = (place / "ash" / FOLDER).iterdir()
    whole = json.loads(path.read_text())
    for broken in ("[]", "{", json.dumps({**whole, "version": 2}), json.dumps({**whole, "more": 1}), "x" * 9_000_000):
        path.write_text(broken)
        assert notes_of(folder) == {}
        done("site", "open", "ash")
    done("site", "check", "ash", "study.toml", "ash.parquet")
    assert list(notes_of(folder)) == [Study.from_text(STUDY).identity]

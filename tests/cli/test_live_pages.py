"""The pages of a live run, of a site and of the coordinator: what waits, what is asked, what left, the next step."""

from __future__ import annotations

import hashlib
import html
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.cli.run_page import COORDINATOR_KEY
from consilience.cli.site_page import PAGE
from consilience.couriers.letter_stores import FolderStore
from consilience.datasets.hospitals import STUDY
from consilience.kit.mail_folder import answer_name
from consilience.kit.serving import Serving, serve
from mail_office import TABLES, Office, study_with

CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
PLAN = study_with('name = "OneShot", refine = 0', text=CONTRACT)
RUNNER = CliRunner()


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """A run with two sites, of which one is served; its letters lie in a store."""
    monkeypatch.chdir(tmp_path)
    found = Office(tmp_path, PLAN, "hospital", tables={"ash": TABLES["ash"], "elm": TABLES["elm"]})
    assert found.advance() is None
    assert found.identity is not None
    found.identity.store(found.own / COORDINATOR_KEY)
    (tmp_path / "study.toml").write_text(PLAN.to_text())
    pq.write_table(TABLES["ash"], tmp_path / "ash.parquet")
    for way in ("to", "from"):  # letters need not be carried
        (tmp_path / "store" / way).mkdir(parents=True)
        (tmp_path / "store" / way / "ash").symlink_to(found.mail, target_is_directory=True)
    return found


def done(*arguments: object, answer: str | None = None) -> Any:
    found = RUNNER.invoke(app, [str(each) for each in arguments], input=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


@pytest.fixture
def program(office: Office) -> Serving:
    """The program of the site."""
    return Serving(office.folders["ash"], FolderStore(Path("store")), Path("ash.parquet"))


def step(program: Serving) -> str:
    """Let the program of the site take one step; the state. Then open the page, as the program does."""
    word = serve(program, until=lambda _: True).word
    done("site", "open", "ash", "--in", "sites")
    return word


def said(text: str) -> str:
    """A page as a person reads it."""
    plain = html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL))
    return " ".join(plain.replace("\u00a0", " ").split())


def page() -> str:
    return Path("sites/ash", PAGE).read_text(encoding="utf-8")


def run_page() -> str:
    path = Path(done("live", "open", "mail", "--own", "coordinator").stdout.strip())
    assert path == Path("coordinator/page.html").resolve()
    return path.read_text(encoding="utf-8")


def box(text: str) -> tuple[str, list[str]]:
    """What the box at the top says, and its command as a shell reads it; none if it has none."""
    found = re.search(r'<section class="verdict.*?</section>', text, flags=re.DOTALL)
    assert found is not None
    command = re.search(r"<pre>(.*?)</pre>", found[0])
    return said(found[0]), [] if command is None else shlex.split(html.unescape(command[1]))[1:]


def test_each_decision_in_a_live_run_is_the_command_that_the_page_of_the_site_names(
    office: Office, program: Serving
) -> None:
    key = office.identity.public_key if office.identity else ""
    done("site", "mandate", "ash", "study.toml", "--coordinator", key, "--in", "sites")
    title, command = box(page())
    assert "A mandate waits for your signature" in title
    assert "It does not count before it is signed" in said(page())
    done(*command, answer="y\n")
    title, command = box(page())
    assert "The next step is the program" in title
    assert command[:3] == ["site", "serve", "ash"]
    assert step(program) == "needs-approval"
    title, command = box(page())
    assert "A question waits for your approval" in title
    asked = office.latest("ash").disclosed
    assert f"Round 1 asks: {asked}." in title
    done(*command, answer="y\n")
    assert step(program) == "answered"
    title, command = box(page())
    assert "Nothing waits for you Round 1 is answered. The next question waits for a person." in title
    text, sent = said(page()), (office.mail / answer_name(1, "ash")).read_bytes()
    for part in (hashlib.sha256(sent).hexdigest(), f"{len(sent):,}", f"answer of round 1: {asked[:80]}…", key):
        assert part in text
    assert "1 of 100 are used" in text
    done(*command)
    title, command = box(page())
    assert "The site is paused" in title
    done(*command)
    office.answer("elm")
    assert office.advance() is not None
    assert step(program) == "finished"
    assert "the run is finished" in box(page())[0]


def test_a_question_that_is_refused_or_held_is_said_with_the_reason(office: Office, program: Serving) -> None:
    key = office.identity.public_key if office.identity else ""
    done("site", "mandate", "ash", "study.toml", "--coordinator", key, "--mode", "hold", "--in", "sites")
    path = Path("sites/ash/mandate.toml")
    text = path.read_text()
    done("site", "mandate", "ash", "--sign", "--no-input", "--in", "sites")
    assert step(program) == "held"
    assert "An answer leaves soon" in box(page())[0]
    assert box(page())[1][:3] == ["site", "pause", "ash"]
    path.write_text(re.sub(r"(?m)^until = .*$", 'until = "2020-01-01"', text))
    done("site", "open", "ash", "--in", "sites")
    assert "A mandate waits for your signature" in box(page())[0]  # it was changed since it was signed
    done("site", "mandate", "ash", "--sign", "--no-input", "--in", "sites")
    assert step(program) == "refused"
    assert "The question is refused" in box(page())[0]
    assert "the mandate ended on 2020-01-01" in box(page())[0]


def test_the_page_of_the_coordinator_says_who_is_awaited_what_is_refused_and_what_comes_next(office: Office) -> None:
    text = run_page()
    assert "2 of 2 sites are awaited" in box(text)[0]
    assert "Round 1 waits for ash, elm." in box(text)[0]
    assert office.latest("ash").disclosed in said(text)
    assert office.wanted().study in said(text)
    office.answer("ash")
    (office.mail / answer_name(1, "elm")).write_text("<img src=x>")
    text = run_page()
    assert "1 of 2 sites are awaited, and files were refused" in box(text)[0]
    assert answer_name(1, "elm") in said(text)
    assert re.search(r"elm 1 \d{4}-\S+ \S+ awaited for less than two minutes", said(text))
    assert re.search(r"ash 1 \d{4}-\S+ \S+ answered", said(text))
    office.answer("elm")
    title, command = box(run_page())
    assert "All answers are there" in title
    done(*command, "-o", "model.json")
    text = Path("coordinator/page.html").read_text()  # written by 'consilience run'
    assert "the run is finished" in box(text)[0]
    done("live", "watch", "mail", "--own", "coordinator")


def test_the_page_of_the_coordinator_is_static_and_private(office: Office) -> None:
    name = office.mail / answer_name(1, "elm")
    name.write_text("{}")
    name.rename(office.mail / "round-01.answer.<script>.json")
    text = run_page()
    for never in ("<script", "http:", "https:", "style=", "<form", "<button", "<input", '<a href="file', " src="):
        assert never not in text, never
    assert "default-src 'none'" in html.unescape(text)
    assert stat.S_IMODE(Path("coordinator/page.html").stat().st_mode) == 0o600
    found = RUNNER.invoke(app, ["live", "open", "nothing"])
    assert found.exit_code == 1

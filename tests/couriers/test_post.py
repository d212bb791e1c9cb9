"""The coordinator's courier: each site gets its own letters, and no file of a store replaces an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from consilience.couriers import letter_stores
from consilience.couriers import post as couriers_post
from consilience.couriers.letter_stores import FolderStore
from consilience.couriers.post import COMPARED, FIRST, LAST, Post
from consilience.errors import StoreError
from consilience.kit.letters import RUN
from consilience.kit.mail_folder import END, STUDY, answer_name, question_name
from consilience.kit.private_files import slug

SITES = ("ash", "birch")
ANSWER = answer_name(1, "ash")


@dataclass
class Counting:
    """A store that counts calls, and fails when it is told to."""

    inner: FolderStore
    calls: Counter[str] = field(default_factory=Counter)
    written: list[str] = field(default_factory=list)
    fails: bool = False

    def names(self, folder: str) -> dict[str, str]:
        self.calls["names"] += 1
        return self.inner.names(folder)

    def read(self, folder: str, name: str) -> bytes:
        self.calls["read"] += 1
        return self.inner.read(folder, name)

    def write(self, folder: str, name: str, data: bytes) -> None:
        if self.fails:
            raise StoreError("the store is away")
        self.calls["write"] += 1
        self.written.append(f"{folder}/{name}")
        self.inner.write(folder, name, data)


@pytest.fixture
def office(tmp_path: Path) -> Any:
    """A run with a question to all, its post and its store."""
    mail = tmp_path / "mail"
    mail.mkdir()
    for name in (RUN, STUDY, question_name(1)):
        (mail / name).write_text(name)
    store = Counting(FolderStore(tmp_path / "store"))
    return mail, store, Post(mail, store, SITES)


def test_names_of_files_are_those_of_the_mailbox(office) -> None:
    assert {*FIRST, *LAST} == {RUN, STUDY, END}
    mail, store, post = office
    name = "Müller & Söhne"
    post = Post(mail, store, [slug(name)])
    (mail / question_name(123_456, name)).write_text("question")
    post.step()
    assert store.written[-1] == f"to/{slug(name)}/{question_name(123_456, name)}"
    store.inner.write(f"from/{slug(name)}", answer_name(99_999, name), b"answer")
    assert post.step() == (0, 1)
    assert (mail / answer_name(99_999, name)).read_bytes() == b"answer"


def test_each_site_gets_the_study_the_run_and_its_latest_question_in_this_order(office) -> None:
    mail, store, post = office
    assert post.step() == (6, 0)
    assert store.written[:3] == [f"to/ash/{STUDY}", f"to/ash/{RUN}", f"to/ash/{question_name(1)}"]
    (mail / question_name(2, "ash")).write_text("to ash alone")
    (mail / question_name(2, "birch")).write_text("to birch alone")
    (mail / "sites.json").write_text("no letter")
    (mail / answer_name(1, "birch")).write_text("an answer of birch")
    (mail / END).write_text("the end")
    store.written.clear()
    assert post.step() == (4, 0)
    assert store.written == [f"to/{each}/{name}" for each in SITES for name in (question_name(2, each), END)]
    assert set(store.inner.names("to/ash")) == {STUDY, RUN, question_name(1), question_name(2, "ash"), END}


def test_nothing_new_costs_one_list_for_each_site(office) -> None:
    mail, store, post = office
    store.inner.write("from/ash", ANSWER, b"answer")
    assert post.step() == (6, 1)
    store.calls.clear()
    assert post.step() == (0, 0)
    assert store.calls == {"names": 2}
    (mail / question_name(1)).write_text("until another day")
    assert post.step() == (2, 0)
    again = Post(mail, store, SITES)  # as after a crash: all is sent once more, and nothing is taken twice
    assert again.step() == (6, 0)
    assert (mail / ANSWER).read_bytes() == b"answer"
    assert again.refused == {}


def test_a_letter_that_was_deleted_or_changed_in_the_store_is_sent_again(office, monkeypatch) -> None:
    mail, store, post = office
    now = [0.0]
    monkeypatch.setattr(couriers_post.time, "monotonic", lambda: now[0])
    post._compared = 0.0
    assert post.step() == (6, 0)
    now[0] += COMPARED + 1
    assert post.step() == (0, 0)
    place = store.inner.root / "to/ash"
    (place / RUN).unlink()
    (place / question_name(1)).write_text("words of somebody else")
    store.written.clear()
    assert post.step() == (0, 0)  # it is not looked at every time
    now[0] += COMPARED + 1
    assert post.step() == (2, 0)
    assert store.written == [f"to/ash/{RUN}", f"to/ash/{question_name(1)}"]
    assert (place / question_name(1)).read_text() == question_name(1)
    now[0] += COMPARED + 1
    assert post.step() == (0, 0)
    (mail / question_name(2)).write_text("second")
    (place / question_name(1)).unlink()
    now[0] += COMPARED + 1
    assert post.step() == (2, 0)  # of former rounds nobody needs the question
    assert not (place / question_name(1)).exists()


def test_a_run_that_has_not_begun_is_not_sent(office) -> None:
    mail, store, post = office
    (mail / STUDY).unlink()
    assert post.step() == (0, 0)
    assert not store.calls


def test_a_store_that_is_away_is_an_error_and_the_next_step_goes_on(office) -> None:
    _mail, store, post = office
    store.fails = True
    with pytest.raises(StoreError):
        post.step()
    store.fails = False
    assert post.step() == (6, 0)


def test_an_answer_that_was_taken_is_never_replaced(office) -> None:
    mail, store, post = office
    place = f"from/ash/{ANSWER}"
    store.inner.write("from/ash", ANSWER, b"answer")
    post.step()
    store.inner.write("from/ash", ANSWER, b"junk")
    assert post.step() == (0, 1)
    assert (mail / ANSWER).read_bytes() == b"answer"
    beside = mail / "round-01.answer.ash.again.json"
    assert beside.read_bytes() == b"junk"
    assert "not the answer that was taken" in post.refused[place]
    assert post.step() == (0, 0)
    assert place in post.refused  # it stays named
    for number in range(5):  # the disk does not fill
        store.inner.write("from/ash", ANSWER, b"other junk %d" % number)
        post.step()
    assert len(list(mail.iterdir())) == 5
    store.inner.write("from/ash", ANSWER, b"answer")  # the site sends it again
    assert post.step() == (0, 0)
    assert post.refused == {}


def test_an_answer_after_junk_is_taken_too(office) -> None:
    mail, store, post = office
    store.inner.write("from/ash", ANSWER, b"half")
    post.step()
    store.inner.write("from/ash", ANSWER, b"half and the rest")
    assert post.step() == (0, 1)
    assert {path.read_bytes() for path in mail.glob("*.answer.*")} == {b"half", b"half and the rest"}


def test_what_lies_in_the_folder_of_another_or_was_not_asked_is_refused_by_name(office, monkeypatch) -> None:
    mail, store, post = office
    monkeypatch.setattr(letter_stores, "MOST_LETTER", 1000)
    wrong = {
        answer_name(1, "birch"): "named as an answer of birch",
        answer_name(2, "ash"): "was not asked",
        "round-00.answer.ash.json": "was not asked",
        "run.json": "not that of an answer",
        "round-01.answer.ash.again.json": "not that of an answer",
        "round-01.question.json": "not that of an answer",
    }
    for name in wrong:
        store.inner.write("from/ash", name, b"x")
    store.inner.write("from/ash", ANSWER, bytes(1000))
    (store.inner.root / "from/ash" / ANSWER).write_bytes(bytes(1001))
    before = sorted(mail.iterdir())
    assert post.step() == (6, 0)
    assert sorted(mail.iterdir()) == before
    assert set(post.refused) == {f"from/ash/{name}" for name in (*wrong, ANSWER)}
    for name, reason in (*wrong.items(), (ANSWER, "more than 1,000 bytes")):
        assert reason in post.refused[f"from/ash/{name}"]
    (mail / question_name(2)).write_text("second")
    assert post.step() == (2, 1)  # what answers the second question is judged again
    store.inner.write("from/ash", ANSWER, b"small")
    assert post.step() == (0, 1)


def test_a_closed_round_takes_no_second_answer(office) -> None:
    mail, store, post = office
    store.inner.write("from/ash", ANSWER, b"answer")
    post.step()
    (mail / question_name(2)).write_text("second")
    store.inner.write("from/ash", ANSWER, b"junk")
    assert post.step() == (2, 0)
    assert set(post.refused) == {f"from/ash/{ANSWER}"}
    assert sorted(path.name for path in mail.glob("*.answer.*")) == [ANSWER]

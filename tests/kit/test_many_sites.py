"""Work of a coordinator that grows with the number of sites, and no faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consilience.kit import mailbox, roster
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import answer_name, question_name
from consilience.kit.mailbox import Mailbox, begin_folder
from consilience.messages import Summarise, encode

NUMBER = 60


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of what is done for each answer, or for each round."""
    found: Counter[str] = Counter()

    def count(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        found[real.__name__] += 1
        return real(*arguments, **named)

    for module, name in ((roster, "verify_signature"), (mailbox, "read_heads"), (roster.Roster, "from_tables")):
        monkeypatch.setattr(module, name, partial(count, getattr(module, name)))
    return found


def test_each_answer_is_verified_once_and_each_list_is_read_once(tmp_path: Path, counted: Counter[str]) -> None:
    names = [f"s{i:03d}" for i in range(NUMBER)]
    identities = {name: SiteIdentity.new() for name in names}
    study, keys = f"sha256:{64 * '1'}", {name: each.public_key for name, each in identities.items()}
    run = begin_folder(tmp_path / "mail", tmp_path / "own", RunFile(study, tuple(names), keys, ""))
    box = Mailbox(run=run, folder=tmp_path / "mail", own=tmp_path / "own", poll=0.01)
    asked = encode(Summarise(2, 1))
    assert list(box.ask(1, asked, names, total=True, timeout=0.05)) == []  # the question is written
    question = QuestionLetter.from_text((tmp_path / "mail" / question_name(1)).read_text())
    for entry, name in enumerate(names[:-1], 1):
        letter = AnswerLetter(run.identity, study, 1, name, question.hash, b"an answer")
        envelope = {"ledger": {"entry": entry, "hash": f"sha256:{entry:064d}"}}
        signed = replace(letter, envelope={**envelope, "signature": identities[name].sign(letter.hash)})
        (tmp_path / "mail" / answer_name(1, name)).write_text(signed.to_text())
    counted.clear()
    found = list(box.ask(1, asked, names, total=True, timeout=0.1))  # looks about ten times
    assert sorted(site for batch in found for reply in batch for site in reply.sites) == names[:-1]
    assert counted["verify_signature"] == NUMBER - 1
    assert counted["read_heads"] <= 4
    assert counted["from_tables"] <= 1

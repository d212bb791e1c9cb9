"""Mutated studies, policies, rosters, site files, models and ledgers: each is read, or refused with a sentence."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from consilience.cli.drafting import example_study
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import ConsilienceError
from consilience.estimators.saving import load
from consilience.files.json_text import content_hash
from consilience.files.site_file import SiteFile
from consilience.kit import ledger
from consilience.kit.folder import LEDGER, SiteFolder
from consilience.kit.policy.policy import PROFILES, Policy
from consilience.kit.release import FitReport, release_fit
from consilience.kit.roster import Roster
from consilience.kit.row_tags import RowTags
from consilience.kit.site_fit import fit_at_site
from consilience.kit.study import Study

ROSTER = 'format = "consilience-roster"\nversion = 1\n[[sites]]\nname = "ash"\n[[sites]]\nname = "birch"\n'
TOKENS = (
    "0", "-1", "1e308", "1e999", "NaN", "-Infinity", "nan", "inf", "null", "true", "[]", "{}", '""', "1" * 400,
    "9" * 19, "2147483648", '"__import__"', '"../../etc/passwd"', '"<script>"', '"\u202e"', '"é"',
    '"e\u0301"', "[[", "]]", "[" * 3000, '{"a":' * 3000, '"' + "a" * 70_000 + '"', '"(a+)+$"', "\0", "\ud7ff", "1_000",
    "0x10", "1979-05-27",
)  # fmt: skip
"""What a number, word or bracket is replaced by."""


@cache
def files() -> dict[str, bytes]:
    """Honest files of a site, by what reads them."""
    with tempfile.TemporaryDirectory() as parent:
        folder = SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), parent)
        fit_at_site(folder, Study.from_text(STUDY), hospitals()["ash"])
        sent = release_fit(folder, "A. Person")
        (report,) = (folder.path / "fits").iterdir()
        (tags,) = (folder.path / "tags").iterdir()
        return {
            "site": sent,
            "report": report.read_bytes(),
            "tags": tags.read_bytes(),
            "ledger": (folder.path / LEDGER).read_bytes(),
        }


@cache
def models() -> list[bytes]:
    return [
        path.read_bytes() for path in (Path(__file__).parent / "files").rglob("*.json") if path.stat().st_size < 9_000
    ]


# ---------------------------------------------------------------------- mutations


def mutated(text: str, rng: random.Random, other: str) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(text, rng, other)
    return text


def _character(text: str, rng: random.Random, _: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + chr(rng.randrange(32, 1200)) + text[at + 1 :]


def _cut(text: str, rng: random.Random, _: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _without(text: str, rng: random.Random, _: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randrange(1, 60) :]


def _again(text: str, rng: random.Random, _: str) -> str:
    """A line twice, which makes a key twice."""
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines)) if lines else 0
    return "".join([*lines[: at + 1], *lines[at:]])


def _token(text: str, rng: random.Random, _: str) -> str:
    """Another value in the place of one."""
    places = [i for i, letter in enumerate(text) if letter in ":=,["]
    if not places:
        return text
    start = rng.choice(places) + 1
    end = min((at for at in (text.find(mark, start) for mark in ",\n]}") if at >= 0), default=len(text))
    return f"{text[:start]} {rng.choice(TOKENS)}{text[end:]}"


def _spliced(text: str, rng: random.Random, other: str) -> str:
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


MUTATIONS: tuple[Callable[[str, random.Random, str], str], ...] = (
    _character,
    _cut,
    _without,
    _again,
    _token,
    _token,
    _token,
    _spliced,
)


def rehashed(text: str) -> str:
    """The same file with the hash of its content: whoever can change a file can also do that."""
    try:
        found = json.loads(text)
        found["hash"] = content_hash(found["content"])
        return json.dumps(found)
    except (ValueError, KeyError, TypeError, RecursionError, ConsilienceError):
        return text


# ---------------------------------------------------------------------- what reads them


def read_study(_: object, rng: random.Random, __: Path) -> str:
    text = rng.choice((STUDY, example_study()))
    return outcome(lambda: Study.from_text(mutated(text, rng, ROSTER)))


def read_policy(_: object, rng: random.Random, __: Path) -> str:
    text = Policy.of_profile(rng.choice(list(PROFILES))).to_text()
    return outcome(lambda: Policy.from_text(mutated(text, rng, STUDY)))


def read_roster(_: object, rng: random.Random, __: Path) -> str:
    return outcome(lambda: Roster.from_text(mutated(ROSTER, rng, STUDY)))


def read_site_file(_: object, rng: random.Random, __: Path) -> str:
    text = mutated(files()["site"].decode(), rng, files()["report"].decode())
    return outcome(lambda: SiteFile.from_text(rehashed(text) if rng.random() < 0.7 else text))


def read_report(_: object, rng: random.Random, __: Path) -> str:
    return outcome(lambda: FitReport.from_text(mutated(files()["report"].decode(), rng, files()["site"].decode())))


def read_model(_: object, rng: random.Random, folder: Path) -> str:
    path = folder / "model.json"
    text = mutated(rng.choice(models()).decode(), rng, files()["site"].decode())
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return outcome(lambda: load(path))


def read_ledger(_: object, rng: random.Random, folder: Path) -> str:
    path = folder / "ledger.jsonl"
    path.write_bytes(mutated(files()["ledger"].decode(), rng, STUDY).encode("utf-8", "surrogatepass"))
    return outcome(lambda: ledger.read(path))


def read_tags(_: object, rng: random.Random, folder: Path) -> str:
    data = bytearray(files()["tags"])
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(min(len(data), 400))] = rng.randrange(256)
    path = folder / "rows.tags"
    path.write_bytes(bytes(data[: rng.choice((len(data), rng.randrange(len(data))))]))
    return outcome(lambda: RowTags.read(path))


def outcome(read: Callable[[], object]) -> str:
    try:
        read()
    except ConsilienceError as error:
        return "refused" if str(error) else "refused without a sentence"
    return "read"


FILE_READERS = (
    read_study,
    read_policy,
    read_roster,
    read_site_file,
    read_report,
    read_model,
    read_ledger,
    read_tags,
)

"""Mutated messages, journals and files: each is read or refused by name, quickly and in little memory.

``python tests/fuzzing.py NUMBER [SEED]`` mutates that many in a process of its own; tests of the full lane mutate a
fixed 5,000 messages, answers, questions and journals, and 2,000 files.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "messages"))

from test_codec import values

from consilience.engines import InProcess
from consilience.errors import ConsilienceError, JournalError, MessageError
from consilience.messages import Failure, Summarise, Total, decode, encode
from consilience.messages.codec import HEADER, Message
from consilience.messages.table import kinds, receive, table
from consilience.model import Rows
from consilience.runs import Journal, run
from consilience.site import Site, respond
from fuzzing_files import FILE_READERS
from strategies import Shape

WHOLE = (0, 1, -1, 2, 3, 7, 255, 10**4, 10**6, 10**9, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
REAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308, -1e308, 1e100, 1e154, 1e-154, 1.0, -1.0, 1e6, 1e-9, 1e-300)
SHAPES = (
    Shape(),
    Shape(family="gaussian-diag", q=2, K=3),
    Shape(family="gaussian-tied", q=2),
    Shape(family="gaussian-spherical", q=3, gate="constant"),
    Shape(family="categorical"),
    Shape(family="poisson", gate="constant"),
    Shape(family="student"),
    Shape(family="gamma"),
    Shape(family="negative_binomial", gate="constant"),
    Shape(d=0, gate="constant"),
    Shape(labels="group", gate="constant"),
    Shape(K=1),
)
MOST_SECONDS = 1.0
MOST_GROWTH = 200 * 2**10  # kB
FEW, MANY_STARTS = 10, "answered, with more starts than usual, as asked"


@dataclass
class Corpus:
    """Honest messages, by what reads them."""

    messages: list[bytes] = field(default_factory=list)
    questions: list[tuple[bytes, Site]] = field(default_factory=list)
    answers: list[tuple[Any, bytes]] = field(default_factory=list)
    journals: list[tuple[bytes, bytes]] = field(default_factory=list)


def corpus() -> Corpus:
    found = Corpus()
    for shape in SHAPES:
        site = Site("here", shape.problem()[1])
        for value in values(shape):
            message = encode(value)
            found.messages.append(message)
            if type(value) in table():
                found.questions.append((message, site))
                said = respond(message, site)
                if not isinstance(decode(said), Failure):
                    found.answers.append((value, said))
    found.journals.append(written_journal())
    return found


SITES = [Site(name, Rows(np.full((3, 1), i + 1.0), np.arange(3.0)[:, None] * i)) for i, name in enumerate("abc")]


def two_rounds() -> Any:
    yield Total(Summarise(1, 1))
    return (yield Total(Summarise(1, 1)))


def written_journal() -> tuple[bytes, bytes]:
    """The two files of a run that ended in its second round."""

    class Ending:
        sites = tuple(site.name for site in SITES)

        def ask(self, number: int, *args: Any, **options: Any) -> Iterator[Any]:
            for replies in InProcess(1).over(SITES).ask(number, *args, **options):
                yield replies
                if number == 2:
                    raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        try:
            run(two_rounds(), Ending(), journal=Journal(path))
        except KeyboardInterrupt:
            return path.read_bytes(), path.with_name("run.round").read_bytes()
    raise AssertionError("the run did not end early")


# ---------------------------------------------------------------------- mutations


def mutated(data: bytes, rng: random.Random, other: bytes) -> bytes:
    b = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        b = rng.choice(MUTATIONS)(b, rng, other)
    return bytes(b)


def _bit(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    if b:
        b[rng.randrange(len(b))] ^= 1 << rng.randrange(8)
    return b


def _cut(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    return b[: rng.randrange(len(b) + 1)]


def _longer(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    return b + rng.randbytes(rng.choice((1, 8, 64)))


def _kind(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    if len(b) >= HEADER.size:
        struct.pack_into("<H", b, 6, rng.choice((rng.randrange(len(kinds()) + 3), 65535)))
    return b


def _length(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    if len(b) >= HEADER.size:
        form, at = rng.choice((("<I", 8), ("<Q", 12)))
        struct.pack_into(form, b, at, rng.choice((0, 1, 2, 2**31, 2**32 - 1)))
    return b


def _numbers(b: bytearray) -> tuple[int, int]:
    """The place of the floats, and their number."""
    heads, floats = struct.unpack_from("<IQ", b, 8) if len(b) >= HEADER.size else (0, 0)
    first = HEADER.size + 8 * heads
    return first, max(0, min(floats, (len(b) - first) // 8))


def _whole(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    first, _floats = _numbers(b)
    heads = min((first - HEADER.size) // 8, (len(b) - HEADER.size) // 8)
    if heads > 0:
        struct.pack_into("<q", b, HEADER.size + 8 * rng.randrange(heads), rng.choice(WHOLE))
    return b


def _real(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    first, floats = _numbers(b)
    if floats:
        place = first + 8 * rng.randrange(floats)
        old = struct.unpack_from("<d", b, place)[0]
        struct.pack_into("<d", b, place, rng.choice((rng.choice(REAL), -old, old * 2, old + 1)))
    return b


def _run_of_reals(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    first, floats = _numbers(b)
    if floats:
        start, value = rng.randrange(floats), rng.choice(REAL)
        for i in range(start, rng.randrange(start, floats) + 1):
            struct.pack_into("<d", b, first + 8 * i, value)
    return b


def _many_wholes(b: bytearray, rng: random.Random, _: bytes) -> bytearray:
    first, _floats = _numbers(b)
    if HEADER.size < first <= len(b):
        count = rng.choice((10, 1000, 20_000))
        b[first:first] = struct.pack("<q", rng.choice((0, 1, 2, 1000))) * count
        struct.pack_into("<I", b, 8, (first - HEADER.size) // 8 + count)
    return b


def _other_head(b: bytearray, rng: random.Random, other: bytes) -> bytearray:
    first, floats = _numbers(b)
    start, _floats = _numbers(bytearray(other))
    body = b[first : first + 8 * floats]
    joined = bytearray(other[:start]) + body
    if len(joined) >= HEADER.size:
        struct.pack_into("<Q", joined, 12, len(body) // 8)
    return joined


MUTATIONS: tuple[Callable[[bytearray, random.Random, bytes], bytearray], ...] = (
    _bit,
    _cut,
    _longer,
    _kind,
    _length,
    _whole,
    _whole,
    _real,
    _real,
    _run_of_reals,
    _many_wholes,
    _other_head,
)


# ---------------------------------------------------------------------- what reads them


def read_message(found: Corpus, rng: random.Random, _: Path) -> str:
    try:
        decode(mutated(rng.choice(found.messages), rng, rng.choice(found.messages)))
    except MessageError:
        return "refused"
    return "read"


def read_answer(found: Corpus, rng: random.Random, _: Path) -> str:
    question, message = rng.choice(found.answers)
    said = receive(mutated(message, rng, rng.choice(found.messages)), question)
    return said.code.name if isinstance(said, Failure) else "read"


def answer_question(found: Corpus, rng: random.Random, _: Path) -> str:
    message, site = rng.choice(found.questions)
    asked = mutated(message, rng, rng.choice(found.messages))
    sent = respond(asked, site)
    if not np.all(np.isfinite(Message.from_bytes(sent).body)):
        return "answered with numbers that are not finite, which the coordinator refuses"
    said = decode(sent)
    if isinstance(said, Failure):
        return said.code.name
    return MANY_STARTS if getattr(decode(asked), "n_init", 1) > FEW else "answered"


def resume_journal(found: Corpus, rng: random.Random, folder: Path) -> str:
    path = folder / "run"
    closed, current = rng.choice(found.journals)
    which = rng.randrange(2)
    path.write_bytes(mutated(closed, rng, rng.choice(found.messages)) if which else closed)
    path.with_name("run.round").write_bytes(current if which else mutated(current, rng, rng.choice(found.messages)))
    try:
        run(two_rounds(), InProcess(1).over(SITES), journal=Journal(path))
    except JournalError:
        return "refused"
    return "resumed"


READERS = (read_message, read_answer, answer_question, resume_journal)


@dataclass
class Outcome:
    """What became of the mutated messages, and those that took long or raised something else."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0
    growth: int = 0


def fuzz(number: int, seed: int = 0, readers: tuple[Any, ...] = READERS) -> Outcome:
    outcome, found = Outcome(), corpus()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i in range(number):
            reader = readers[i % len(readers)]
            began = time.process_time()
            try:
                said = reader(found, random.Random(f"{seed}/{i}"), Path(folder))
            except ConsilienceError as error:
                said = type(error).__name__
                outcome.problems.append(f"{seed}/{i} {reader.__name__}: {type(error).__name__}: {error}")
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                said = "crash"
                outcome.problems.append(f"{seed}/{i} {reader.__name__}: {type(error).__name__}: {error}")
            seconds = time.process_time() - began
            outcome.counts[f"{reader.__name__}: {said}"] += 1
            outcome.slowest = max(outcome.slowest, seconds * (said != MANY_STARTS))
            if (seconds > MOST_SECONDS and said != MANY_STARTS) or said == FAILED_WITHIN:
                outcome.problems.append(f"{seed}/{i} {reader.__name__}: {said}, {seconds:.2f} s")
    outcome.growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return outcome


FAILED_WITHIN = "INTERNAL"
"""Code of a failure that no rule foresees."""


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    given = [int(argument.replace("_", "")) for argument in sys.argv[1:]]
    done = fuzz(*given, readers=(*READERS, *FILE_READERS))
    lines = [f"{count:>9,}  {name}" for name, count in sorted(done.counts.items())]
    lines.append(f"slowest {done.slowest:.2f} s CPU, growth {done.growth / 1024:.0f} MB, {len(done.problems)} problems")
    sys.stdout.write("\n".join([*lines, *done.problems[:50], ""]))
    sys.exit(bool(done.problems) or done.growth > MOST_GROWTH)

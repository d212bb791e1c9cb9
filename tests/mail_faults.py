"""Faults in runs by files: the right model in the end, or a refusal by name, and nothing counted twice.

``python tests/mail_faults.py NUMBER [SEED]`` runs that many schedules. In each, three sites and a coordinator take
random steps while processes are killed, disks are full, tables change, clocks jump, and files in the folder between
them are deleted, copied, renamed, cut, altered, replayed or answered for another site. Then everybody goes on.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from consilience.errors import ConsilienceError, EngineError
from consilience.kit import mailbox
from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import RUN, RunFile
from consilience.kit.mail_folder import MailFolder, answer_name
from consilience.kit.mail_run import advance_by_files, begin_by_files, draft_answer, finish_answer, open_question
from consilience.kit.study import Study
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture
from consilience.runs.journal import Journal
from mail_office import Office

STEPS = 40
STUDY = Study.from_text("""
format = "consilience-study"
version = 1
name = "small"
seed = 1
model = {response = "y", gate = "constant", experts = [2]}
method = {name = "FederatedEM", totals_only = true}
minimum = {rows = 20}
columns = [{name = "y", kind = "number"}, {name = "x", kind = "number"}]
""")
START = Mixture(
    Design.raw(1),
    ConstantGate(np.array([0.5, 0.5])),
    GaussianExperts(np.array([[[0.1, 1.7]], [[2.8, -1.2]]]), np.full((2, 1, 1), 0.8)),
)


class KilledError(BaseException):
    """The process ends here."""


def table(i: int) -> pa.Table:
    rng = np.random.default_rng([7, i])
    x, label = rng.normal(size=120), rng.random(120) < 0.4
    return pa.table({"x": x, "y": np.where(label, 3 - x, 2 * x) + 0.6 * rng.normal(size=120)})


TABLES = {name: table(i) for i, name in enumerate(("north", "south", "west"))}


@cache
def expected() -> tuple[float, bytes]:
    """What a run without faults ends with."""
    fit = simulate_study(STUDY, TABLES, start=START).best.fit
    return fit.log_likelihood, fit.mixture.coefficients.tobytes()


@contextmanager
def killed(place: Any, name: str, chance: random.Random, *, disk: bool = False) -> Iterator[None]:
    """Kill the process before or after the n-th call of a function, or let the disk be full."""
    real, left, after = getattr(place, name), [chance.randrange(4)], chance.random() < 0.5

    def faulty(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == -1 and disk:
            raise EngineError("a file cannot be written: No space left on device")
        if left[0] == -1 and not after:
            raise KilledError
        found = real(*arguments, **named)
        if left[0] == -1:
            raise KilledError
        return found

    with mock.patch.object(place, name, faulty):
        yield


class Schedule:
    """One schedule of faults."""

    def __init__(self, seed: int, path: Path) -> None:
        self.chance, self.said = random.Random(seed), Counter[str]()
        self.office = Office(path, STUDY, "open", START, TABLES, on_drop="stop")
        self.mail, self.kept = self.office.mail, path / "kept"
        self.kept.mkdir()

    # ------------------------------------------------------------------ people

    def coordinator(self) -> Any:
        """Go on with the run; the result, or None."""
        self.restored()
        try:
            return self.advanced()
        finally:
            self.restored()

    def advanced(self) -> Any:
        """Go on with the run, perhaps with a fault; the result, or None."""
        faults = [(mailbox, "write_whole"), (Journal, "answered"), (Journal, "close_round"), (mailbox, "write_whole")]
        with self.named():
            if self.chance.random() < 0.6:
                return self.office.advance()
            place, name = self.chance.choice(faults)
            with killed(place, name, self.chance, disk=self.chance.random() < 0.3):
                return self.office.advance()
        return None

    def restored(self) -> None:
        """A person restores the file of the run, if it is gone or damaged."""
        there, copy = self.mail / RUN, self.kept / RUN
        if copy.exists() and (not there.exists() or there.read_bytes() != copy.read_bytes()):
            with self.named():  # it is noticed first
                self.office.advance()
                assert RunFile.read(self.mail) == RunFile.read(self.kept), "another run was not noticed"
            shutil.copy(copy, there)
        elif there.exists() and not copy.exists():
            with self.named():
                RunFile.read(self.mail)
                shutil.copy(there, copy)

    def site(self) -> None:
        """A site answers the latest question, with a table that may have changed, and may be killed."""
        name, chance = self.chance.choice(self.office.names), self.chance.random()
        with self.named():
            rows = self.office.tables[name]
            if chance < 0.1:
                rows = rows.slice(3)  # refused, or a run with other rows that cannot go on: see `ended`
            letter = open_question(MailFolder(self.mail), RunFile.read(self.mail), name)
            if letter is None:
                return
            draft = draft_answer(self.office.folders[name], STUDY, rows, RunFile.read(self.mail), letter)
            if draft.is_new and rows is not self.office.tables[name]:
                assert letter.number == 1, "changed rows were accepted within a run"
                self.forget(name)
                return
            if chance < 0.2:
                return  # killed before the answer was recorded
            text = finish_answer(self.office.folders[name], draft)
            if chance < 0.3:
                return  # killed before it was written
            text = text[: len(text) // 2] if chance < 0.4 else text  # half of a file
            (self.mail / answer_name(letter.number, name)).write_text(text)

    def forget(self, name: str) -> None:
        """The first rows of a run were wrong: the site begins again from its backup, before anything left."""
        folder = self.office.folders[name]
        shutil.rmtree(folder.path)
        shutil.copytree(self.kept / name, folder.path)
        self.office.folders[name] = SiteFolder.open(folder.path)

    def second_coordinator(self) -> None:
        """Somebody else begins the same run in the same folder."""
        empty = not (self.mail / RUN).exists()  # a folder that was emptied is one for a new run
        with self.named():
            told = begin_by_files(STUDY, self.mail, self.office.path / "theirs", sites=self.office.names, start=START)
            assert empty, "a second coordinator was not noticed"
            advance_by_files(STUDY, self.mail, self.office.path / "theirs", told)

    def clock(self) -> None:
        """The time of a question is over by the coordinator's clock, and is then moved."""
        wanted = self.office.wanted()
        for until in (datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(days=9)):
            with self.named():
                told = begin_by_files(
                    STUDY,
                    self.mail,
                    self.office.own,
                    sites=wanted.sites,
                    keys=wanted.keys,
                    start=START,
                    identity=self.office.identity,
                )
                advance_by_files(STUDY, self.mail, self.office.own, told, until=until, identity=self.office.identity)

    # ------------------------------------------------------------------ files

    def file(self) -> Path | None:
        paths = sorted(path for path in self.mail.glob("*") if path.is_file()) if self.mail.exists() else []
        return self.chance.choice(paths) if paths else None

    def delete(self) -> None:
        """Delete a file."""
        if (path := self.file()) is not None:
            path.unlink()

    def duplicate(self) -> None:
        """Copy a file under the name that a sync service gives to conflicts."""
        if (path := self.file()) is not None and path.name != RUN:
            shutil.copy(path, path.with_name(f"{path.stem} ({self.chance.randrange(1, 4)}){path.suffix}"))

    def rename(self) -> None:
        """Rename a file."""
        if (path := self.file()) is not None and path.name != RUN:
            path.rename(path.with_name(f"Kopie von {path.name}"))

    def cut(self) -> None:
        """Cut a file, as one that is still being copied."""
        if (path := self.file()) is not None:
            path.write_bytes(path.read_bytes()[: self.chance.randrange(1 + path.stat().st_size)])

    def alter(self) -> None:
        """Change a byte of a file."""
        if (path := self.file()) is not None and path.stat().st_size:
            data = bytearray(path.read_bytes())
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(7)
            path.write_bytes(bytes(data))

    def replay(self) -> None:
        """Send an answer again, as one of another round or of another site, with a hash that fits."""
        answers = MailFolder(self.mail).answers() if self.mail.exists() else []
        if answers:
            _, letter = self.chance.choice(answers)
            number, site = letter.number + self.chance.randrange(3), self.chance.choice(self.office.names)
            other = replace(letter, number=number, site=site)
            (self.mail / f"replayed-{self.chance.randrange(9)}.json").write_text(other.to_text())

    # ------------------------------------------------------------------ the whole

    @contextmanager
    def named(self) -> Iterator[None]:
        """Count refusals by name; a process that is killed ends here. Anything else is a failure of the test."""
        try:
            yield
        except ConsilienceError as error:
            self.said[type(error).__name__] += 1
        except KilledError:
            self.said["killed"] += 1

    def run(self) -> Counter[str]:
        """Take random steps, then go on without faults; check the end."""
        for name, folder in self.office.folders.items():
            shutil.copytree(folder.path, self.kept / name)
        steps: list[tuple[float, Callable[[], Any]]] = [
            (6, self.coordinator), (10, self.site), (1, self.second_coordinator), (1, self.clock), (1, self.delete),
            (2, self.duplicate), (1, self.rename), (1, self.cut), (1, self.alter), (1, self.replay),
        ]  # fmt: skip
        for _ in range(STEPS):
            if not self.mail.exists():
                self.coordinator()
                continue
            (step,) = self.chance.choices([each for _, each in steps], [weight for weight, _ in steps])
            step()
        return self.ended()

    def ended(self) -> Counter[str]:
        """Remove what is damaged or forged, as people who read the notices do, and let everybody go on."""
        for path, _ in MailFolder(self.mail).answers():
            if path.name.startswith("replayed"):
                path.unlink()
        self.restored()
        for _ in range(60):
            done = self.office.advance()
            if done is not None:
                break
            for name in self.office.asked():
                self.office.answer(name)
        assert done is not None, "the run does not end"
        assert (done.fit.log_likelihood, done.fit.mixture.coefficients.tobytes()) == expected()
        for folder in self.office.folders.values():
            details = [entry.details for entry in folder.entries if entry.kind == "answer"]
            numbers = [(each["run"], each["number"]) for each in details]
            assert len(numbers) == len(set(numbers)), "a round was charged twice"
        return self.said


def scheduled(seed: int) -> Counter[str]:
    """Run one schedule."""
    with tempfile.TemporaryDirectory() as path:
        return Schedule(seed, Path(path)).run()


def main() -> None:
    """Run schedules from the command line."""
    number, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    total = Counter[str]()
    for i in range(number):
        total += scheduled(seed + i)
    sys.stdout.write(f"{number} schedules ended with the right model; on the way: {dict(total)}\n")


if __name__ == "__main__":
    main()

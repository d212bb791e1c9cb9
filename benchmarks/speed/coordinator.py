"""The coordinator of 100,000 sites, on recorded answers, against the formula of ``docs/understand/scale``.

Sites of 200 rows, K = 4, d = 20, softmax gate. 256 sites answer each question once; their encoded answers are then
played back under the names of all sites, so that the figures are those of the coordinator alone: it receives, decodes,
checks and adds. CPU seconds of a round are ``M (a + b s)`` for M sites whose answers have s numbers. ``a`` and ``b``
come from rounds with 1,000 sites and answers of two sizes (K = 4 with d = 5, and with d = 40), and predict the rounds
with 10,000 and 100,000 sites. Aim: within 1.3 of the prediction, memory as predicted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.datasets import soft
from consilience.fit import Expect
from consilience.messages import Total, decode
from consilience.messages.codec import HEADER
from consilience.messages.dialogue import Dialogue
from consilience.model import Mixture, Rows, layout_of
from consilience.runs import Reply, run
from consilience.site import Site, respond

K, RECORDED, ROUNDS, AT_ONCE = 4, 256, 2, 64
PART = "COORDINATOR_PART"
"""Set in a process that measures one case: number of sites and of covariates."""


class Recorded:
    """An engine that plays back the answers of a few sites under the names of many; answering is timed apart."""

    def __init__(self, recorded: Sequence[Site], count: int) -> None:
        self._recorded = recorded
        self.sites = tuple(f"{m:06d}" for m in range(count))
        self.places = {name: m for m, name in enumerate(self.sites)}
        self.cpu = 0.0

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        with stopwatch() as watch:
            asked = decode(question)
            answers = [respond(asked, site) for site in self._recorded]
        self.cpu += watch.cpu
        for first in range(0, len(sites), AT_ONCE):
            with stopwatch() as watch:
                replies = [
                    Reply(number, (name,), self._answer(answers, name), (b"",), 0.0)
                    for name in sites[first : first + AT_ONCE]
                ]
            self.cpu += watch.cpu
            yield replies

    def _answer(self, answers: list[bytes], name: str) -> bytes:
        """A recorded answer with a fingerprint of its own: a site with the rows of another would be refused."""
        place = self.places[name]
        message, end = answers[place % len(answers)], HEADER.size
        return message[: end - 8] + (place + 1).to_bytes(8, "little") + message[end:]


def rounds(mixture: Mixture) -> Dialogue[None]:
    for _ in range(ROUNDS):
        yield Total(Expect(mixture))


def measured(count: int, d: int) -> Record:
    """CPU seconds of a round with so many sites, and the memory that it takes."""
    data = soft(200 * RECORDED, n_experts=K, n_features=d, random_state=0)
    parts = np.array_split(np.arange(len(data.y)), RECORDED)
    recorded = [Site(f"{m}", Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]
    before, engine = memory("VmRSS:"), Recorded(recorded, count)
    run(rounds(data.truth), Recorded(recorded, RECORDED))  # libraries are loaded
    with stopwatch() as watch:
        run(rounds(data.truth), engine)
    return {
        "sites": count,
        "d": d,
        "numbers of an answer": layout_of(data.truth).size(information=False),
        "CPU s": (watch.cpu - engine.cpu) / ROUNDS,
        "memory, MB": memory("VmHWM:") - before,
    }


def memory(field: str) -> float:
    """Memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith(field))) / 1e6


def apart(count: int, d: int, repeats: int) -> Record:
    """The median of several measurements, each in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--quick"]
    environment = os.environ | {PART: f"{count}/{d}"}
    found = []
    for _ in range(repeats):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return sorted(found, key=lambda each: each["CPU s"])[len(found) // 2]


def main() -> None:
    study = Study(__file__, __doc__)
    if part := os.environ.get(PART):
        count, d = map(int, part.split("/"))
        print(json.dumps(measured(count, d)))
        return
    small, sizes, repeats = (200, (500, 1_000), 1) if study.quick else (1_000, (10_000, 100_000), 5)
    short, long = (apart(small, d, repeats) for d in (5, 40))
    numbers = long["numbers of an answer"] - short["numbers of an answer"]
    b = (long["CPU s"] - short["CPU s"]) / small / numbers
    a = short["CPU s"] / small - b * short["numbers of an answer"]
    found = []
    for count in sizes:
        each = apart(count, 20, 1 if count > 10_000 else repeats)
        predicted = count * (a + b * each["numbers of an answer"])
        found.append(
            {
                "sites": count,
                "numbers of an answer": each["numbers of an answer"],
                "CPU s of a round": rounded(each["CPU s"]),
                "predicted": rounded(predicted),
                "ratio": rounded(each["CPU s"] / predicted),
                "aim": "0.77 to 1.3",
                "added memory, MB": round(each["memory, MB"]),
            }
        )
    study.save(
        table(
            f"Costs of an answer, from {small:,} sites",
            [{"a, µs an answer": rounded(1e6 * a), "b, ns a number": rounded(1e9 * b)}],
        ),
        table("Rounds of federated EM on recorded answers, d = 20", found),
    )


if __name__ == "__main__":
    main()

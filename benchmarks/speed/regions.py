"""CPU and memory of coordinators of regions, and of the one above them, on recorded answers.

A round of federated EM with K = 4, d = 20: answers of 20 kB. 64 sites of 200 rows answer once; their answers are
played back under the names of all sites, each signed and sealed with a key of its own. Region and upper coordinator
do what they do in a live run: write and sign, carry letters to and from a store, open, verify, decode, check and add.
What sites compute is not counted, nor is a server. 100 regions of 100 sites run one after the other, all of them; of
1,000 regions of 1,000 sites one does, and the upper coordinator gets its answer under 1,000 names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.lib.light_clients import LightClient
from benchmarks.lib.study import RESULTS, Record, Study, rounded, stopwatch, table
from consilience.couriers.letter_stores import FolderStore
from consilience.couriers.post import Post
from consilience.datasets import soft
from consilience.errors import AwaitedError
from consilience.fit import Expect
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import QuestionLetter, RunFile
from consilience.kit.mail_folder import MailFolder, answer_name
from consilience.kit.mail_run import open_question
from consilience.kit.mailbox import Mailbox, begin_folder
from consilience.kit.relay import Relay
from consilience.kit.study import Study as StudyFile
from consilience.messages import Total, decode
from consilience.messages.codec import HEADER
from consilience.messages.dialogue import Dialogue
from consilience.model import Mixture, Rows, Statistics
from consilience.runs import Journal, run
from consilience.site import Site, respond

K, COVARIATES, ROWS, RECORDED = 4, 20, 200, 64
PART = "REGIONS_PART"
"""Set in a process that measures one case: number of regions that run, of all regions, and of sites in each."""
PLAN = StudyFile.from_text("""
format = "consilience-study"
version = 1
name = "regions"
seed = 1
model = {response = "y", gate = "constant", experts = [2]}
method = {name = "FederatedEM", totals_only = true}
minimum = {rows = 20}
columns = [{name = "y", kind = "number"}, {name = "x", kind = "number"}]
""")


def one_sum(mixture: Mixture) -> Dialogue[Statistics]:
    return (yield Total(Expect(mixture)))


def renamed(answer: bytes, place: int) -> bytes:
    """A recorded answer with a fingerprint of its own: a site with the rows of another would be refused."""
    end = HEADER.size
    return answer[: end - 8] + (place + 1).to_bytes(8, "little") + answer[end:]


@dataclass
class Answers:
    """Recorded answers to the one question of this study."""

    mixture: Mixture
    sites: list[Site]

    @classmethod
    def of(cls, recorded: int) -> Answers:
        data = soft(ROWS * recorded, n_experts=K, n_features=COVARIATES, random_state=0)
        parts = np.array_split(np.arange(len(data.y)), recorded)
        return cls(data.truth, [Site(f"{m}", Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)])

    @cached_property
    def encoded(self) -> list[bytes]:
        return [respond(Expect(self.mixture), site) for site in self.sites]

    def of_site(self, place: int) -> bytes:
        return renamed(self.encoded[place % len(self.encoded)], place)


@dataclass
class Works:
    """CPU seconds of the works of one coordinator."""

    spent: Record = field(default_factory=dict)

    def add(self, work: str, seconds: float) -> None:
        self.spent[work] = self.spent.get(work, 0.0) + seconds


@dataclass
class Upper:
    """The coordinator of regions, and its folders."""

    place: Path
    regions: list[LightClient]
    answers: Answers
    works: Works = field(default_factory=Works)

    def __post_init__(self) -> None:
        self.key = SiteIdentity.new()
        names = tuple(each.name for each in self.regions)
        keys = {each.name: each.identity.public_key for each in self.regions}
        wanted = RunFile(PLAN.identity, names, keys, "")
        self.run = begin_folder(self.place / "mail", self.place / "own", wanted, self.key)
        (self.place / "mail" / "study.toml").write_text(PLAN.to_text())
        self.store = FolderStore(self.place / "store")
        self.post = Post(self.place / "mail", self.store, list(names))

    def advance(self, work: str) -> Statistics | None:
        """Take the run as far as it goes, and carry letters."""
        journal = Journal(self.place / "own" / "run.journal", self.run.identity)
        box = Mailbox(self.place / "mail", self.place / "own", self.run, journal, self.key, patience=0.0)
        with stopwatch() as watch:
            try:
                found = run(one_sum(self.answers.mixture), box, journal=journal).value
            except AwaitedError:
                found = None
        self.works.add(work, watch.cpu)
        with stopwatch() as watch:
            self.post.step()
        self.works.add("send" if found is None else "look", watch.cpu)
        return found

    def take(self) -> None:
        with stopwatch() as watch:
            self.post.step()
        self.works.add("take", watch.cpu)


@dataclass
class Region:
    """A region with its own sites, which answer from the record."""

    upper: Upper
    client: LightClient
    count: int
    first: int
    works: Works = field(default_factory=Works)
    received: int = 0

    def answered(self, place: Path) -> bytes:
        """Ask all sites of the region, and return the text of the answer upward."""
        names = [f"s{self.first + i:07d}" for i in range(self.count)]
        sites = [LightClient(name, SiteIdentity.new(), i) for i, name in enumerate(names, 1)]
        keys = {each.name: each.identity.public_key for each in sites}
        mail, own, store = place / "mail", place / "own", FolderStore(place / "store")
        signer = self.upper.key.public_key
        relay = Relay(
            self.client.name, self.upper.place / "mail", signer, mail, own, keys, identity=self.client.identity
        )
        post = Post(mail, store, names)
        with stopwatch() as watch, suppress(AwaitedError):
            relay.step()
        self.works.add("ask", watch.cpu)
        with stopwatch() as watch:
            post.step()
        self.works.add("send", watch.cpu)
        lower = RunFile.read(mail)
        for i, each in enumerate(sites):
            letters = store.names(f"to/{each.name}")
            letter = QuestionLetter.from_text(store.read(f"to/{each.name}", each.question_in(letters, 1)).decode())
            text = each.answer(lower, letter, self.upper.answers.of_site(self.first + i))
            store.write(f"from/{each.name}", answer_name(1, each.name), text)
            self.received += len(text)
        with stopwatch() as watch:
            post.step()
        self.works.add("take", watch.cpu)
        with stopwatch() as watch:
            found = relay.step()
        self.works.add("open, verify, add", watch.cpu)
        if found is None or relay.refused:
            raise RuntimeError(f"the region did not answer: {relay.refused}")
        return found[1].encode()


def measured(running: int, regions: int, count: int) -> Record:
    """Let some regions run, play back the answer of the first for the others, and add above."""
    answers = Answers.of(min(RECORDED, count))
    clients = [LightClient(f"r{i:04d}", SiteIdentity.new(), 1) for i in range(regions)]
    answers.of_site(0)
    before = memory("VmRSS:")
    with tempfile.TemporaryDirectory() as folder:
        place, spent = Path(folder), []
        upper = Upper(place / "upper", clients, answers)
        upper.advance("write and sign")
        for i, client in enumerate(clients[:running]):
            region = Region(upper, client, count, i * count)
            text = region.answered(place / client.name)
            upper.store.write(f"from/{client.name}", answer_name(1, client.name), text)
            spent.append(region.works.spent)
        of_region = memory("VmHWM:") - before
        play_back(upper, clients[0], clients[running:])
        upper.take()
        total = upper.advance("open, verify, check, add")
    check(total, answers, running, regions, count)
    works = {name: sum(each[name] for each in spent) / len(spent) for name in spent[0]}
    return {
        "running": running,
        "regions": regions,
        "sites": count,
        "region": works,
        "upper": upper.works.spent,
        "MB of a region": of_region,
        "MB with the upper one": memory("VmHWM:") - before,
        "bytes of an answer": region.received / count,
    }


def play_back(upper: Upper, first: LightClient, others: list[LightClient]) -> None:
    """Write the answer of the first region under the names of others, with their keys."""
    from consilience.kit.sealed_answers import SealedAnswer, open_answer

    text = upper.store.read(f"from/{first.name}", answer_name(1, first.name)).decode()
    answer = open_answer(SealedAnswer.from_text(text), upper.key).answer
    letter = open_question(MailFolder(upper.place / "mail"), upper.run, first.name)
    for place, each in enumerate(others, 10**9):
        upper.store.write(
            f"from/{each.name}", answer_name(1, each.name), each.answer(upper.run, letter, renamed(answer, place))
        )


def check(total: Statistics | None, answers: Answers, running: int, regions: int, count: int) -> None:
    """Raise an error unless the sum is that of all sites."""
    each = [decode(text) for text in answers.encoded]
    of = [[each[place % len(each)] for place in range(i * count, (i + 1) * count)] for i in range(running)]
    sums = [sum(one.log_likelihood for one in region) for region in of]
    expected = sum(sums) + (regions - running) * sums[0]
    rows = sum(one.weight for one in of[0]) * regions
    if total is None or total.weight != rows or not np.isclose(total.log_likelihood, expected, rtol=1e-9):
        raise RuntimeError(f"the sum over {regions} regions is another one")


def memory(name: str) -> float:
    """Memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith(name))) / 1e6


def apart(key: str) -> Record:
    """``running regions sites``, in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--quick"]
    done = subprocess.run(command, env=os.environ | {PART: key}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def works_of(records: list[Record]) -> Iterator[Record]:
    """Rows of a table: CPU seconds of each work."""
    for each in records:
        for who in ("region", "upper"):
            spent = each[who]
            number = each["sites"] if who == "region" else each["regions"]
            yield {
                "regions × sites": f"{each['regions']:,} × {each['sites']:,}",
                "who": "one region" if who == "region" else "upper coordinator",
                **{name: rounded(sum(spent.get(one, 0.0) for one in ones)) for name, ones in WORKS.items()},
                "all, CPU s": rounded(sum(spent.values())),
                "ms an answer": rounded(1000 * sum(spent.values()) / number),
                "added memory, MB": round(each["MB of a region" if who == "region" else "MB with the upper one"]),
            }


WORKS = {
    "ask": ("ask", "write and sign"),
    "send": ("send",),
    "take": ("take", "look"),
    "open, verify, add": ("open, verify, add", "open, verify, check, add"),
}


def up_to_a_million(one: Record, server: float) -> Iterator[Record]:
    """Rows of a table: one round over up to a million sites, by the costs of an answer."""
    below, above = (sum(one[who].values()) / one[number] for who, number in (("region", "sites"), ("upper", "regions")))
    for regions, count in ((1, 1000), (10, 1000), (100, 1000), (1000, 1000)):
        upper = regions * above if regions > 1 else 0.0
        yield {
            "sites": f"{regions * count:,}",
            "regions × sites": f"{regions:,} × {count:,}" if regions > 1 else "one coordinator",
            "coordinator of a region, CPU s": rounded(count * below),
            "its nginx, CPU s": rounded(count * server),
            "upper coordinator, CPU s": rounded(upper),
            "its nginx": rounded(regions * server if regions > 1 else 0.0),
            "one after the other, s": rounded(count * (below + server) + upper + (regions * server if upper else 0.0)),
            "received by a region, MB": rounded(count * one["bytes of an answer"] / 1e6),
        }


def of_server() -> float:
    """CPU seconds of nginx for the letters of a site, of the study ``many_letters``."""
    found = json.loads((RESULTS / "many_letters.json").read_text())["tables"][0]["rows"]
    return max(float(row["CPU s, 1,000 sites"]) for row in found if row["work"] == "nginx, letters") / 1000


def main() -> None:
    study = Study(__file__, __doc__)
    if part := os.environ.get(PART):
        print(json.dumps(measured(*map(int, part.split()))))
        return
    keys = ["4 4 4", "1 10 10"] if study.quick else ["100 100 100", "1 1000 1000"]
    records = study.replicate(keys, apart)
    rounds = table("One round through regions, on recorded answers", list(works_of(records)))
    study.save(rounds, table("One round, up to a million sites", list(up_to_a_million(records[-1], of_server()))))


if __name__ == "__main__":
    main()

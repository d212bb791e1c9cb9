"""CPU of a coordinator, its courier and nginx for one round over many sites by letters.

Each site has a key and a certificate of its own. A light client looks for letters, reads its question and answers with
3,000 bytes, signed and sealed, over HTTPS. Programs of sites keep their connections, so that new ones are counted
apart: they come once, and again after the server was away. A second round has one letter for each site, with the last
entry of its ledger. What the clients compute is not counted. No work may grow faster than the number of sites: 4,000
stand beside 1,000. Where letters are on a disk its file system is most of the courier's work, and scatters: the courier
is measured alone, too, with letters in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib.light_clients import LightClient
from benchmarks.lib.processes import cpu_of, free_port, memory_of, nginx
from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.couriers.letter_stores import FolderStore, WebStore
from consilience.couriers.post import Post
from consilience.kit.enrolment import Enrolment, enrol_sites
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import RUN, QuestionLetter, RunFile
from consilience.kit.mail_folder import STUDY as STUDY_FILE
from consilience.kit.mail_folder import answer_name, question_name
from consilience.kit.mailbox import Mailbox, begin_folder
from consilience.kit.roster import Roster
from consilience.messages import Summarise, encode

SITES, REPEATS, CARRIED = (1000, 4000), 1, 5
BYTES, ROUNDS, AT_ONCE = 3000, 2, 50
CONNECTIONS = "nginx, new connections"
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own in it
TITLE = "The courier alone, letters in memory, smallest of five"
QUESTION = encode(Summarise(10, 1))


def reach(place: Path, client: LightClient, found: Enrolment) -> WebStore:
    """Open the store over HTTPS with the certificate of a site."""
    certificate, key = place / "client.crt", place / "client.pem"
    certificate.write_text(found.certificate)
    key.unlink(missing_ok=True)
    client.identity.store(key)
    return WebStore(found.address, found.authority, certificate, key, proxy="none")


@dataclass
class Round:
    """A run over light clients.

    Parameters
    ----------
    place : Path
    names : sequence of str
    port : int
    """

    place: Path
    names: Sequence[str]
    port: int

    def __post_init__(self) -> None:
        self.clients = [LightClient(name, SiteIdentity.new(), i) for i, name in enumerate(self.names, 1)]
        keys, mine = {each.name: each.identity.public_key for each in self.clients}, SiteIdentity.new()
        wanted = RunFile(f"sha256:{64 * '1'}", tuple(self.names), keys, "")
        self.run = begin_folder(self.place / "mail", self.place / "own", wanted, mine)
        (self.place / "mail" / "study.toml").write_text("# carried, and not read here\n")
        self.box = Mailbox(self.place / "mail", self.place / "own", self.run, identity=mine)
        self.post = Post(self.place / "mail", FolderStore(self.place / "store"), list(self.names))
        sites = [{"name": name, "key": key} for name, key in keys.items()]
        roster = Roster.from_tables({"format": Roster.kind, "version": 1, "sites": sites})
        self.enrolled = enrol_sites(self.place / "own", roster, f"https://localhost:{self.port}")

    def ask(self, number: int) -> int:
        """Ask, or count the answers that are there."""
        found = self.box.ask(number, QUESTION, self.names, total=True, timeout=0.0)
        return sum(len(replies) for replies in found)

    def answer_all(self, number: int, server: int) -> tuple[float, float]:
        """Let all clients answer, some at a time; CPU seconds of the server for connections, and for letters."""
        before, connected = cpu_of(server), 0.0
        for first in range(0, len(self.clients), AT_ONCE):
            clients, since = self.clients[first : first + AT_ONCE], cpu_of(server)
            opened = [(each, reach(self.place, each, self.enrolled[each.name])) for each in clients]
            for client, store in opened:
                store.names(f"to/{client.name}")
            connected += cpu_of(server) - since
            for client, store in opened:
                self.answer(client, store, number)
                store.close()
        return connected, cpu_of(server) - before - connected

    def answer(self, client: LightClient, store: WebStore, number: int) -> None:
        """Look for letters, read the question and write an answer."""
        folder = f"to/{client.name}"
        name = client.question_in(store.names(folder), number)
        question = QuestionLetter.from_text(store.read(folder, name).decode())
        answer = client.answer(self.run, question, os.urandom(BYTES))
        store.write(f"from/{client.name}", answer_name(number, client.name), answer)

    def measured(self, number: int, server: int) -> Record:
        """CPU seconds of each work of a round."""
        cpu: Record = {}
        with stopwatch() as watch:
            self.ask(number)
        cpu["write and sign"] = watch.cpu
        with stopwatch() as watch:
            self.post.step()
        cpu["send"] = watch.cpu
        connections, cpu["nginx, letters"] = self.answer_all(number, server)
        with stopwatch() as watch:
            self.post.step()
        cpu["take"] = watch.cpu
        with stopwatch() as watch:
            got = self.ask(number)
        cpu["open and verify"] = watch.cpu
        with stopwatch() as watch:
            self.post.step()
        cpu["look, nothing new"] = watch.cpu
        if got != len(self.names):
            raise RuntimeError(f"{got} of {len(self.names)} answers arrived")
        return cpu | {CONNECTIONS: connections}


def replication(key: str) -> Record:
    """``sites repeat``."""
    names = [f"s{i:05d}" for i in range(int(key.partition(" ")[0]))]
    with tempfile.TemporaryDirectory() as folder:
        place, port = Path(folder), free_port()
        one = Round(place, names, port)
        with nginx(place / "own", place / "store", port) as server:
            found: Record = {f"round {number}": one.measured(number, server.pid) for number in range(1, ROUNDS + 1)}
            found["nginx MB"] = round(memory_of(server.pid), 1)
        found["run.json"] = (place / "mail" / "run.json").stat().st_size
    return found


def carried(key: str) -> Record:
    """``post sites repeat``: microseconds a site of the courier alone, with letters in memory."""
    _, size, _ = key.split()
    names = [f"s{i:05d}" for i in range(int(size))]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        mail, store = Path(folder) / "mail", FolderStore(Path(folder) / "store")
        mail.mkdir()
        for name in (RUN, STUDY_FILE, question_name(1)):
            (mail / name).write_bytes(bytes(BYTES))
        post = Post(mail, store, names)
        with stopwatch() as sent:
            post.step()
        for name in names:
            store.write(f"from/{name}", answer_name(1, name), bytes(2 * BYTES))
        with stopwatch() as taken:
            post.step()
    return {"send": 1e6 * sent.cpu / len(names), "take": 1e6 * taken.cpu / len(names)}


def smallest(records: Sequence[Record], number: int) -> Record:
    """Of each work the smallest figure."""
    works = records[0][f"round {number}"]
    found = {name: min(each[f"round {number}"][name] for each in records) for name in works}
    connections = found.pop(CONNECTIONS)
    return found | {"all": sum(found.values()), CONNECTIONS: connections}


def main() -> None:
    study = Study(__file__, __doc__)
    sizes, repeats = ((50, 200), 1) if study.quick else (SITES, REPEATS)
    keys = [f"{size} {repeat}" for repeat in range(repeats) for size in sizes]
    records = study.replicate(keys, replication)
    of = {size: [each for each in records if each["key"].startswith(f"{size} ")] for size in sizes}
    rows = []
    for number in range(1, ROUNDS + 1):
        few, many = (smallest(of[size], number) for size in sizes)
        rows += [
            {
                "round": number,
                "work": name,
                f"CPU s, {sizes[0]:,} sites": rounded(value),
                f"CPU s, {sizes[1]:,} sites": rounded(many[name]),
                "for each site, ratio": rounded(many[name] / value * sizes[0] / sizes[1]),
            }
            for name, value in few.items()
        ]
    sizes_of = [
        {"sites": size, "bytes of the file of the run": of[size][0]["run.json"], "MB of nginx": of[size][0]["nginx MB"]}
        for size in sizes
    ]
    study.save(table("One round by letters", rows), table(TITLE, alone(study, sizes)), table("Sizes", sizes_of))


def alone(study: Study, sizes: Sequence[int]) -> list[Record]:
    """Rows of a table: the courier alone."""
    keys = {size: [f"post {size} {i}" for i in range(1 if study.quick else CARRIED)] for size in sizes}
    found = {size: study.replicate(keys[size], carried) for size in sizes}
    rows = []
    for work in ("send", "take"):
        few, many = (min(each[work] for each in found[size]) for size in sizes)
        columns = {f"µs a site, {size:,} sites": rounded(value) for size, value in zip(sizes, (few, many), strict=True)}
        rows.append({"work": work, **columns, "ratio": rounded(many / few)})
    return rows


if __name__ == "__main__":
    main()

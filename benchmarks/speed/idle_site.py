"""Memory and CPU of a site that waits: the program of a live run looks once a second, over HTTPS with its certificate.

Server and site are processes of their own. The site has answered the first question and waits for the next one; it
delivers its answer again every ten minutes, as it does in practice. The periods follow each other without a pause;
after an interruption the study goes on with a new process, which the table shows.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.lib.processes import COMMAND, ENVIRONMENT, cpu_of, free_port, memory_of, nginx, running
from benchmarks.lib.study import Record, Study, rounded, table
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit.folder import KEY, SiteIdentity
from consilience.kit.roster import Roster

PERIODS, MINUTES, POLL = 12, 10.0, 1.0
CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\nmethod = {name = "OneShot", refine = 1}\n[model]', 1)
SITE = "ash"


@dataclass
class Waiting:
    """A site that waits, and the server that it asks."""

    log: Path
    site: int
    server: int
    began: float

    def looks(self) -> int:
        """How often the server was asked for the list of letters."""
        return self.log.read_text().count(f" GET /to/{SITE}/ ")


def say(place: Path, *words: object, status: int = 0) -> str:
    """Run a command to its end; what it prints."""
    found = subprocess.run([*COMMAND, *map(str, words)], cwd=place, env=ENVIRONMENT, capture_output=True, check=False)
    if found.returncode != status:
        raise RuntimeError(found.stderr.decode())
    return found.stdout.decode()


def prepare(place: Path, port: int) -> None:
    """Begin a run and let a site sign its mandate."""
    (place / "study.toml").write_text(CONTRACT)
    keys = []
    for name, rows in hospitals().items():
        pq.write_table(rows, place / f"{name}.parquet")
        say(place, "site", "init", name, "--profile", "research")
        policy = place / name / "policy.toml"
        policy.write_text(policy.read_text().replace('["noise", "limits"]', '["noise", "limits", "coordinator"]'))
        keys.append({"name": name, "key": SiteIdentity.load(place / name / KEY).public_key})
    roster = Roster.from_tables({"format": Roster.kind, "version": 1, "sites": keys})
    (place / "roster.toml").write_text(roster.to_text())
    say(place, "run", "study.toml", "--mailbox", "box", "--roster", "roster.toml", status=6)
    signer = json.loads(say(place, "status", "box", "--json"))["signer"]
    say(place, "live", "enrol", "box", "--roster", "roster.toml", "--url", f"https://localhost:{port}")
    say(place, "live", "post", "box", "store")
    say(place, "site", "mandate", SITE, "study.toml", "--coordinator", signer, "--mode", "mandate")
    say(place, "site", "mandate", SITE, "--sign", "--by", "A. Person", "--no-input")


@contextmanager
def waiting(place: Path) -> Iterator[Waiting]:
    """A site that has answered, and its server."""
    port = free_port()
    prepare(place, port)
    with ExitStack() as stack:
        server = stack.enter_context(nginx(place / "box.coordinator", place / "store", port))
        words = ["site", "serve", SITE, "--enrolment", f"box.coordinator/enrol/{SITE}.json", "--proxy", "none"]
        command = [*COMMAND, *words, "--table", f"{SITE}.parquet", "--poll", str(POLL)]
        site = stack.enter_context(running(*command, where=place))
        state = place / SITE / "live" / "live.json"
        for _ in range(1200):
            if state.is_file() and json.loads(state.read_text())["state"] == "waits":
                break
            time.sleep(0.1)
        else:
            raise RuntimeError("the site does not answer")
        yield Waiting(place / "store" / "nginx-access.log", site.pid, server.pid, time.monotonic())


def period(one: Waiting, minutes: float) -> Record:
    """What a stretch of time costs."""
    before, looks, server = cpu_of(one.site), one.looks(), cpu_of(one.server)
    since = (time.monotonic() - one.began) / 60
    time.sleep(60 * minutes)
    count = one.looks() - looks
    return {
        "process": one.site,
        "minutes since its begin": rounded(since + minutes),
        "looks": count,
        "CPU ms a look, site": rounded(1000 * (cpu_of(one.site) - before) / count),
        "CPU ms a look, nginx": rounded(1000 * (cpu_of(one.server) - server) / count),
        "MB, site": round(memory_of(one.site), 2),
        "MB, nginx": round(memory_of(one.server), 2),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    minutes = 0.5 if study.quick else MINUTES
    periods = [str(number) for number in range(1, (2 if study.quick else PERIODS) + 1)]
    with ExitStack() as stack:

        @cache
        def one() -> Waiting:  # if a period is missing
            return stack.enter_context(waiting(Path(stack.enter_context(tempfile.TemporaryDirectory()))))

        records = study.replicate(periods, lambda _: period(one(), minutes))
    processes = list(dict.fromkeys(each["process"] for each in records))
    rows = [
        {"process": processes.index(each["process"]) + 1}
        | {name: value for name, value in each.items() if name not in ("key", "seconds", "process")}
        for each in records
    ]
    first, last = rows[0], rows[-1]
    looks = sum(each["looks"] for each in rows)
    whole = {
        "processes": len(processes),
        "looks": looks,
        "CPU ms a look, site": rounded(sum(each["looks"] * each["CPU ms a look, site"] for each in rows) / looks),
        "MB after the first period": first["MB, site"],
        "MB at the end": last["MB, site"],
    }
    study.save(table("A site that waits", [whole]), table("By periods", rows))


if __name__ == "__main__":
    main()

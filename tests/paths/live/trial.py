"""From nothing to a live run by the commands of two pages, each institution with a network, home and folder of its own.

What people do beside the commands: they write the roster, add a word to the policy, and send files. Every act is
recorded with the role of who does it. ``just live_pages`` writes ``benchmarks/results/live_pages.json``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.lib.provenance import provenance
from benchmarks.lib.study import RESULTS, Record, table, versions
from consilience.datasets.hospitals import STUDY, hospitals
from paths.consortium.trial import Act, seconds_of_children
from shells import ROOT

PAGES = ROOT / "docs" / "how-to"
SITES, HUB = ("north", "south"), "coordinator"
TABLES = dict(zip(SITES, ("ash", "oak"), strict=True))
HOST, PORT = "letters.example.org", 8443
PLAN = STUDY.replace("[model]", 'trust = "coordinator"\nmethod = {name = "OneShot", refine = 1}\n[model]', 1)
IT, STEWARD, COORDINATOR = "IT of a site", "data steward of a site", "coordinator"
AWAITED = 6
"""Exit status of a run that waits for sites."""


def commands(page: str, title: str) -> list[str]:
    """The commands of a section, without what is said of them."""
    text = (PAGES / f"{page}.rst").read_text(encoding="utf-8")
    section = re.search(rf"^{title}\n-+\n(.*?)(?=^[^\n]+\n-{{3,}}\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert section, f"{page}.rst has no section {title!r}"
    blocks = re.findall(r"^\.\. code-block:: console\n\n((?:(?:   .*)?\n)+)", section[1], flags=re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    return [re.split(r"\s+# ", line)[0] for line in lines]


@dataclass
class Trial:
    """A coordinator and two sites, joined by nothing but a cable from each site to the coordinator.

    Parameters
    ----------
    root : Path
    programs : Path
        Folder of the programs of the installation.
    """

    root: Path
    programs: Path
    acts: list[Act] = field(default_factory=list)
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mark = f"c{os.getpid() % 10_000}"
        self.spaces = {who: f"{self.mark}-{who}" for who in (HUB, *SITES)}

    # ------------------------------------------------------------------ networks

    def connect(self) -> None:
        """Make the networks: the coordinator's host has the same name in each of them."""
        for who, space in self.spaces.items():
            ip("netns", "add", space)
            (self.root / who / "srv").mkdir(parents=True)
            ip("-n", space, "link", "set", "lo", "up")
            self._name("127.0.0.1", space)
        for i, site in enumerate(SITES):
            one, other, net = f"{self.mark}h{i}", "eth0", f"10.213.{80 + i}"
            ip("link", "add", one, "netns", self.spaces[HUB], "type", "veth",
               "peer", "name", other, "netns", self.spaces[site])  # fmt: skip
            for space, device, last in ((self.spaces[HUB], one, 1), (self.spaces[site], other, 2)):
                ip("-n", space, "addr", "add", f"{net}.{last}/30", "dev", device)
                ip("-n", space, "link", "set", device, "up")
            self._name(f"{net}.1", self.spaces[site])

    def _name(self, address: str, space: str) -> None:
        place = Path("/etc/netns") / space
        place.mkdir(parents=True, exist_ok=True)
        (place / "hosts").write_text(f"127.0.0.1 localhost\n{address} {HOST}\n")

    def disconnect(self) -> None:
        """End all programs and remove the networks."""
        for process in self.running:
            process.terminate()
        pid = self.root / HUB / "srv" / "letters" / "nginx.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), 15)
        for process in self.running:
            process.wait(20)
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)

    # ------------------------------------------------------------------ acts

    def _inside(self, who: str, line: str) -> list[str]:
        """The program that runs a line in the network and the home of an institution, whose ``/srv`` is its own."""
        home = self.root / who
        said = {"HOME": home, "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/bin", "USER": who, "LANG": "C.UTF-8"}
        clean = ["env", "-i", *(f"{name}={value}" for name, value in said.items()), "NO_COLOR=1"]
        inner = f"mount --bind {shlex.quote(str(home / 'srv'))} /srv && cd {shlex.quote(str(home))} && {line}"
        return ["ip", "netns", "exec", self.spaces[who], *clean, "bash", "-c", inner]

    def run(self, role: str, who: str, line: str, answers: str = "", ends: int = 0) -> str:
        """Give a command of a page, and return what it prints."""
        before = seconds_of_children()
        done = subprocess.run(self._inside(who, line), input=answers, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        self.acts.append(Act("command", role, who, line + answers, seconds_of_children() - before, said))
        assert done.returncode == ends, f"{who}: {line}: status {done.returncode}\n{said}"
        return done.stdout

    def begin(self, role: str, who: str, line: str) -> subprocess.Popen[str]:
        """Begin a program that runs until the end."""
        with (self.root / who / f"{len(self.running)}.log").open("w") as log:
            inside = self._inside(who, f"exec {line}")
            self.running.append(subprocess.Popen(inside, stdout=log, stderr=log, text=True))
        self.acts.append(Act("command", role, who, line))
        return self.running[-1]

    def write(self, role: str, who: str, name: str, text: str, typed: str) -> None:
        """Write a text by hand, of which ``typed`` is new."""
        (self.root / who / name).write_text(text, encoding="utf-8")
        self.acts.append(Act("text", role, who, typed))

    def send(self, role: str, who: str, to: str, source: str, name: str) -> None:
        """Send a file on another way than the network."""
        shutil.copy(self.root / who / source, self.root / to / name)
        self.acts.append(Act("file", role, who, ""))

    def connections(self, who: str) -> set[tuple[str, int]]:
        """State and remote port of each connection of an institution."""
        text = subprocess.run(
            ["ip", "netns", "exec", self.spaces[who], "cat", "/proc/net/tcp", "/proc/net/tcp6"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+:", line)]
        return {(row[3], int(row[2].rpartition(":")[2], 16)) for row in rows}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def connected(root: Path, programs: Path) -> Iterator[Trial]:
    """Networks for as long as the block lasts."""
    trial = Trial(root, programs)
    try:
        trial.connect()
        yield trial
    finally:
        trial.disconnect()


# ---------------------------------------------------------------- the pages


def of_site(line: str, site: str, **named: str) -> str:
    """A command of the page of sites, for a site: what stands in a name's place, and nothing else, is replaced."""
    line = re.sub(r"\bnorth\b", site, line)
    return line.replace("ed25519:...", named.get("key", "")) if "key" in named else line


def sites_begin(trial: Trial) -> None:
    """Make the folder and the key of each site, and the roster."""
    trial.write(COORDINATOR, HUB, "study.toml", PLAN, "")
    roster = ['format = "consilience-roster"', "version = 1"]
    for site in SITES:
        pq.write_table(hospitals()[TABLES[site]], trial.root / site / "data.parquet")
        init, key = commands("serve-a-site", "Begin")
        trial.run(IT, site, of_site(init, site))
        printed = trial.run(IT, site, of_site(key, site))
        found = re.search(r"ed25519:\S+", printed)
        assert found
        roster += ["", "[[sites]]", f'name = "{site}"', f'key = "{found[0]}"']
        policy = (trial.root / site / site / "policy.toml").read_text()
        allowed = re.sub(r"^allow = \[", 'allow = ["coordinator", ', policy, count=1, flags=re.MULTILINE)
        trial.write(STEWARD, site, f"{site}/policy.toml", allowed, '"coordinator", ')
    text = "\n".join(roster) + "\n"
    trial.write(COORDINATOR, HUB, "roster.toml", text, text)


def coordinator_begins(trial: Trial) -> str:
    """Begin the run and the server; the public key of the coordinator."""
    run, status, enrol, make, configure, start, *_ = commands("live-runs", "Begin")
    trial.run(COORDINATOR, HUB, run, ends=AWAITED)
    signer = json.loads(trial.run(COORDINATOR, HUB, status))["signer"]
    trial.run(COORDINATOR, HUB, enrol)
    trial.run(COORDINATOR, HUB, make)
    trial.run(COORDINATOR, HUB, configure.replace(" >", " --user root >"))  # as the page says, since root starts it
    trial.run(COORDINATOR, HUB, start)
    for site in SITES:
        trial.send(COORDINATOR, HUB, site, f"box.coordinator/enrol/{site}.json", f"{site}.json")
        trial.send(COORDINATOR, HUB, site, "study.toml", "study.toml")
    return str(signer)


def site_serves(trial: Trial, site: str, signer: str) -> None:
    """Sign the mandate and begin the program."""
    rehearse, draft, sign = commands("serve-a-site", "The mandate")
    trial.run(STEWARD, site, of_site(rehearse, site))
    trial.run(STEWARD, site, of_site(draft, site, key=signer))
    trial.run(STEWARD, site, of_site(sign, site), answers="y\n")
    serve, *_ = commands("serve-a-site", "The program")
    trial.begin(IT, site, of_site(serve, site))


def live_run(trial: Trial) -> set[tuple[str, int]]:
    """Carry out all pages, from nothing to a model; the connections of a site meanwhile."""
    sites_begin(trial)
    signer = coordinator_begins(trial)
    for site in SITES:
        site_serves(trial, site, signer)
    *_, post, run = commands("live-runs", "Begin")
    courier, seen = trial.begin(COORDINATOR, HUB, post), set[tuple[str, int]]()
    coordinator = trial.begin(COORDINATOR, HUB, run)
    until = time.monotonic() + 900
    while coordinator.poll() is None:
        assert time.monotonic() < until, "the run does not end"
        seen |= trial.connections(SITES[0])
        time.sleep(0.5)
    assert (coordinator.returncode, courier.wait(120)) == (0, 0)
    for site in SITES:
        _, status, *_ = commands("serve-a-site", "The program")
        trial.run(IT, site, of_site(status, site))
    _, watch, *_ = commands("live-runs", "Watch")
    assert json.loads(trial.run(COORDINATOR, HUB, watch))["finished"]
    return seen


# ---------------------------------------------------------------- figures


def row(role: str, acts: list[Act]) -> Record:
    people = 1 if role == COORDINATOR else len(SITES)
    number = {kind: sum(act.kind == kind for act in acts) for kind in ("command", "text", "file")}
    return {
        "role": role,
        "commands": number["command"] // people,
        "texts by hand": number["text"] // people,
        "files sent": number["file"],
        "words to read": sum(act.words for act in acts) // people,
        "minutes of one person": round(sum(act.minutes for act in acts) / people, 1),
    }


def figures(acts: list[Act]) -> list[Record]:
    """What one person of each role does."""
    return [row(role, [act for act in acts if act.role == role]) for role in (COORDINATOR, IT, STEWARD)]


def main() -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as root, connected(Path(root), Path(sys.executable).parent) as trial:
        live_run(trial)
        tables = [table("From nothing to a live run of two sites", figures(trial.acts))]
    result = {
        "command": "just live_pages",
        **provenance("live_pages"),
        "seconds": round(time.perf_counter() - began),
        "versions": versions(),
        "tables": tables,
    }
    path = RESULTS / "live_pages.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

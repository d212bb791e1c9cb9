"""A live run over nginx whose programs are processes of their own, which are killed, stopped, cut off, begun again."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.couriers.letter_stores import FolderStore, LetterStore, WebStore
from consilience.couriers.post import Post
from consilience.errors import ConsilienceError
from consilience.files.json_text import replace_file
from consilience.kit.enrolment import enrol_sites, nginx_configuration
from consilience.kit.folder import KEY, SiteFolder
from consilience.kit.mail_folder import END
from consilience.kit.private_files import slug
from consilience.kit.serving import FINISHED, Serving, serve
from consilience.kit.spending import charges_in
from consilience.kit.study import Study
from letter_servers import NGINX, free_port, roster_of
from mail_office import TABLES, study_with
from serving_office import ServingOffice

PLAN = study_with('name = "FederatedEM", n_climbs = 1')
FEW = {name: TABLES[name].slice(0, 300) for name in ("ash", "elm", "oak")}
WATCHED = ("open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock", "socket.connect")
"""Events of Python's audit before which a process is killed."""
RESULT = "result.json"
POLL, MOST = 0.05, 0.4
COORDINATOR, COURIER, SERVER = "coordinator", "courier", "nginx"


@dataclass
class Cast:
    """Who takes part in a live run.

    Parameters
    ----------
    path : Path
    host : str
        Address at which nginx listens.
    reach : callable, optional
        The store as the program of a site reaches it; over nginx if not given.
    """

    path: Path
    host: str = "127.0.0.1"
    reach: Callable[[str], LetterStore] | None = None
    study: Study = PLAN
    more: dict[str, Any] = field(default_factory=lambda: {"tables": FEW})
    """Further arguments of the office."""
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What a process does before anything else, by its name."""
    pids: dict[str, int] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.store, self.port = self.path / "store", free_port()
        self.office = ServingOffice(self.path, self.study, lambda _: FolderStore(self.store), **self.more)
        self.store.mkdir(exist_ok=True)
        keys = {name: folder.path / KEY for name, folder in self.office.folders.items()}
        self.enrolled = enrol_sites(self.path / "own", roster_of(keys), f"https://{self.host}:{self.port}")
        for name, each in self.enrolled.items():
            (self.path / f"{name}.crt").write_text(each.certificate)
        user = "root" if os.geteuid() == 0 else ""
        listen = f"{self.host}:{self.port}"
        (self.path / "nginx.conf").write_text(nginx_configuration(self.path / "own", self.store, listen, user))
        assert self.office.advance() is None

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of all programs but the server."""
        return COORDINATOR, COURIER, *self.office.names

    # ------------------------------------------------------------------ what each does

    def _site(self, name: str) -> None:
        own, found = self.office.folders[name].path, self.enrolled[slug(name)]
        pair = self.path / f"{slug(name)}.crt", own / KEY
        store = self.reach(name) if self.reach else WebStore(found.address, found.authority, *pair, proxy="none")
        one = Serving(SiteFolder.open(own), store, self.path / f"{name}.parquet")
        serve(one, poll=POLL, most=MOST, until=lambda state: state.word == FINISHED)

    def _courier(self) -> None:
        store = self.reach("") if self.reach else FolderStore(self.store)
        post, is_over = Post(self.office.mail, store, [slug(name) for name in self.office.names]), False
        while not is_over:
            is_over = (self.office.mail / END).exists()
            try:
                post.step()
            except ConsilienceError as error:
                logging.getLogger(COURIER).warning("state=fails reason=%r", str(error))
                is_over = False
            time.sleep(POLL)

    def _coordinator(self) -> None:
        while True:
            try:
                done = self.office.advance()
            except (ConsilienceError, OSError) as error:
                logging.getLogger(COORDINATOR).warning("state=fails reason=%r", str(error))
                time.sleep(MOST)
                continue
            if done is not None:
                found = {"bits": done.model.mixture_.to_vector().tolist(), "rounds": len(done.record.rounds)}
                replace_file(self.path / RESULT, json.dumps(found).encode())
                return
            time.sleep(POLL)

    # ------------------------------------------------------------------ processes

    def begin(self, name: str, operations: int = 0) -> None:
        """Begin a program; it is killed before so many operations on files and connections, or never for 0."""
        if name == SERVER:
            command = [str(NGINX), "-c", str(self.path / "nginx.conf"), "-g", "daemon off;"]
            silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
            self.pids[SERVER] = os.posix_spawn(command[0], command, os.environ, file_actions=[silent])
        elif pid := os.fork():
            self.pids[name] = pid
        else:
            self._live(name, operations)

    def _live(self, name: str, operations: int) -> None:
        """Be the program, in a process of its own."""
        left = operations

        def count(event: str, details: Any) -> None:
            nonlocal left
            if event in WATCHED and (event == "socket.connect" or str(self.path) in str(details[0])):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            logging.basicConfig(
                level=logging.INFO,
                filename=self.path / f"{name}.log",
                force=True,
                format="%(asctime)s %(levelname)s %(name)s %(message)s",
            )
            if name in self.before:
                self.before[name]()
            if operations:
                sys.addaudithook(count)
            {COORDINATOR: self._coordinator, COURIER: self._courier}.get(name, lambda: self._site(name))()
            status = 0
        except Exception:
            logging.getLogger(name).exception("ended")
        finally:
            os._exit(status)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a program, and to the workers of a server."""
        pid = self.pids[name]
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for each in (pid, *map(int, children)):
                os.kill(each, how)

    def restarted(self, plan: Callable[[str], int] = lambda _: 0) -> set[str]:
        """Begin again what has ended, but for what is done; the names of those that run."""
        for name, pid in list(self.pids.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self.pids[name]
                if os.WIFSIGNALED(status):
                    self.killed[name] += 1
                if name == SERVER or status != 0:
                    self.begin(name, plan(name))
        return set(self.pids) - {SERVER}

    def to_the_end(
        self,
        seconds: float,
        plan: Callable[[str], int] = lambda _: 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Let all run, and begin again what ends before its time, until all are done."""
        began = time.monotonic()
        try:
            if self.reach is None:
                self.begin(SERVER, plan(SERVER))
            for name in self.programs:
                self.begin(name, plan(name))
            while self.restarted(plan):
                meanwhile()
                assert time.monotonic() - began < seconds, f"the run does not end: {sorted(self.pids)}"
                time.sleep(0.01)
        finally:
            for name, pid in self.pids.items():
                self.kill(name)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    # ------------------------------------------------------------------ what is found afterwards

    def states(self, name: str) -> Counter[str]:
        """How often a program said each state."""
        text = (self.path / f"{name}.log").read_text()
        return Counter(part.removeprefix("state=") for part in text.split() if part.startswith("state="))

    def check(self, bits: list[float] | None = None) -> None:
        """The run has these bits, and each ledger one answer for each round, and one charge if answers have noise."""
        found = json.loads((self.path / RESULT).read_text())
        assert bits is None or found["bits"] == bits
        for name, folder in self.office.folders.items():
            rounds = list(range(1, found["rounds"] + 1))
            assert self.office.rounds_in_ledger(name) == rounds
            assert len(charges_in(folder)) == (len(rounds) if self.study.way == "noise" else 0)
            assert self.states(name)[FINISHED] == 1


@dataclass
class Kills:
    """A plan of kills: before a random operation, or after a random time; servers by time alone."""

    cast: Cast
    number: int
    chance: random.Random
    due: dict[str, float] = field(default_factory=dict)
    begun: int = 0

    def __call__(self, name: str) -> int:
        """After how many operations a program that begins now is killed."""
        self.due.pop(name, None)
        if self.begun >= self.number:
            return 0
        self.begun += 1
        if name != SERVER and self.chance.random() < 0.6:
            return self.chance.randint(2, 120)
        self.due[name] = time.monotonic() + self.chance.uniform(0.05, 2.0)
        return 0

    def strike(self) -> None:
        """Kill those whose time is over."""
        for name in [name for name, due in self.due.items() if time.monotonic() > due]:
            del self.due[name]
            if name in self.cast.pids:
                self.cast.kill(name)

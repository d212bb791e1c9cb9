"""The coordinator's courier: letters of a run's own folder to ``to/SITE/``, answers of ``from/SITE/`` back into it.

It goes by names and sizes, and reads no letter. It keeps nothing that it needs: killed at any point and started again,
it sends and takes what is missing. While it runs, it looks from time to time whether what it sent is still there. The
folder of the run is the coordinator's own; sites see the store only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from consilience.couriers.letter_stores import MOST_LETTER, LetterStore
from consilience.errors import InvalidInputError
from consilience.files.json_text import read_capped, replace_file

FIRST, LAST = ("study.toml", "run.json"), ("finished.json",)
"""Files for all sites, before and after the question: a site begins when it sees the file of the run."""
QUESTION = re.compile(r"round-([0-9]{2,6})\.question(?:\.([a-z0-9-]+))?\.json")
ANSWER = re.compile(r"round-([0-9]{2,6})\.answer\.([a-z0-9-]+)\.json")
OTHER = "it is not the answer that was taken"
MOST_SHOWN = 100
"""Largest number of refused files that are named for a site."""
COMPARED = 60.0
"""Seconds after which the letters in the store are compared with what was sent: somebody may have deleted one."""


@dataclass
class Post:
    """Letters between the folder of a run and a store.

    Parameters
    ----------
    mail : Path
        Folder of the run.
    store : LetterStore
    sites : sequence of str
        Names of the sites as they stand in names of files.
    """

    mail: Path
    store: LetterStore
    sites: Sequence[str]
    _sent: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict, init=False, repr=False)
    _marks: dict[str, dict[str, str]] = field(default_factory=dict, init=False, repr=False)
    _compared: float = field(default_factory=time.monotonic, init=False, repr=False)
    _read: dict[str, dict[str, str]] = field(default_factory=dict, init=False, repr=False)
    _refused: dict[str, dict[str, str]] = field(default_factory=dict, init=False, repr=False)

    @property
    def refused(self) -> dict[str, str]:
        """Files of the store that were not taken, and why; of each site, a limited number."""
        found = {site: sorted(files.items())[:MOST_SHOWN] for site, files in self._refused.items()}
        return {f"from/{site}/{name}": reason for site, files in found.items() for name, reason in files}

    def step(self) -> tuple[int, int]:
        """Send and take what is new; return how many files were sent, and how many taken.

        Raises
        ------
        StoreError
            If the store cannot be used now; the next step goes on.
        """
        found = _files_in(self.mail)
        if not set(FIRST) <= set(found):
            return 0, 0
        if time.monotonic() - self._compared > COMPARED:
            for site in self.sites:
                self._compare(site)
            self._compared = time.monotonic()
        asked = _latest_questions(found, self.sites)
        sent = sum(self._send(site, found, asked.get(site)) for site in self.sites)
        return sent, sum(self._take(site, asked[site][0]) for site in self.sites if site in asked)

    def _send(self, site: str, found: dict[str, tuple[int, int]], asked: tuple[int, str] | None) -> int:
        """Send a site the files that it does not have in their present form."""
        count, before = 0, self._sent.setdefault(site, {})
        for name in (*FIRST, *([] if asked is None else [asked[1]]), *(each for each in LAST if each in found)):
            if before.get(name) != found[name]:
                self.store.write(f"to/{site}", name, read_capped(self.mail / name, MOST_LETTER, follow=False))
                before[name] = found[name]
                self._marks.get(site, {}).pop(name, None)
                count += 1
        return count

    def _compare(self, site: str) -> None:
        """Forget that letters were sent which the store does not have, or has no longer as they were."""
        listed, known = self.store.names(f"to/{site}"), self._marks.get(site, {})
        for name in list(self._sent.get(site, {})):
            if name not in listed or known.get(name, listed[name]) != listed[name]:
                del self._sent[site][name]
        self._marks[site] = listed

    def _take(self, site: str, latest: int) -> int:
        """Take the answers of a site that are new; ``latest`` is the number of the latest question to it."""
        listed, read, before = self.store.names(f"from/{site}"), self._read.setdefault(site, {}), self._refused
        refused = {name: reason for name in listed if (reason := _misfit(name, site, latest))}
        count = 0
        for name, mark in sorted(listed.items()):
            if name in refused:
                continue
            if read.get(name) == mark:
                reason = before.get(site, {}).get(name, "")
            else:
                is_new, reason = self._taken(site, name, is_open=name.startswith(f"round-{latest:02d}."))
                count, read[name] = count + is_new, mark
            if reason:
                refused[name] = reason
        self._refused[site] = refused
        return count

    def _taken(self, site: str, name: str, *, is_open: bool) -> tuple[bool, str]:
        """Put an answer into the folder of the run; return whether it is new there, and why it was refused.

        One that was taken is never replaced. Another one to the question that is open lies beside it: the first may
        have been written by somebody else, and the run tells which one is signed.
        """
        goal = self.mail / name
        beside = goal.with_name(f"{goal.stem}.again.json")
        try:
            data = self.store.read(f"from/{site}", name)
        except InvalidInputError as error:
            return False, str(error)
        if not goal.exists():
            _put(goal, data)
            return True, ""
        if _holds(goal, data):
            return False, ""
        if not is_open:
            return False, OTHER
        if is_new := not _holds(beside, data):
            _put(beside, data)
        return is_new, f"{OTHER}, and lies beside it: {beside.name}"


def _files_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the files of a folder, each with its size and time."""
    try:
        with os.scandir(folder) as entries:
            files = [each for each in entries if each.is_file(follow_symlinks=False)]
            states = {each.name: each.stat(follow_symlinks=False) for each in files}
    except OSError as error:
        raise InvalidInputError(f"{folder.name} cannot be listed: {error.strerror}") from error
    return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}


def _latest_questions(names: Iterable[str], sites: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return number and name of the latest question to each site that has one."""
    own: dict[str, tuple[int, str]] = {}
    for name in names:
        if match := QUESTION.fullmatch(name):
            own[match[2] or ""] = max(own.get(match[2] or "", (0, "")), (int(match[1]), name))
    found = {site: max(own.get(site, (0, "")), own.get("", (0, ""))) for site in sites}
    return {site: each for site, each in found.items() if each[0]}


def _misfit(name: str, site: str, latest: int) -> str:
    """Return why a file cannot be an answer of a site; empty if it can be one."""
    match = ANSWER.fullmatch(name)
    if match is None:
        return "its name is not that of an answer"
    if match[2] != site:
        return f"it is named as an answer of {match[2]}, and lies in the folder of {site}"
    return "" if 1 <= int(match[1]) <= latest else "it answers a question that was not asked"


def _put(path: Path, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be written: {error.strerror}") from error


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file has these bytes."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False

"""Four hospitals and a coordinator, from raw exports to a report: commands, texts that people write, files sent.

Each has a folder of its own, and a file comes from one to another only by :meth:`Trial.send`. What is not a command of
``consilience`` is a text in TOML. Every act is recorded with the role of who does it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from hospital_exports import ROWS, STUDY, export
from shells import variables

SITES = tuple(ROWS)
HUB = "coordinator"
ROLES = ("IT", "data manager", "privacy officer", HUB, "principal investigator")
IT, MANAGER, OFFICER, COORDINATOR, READER = ROLES
WORDS_A_MINUTE, CHARACTERS_A_MINUTE = 200, 150
"""How fast people read and type."""
COHORT = 'cohort = [{ column = "age", at_least = 18, below = 100 }]\n[model]'
WORDS = """
[governance]
purpose = "How long patients stay, and which patients are alike"
controller = "each hospital for its patients"
contact = "study@example.org"
recipients = "the coordinator of the study"
retention = "the files are deleted a year after publication"
legal_basis = "approval 2026/17 of the ethics board"

[words]
title = "Length of stay of two kinds of patients"
rows = ["stay", "stays"]
sites = ["hospital", "hospitals"]
names = ["shorter stays", "longer stays"]

[words.response]
label = "length of stay"
unit = "days"
change = "percent"
less = "shorter"
more = "longer"

[words.columns.age]
per = 10
"""
CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\nmethod = { name = "OneShot", refine = 1 }\n[model]') + WORDS
NOISE = """trust = "noise"
method = { name = "PrivateScoring" }
privacy = { epsilon = 3.0, delta = 1e-6, rounds = 2 }
[model]"""
NOISE = STUDY.replace("[model]", NOISE) + WORDS
ONE_FILE = STUDY.replace("[model]", COHORT).replace("experts = [2]", "experts = [1, 2, 3]") + WORDS
EXPORTS = {"adlershof": "adlershof.csv", "boston": "boston.xlsx", "cardiff": "cardiff.csv", "delft": "delft.csv"}
GERMAN = (
    "--no-input --column los_days=Liegedauer --column age=Alter --column charlson=Charlson-Index "
    "--column sex=Geschlecht --column admission=Aufnahmeart --level sex.männlich=male --level sex.weiblich=female "
    "--level admission.Notfall=emergency --level admission.geplant=planned"
)


@dataclass(frozen=True)
class Act:
    """A command, a text or a file: who, what was typed, seconds of the processor, what there was to read."""

    kind: str
    role: str
    who: str
    typed: str
    seconds: float = 0.0
    said: str = ""
    status: int = 0

    @property
    def words(self) -> int:
        return len(re.findall(r"\w+", self.said))

    @property
    def minutes(self) -> float:
        return self.seconds / 60 + self.words / WORDS_A_MINUTE + len(self.typed) / CHARACTERS_A_MINUTE


@dataclass
class Trial:
    """Folders of all who take part, and what they did; commands may run within another program."""

    root: Path
    programs: Path
    within: str = ""
    acts: list[Act] = field(default_factory=list)

    def folder(self, who: str) -> Path:
        folder = self.root / who
        folder.mkdir(exist_ok=True)
        return folder

    def run(self, role: str, who: str, command: str, answers: str = "", *, ends: int = 0, asked: bool = False) -> str:
        """Give a command in a folder, which ends with a status, and return what it says."""
        line = f"consilience {command}"
        inside = f"script -qec {shlex.quote(line)} /dev/null" if asked else line
        before = seconds_of_children()
        done = subprocess.run(
            [*self.within.split(), "bash", "-c", f"{inside} 2>&1"],
            cwd=self.folder(who),
            env=variables(self.programs),
            input=answers,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = seconds_of_children() - before
        self.acts.append(Act("command", role, who, line + answers, seconds, done.stdout, done.returncode))
        assert done.returncode in {ends, 0}, f"{who}: {line}: status {done.returncode}\n{done.stdout}"
        return done.stdout

    def write(self, role: str, who: str, name: str, text: str) -> None:
        """Write a text by hand."""
        (self.folder(who) / name).write_text(text, encoding="utf-8")
        self.acts.append(Act("text", role, who, text))

    def edit(self, role: str, who: str, name: str, old: str, new: str) -> None:
        """Change a text by hand at one place."""
        path = self.folder(who) / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name}: {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.acts.append(Act("text", role, who, new))

    def send(self, role: str, who: str, to: str, *names: str) -> None:
        """Send files by mail."""
        for name in names:
            shutil.copy(self.folder(who) / name, self.folder(to) / Path(name).name)
            self.acts.append(Act("file", role, who, ""))

    def exchange(self, role: str, who: str, to: str, folder: str) -> None:
        """Send the files of a folder that the other one lacks; no site sees the answer of another."""
        other = self.folder(to) / folder
        other.mkdir(exist_ok=True)
        for path in sorted((self.folder(who) / folder).iterdir()):
            if not (other / path.name).exists() and not (who == HUB and ".answer." in path.name):
                shutil.copy(path, other)
                self.acts.append(Act("file", role, who, ""))

    def read(self, role: str, who: str, name: str) -> str:
        """Read a document."""
        text = (self.folder(who) / name).read_text(encoding="utf-8")
        said = re.sub(r"<(style|svg).*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL) if name.endswith("html") else text
        self.acts.append(Act("document", role, who, "", 0.0, said))
        return text


def seconds_of_children() -> float:
    """Seconds of the processor of all programs that were started and have ended."""
    times = os.times()
    return times.children_user + times.children_system


# ---------------------------------------------------------------- acts


def begin(trial: Trial, study: str) -> None:
    """Write the study, and make the folder and the key of each site; the roster follows from their mails."""
    trial.write(COORDINATOR, HUB, "study.toml", study)
    roster = 'format = "consilience-roster"\nversion = 1\n'
    for site in SITES:
        trial.send(COORDINATOR, HUB, site, "study.toml")
        export(site, trial.folder(site))
        trial.run(IT, site, f"site init {site}")
        trial.run(IT, site, f"doctor --site {site}")
        key = trial.run(IT, site, f"site key {site}").split()[-1]
        roster += f'\n[[sites]]\nname = "{site}"\nkey = "{key}"\n'
    trial.write(COORDINATOR, HUB, "roster.toml", roster)


def map_exports(trial: Trial) -> None:
    """Say what the columns of two exports mean: by options, and by answers on a terminal."""
    trial.run(MANAGER, "adlershof", "site map adlershof study.toml adlershof.csv --no-input", ends=3)
    trial.run(MANAGER, "adlershof", f"site map adlershof study.toml adlershof.csv --overwrite {GERMAN}")
    mapping = "site map boston study.toml boston.xlsx --sheet Stays"
    trial.run(MANAGER, "boston", mapping, answers="1\n1\n1\n2\n", asked=True)


def release(trial: Trial, site: str) -> None:
    """Check, fit and release at a site; its officer reads the annex and what would leave, and approves."""
    trial.run(MANAGER, site, f"site check {site} study.toml {EXPORTS[site]}")
    trial.run(MANAGER, site, f"site fit {site} study.toml {EXPORTS[site]}")
    trial.run(OFFICER, site, f"site annex {site} study.toml -o annex.md")
    trial.read(OFFICER, site, "annex.md")
    trial.run(OFFICER, site, f"site release {site} -o {site}.json", answers="y\n")
    trial.send(MANAGER, site, HUB, f"{site}.json")


def combine(trial: Trial) -> str:
    """Combine the files of all sites, and read the report."""
    files = " ".join(f"{site}.json" for site in SITES)
    options = "-o model.json --roster roster.toml --report report.html --tables tables"
    trial.run(COORDINATOR, HUB, f"combine study.toml {files} {options}")
    return trial.read(READER, HUB, "report.html")


def one_file_per_site(trial: Trial) -> str:
    """Carry out a study by one file per site, from the exports to the report."""
    begin(trial, ONE_FILE)
    map_exports(trial)
    for site in SITES:
        release(trial, site)
    return combine(trial)


# ---------------------------------------------------------------- rounds, and what goes wrong


def in_rounds(trial: Trial, name: str, study: str, options: str = "") -> str:
    """Carry out a study in rounds with the folders of an earlier one: each file goes by mail."""
    trial.write(COORDINATOR, HUB, f"{name}.toml", study)
    command = f"run {name}.toml --mailbox {name} --roster roster.toml --days 14 -o {name}.json --report {name}.html"
    trial.run(COORDINATOR, HUB, f"{command} {options}", ends=6)
    first = True
    while trial.acts[-1].status:
        for site in SITES:
            trial.exchange(COORDINATOR, HUB, site, name)
            table = f"--table {EXPORTS[site]}" * first
            trial.run(OFFICER, site, f"site answer {site} {name} {table}", answers="y\n")
            trial.exchange(MANAGER, site, HUB, name)
        first = False
        trial.run(COORDINATOR, HUB, f"{command} {options}", ends=6)
    return trial.read(READER, HUB, f"{name}.html")


def under_contract(trial: Trial) -> str:
    """Let each site agree to exact sums in its policy, and carry out a study with a refinement."""
    for site in SITES:
        trial.edit(OFFICER, site, f"{site}/policy.toml", '["noise", "limits"]', '["noise", "limits", "coordinator"]')
    return in_rounds(trial, "contract", CONTRACT)


def with_noise(trial: Trial) -> str:
    """Carry out a study with noise, from the model of the files that were released."""
    return in_rounds(trial, "noise", NOISE, "--start model.json")


def forget_a_unit(trial: Trial) -> str:
    """Combine the files again, one of them with CRP in mg/dl, because a line of the mapping was lost."""
    begun = trial.folder("boston") / "boston" / "mapping.toml"
    shutil.copytree(trial.folder("boston"), trial.folder("again"), dirs_exist_ok=True)
    assert "multiply = 10.0" in begun.read_text(encoding="utf-8")
    shutil.rmtree(trial.folder("again") / "boston")
    trial.run(IT, "again", "site init boston")
    shutil.copy(begun, trial.folder("again") / "boston")
    trial.edit(MANAGER, "again", "boston/mapping.toml", "multiply = 10.0", "")
    trial.run(MANAGER, "again", "site fit boston study.toml boston.xlsx")
    trial.run(OFFICER, "again", "site release boston -o wrong.json", answers="y\n")
    trial.send(MANAGER, "again", HUB, "wrong.json")
    files = "adlershof.json wrong.json cardiff.json delft.json"
    return trial.run(COORDINATOR, HUB, f"combine study.toml {files} -o wrong-model.json --report wrong.html")


def lack_two_sites(trial: Trial) -> str:
    """Combine the files of two of the four sites of the roster."""
    files = "adlershof.json cardiff.json"
    options = "-o two.json --roster roster.toml --report two.html"
    trial.run(COORDINATOR, HUB, f"combine study.toml {files} {options}")
    return (trial.folder(HUB) / "two.html").read_text(encoding="utf-8")

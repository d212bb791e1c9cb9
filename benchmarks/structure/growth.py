"""What grew since the source tree was made smaller, and which feature carries it.

``features.toml`` names the modules of each feature. A commit belongs to the feature whose new modules got at least a
quarter of the lines that it added to the source, or that names it; code lines that it added to older modules, less
those that it removed there, are the feature's. What is left of the growth are changes of what was there. A feature
carries the files of its modules where a task crosses them. If ``dist/ci.xml`` exists
(``PYTEST_ADDOPTS=--junitxml=dist/ci.xml bash .ci/run`` writes it), the seconds of tests are counted too: those in files
of tests that are new, and in others.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.lib.study import Record, Study, table
from benchmarks.structure.source_tree import (
    ROOT,
    SMALL,
    TASKS,
    at_commit,
    code_lines,
    crossed,
    homonyms,
    modules_of,
    single_importers,
)

SMALLER = "696b1814"
"""The commit at which the tree had been made smaller."""
REST = "changes of what was there"
LEAST = 0.25
"""Share of a commit's lines in new modules of a feature from which the commit is the feature's."""
SOURCE = "src/consilience"
SECONDS = ROOT / "dist" / "ci.xml"


@dataclass(frozen=True)
class House:
    """What is compared between two trees: modules with their code lines and importing lines, and what tasks cross."""

    modules: dict[str, tuple[int, int]]
    single: dict[str, int]
    homonyms: dict[str, list[str]]
    crossed: dict[str, set[str]]

    @classmethod
    def at(cls, tree: Path) -> House:
        modules = modules_of(tree)
        counts = {name: code_lines(file.read_text(encoding="utf-8")) for name, file in modules.items()}
        names = {str(file): name for name, file in modules.items()}
        ran = {task: {names[file] for file, _ in crossed(tree, code)} for task, code in TASKS.items()}
        return cls(counts, single_importers(modules), homonyms(modules), ran)


@cache
def features() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = tomllib.loads(
        Path(__file__).with_name("features.toml").read_text(encoding="utf-8")
    )
    return found


def feature_of(module: str) -> str | None:
    """The feature of a module."""
    for feature, parts in features().items():
        if any(module == each or (each.endswith(".") and module.startswith(each)) for each in parts["modules"]):
            return feature
    return None


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout


def module_at(path: str) -> str:
    return path.removeprefix(f"{SOURCE}/").removesuffix(".py").replace("/", ".")


@dataclass(frozen=True)
class Change:
    """What a commit did to a module: lines added, and by how many code lines it is longer or shorter now."""

    module: str
    added: int
    net: int


def changes() -> Iterator[tuple[str, list[Change]]]:
    """Each commit after the tree was made smaller, with the modules that it changed."""
    options = ("--no-merges", "--no-renames", "--format=@%H", "--raw", "--numstat", "--abbrev=40")
    for entry in git("log", *options, f"{SMALLER}..HEAD", "--", SOURCE).split("@")[1:]:
        commit, *lines = entry.split("\n")
        blobs, found = {}, []
        for line in lines:
            words = line.split()
            if line.startswith(":") and line.endswith(".py"):
                blobs[words[5]] = lines_of_blob(words[3]) - lines_of_blob(words[2])
            elif line.endswith(".py"):
                found.append(Change(module_at(words[2]), int(words[0]), blobs[words[2]]))
        yield commit, found


@cache
def lines_of_blob(blob: str) -> int:
    """The code lines of a stored file; 0 of one that is not there."""
    return 0 if set(blob) == {"0"} else code_lines(git("cat-file", "blob", blob))[0]


def feature_of_commit(commit: str, changed: list[Change]) -> str:
    """The feature that names a commit, or whose modules got most of its lines; ``REST`` if there is none."""
    for feature, parts in features().items():
        if any(commit.startswith(each) for each in parts.get("commits", [])):
            return feature
    added: Counter[str] = Counter()
    for each in changed:
        added[feature_of(each.module) or REST] += each.added
    best = max((name for name in added if name != REST), key=added.__getitem__, default=REST)
    return best if added[best] >= LEAST * added.total() else REST


@cache
def lines_by_feature() -> tuple[Counter[str], Counter[str]]:
    """Code lines of each feature in modules of its own, and in modules that were there, less those that it removed."""
    own, older = Counter[str](), Counter[str]()
    for commit, changed in changes():
        feature = feature_of_commit(commit, changed)
        for each in changed:
            if name := feature_of(each.module):
                own[name] += each.net
            else:
                older[feature] += each.net
    return own, older


def carried(now: House, small: House) -> list[Record]:
    """Each measure then and now, what new features carry of it, and the growth beyond that in per cent."""
    new = {module for module in now.modules if module not in small.modules}
    if strange := sorted(module for module in new if not feature_of(module)):
        raise SystemExit(f"features.toml does not say which features these modules came with: {', '.join(strange)}")
    own, older = lines_by_feature()
    lines = own.total() + older.total() - older[REST]
    code = [sum(each for each, _ in house.modules.values()) for house in (small, now)]
    imports = [sum(each for _, each in house.modules.values()) for house in (small, now)]
    few = [{name for name, size in house.single.items() if size < SMALL} for house in (small, now)]
    again = [name for name, homes in now.homonyms.items() if len(set(homes) - new) < 2]
    rows = [
        row("files", len(small.modules), len(now.modules), len(new)),
        row("code lines", *code, lines),
        row("imports, % of code lines", *(round(100 * i / c, 2) for i, c in zip(imports, code, strict=True))),
        row("modules with one importer", len(small.single), len(now.single), len(new & set(now.single))),
        row(f"of these below {SMALL} code lines", len(few[0]), len(few[1]), len(new & few[1])),
        row("public names defined in several modules", len(small.homonyms), len(now.homonyms), len(again)),
    ]
    for task in TASKS:
        then, today = small.crossed[task], now.crossed[task]
        rows.append(row(f"files crossed: {task}", len(then), len(today), len(new & today)))
    return rows


def row(measure: str, then: float, today: float, features: int = 0) -> Record:
    """A measure; the growth is what is left without the features."""
    beyond = round(100 * (today - features - then) / then, 1)
    return {
        "measure": measure,
        f"at {SMALLER}": then,
        "now": today,
        "with new features": features,
        "beyond them, %": beyond,
    }


def by_feature(now: House, small: House) -> list[Record]:
    """What each feature carries: its files, its code lines there and in older modules."""
    own, older = lines_by_feature()
    new = Counter(feature_of(module) for module in now.modules if module not in small.modules)
    return [
        {
            "feature": feature,
            "files": new[feature],
            "code lines in them": own[feature],
            "code lines in older modules": older[feature],
        }
        for feature in [*features(), REST]
    ]


def seconds_of_tests() -> list[Record]:
    """Tests and their seconds, in files that are new since the tree was made smaller, and in others."""
    then = set(git("ls-tree", "-r", "--name-only", SMALLER, "tests", "src").split())
    found: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(SECONDS).iter("testcase"):  # noqa: S314 - pytest wrote it here
        kind = "files that were there" if file_of(case.attrib["classname"]) in then else "new files of tests"
        found[kind].append(float(case.attrib["time"]))
    return [
        {"tests in": kind, "tests": len(each), "seconds of both processes": round(sum(each))}
        for kind, each in sorted(found.items())
    ]


def file_of(name: str) -> str:
    """The file of a test, whose name may end in a class."""
    parts = name.split(".")
    return next(
        (path for i in range(len(parts), 0, -1) if (ROOT / (path := "/".join(parts[:i]) + ".py")).exists()), name
    )


def main() -> None:
    study = Study(__file__, __doc__)
    now = House.at(ROOT)
    small = now if study.quick else at_commit(SMALLER, House.at)
    if small is None:
        raise SystemExit(f"this copy lacks commit {SMALLER}")
    tables = [
        table("The house beside its measures after it was made smaller", carried(now, small)),
        table("What each feature carries", by_feature(now, small)),
    ]
    if SECONDS.exists() and not study.quick:
        tables.append(table("Seconds of the tests of every change", seconds_of_tests()))
    study.save(*tables)


if __name__ == "__main__":
    main()

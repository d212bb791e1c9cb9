"""Studies between owners with noise against the fit to all rows without it: errors, coverage, verdicts, and the work.

Four hospitals with 350 to 1,400 gamma stays (17 free parameters, a fresh draw each time), the four of the heart
disease data (one expert), five hospitals of Parkinson's patients and the twelve stations of Beijing (two experts each).
A run starts from the fit of the largest site. Errors are root mean squares over the parameters of the distance to the
fit to all rows, in units of its standard errors; coverage is the share of 95 % intervals that hold its estimates. The
noise is the operating system's: another run of the study has other figures. Steps are computed from covariates as the
dictionary of a study describes them: "with scales" is the same study with centre and scale for the one column without.

Once for each, the commands are run as people run them: every site has its folder, maps and checks its own export, and
answers in files; the largest site releases one file under limits, from which the run starts. Commands and approvals
are counted.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from typer.testing import CliRunner

from benchmarks.lib.study import HOLD_OUT, Record, Study, rounded, table
from consilience import load
from consilience.cli.app import app
from consilience.cli.catalogue import CommandError
from consilience.errors import ConsilienceWarning
from consilience.fit.parameters import parameters
from consilience.kit import study as kit
from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array

HERE = Path(__file__)
EXPORTS = runpy.run_path(str(HERE.parents[2] / "tests" / "hospital_exports.py"))
PROTOCOL = tomllib.loads(HERE.with_name("protocol.toml").read_text(encoding="utf-8"))["trial"]
STUDIES = HERE.parents[2] / "docs" / "studies"
NOISE = 'trust = "noise"\nmethod = {{name = "PrivateScoring"}}\nprivacy = {{epsilon = {}}}\n'
STAYS, ROWS = "stays", EXPORTS["ROWS"]
EXPERTS = {"heart_disease": 1}
STATED = " with scales"
SCALES = {
    "heart_disease": ('missing = "drop"\nabout = "Depression', "centre = 1\nscale = 1\n"),
    "parkinsons": ('transform = "log"\n', "centre = -5\nscale = 0.5\n"),
}
"""Where a study states no centre and scale of a column, and what a study with noise states there."""
Tables = dict[str, pa.Table]

# ---------------------------------------------------------------- studies


def text_of(name: str) -> str:
    """The study without a method, for one number of experts."""
    if name == STAYS:
        return EXPORTS["STUDY"]
    base = name.removesuffix(STATED)
    text = (STUDIES / base / "study.toml").read_text(encoding="utf-8")
    if base != name:
        place, stated = SCALES[base]
        assert text.count(place) == 1
        text = text.replace(place, stated + place)
    return text.replace("experts = [1, 2]", f"experts = [{EXPERTS.get(base, 2)}]")


def study_of(name: str, lines: str) -> kit.Study:
    return kit.Study.from_text(text_of(name).replace("[model]", f"{lines}\n[model]", 1))


def tables_of(name: str, seed: int) -> Tables:
    """The tables of the sites; those of the stays are drawn."""
    if name == STAYS:
        return {site: pa.table(EXPORTS["hospital"](n, 10 * seed + i)) for i, (site, n) in enumerate(ROWS.items())}
    return real_tables(name.removesuffix(STATED))


@cache
def real_tables(name: str) -> Tables:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            runpy.run_path(str(STUDIES / name / "tables.py"))
            return {path.stem: parquet.read_table(path) for path in sorted(Path("tables").glob("*.parquet"))}
        finally:
            os.chdir(before)


def largest_of(tables: Tables) -> str:
    return max(tables, key=lambda site: tables[site].num_rows)


# ---------------------------------------------------------------- figures


@cache
def pooled(name: str, seed: int) -> tuple[Any, Any]:
    """The fit to all rows, and the mixture of the largest site from which runs start."""
    tables = tables_of(name, seed)
    largest = largest_of(tables)
    return fitted(name, tables.values()), fitted(name, [tables[largest]]).mixture


def fitted(name: str, tables: Iterable[pa.Table]) -> Any:
    """The fit to all rows of some tables, without noise."""
    study = kit.Study.from_text(text_of(name).replace("max_rows = 100000", "max_rows = 1000000"))
    return simulate_study(study, {"all": pa.concat_tables(tables, promote_options="default")}).best.fit


def figures(found: Any, whole: Any) -> Record:
    """Distance of a model from the fit to all rows, and how many intervals hold the estimates of that."""
    return compared(found.mixture, found.inference, whole) | {
        "settled": bool(found.settled),
        "forecast": float(found.forecast.ratio),
        "rounds": len(found.privacy.rhos),
        "first": found.surprises[0],
        "last": found.surprises[-1],
    }


def compared(mine: Any, inference: Any, whole: Any) -> Record:
    its, errors = whole.mixture, whole.inference.standard_errors().flat()
    known = np.isfinite(errors) & (errors > 0)
    apart = (flat(mine.permuted(alignment(mine, its))) - flat(its))[known] / errors[known]
    low, high = inference.interval(0.95)
    wanted = flat(its.permuted(alignment(its, mine)))
    shown = np.isfinite(low.flat()) & np.isfinite(high.flat()) & (low.flat() < high.flat())  # not what is fixed
    read = np.any(parameters(mine).gate != 0, axis=0)
    return {
        "error": float(np.sqrt(np.mean(apart**2))),
        "largest": float(np.abs(apart).max()),
        "shown": int(shown.sum()),
        "held": int(((low.flat() <= wanted) & (wanted <= high.flat()))[shown].sum()),
        "gate": bool(np.isfinite(low.gate[:, read]).all()) if mine.K > 1 and mine.gate.reads_covariates else None,
    }


def flat(mixture: Any) -> Array:
    return parameters(mixture).flat()


def replication(key: str) -> Record:
    """``study/epsilon/seed``, or ``by files/study``."""
    name, epsilon, seed = key.split("/")
    if epsilon == "by files":
        return by_files(name, int(seed))
    draw = int(seed) if name == STAYS else 0
    whole, start = pooled(name, draw)
    study = study_of(name, NOISE.format(float(epsilon)))
    return figures(simulate_study(study, tables_of(name, draw), start=start).best.fit, whole)


# ---------------------------------------------------------------- by files


class People:
    """Those who run commands: each command and each approval is counted."""

    def __init__(self) -> None:
        self.commands: dict[str, int] = {}
        self.approvals: dict[str, int] = {}
        self.refusals = 0

    def run(self, who: str, *arguments: object, ends: tuple[int, ...] = (0,)) -> str:
        given = [*map(str, arguments)]
        done = CliRunner().invoke(app, given, input="y\n")
        self.commands[who] = self.commands.get(who, 0) + 1
        asked = done.output.count("[y/N]")
        self.approvals[who] = self.approvals.get(who, 0) + asked
        if isinstance(done.exception, CommandError):
            self.refusals += 1
            raise SystemExit(f"{who}: {' '.join(given)}: {done.exception.said}")
        if done.exit_code not in ends:
            raise SystemExit(f"{who}: {' '.join(given)}: {done.output}{done.exception!r}")
        return str(done.exit_code)


MAPS = {
    "adlershof": [
        *("--column", "los_days=Liegedauer", "--column", "age=Alter", "--column", "charlson=Charlson-Index"),
        *("--column", "crp=CRP", "--column", "sex=Geschlecht", "--column", "admission=Aufnahmeart"),
        *("--missing", "k.A.", "--level", "sex.männlich=male", "--level", "sex.weiblich=female"),
        *("--level", "admission.geplant=planned", "--level", "admission.Notfall=emergency"),
    ],
    "boston": [
        *("--sheet", "Stays", "--column", "los_days=LOS hours", "--multiply", "los_days=0.041666666666666664"),
        *("--column", "crp=CRP (mg/dl)", "--multiply", "crp=10", "--missing", "crp=-99", "--column", "sex=SEX"),
        *("--column", "age=AGE", "--column", "charlson=CHARLSON", "--column", "admission=ADMISSION TYPE"),
        *("--level", "sex.F=female", "--level", "sex.M=male"),
        *("--level", "admission.PLANNED=planned", "--level", "admission.URGENT=emergency"),
    ],
}
"""What the data managers of two hospitals answer when their export is mapped."""


def by_files(name: str, seed: int) -> Record:
    """Run the commands of all people in one folder; the figures of the model, and the counts."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            return with_commands(name, seed, Path(place))
        finally:
            os.chdir(before)


def with_commands(name: str, seed: int, place: Path) -> Record:
    people, sites = People(), place / "sites"
    if name == STAYS:
        given = {site: EXPORTS["export"](site, place) for site in ROWS}
        tables = {site: pa.table(EXPORTS["hospital"](n, i)) for i, (site, n) in enumerate(ROWS.items())}
    else:
        tables, given = tables_of(name, seed), {}
        for site, rows in tables.items():
            given[site] = place / f"{site}.parquet"
            parquet.write_table(rows, given[site])
    (place / "first.toml").write_text(text_of(name), encoding="utf-8")
    (place / "study.toml").write_text(study_of(name, NOISE.format(3.0)).to_text(), encoding="utf-8")
    inside = ("--in", sites)
    for site, path in given.items():
        people.run(site, "site", "init", site, *inside)
        if site in MAPS and name == STAYS:
            people.run(site, "site", "map", site, "study.toml", path, *MAPS[site], "--no-input", *inside)
        people.run(site, "site", "check", site, "study.toml", path, *inside)
    giver = largest_of(tables)
    people.run(giver, "site", "fit", giver, "first.toml", given[giver], *inside)
    people.run(giver, "site", "release", giver, "-o", f"{giver}.json", *inside)
    people.run("coordinator", "combine", "first.toml", f"{giver}.json", "-o", "start.json")
    begin = ("run", "study.toml", "--mailbox", "box", "--start", "start.json", "-o", "model.json")
    named = [part for site in given for part in ("--site", site)]
    ended = people.run("coordinator", *begin, *named, ends=(0, 6))
    exchanges = 0
    while ended == "6":
        for site, path in given.items():
            people.run(site, "site", "answer", site, "box", *inside, *(() if exchanges else ("--table", path)))
        exchanges += 1
        ended = people.run("coordinator", *begin, ends=(0, 6))
    model = load(place / "model.json")
    whole = fitted(name, tables.values())
    kinds = [entry.kind for site in given for entry in SiteFolder.open(sites / site.lower()).entries]
    return compared(model.mixture_, model.inference_, whole) | {
        "exchanges": exchanges,
        "refusals": people.refusals + kinds.count("refusal"),
        "commands": people.commands,
        "approvals": people.approvals,
    }


# ---------------------------------------------------------------- tables


def summed(name: str, epsilon: float, records: list[Record]) -> Record:
    error = np.array([each["error"] for each in records])
    settled = [each for each in records if each["settled"]]
    shown = sum(each["shown"] for each in settled)
    return {
        "study": name,
        "ε": epsilon,
        "runs": len(records),
        "distance, median": rounded(float(np.median(error))),
        "distance, mean": rounded(float(np.mean(error))),
        "distance, largest": rounded(float(error.max())),
        "coverage of settled": rounded(sum(each["held"] for each in settled) / shown) if shown else None,
        "settled": len(settled),
        "off by more than 3": int((error > 3).sum()),
        "of which settled": int(sum(each["error"] > 3 for each in settled)),
        "forecast, median": rounded(float(np.median([each["forecast"] for each in records]))),
    }


def counted(name: str, record: Record) -> Record:
    hospitals = {who: n for who, n in record["commands"].items() if who != "coordinator"}
    approvals = {who: n for who, n in record["approvals"].items() if who != "coordinator"}
    return {
        "study": name,
        "sites": len(hospitals),
        "exchanges": record["exchanges"],
        "refusals": record["refusals"],
        "commands of a site": f"{min(hospitals.values())} to {max(hospitals.values())}",
        "commands of the coordinator": record["commands"]["coordinator"],
        "approvals of a site": f"{min(approvals.values())} to {max(approvals.values())}",
        "intervals shown": record["shown"],
        "of the gate": record["gate"],
        "distance": rounded(record["error"]),
        "pooled estimates in intervals": record["held"],
    }


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    first, files, keys = draws["first_seed"], PROTOCOL["by_files"], []
    for name, many in draws["runs"].items():
        keys += [f"{name}/{eps}/{first + i}" for i in range(1 if study.quick else many) for eps in PROTOCOL["epsilon"]]
    if study.quick:
        keys, files = keys[:1], files[:1]
    filed = [f"{name}/by files/{first}" for name in files]
    records = {each["key"]: each for each in study.replicate([*filed, *keys], replication)}
    cells = list(dict.fromkeys(tuple(key.split("/")[:2]) for key in keys))
    rows = [
        summed(name, float(eps), [records[key] for key in keys if key.startswith(f"{name}/{eps}/")])
        for name, eps in cells
    ]
    study.save(
        table("Distance from the fit to all rows, in its standard errors", rows),
        table("By files, ε = 3", [counted(key.split("/")[0], records[key]) for key in filed]),
    )


if __name__ == "__main__":
    sys.exit(main())

"""One wrong column at one of five hospitals: the check at the site, or the combination of the files, has to name it.

Five hospitals of about 300 to 2,500 patients, with gamma stays of two kinds of patients, differ in age, comorbidity,
CRP, and in the shares of sexes, of emergencies and of the kinds. At one of them CRP is off by ten, stays are in hours,
ages in months, a column is shuffled, or two levels are swapped. Every hospital runs the check and fits under the policy
``hospital``; the coordinator compares the files. An error is named if the site, the column and the factor (or that the
column is shuffled, or its levels swapped) are. An alarm is false if anything is said of an honest column. The same
hospitals without the error are the honest draws. The draws are those of ``protocol.toml``.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
import pyarrow as pa

from benchmarks.lib.study import HOLD_OUT, SCRATCH, Record, Study, protocol, table
from consilience.aggregate.preflight import preflight
from consilience.errors import RefusedError
from consilience.files.json_text import content_hash
from consilience.files.site_file import SiteFile
from consilience.kit import study as studies
from consilience.kit.policy.policy import Policy
from consilience.kit.site_comparison import compare_files
from consilience.kit.site_fit import examine_for_study, site_file

STUDY = studies.Study.from_text("""
format = "consilience-study"
version = 1
name = "length-of-stay"
seed = 5

[model]
response = "los_days"
family = "gamma"
gate = "softmax"
experts = [2]
gate_columns = ["age", "charlson"]

[[columns]]
name = "los_days"
kind = "number"
unit = "days"
low = 0.001
high = 400

[[columns]]
name = "age"
kind = "number"
unit = "years"
low = 18
high = 110
centre = 65
scale = 15

[[columns]]
name = "charlson"
kind = "number"
low = 0
high = 20
centre = 3
scale = 2

[[columns]]
name = "crp"
kind = "number"
unit = "mg/l"
low = 0
high = 500
missing = "drop"
transform = "log1p"
centre = 2.3
scale = 1

[[columns]]
name = "sex"
kind = "category"
levels = ["female", "male"]

[[columns]]
name = "admission"
kind = "category"
levels = ["planned", "emergency"]
""")
POLICY = Policy.of_profile("hospital")
SITES = ("adlershof", "boston", "cardiff", "delft", "essen")
FACTORS = {"CRP off by ten": ("crp", 10.0), "hours for days": ("los_days", 1 / 24), "months for years": ("age", 1 / 12)}
"""Column of an error of units, and the factor that mends it."""
KEPT = SCRATCH / "planted_columns"
"""Folder of the files of hospitals."""
Table = dict[str, np.ndarray]


def hospitals(columns: str, seed: int) -> dict[str, Table]:
    """Tables of honest hospitals that differ in case mix; columns are "related" or "independent"."""
    rng = np.random.default_rng([seed, 1])
    related = float(columns == "related")
    return {name: hospital(rng, related) for name in SITES}


def hospital(rng: np.random.Generator, related: float) -> Table:
    """One hospital: its case mix is drawn first, then its patients."""
    n = int(np.clip(np.exp(rng.normal(np.log(700), 0.5)), 300, 2500))
    older, younger = rng.normal(0, 5), rng.normal(0, 0.1)
    ill, inflamed, men, urgent, long_stays = rng.normal(0, [0.2, 0.35, 0.2, 0.6, 0.4])
    age = np.round(np.clip(rng.normal(65 + older, 15 * np.exp(younger), n), 18, 110))
    old = related * (age - 65) / 15
    charlson = np.clip(rng.poisson(np.exp(np.log(3) + ill + 0.3 * old)), 0, 20)
    emergency = rng.random(n) < logistic(-0.4 + urgent + 0.3 * old)
    mean = 2.3 + inflamed + related * (0.5 * (emergency - 0.4) + 0.1 * (charlson - 3))
    crp = np.expm1(np.clip(rng.normal(mean, 1), 0, 6))
    male = rng.random(n) < logistic(men - 0.35 * old)
    long = rng.random(n) < logistic(-0.8 + long_stays + 0.8 * (age - 65) / 15 + 0.9 * (charlson - 3) / 2)
    x = np.column_stack([np.ones(n), (age - 65) / 15, (charlson - 3) / 2, np.log1p(crp) - 2.3, male, emergency])
    stay = np.exp(np.where(long, x @ [2.6, 0.15, 0.1, 0.2, 0.05, 0.3], x @ [1.0, 0.05, 0.15, 0.05, 0.0, 0.2]))
    shape = np.where(long, 3.0, 6.0)
    crp = np.round(crp, 1)
    crp[rng.random(n) < 0.08] = np.nan
    return {
        "los_days": np.round(np.clip(rng.gamma(shape, stay / shape), 0.1, 399), 2),
        "age": age,
        "charlson": charlson.astype(float),
        "crp": crp,
        "sex": np.where(male, "male", "female"),
        "admission": np.where(emergency, "emergency", "planned"),
    }


def logistic(x: np.ndarray | float) -> np.ndarray | float:
    return 1 / (1 + np.exp(-x))


def with_error(kind: str, rows: Table, regime: Record, rng: np.random.Generator) -> tuple[Table, str, str]:
    """A table with an error; the column concerned, and what a finding has to say of it."""
    if kind in FACTORS:
        column, factor = FACTORS[kind]
        return {**rows, column: rows[column] / factor}, column, f"{factor:.4g}"
    if kind == "a shuffled column":
        column = str(rng.choice(regime["shuffled"]))
        return {**rows, column: rng.permutation(rows[column])}, column, "shuffled"
    column = str(rng.choice(regime["swapped"]))
    one, other = np.unique(rows[column])
    return {**rows, column: np.where(rows[column] == one, other, one)}, column, "swapped"


def arrow(rows: Table) -> pa.Table:
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in rows.items()})


def sent(name: str, rows: Table) -> SiteFile | None:
    """The file of a hospital; None if it may not leave. It is kept: rules of comparison do not change it."""
    kept = KEPT / f"{content_hash([name, {key: list(map(str, values)) for key, values in rows.items()}])[7:]}.json"
    if kept.exists():
        text = kept.read_text(encoding="utf-8")
        return SiteFile.from_text(text) if text else None
    file = fitted(name, rows)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("" if file is None else file.to_text(), encoding="utf-8")
    return file


def fitted(name: str, rows: Table) -> SiteFile | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return site_file(STUDY, name, arrow(rows), POLICY)
        except RefusedError:
            return None


@lru_cache(1)
def honest_files(columns: str, seed: int) -> dict[str, SiteFile]:
    found = {name: sent(name, rows) for name, rows in hospitals(columns, seed).items()}
    return {name: file for name, file in found.items() if file is not None}


def said_by_check(site: str, rows: Table) -> list[tuple[str, str, str]]:
    """Site, column and factor of the findings of a check that name a factor, or that are errors."""
    found = examine_for_study(STUDY, arrow(rows)).findings
    return [
        (site, each.column, f"{each.factors[0]:.4g}" if each.factors else each.code)
        for each in found
        if each.is_error or each.factors
    ]


def said_by_combination(files: dict[str, SiteFile]) -> list[tuple[str, str, str]]:
    """Site, column and error of what the comparison of columns names, and suspicions of the survey of the sites."""
    found = compare_files(STUDY, list(files.values()))
    survey = preflight({name: file.fit.summary for name, file in files.items()}, [*STUDY.covariates.terms, "y"])
    terms = {term: column.name for column in STUDY.covariates.columns for term in column.terms} | {"y": "los_days"}
    others = [
        (site, column, "survey")
        for site, said in survey.suspicions.items()
        for term, column in terms.items()
        if any(each.removeprefix("the mean of ").startswith(f"{term} ") for each in said)
    ]
    return [*others] + [
        (each.site, each.column, each.what if each.factor is None else f"{each.factor:.4g}") for each in found
    ]


def replication(key: str, regime: Record) -> Record:
    """What is said of honest hospitals, and of the same ones with one error."""
    columns, seed = key.split("/")
    rng = np.random.default_rng([int(seed), 2])
    kind = regime["kinds"][int(seed) % len(regime["kinds"])]
    tables = hospitals(columns, int(seed))
    files = honest_files(columns, int(seed))
    false = [each for name, rows in tables.items() for each in said_by_check(name, rows)] + said_by_combination(files)
    site = str(rng.choice(SITES))
    wrong, column, wanted = with_error(kind, tables[site], regime, rng)
    checked = said_by_check(site, wrong)
    fits = examine_for_study(STUDY, arrow(wrong)).fits
    file = sent(site, wrong) if fits else None
    combined = [] if file is None else said_by_combination({**files, site: file})
    truth = (site, column, wanted)
    return {
        "kind": kind,
        "truth": truth,
        "by the check": truth in checked,
        "by the combination": truth in combined,
        "said": [*checked, *combined],
        "of others": sum(each[:2] != (site, column) for each in [*checked, *combined]),
        "sent": file is not None,
        "false": false,
    }


def row(kind: str, records: list[Record]) -> Record:
    named = [each["by the check"] or each["by the combination"] for each in records]
    column = [any(tuple(said[:2]) == tuple(each["truth"][:2]) for said in each["said"]) for each in records]
    return {
        "error": kind,
        "draws": len(records),
        "site, column and error named": sum(named),
        "by the check": sum(each["by the check"] for each in records),
        "by the combination": sum(each["by the combination"] for each in records),
        "site and column named": sum(column),
        "of the same draws without the error, with a false alarm": sum(bool(each["false"]) for each in records),
    }


def main() -> None:
    study = Study(__file__, __doc__, {**HOLD_OUT, "independent": "columns that are drawn apart, not related ones"})
    columns = "independent" if study.options["independent"] else "related"
    study.label += "_independent" * study.options["independent"]
    regime, seeds = protocol(study, "planted_columns")
    records = study.replicate([f"{columns}/{seed}" for seed in seeds], lambda key: replication(key, regime))
    by_kind = {kind: [each for each in records if each["kind"] == kind] for kind in regime["kinds"]}
    rows = [row(kind, those) for kind, those in by_kind.items() if those]
    single = [("shuffled", each) for each in regime["shuffled"]] + [("swapped", each) for each in regime["swapped"]]
    by_column = [
        {
            "error": f"{column} {what}",
            "draws": len(those),
            "named": sum(each["by the check"] or each["by the combination"] for each in those),
        }
        for what, column in single
        if (those := [each for each in records if tuple(each["truth"][1:]) == (column, what)])
    ]
    study.save(table("One wrong column", [*rows, row("all", records)]), table("Shuffled and swapped", by_column))


if __name__ == "__main__":
    main()

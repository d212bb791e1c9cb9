"""Three real studies under the policy "hospital": which sites may release a file, and what had to be coarsened.

Heart disease (four hospitals; presence of disease given age, sex, pain, blood pressure, heart rate and angina, two
classes of patients), Parkinson's disease (five made-up hospitals of about eight patients each with all their
recordings; severity given age, sex, time and the voice) and the air of Beijing (twelve stations, 2,000 hours each;
logarithm of fine dust given the weather). Two experts are asked for. Rows with missing values are dropped. The AUC is
that of the membership attack on the file. There is no aim: the figures are what a policy costs on real data.
Needs the data directory named by ``CONSILIENCE_DATA``.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pyarrow as pa

from benchmarks.lib.datasets import load_table
from benchmarks.lib.study import Record, Study, rounded, table
from consilience.errors import ConsilienceWarning
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import membership_test
from consilience.kit.site_fit import fit_release, validate_rows
from consilience.kit.study import CategoryColumn, Model, NumberColumn
from consilience.kit.study import Study as StudyFile

VOICE = ["Jitter(%)", "Shimmer", "NHR", "HNR", "RPDE", "DFA", "PPE"]
STATION_ROWS = 2_000


def study_file(name: str, response: str, family: str, numbers: list[str], categories: dict[str, list]) -> StudyFile:
    columns = [NumberColumn(name=each, kind="number", missing="drop") for each in numbers]
    columns += [
        CategoryColumn(name=each, kind="category", levels=levels, missing="drop") for each, levels in categories.items()
    ]
    model = Model(response=response, family=family, experts=[2])
    return StudyFile(format="consilience-study", version=1, name=name, seed=1, model=model, columns=columns)


def by_site(whole: pa.Table, site: np.ndarray) -> dict[str, pa.Table]:
    return {str(name): whole.filter(pa.array(site == name)) for name in np.unique(site)}


def heart() -> tuple[StudyFile, dict[str, pa.Table]]:
    whole = load_table("heart_disease")
    disease = pa.array(np.where(whole["num"].to_numpy() > 0, "yes", "no"))
    whole = whole.append_column("disease", disease)
    codes = {"sex": [0, 1], "cp": [1, 2, 3, 4], "exang": [0, 1]}
    for name in codes:
        whole = whole.set_column(whole.column_names.index(name), name, whole[name].cast(pa.int64()))
    study = study_file(
        "heart", "disease", "categorical", ["age", "trestbps", "thalach"], codes | {"disease": ["no", "yes"]}
    )
    return study, by_site(whole, whole["site"].to_numpy(zero_copy_only=False))


def parkinsons() -> tuple[StudyFile, dict[str, pa.Table]]:
    whole = load_table("parkinsons")
    study = study_file(
        "parkinsons", "total_UPDRS", "gaussian", ["total_UPDRS", "age", "test_time", *VOICE], {"sex": [0, 1]}
    )
    return study, by_site(whole, whole["subject#"].to_numpy() % 5)


def beijing() -> tuple[StudyFile, dict[str, pa.Table]]:
    whole = load_table("beijing_air")
    whole = whole.append_column("dust", pa.array(np.log1p(whole["PM2.5"].to_numpy(zero_copy_only=False))))
    study = study_file("beijing", "dust", "gaussian", ["dust", "TEMP", "PRES", "DEWP", "WSPM"], {})
    sites = by_site(whole, np.array(whole["station"].to_pylist()))
    every = np.random.default_rng(0)
    return study, {
        name: part.take(np.sort(every.choice(part.num_rows, STATION_ROWS, replace=False)))
        for name, part in sites.items()
    }


STUDIES = {"heart": heart, "parkinsons": parkinsons, "beijing": beijing}


@cache
def data_of(name: str) -> tuple[StudyFile, dict[str, pa.Table]]:
    return STUDIES[name]()


def replication(key: str) -> Record:
    """``study/site``."""
    name, site = key.split("/")
    asked, tables = data_of(name)
    release = fit_release(asked, tables[site], Policy.of_profile("hospital"))
    K = 0 if release.fit is None or release.fit.model is None else release.fit.model.mixture.K
    rows = validate_rows(asked, tables[site])
    attack = None if release.fit is None else membership_test(release.fit)
    return {
        "rows": rows.n,
        "experts": K,
        "steps": list(release.steps),
        "failed": sorted({check.rule for check in release.verdict.failed}),
        "auc": None if attack is None else attack.auc,
    }


def outcome(name: str, records: list[Record]) -> Record:
    mine = [r for r in records if r["key"].startswith(f"{name}/")]
    aucs = [r["auc"] for r in mine if r["auc"] is not None]
    return {
        "study": name,
        "sites": len(mine),
        "rows of a site": f"{min(r['rows'] for r in mine):,} to {max(r['rows'] for r in mine):,}",
        "refused": sum(r["experts"] == 0 for r in mine),
        "rules that refused": ", ".join(sorted({rule for r in mine for rule in r["failed"]})) or "none",
        "one expert instead of two": sum(r["experts"] == 1 for r in mine),
        "precision flattened": sum(any("precision" in step for step in r["steps"]) for r in mine),
        "classes merged": sum(any("summary" in step for step in r["steps"]) for r in mine),
        "median AUC": rounded(float(np.median(aucs))) if aucs else None,
    }


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    names = ("parkinsons",) if study.quick else tuple(STUDIES)
    records = study.replicate([f"{name}/{site}" for name in names for site in data_of(name)[1]], replication)
    study.save(table("Files of real sites", [outcome(name, records) for name in names]))


if __name__ == "__main__":
    main()

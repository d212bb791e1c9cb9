"""Honest sites under the policy "hospital": how often a file is refused, or has fewer experts than asked.

One site of 2,000 rows with 20 covariates and four experts, from ``soft`` and from ``paper`` (a sharp gate), 20 draws
each, with the study's question for one file and the limits of the profile "hospital". For each draw: whether a file may
leave, with how many experts, whether precision matrices or the summary of the covariates had to be coarsened, how near
the least and the largest observed quantities are to their limits, and the AUC of the membership attack. Aim: no
refusal and no lost expert on ``soft``.
"""

from __future__ import annotations

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, table
from consilience.datasets import paper, soft
from consilience.kit import study as study_files
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import fit_releasable, membership_test
from consilience.kit.study_model import task_of
from consilience.model.rows import Rows

ROWS, FEATURES, EXPERTS = 2000, 20, 4
GENERATORS = {"soft": soft, "paper": paper}
NAMES = ["y", *(f"x{j}" for j in range(FEATURES))]
ASKED = study_files.Study(
    format="consilience-study",
    version=1,
    name="honest",
    seed=1,
    model=study_files.Model(response="y", experts=[EXPERTS]),
    columns=[study_files.NumberColumn(name=name, kind="number") for name in NAMES],
)
LEAST = ("rows_per_parameter", "rows_per_expert", "effective_rows", "residual_degrees", "rows_per_class")
LARGEST = ("dominance", "residual_dominance", "column_dominance", "missing_information")


def replication(key: str) -> Record:
    """``generator/seed``."""
    name, seed = key.split("/")
    data = GENERATORS[name](ROWS, n_features=FEATURES, n_experts=EXPERTS, random_state=int(seed))
    rows = Rows(data.X, data.y[:, None])
    question = task_of(ASKED).fit_site(describe=True)
    release = fit_releasable(question, rows, ASKED, Policy.of_profile("hospital"))
    K = 0 if release.fit is None else release.fit.model.mixture.K
    attack = None if release.fit is None else membership_test(release.fit)
    checks = [c for c in release.verdict.checks if (c.part, c.rule) != ("covariates", "rows_per_parameter")]
    observed = {rule: [c.observed for c in checks if c.rule == rule] for rule in (*LEAST, *LARGEST)}
    return {
        "experts": K,
        "flattened": any("precision" in step for step in release.steps),
        "merged classes": any("summary" in step for step in release.steps),
        "auc": None if attack is None else attack.auc,
        "hits": None if attack is None else attack.hits,
        **{rule: min(observed[rule]) for rule in LEAST},
        **{rule: max(observed[rule]) for rule in LARGEST},
    }


def outcome(records: list[Record], name: str) -> Record:
    mine = [r for r in records if r["key"].startswith(f"{name}/")]
    attacked = [r for r in mine if r["auc"] is not None]
    return {
        "rows from": name,
        "draws": len(mine),
        "refused": sum(r["experts"] == 0 for r in mine),
        "fewer experts": sum(0 < r["experts"] < EXPERTS for r in mine),
        "precision flattened": sum(r["flattened"] for r in mine),
        "classes merged": sum(r["merged classes"] for r in mine),
        "median AUC": rounded(float(np.median([r["auc"] for r in attacked]))),
        "largest AUC": rounded(max(r["auc"] for r in attacked)),
        "hits at 1 % false alarms": rounded(float(np.mean([r["hits"] for r in attacked]))),
    }


def margins(records: list[Record], name: str) -> Record:
    mine = [r for r in records if r["key"].startswith(f"{name}/")]
    least = {f"least {rule}": rounded(min(r[rule] for r in mine)) for rule in LEAST}
    return {
        "rows from": name,
        **least,
        **{f"largest {rule} (%)": rounded(max(r[rule] for r in mine)) for rule in LARGEST},
    }


def main() -> None:
    study = Study(__file__, __doc__)
    names, seeds = (("soft",), range(2)) if study.quick else (tuple(GENERATORS), range(20))
    records = study.replicate([f"{name}/{seed}" for name in names for seed in seeds], replication)
    study.save(
        table("files", [outcome(records, name) for name in names]),
        table("margins", [margins(records, name) for name in names]),
    )


if __name__ == "__main__":
    main()

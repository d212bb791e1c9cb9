"""Honest runs in rounds under a site's policy: how often they are refused, by which rule, in which round.

Four sites with 20 covariates and four experts, from ``soft`` and from ``paper`` (a sharp gate), and every site with its
guard; a site's own fit is the one that its policy lets it release in a file. The profile "hospital" counts products of
responsibilities in the leverage, "research" limits the rows that dominate them. Methods: ``OneShot(refine=1)``;
``FederatedEM(totals_only=True)`` from the public start that ``OneShot(refine=0)`` gives, with the replay check; both
also with ``information="simulated"``, where sites send scores only (``--scores``: these alone); ``FederatedEM()`` with
``ProposeStart`` on the list of questions; and other methods as they are. Aim: no refusal of the first two on ``soft``,
at 2,000 and at 10,000 rows a site; a refusal of the second on ``paper``.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

from benchmarks.lib.study import Record, Study, rounded, table
from benchmarks.sites.honest_releases import ASKED, EXPERTS, FEATURES, GENERATORS
from consilience import FederatedEM, OneShot, SharedCentre
from consilience.engines import InProcess
from consilience.errors import RoundStoppedError
from consilience.kit.combination import GuardedSites
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import fit_releasable
from consilience.kit.policy.rounds import guard
from consilience.kit.policy.rounds.guard import GuardedSite, RoundsOf
from consilience.kit.policy.rounds.leverage import largest_leverage
from consilience.kit.site_fit import question_of
from consilience.kit.study_model import task_of
from consilience.messages.questions import LocalFit
from consilience.model.rows import Rows
from consilience.runs import run
from consilience.site import Site
from consilience.site.answer import respond

SITES = 4
METHODS: dict[str, Any] = {
    "OneShot": OneShot(refine=1),
    "OneShot, scores": OneShot(refine=1, information="simulated"),
    "totals": FederatedEM(totals_only=True),
    "totals, scores": FederatedEM(totals_only=True, information="simulated"),
    "FederatedEM": FederatedEM(),
    "SharedCentre": SharedCentre(),
}
PROFILES = ("hospital", "research")
SCORES = {
    "OneShot, scores/soft/2000": 20,
    "totals, scores/soft/10000": 20,
    "totals, scores/paper/10000": 5,
}
CASES = {
    "OneShot/soft/2000": 20,
    "totals/soft/10000": 20,
    "totals/paper/10000": 5,
    "OneShot, scores/soft/10000": 5,
    "OneShot/soft/10000": 5,
    "OneShot/paper/10000": 3,
    "totals/soft/2000": 5,
    "FederatedEM/soft/10000": 2,
    "SharedCentre/soft/2000": 1,
}
QUICK = {"totals/soft/2000": 1, "totals/paper/2000": 1, "totals, scores/soft/2000": 1}
STATED = {
    "OneShot": "OneShot(refine=1)",
    "OneShot, scores": "OneShot(refine=1, information='simulated')",
    "totals": "FederatedEM(totals_only=True), public start",
    "totals, scores": "FederatedEM(totals_only=True, information='simulated'), public start",
}


class Remembered:
    """Answers of sites that were computed once: both profiles ask the same."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, bytes], bytes] = {}

    def __call__(self, question: bytes, site: Site) -> bytes:
        key = site.name, question
        if key not in self.known:
            self.known[key] = respond(question, site)
        return self.known[key]


def policy_of(profile: str, method: str) -> Policy:
    tables = Policy.of_profile(profile).model_dump()
    if method == "FederatedEM":
        tables["rounds"]["questions"] += ["ProposeStart"]
    return Policy.from_tables(tables)


def replication(key: str) -> Record:
    """``method/generator/rows/seed``."""
    method, name, rows, seed = key.split("/")
    n = int(rows)
    data = GENERATORS[name](SITES * n, n_features=FEATURES, n_experts=EXPERTS, random_state=int(seed))
    sites = [Site(str(i), Rows(data.X[i::SITES], data.y[i::SITES][:, None])) for i in range(SITES)]
    task = task_of(ASKED)
    if method.startswith("totals"):
        task = replace(task, start=run(OneShot(refine=0).dialogue(task), InProcess().over(sites)).value[0].mixture)
    guard.respond = Remembered()  # type: ignore[attr-defined]
    return {profile: guided(method, task, sites, policy_of(profile, method)) for profile in PROFILES}


def guided(method: str, task: Any, sites: list[Site], policy: Policy) -> Record:
    """Run a method over guarded sites; what became of it."""
    chosen = METHODS[method]
    dialogue = (lambda: chosen.dialogue(task)) if method.startswith("totals") else None
    rules = RoundsOf(policy, ASKED, question_of(ASKED), dialogue)
    if dialogue is None:
        guards = [GuardedSite(site, replace(rules, released=released(site, policy))) for site in sites]
    else:
        guards = [GuardedSite(site, rules) for site in sites]
    with suppress(RoundStoppedError):
        run(chosen.dialogue(task), GuardedSites(guards))
    refused = [each.refusals[0] for each in guards if each.refusals]
    spans = [each.asked.span for each in guards]
    return {
        "refused": bool(refused),
        "sites": len(refused),
        "rule": refused[0].rule if refused else "",
        "reason": refused[0].reason if refused else "",
        "rounds": max(each.asked.rounds for each in guards),
        "leverage": max(
            (largest_leverage(span, sites[i].chunks) for i, span in enumerate(spans) if span is not None), default=0.0
        ),
    }


def released(site: Site, policy: Policy) -> LocalFit | None:
    """The fit that the policy lets a site release in a file."""
    return fit_releasable(question_of(ASKED), site.data, ASKED, policy).fit


def outcome(records: list[Record], case: str, profile: str) -> Record:
    mine = [r[profile] for r in records if r["key"].startswith(f"{case}/")]
    method, name, rows = case.split("/")
    rules = Counter(r["rule"] for r in mine if r["refused"])
    answered = [r["leverage"] for r in mine if not r["refused"]]
    return {
        "method": STATED.get(method, f"{method}()"),
        "rows from": name,
        "rows a site": int(rows),
        "profile": profile,
        "runs": len(mine),
        "refused runs": sum(r["refused"] for r in mine),
        "refusing sites": f"{sum(r['sites'] for r in mine)} of {SITES * len(mine)}",
        "rules": ", ".join(f"{rule} {count}" for rule, count in rules.most_common()),
        "rounds answered": f"{min(r['rounds'] for r in mine)}-{max(r['rounds'] for r in mine)}",
        "largest leverage of completed runs": rounded(max(answered)) if answered else "",
    }


def main() -> None:
    study = Study(__file__, __doc__, {"scores": "only the runs in which sites send scores"})
    cases = QUICK if study.quick else CASES
    if study.options["scores"]:
        study.label += "_scores"
        cases = SCORES
    records = study.replicate([f"{case}/{seed}" for case, draws in cases.items() for seed in range(draws)], replication)
    study.save(table("runs", [outcome(records, case, profile) for case in cases for profile in PROFILES]))


if __name__ == "__main__":
    main()

"""The coordinator's part of a study: one model from the files of the sites, or from their tables in a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from consilience.engines.guarded import GuardedSites
from consilience.engines.inprocess import InProcess
from consilience.engines.site_files import SiteFiles
from consilience.errors import InvalidInputError
from consilience.federation.federated_fit import FederatedOrders
from consilience.federation.outcome import compared, fitted_model, warn_of
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.methods.one_shot.one_shot import OneShot
from consilience.methods.task import Method
from consilience.model.mixture import Mixture
from consilience.runs.consistency import Limits
from consilience.runs.engine import EngineOverSites
from consilience.runs.run import RunOptions, run
from consilience.site import Site
from consilience.site.policy import Policy
from consilience.site.policy.rounds import GuardedSite, RoundsOf
from consilience.studies.local import checked_rows, question_of, site_file
from consilience.studies.methods import method_of
from consilience.studies.models import estimators_of, task_of
from consilience.studies.site_run import replayed


def combined(study: Study, files: Iterable[SiteFile]) -> FederatedOrders:
    """Combine the files of the sites by one-shot aggregation; compare the study's numbers of experts by BIC.

    Raises
    ------
    InvalidInputError
        If a file is of another study, or two files are of one site.
    """
    by_site: dict[str, SiteFile] = {}
    for file in files:
        if file.study != study.identity:
            raise InvalidInputError(
                f"the file of {file.site} is for another study, or for another version of it ({file.study[:15]}..., "
                f"this is {study.identity[:15]}...): use the study file that was sent to the sites, or ask the site to "
                "fit again"
            )
        if file.site in by_site:
            raise InvalidInputError(f"there are two files of site {file.site}: pass one")
        by_site[file.site] = file
    return ran(study, SiteFiles(dict(sorted(by_site.items()))), OneShot(refine=0))


def simulated(
    study: Study, tables: Mapping[str, pa.Table], policy: Policy | None = None, *, start: Mixture | None = None
) -> FederatedOrders:
    """Run a study on tables in this process: the same result, to the bit, as by files.

    Parameters
    ----------
    study : Study
    tables : mapping of str to pyarrow.Table
        Table of each site.
    policy : Policy, optional
        Policy that every site applies, as ``consilience site`` does; no rules without one.
    start : Mixture, optional
        Public start of the run.
    """
    if policy is None:
        return ran(study, InProcess().over(sites_of(study, tables)), start=start)
    if study.method is None:
        return combined(study, [site_file(study, name, table, policy) for name, table in tables.items()])
    method, task = method_of(study), replace(task_of(study), start=start)
    rules = RoundsOf(policy.stricter(study.minimum), study, question_of(study), replayed(method, task))
    return ran(study, GuardedSites(GuardedSite(site, rules) for site in sites_of(study, tables)), start=start)


def sites_of(study: Study, tables: Mapping[str, pa.Table]) -> list[Site]:
    """Return the sites of a study from their tables, by name; with rows by client if the method needs it."""
    sites = [Site(name, checked_rows(study, tables[name])) for name in sorted(tables)]
    return [site.by_client() for site in sites] if method_of(study).by_client else sites


def ran(
    study: Study,
    engine: EngineOverSites,
    method: Method | None = None,
    *,
    start: Mixture | None = None,
    options: RunOptions | None = None,
) -> FederatedOrders:
    """Run a study over an engine; compare its numbers of experts by BIC.

    Parameters
    ----------
    study : Study
    engine : EngineOverSites
    method : Method, optional
        The study's by default.
    start : Mixture, optional
        Public start of the run.
    options : RunOptions, optional
        The study states the limits.
    """
    models = estimators_of(study)
    method, task = method_of(study) if method is None else method, replace(task_of(study, models), start=start)
    limits, most_rounds = Limits(max_rows=study.max_rows), method.most_rounds(task)
    done = run(method.dialogue(task), engine, options, limits=limits, most_rounds=most_rounds)
    fits = [
        None if fit is None else fitted_model(model, fit, done.record)
        for model, fit in zip(models, done.value, strict=True)
    ]
    found = compared(study.model.experts, fits, "bic")
    warn_of(found.best)
    return found

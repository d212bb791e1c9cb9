"""The coordinator's part of a study: one model from the files of the sites, or from their tables in a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from consilience.engines.inprocess import InProcess
from consilience.engines.site_files import SiteFiles
from consilience.errors import InvalidInputError
from consilience.federation.federated_fit import FederatedOrders
from consilience.federation.outcome import compared, fitted_model, warn_of
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.methods.one_shot.one_shot import OneShot
from consilience.runs.consistency import Limits
from consilience.runs.run import run
from consilience.site import Site
from consilience.site.policy import Policy
from consilience.studies.local import checked_rows, site_file
from consilience.studies.models import estimators_of, task_of


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
    return _compared(study, SiteFiles(dict(sorted(by_site.items()))))


def simulated(study: Study, tables: Mapping[str, pa.Table], policy: Policy | None = None) -> FederatedOrders:
    """Run a study on tables in this process: the same result, to the bit, as by files.

    Parameters
    ----------
    study : Study
    tables : mapping of str to pyarrow.Table
        Table of each site.
    policy : Policy, optional
        Policy that every site applies to its fit, as ``consilience site fit`` does; no rules without one.
    """
    if policy is not None:
        return combined(study, [site_file(study, name, table, policy) for name, table in tables.items()])
    return _compared(
        study, InProcess().over([Site(name, checked_rows(study, tables[name])) for name in sorted(tables)])
    )


def _compared(study: Study, engine: Any) -> FederatedOrders:
    models = estimators_of(study)
    method, task = OneShot(refine=0), task_of(study, models)
    done = run(
        method.dialogue(task),
        engine,
        most_rounds=method.most_rounds(task),
        limits=Limits(max_rows=study.max_rows),
    )
    fits = [
        None if fit is None else fitted_model(model, fit, done.record)
        for model, fit in zip(models, done.value, strict=True)
    ]
    found = compared(study.model.experts, fits, "bic")
    warn_of(found.best)
    return found

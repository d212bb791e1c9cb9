"""A site's part of a study: its table held against the study, and its own fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from consilience.errors import InvalidInputError
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.messages.questions import LocalFit
from consilience.model.rows import Rows
from consilience.site import Columns, Site
from consilience.site.answer import answer
from consilience.site.columns import Chunk
from consilience.site.examination import Examination, Wanted, examined, prepared
from consilience.studies.models import estimators_of, task_of


def wanted_of(study: Study) -> Wanted:
    """Return what a study wants of a table."""
    exposure = next((each.column() for each in study.columns if each.name == study.model.exposure), None)
    return Wanted(study.covariates, study.response, exposure, study.minimum.rows, study.max_rows)


def examined_for(study: Study, table: pa.Table) -> Examination:
    """Hold a table against a study.

    Examples
    --------
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... minimum = {rows = 2}
    ... model = {response = "days", experts = [1]}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number", low = 18, high = 110}]
    ... ''')
    >>> examined_for(study, pa.table({"days": [1.0, 2.0], "age": [61, 70]})).fits
    True
    """
    return examined(table, wanted_of(study))


def site_of(study: Study, name: str, table: pa.Table) -> Site:
    """Return a site with the rows of a table; raise an error that lists what does not fit the study."""
    found = examined_for(study, table)
    if not found.fits:
        raise InvalidInputError(
            "the table does not fit the study:\n"
            + "\n".join(f"  {finding}" for finding in found.findings if finding.is_error)
        )
    return Site(name, rows_of(study, prepared(table, wanted_of(study))))


def rows_of(study: Study, table: pa.Table) -> Rows:
    """Return the rows of a table that fits the study, with covariates by its rules."""
    covariates = study.covariates
    columns = Columns(
        covariates.names,
        (study.model.response,),
        exposure=study.model.exposure,
        classes=study.classes,
        dictionary=covariates,
    )
    chunk = Chunk(columns, table.num_rows)
    for batch in table.combine_chunks().to_batches():
        chunk.fill(batch)
    return chunk.rows()


def site_file(study: Study, name: str, table: pa.Table, evidence: Mapping[str, Any] | None = None) -> SiteFile:
    """Fit a site's own mixture and return the file that would leave the site; nothing is written or sent.

    Examples
    --------
    >>> import numpy as np
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [1]}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number"}]
    ... ''')
    >>> age = np.linspace(20, 80, 100)
    >>> table = pa.table({"age": age, "days": 3 + 0.1 * age + np.sin(age)})
    >>> site_file(study, "north", table).terms
    ('(intercept)', 'age')
    """
    models = estimators_of(study)
    question = task_of(study, models).fit_site(describe=True)
    fit = answer(question, site_of(study, name, table))
    if not isinstance(fit, LocalFit):
        raise TypeError(f"a site answered FitSite with {type(fit).__name__}")
    intercept = ("(intercept)",) if models[0].fit_intercept else ()
    return SiteFile(study.identity, name, (*intercept, *models[0].columns_.terms), fit, dict(evidence or {}))

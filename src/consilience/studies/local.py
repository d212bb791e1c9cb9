"""A site's part of a study: its table held against the study, and its own fit."""

from __future__ import annotations

import pyarrow as pa

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.messages.questions import FitSite, LocalFit
from consilience.model.rows import Rows
from consilience.site import Columns, Site
from consilience.site.answer import answer
from consilience.site.columns import Chunk
from consilience.site.examination import Examination, Wanted, examined, prepared
from consilience.site.policy import Policy, Release, evidence, releasable
from consilience.studies.models import task_of


class MisfitError(InvalidInputError):
    """Raised if a table does not fit a study; the message lists the findings, without values."""


def wanted_of(study: Study) -> Wanted:
    """Return what a study wants of a table."""
    exposure = next((each.column() for each in study.columns if each.name == study.model.exposure), None)
    return Wanted(study.covariates, study.response, exposure, study.model.clients, study.minimum.rows, study.max_rows)


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


def checked_rows(study: Study, table: pa.Table) -> Rows:
    """Return the rows of a table, with covariates by the study's rules; raise an error that lists what does not fit."""
    found = examined_for(study, table)
    if not found.fits:
        raise MisfitError(
            "the table does not fit the study:\n"
            + "\n".join(f"  {finding}" for finding in found.findings if finding.is_error)
        )
    return rows_of(study, table)


def rows_of(study: Study, table: pa.Table) -> Rows:
    """Return the rows of a table that fits the study, with covariates by its rules."""
    table = prepared(table, wanted_of(study))
    chunk = Chunk(columns_of(study), table.num_rows)
    for batch in table.combine_chunks().to_batches():
        chunk.fill(batch)
    return chunk.rows()


def columns_of(study: Study) -> Columns:
    """Return the columns of a study by their role, with their rules."""
    covariates, wanted = study.covariates, wanted_of(study)
    return Columns(
        covariates.names,
        (study.model.response,),
        exposure=study.model.exposure,
        groups=study.model.clients,
        classes=study.classes,
        dictionary=covariates,
        others=tuple(column for column in (wanted.response, wanted.exposure) if column is not None),
    )


def release_of(study: Study, table: pa.Table, policy: Policy) -> Release:
    """Fit a site's own mixture to a table that fits the study, so that it keeps the site's policy.

    Parameters
    ----------
    study : Study
    table : pyarrow.Table
    policy : Policy
        The site's own; the study may tighten it.

    Examples
    --------
    >>> from consilience.datasets.hospitals import STUDY, hospitals
    >>> found = release_of(Study.from_text(STUDY), hospitals()["ash"], Policy.of_profile("hospital"))
    >>> found.refusal, found.verdict.kept
    ('', True)
    """
    return releasable(question_of(study), checked_rows(study, table), study, policy)


def question_of(study: Study) -> FitSite:
    """Return the one question of a study to a site: fit your own mixture and describe your covariates."""
    return task_of(study).fit_site(describe=True)


def site_file(study: Study, name: str, table: pa.Table, policy: Policy | None = None) -> SiteFile:
    """Fit a site's own mixture and return the file that would leave the site; nothing is written or sent.

    Parameters
    ----------
    study : Study
    name : str
        Name of the site.
    table : pyarrow.Table
    policy : Policy, optional
        Policy that the fit must keep. Without one no rule is applied: for data of one owner.

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If nothing that keeps the policy can be released.

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
    if policy is not None:
        return file_of(study, name, release_of(study, table, policy))
    fit = answer(question_of(study), Site(name, checked_rows(study, table)))
    if not isinstance(fit, LocalFit):
        raise TypeError(f"a site answered FitSite with {type(fit).__name__}")
    return SiteFile(study.identity, name, terms_of(study), fit)


def file_of(study: Study, name: str, release: Release) -> SiteFile:
    """Return the file of a fit that keeps the policy, with the evidence; raise an error if there is none."""
    if release.fit is None:
        raise RefusedError(release.refusal)
    return SiteFile(study.identity, name, terms_of(study), release.fit, evidence(release.verdict))


def terms_of(study: Study) -> tuple[str, ...]:
    """Return the names of the coefficients of an expert."""
    return ("(intercept)", *study.covariates.terms)

"""A site's part of a study: its table held against the study, and its own fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from consilience.data import Columns
from consilience.data.file_columns import Chunk
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.site_file import FlowDocument, SiteFile
from consilience.kit import ledger
from consilience.kit.cohort import Flow, criteria_of, in_cohort
from consilience.kit.crowd import find_crowd, rows_in_crowds
from consilience.kit.examination import COPIES, Examination, UsedRows, Wanted, examine_table, prepare_table
from consilience.kit.folder import SiteFolder
from consilience.kit.mapping import TableMapping, mapped_by
from consilience.kit.notices import check_replaceable, say_replaced
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.refit import (
    Release,
    fit_releasable,
    regression_leverage,
    release_evidence,
)
from consilience.kit.release import (
    STATED,
    FitReport,
    check_not_withdrawn,
    crowds_of,
    decide_for_site,
    earlier_of,
    keep_again,
    keep_fit,
    record_refusal,
)
from consilience.kit.row_tags import SECRET, RowTags, missing_in, whole_column
from consilience.kit.study import Study
from consilience.kit.study_model import task_of
from consilience.kit.study_terms import say_formula
from consilience.messages import FitSite, LocalFit
from consilience.model import Rows
from consilience.numerics.arrays import Mask
from consilience.site import Site, answer


class MisfitError(InvalidInputError):
    """Raised if a table does not fit a study; the message lists the findings, without values."""


def wanted_of(study: Study) -> Wanted:
    """Return what a study wants of a table."""
    exposure = next((each.column() for each in study.columns if each.name == study.model.exposure), None)
    limits = (study.minimum.rows, study.max_rows)
    persons = None if study.persons is None else study.persons.column
    return Wanted(study.sources, study.response, exposure, study.model.clients, *limits, criteria_of(study), persons)


def examine_for_study(study: Study, table: pa.Table) -> Examination:
    """Hold a table against a study."""
    return examine_table(table, wanted_of(study))


def validate_rows(study: Study, table: pa.Table) -> Rows:
    """Return the rows of a table, with covariates by the study's rules; raise an error that lists what does not fit."""
    examine_fitting(study, table)
    return study_rows(study, table)


def examine_fitting(study: Study, table: pa.Table) -> Examination:
    """Hold a table against a study; raise an error that lists what does not fit."""
    found = examine_for_study(study, table)
    if not found.fits:
        raise MisfitError(
            "the table does not fit the study:\n"
            + "\n".join(f"  {finding}" for finding in found.findings if finding.is_error)
        )
    return found


def study_rows(study: Study, table: pa.Table) -> Rows:
    """Return the rows of a table that fits the study, with covariates by its rules."""
    table = prepare_table(table, wanted_of(study))
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
        derivation=study.derivation,
    )


def fit_release(study: Study, table: pa.Table, policy: Policy) -> Release:
    """Fit a site's own mixture to a table that fits the study, so that it keeps the site's policy.

    Parameters
    ----------
    study : Study
    table : pyarrow.Table
    policy : Policy
        The site's own; the study may tighten it.
    """
    return fit_releasable(question_of(study), validate_rows(study, table), study, policy)


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
    """
    if policy is not None:
        flow = flow_document(study, table, policy, bytes(SECRET))
        return replace(file_of(study, name, fit_release(study, table, policy)), flow=flow)
    fit = answer(question_of(study), Site(name, validate_rows(study, table)))
    if not isinstance(fit, LocalFit):
        raise TypeError(f"a site answered FitSite with {type(fit).__name__}")
    return SiteFile(study.identity, name, terms_of(study), fit)


def flow_of(study: Study, table: pa.Table) -> Flow:
    """Return the flow of a table that fits a study, from the rows read to those used."""
    wanted = wanted_of(study)
    return Flow.of(table, wanted.cohort, wanted.columns)


def flow_document(study: Study, table: pa.Table, policy: Policy, secret: bytes) -> FlowDocument | None:
    """Return what a file says of the flow, as the policy allows it; None if the study leaves out no rows."""
    return flow_of(study, table).document(table, policy.site.min_rows, secret)


def file_of(study: Study, name: str, release: Release) -> SiteFile:
    """Return the file of a fit that keeps the policy, with the evidence; raise an error if there is none."""
    if release.fit is None:
        raise RefusedError(release.refusal)
    return SiteFile(study.identity, name, terms_of(study), release.fit, release_evidence(release.verdict))


def terms_of(study: Study) -> tuple[str, ...]:
    """Return the names of the coefficients of an expert."""
    return ("(intercept)", *study.covariates.terms)


# ---------------------------------------------------------------- site fit


@dataclass(frozen=True)
class FitAtSite:
    """What ``fit_at_site`` did.

    Parameters
    ----------
    entry : Entry
        Entry of the ledger.
    released_by : int, optional
        Entry by which the same rows were released for the same study before; nothing was fitted then.
    """

    entry: ledger.Entry
    released_by: int | None = None


@dataclass(frozen=True)
class Statement:
    """What the people at a site state about a table; the ledger has it, and the file wave and data cut.

    Parameters
    ----------
    wave : str, optional
        Wave of the study.
    data_cut : str, optional
        Day ``YYYY-MM-DD`` until which the data reach.
    leave_out_crowd : bool
        Whether patients withdrew: a crowd is left out with them (:mod:`consilience.kit.crowd`).
    replaces : tuple of int
        Entries of releases in whose place this one is to stand, if the coordinator retracts them.
    """

    wave: str | None = None
    data_cut: str | None = None
    leave_out_crowd: bool = False
    replaces: tuple[int, ...] = ()


def fit_at_site(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    other_people: str = "",
    *,
    mapping: TableMapping | None = None,
    stated: Statement = Statement(),
) -> FitAtSite:
    """Fit a site's own mixture under its policy, and keep it in the site's folder; nothing leaves.

    The rows are compared with those of all earlier releases of the site. If they were released for this study before,
    nothing is fitted: the same file is released again.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    other_people : str
        Why the rows are those of other people than in earlier releases, where the rows cannot be compared; recorded.
    mapping : TableMapping, optional
        Through which the table was read; recorded.
    stated : Statement

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If nothing may leave; the refusal is recorded in the ledger.
    """
    check_one_file(study, Policy.from_text(folder.policy))
    try:
        found = consider_fit(folder, study, table, other_people, mapping=mapping, stated=stated)
    except RefusedError as error:
        record_refusal(folder, study.identity, str(error))
        raise
    if found.report is None:
        return FitAtSite(keep_again(folder, found.stored), found.stored)
    return FitAtSite(keep_fit(folder, found.report, found.used, found.crowd, stated.replaces))


@dataclass(frozen=True, eq=False)
class ConsideredFit:
    """What a site would release, before anything is recorded.

    Parameters
    ----------
    used : UsedRows
    report : FitReport, optional
        The file with every check; None if the same rows were released for this study before.
    stored : int
        Entry of that release; 0 otherwise.
    crowd : RowTags, optional
        People, or rows, that are left out together with those who withdrew since the last release.
    """

    used: UsedRows
    report: FitReport | None = None
    stored: int = 0
    crowd: RowTags | None = None


def consider_fit(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    other_people: str = "",
    *,
    mapping: TableMapping | None = None,
    stated: Statement = Statement(),
) -> ConsideredFit:
    """Fit a site's own mixture under its policy; nothing is recorded.

    Parameters
    ----------
    folder, study, table, other_people, mapping, stated
        As in :func:`fit_at_site`.

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If nothing may leave.
    """
    policy = Policy.from_text(folder.policy)
    check_not_withdrawn(folder, study.identity)
    check_replaceable(folder, policy, stated.replaces)
    copies = [str(each) for each in examine_fitting(study, table).findings if each.code == COPIES]
    used = UsedRows.of(table, wanted_of(study).read, folder.secret, policy.people.column, criteria_of(study))
    applied = policy.stricter(study.minimum)
    if applied.release.require_signatures and folder.public_key is None:
        raise RefusedError(NO_KEY)
    used, crowd, out = _without_crowds(folder, study, used, applied.site.min_rows, stated)
    if np.any(out):
        table = table.filter(pa.array(~out))
    if reason := few_filled(study, table, applied.site.min_rows):
        raise RefusedError(reason)
    ways: dict[str, Any] = {"other_people": bool(other_people.strip()), "replaces": stated.replaces}
    decision = decide_for_site(folder, study.identity, used, applied.site.min_rows, **ways)
    if decision.outcome == "stored" and decision.entry is not None:
        return ConsideredFit(used, stored=decision.entry)
    if decision.outcome == "refused":
        raise RefusedError(decision.said)
    rows, flow = study_rows(study, table), flow_of(study, table)
    release = fit_releasable(question_of(study), rows, study, policy)
    said = flow.document(table, policy.site.min_rows, folder.secret)
    file = replace(file_of(study, folder.name, release), flow=said, wave=stated.wave, data_cut=stated.data_cut)
    left_out = [say_left_out(int(np.count_nonzero(out)), is_new=crowd is not None)] * bool(np.any(out))
    report = FitReport(
        study.name,
        file,
        release.verdict.checks,
        release.steps,
        (*_stated(other_people), *say_replaced(stated.replaces), *left_out, *say_formula(study), *copies),
        0.0 if file.fit.model is None else regression_leverage(file.fit.model.mixture, rows),
        mapped_by(mapping),
        () if said is None else tuple(flow.lines),
    )
    return ConsideredFit(used, report, crowd=crowd)


def _stated(other_people: str) -> list[str]:
    """Return the note on rows of other people, if the people at the site state that they are."""
    said = f"{STATED} the rows are those of other people than in earlier releases, because: {other_people}"
    return [said] * bool(other_people.strip())


def _without_crowds(
    folder: SiteFolder, study: Study, used: UsedRows, min_rows: int, stated: Statement
) -> tuple[UsedRows, RowTags | None, Mask]:
    """Return the rows used without crowds, the crowd that is new, and which rows of the table are in a crowd, (N,)."""
    out, crowd = rows_in_crowds(used, crowds_of(folder)), None
    used = used.without(out)
    if stated.leave_out_crowd:
        crowd = find_crowd(study.identity, used, earlier_of(folder, stated.replaces), min_rows)
    if crowd is not None:
        out |= used.whole_in(crowd)
    return used.without(out), crowd, out


def say_left_out(rows: int, *, is_new: bool) -> str:
    """Say how many rows are left out as crowds."""
    new = "a new one and those of earlier releases" if is_new else "those of earlier releases"
    return (
        f"{rows:,} rows of the table are left out as crowds, {new}: with them the people who withdrew cannot be told "
        "from others by the difference of two releases. They stay out of all later releases"
    )


def check_one_file(study: Study, policy: Policy) -> None:
    """Raise an error unless the study asks for one file under limits, and the site sends such files."""
    if not study.is_one_file:
        raise RefusedError(
            "the study asks in rounds, and the site fits nothing by itself: use 'consilience site answer'"
        )
    policy.check_way(study.way)


def few_filled(study: Study, table: pa.Table, min_rows: int) -> str:
    """Say why nothing may be released if few values are filled in; empty if none or enough of a column are.

    Two studies with other values in their place have the same rows, and their difference shows whose are missing.
    """
    kept = in_cohort(table, criteria_of(study))
    for column in wanted_of(study).columns:
        if column.rule.missing != "fill":
            continue
        if 0 < np.count_nonzero(missing_in(whole_column(table, column.name)) & kept) < min_rows:
            return (
                f"column {column.name!r} is to be filled in where it is missing, in fewer than {min_rows} rows: studies"
                " that fill in other values would disclose these rows. Complete them, or ask the coordinator for a "
                "study that drops them"
            )
    return ""


NO_KEY = "signatures are required and the site has no key: install consilience[secure], then run 'consilience site key'"

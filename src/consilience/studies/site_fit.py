"""A site's fit for a study, under its own policy and ledger: what would leave is kept in the site's folder."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from consilience.errors import RefusedError
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.messages.questions import FitSite
from consilience.model.rows import Rows
from consilience.site import ledger
from consilience.site.approval import keep_again, keep_fit, record_refusal
from consilience.site.fit_report import FitReport
from consilience.site.folder import SiteFolder
from consilience.site.policy import Policy, Release, regression_leverage, releasable, self_test
from consilience.site.releases import decided_for
from consilience.site.used_rows import UsedRows
from consilience.studies.local import checked_rows, file_of, question_of, wanted_of


@dataclass(frozen=True)
class SiteFit:
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


def fit_at_site(folder: SiteFolder, study: Study, table: pa.Table, other_people: str = "") -> SiteFit:
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

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If nothing may leave; the refusal is recorded in the ledger.

    Examples
    --------
    >>> import tempfile
    >>> from consilience.datasets.hospitals import STUDY, hospitals
    >>> from consilience.site.approval import released
    >>> folder = SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), tempfile.mkdtemp())
    >>> found = fit_at_site(folder, Study.from_text(STUDY), hospitals()["ash"])
    >>> found.entry.kind, len(released(folder, "A. Person")) > 1_000
    ('fit', True)
    """
    rows, policy = checked_rows(study, table), Policy.from_text(folder.policy)
    used = UsedRows.of(table, wanted_of(study).read, folder.secret)
    applied = policy.stricter(study.minimum)
    if applied.release.require_signatures and folder.public_key is None:
        raise _refused(folder, study, NO_KEY)
    decision = decided_for(folder, study.identity, used, applied.site.min_rows, other_people=bool(other_people.strip()))
    if decision.outcome == "stored" and decision.entry is not None:
        return SiteFit(keep_again(folder, decision.entry), decision.entry)
    if decision.outcome == "refused":
        raise _refused(folder, study, decision.said)
    question = question_of(study)
    release = releasable(question, rows, study, policy)
    if release.fit is None:
        raise _refused(folder, study, release.refusal)
    notes = (f"stated: the rows are those of other people than in earlier releases, because: {other_people}",)
    file = file_of(study, folder.name, release)
    report = _report(question, study, rows, release, file=file, notes=notes if other_people.strip() else ())
    return SiteFit(keep_fit(folder, report, used.tags))


NO_KEY = "signatures are required and the site has no key: install consilience[secure], then run 'consilience site key'"


def _refused(folder: SiteFolder, study: Study, reason: str) -> RefusedError:
    record_refusal(folder, study.identity, reason)
    return RefusedError(reason)


def _report(
    question: FitSite, study: Study, rows: Rows, release: Release, *, file: SiteFile, notes: tuple[str, ...]
) -> FitReport:
    model = file.fit.model
    return FitReport(
        study.name,
        file,
        release.verdict.checks,
        release.steps,
        notes,
        0.0 if model is None else regression_leverage(model.mixture, rows),
        self_test(question, rows, study.seed, None if model is None else model.mixture.K),
    )

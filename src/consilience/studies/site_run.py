"""A site's part of a run in rounds: its table held against the study, its policy and its ledger."""

from __future__ import annotations

import pyarrow as pa

from consilience.errors import RefusedError
from consilience.files.study import Study
from consilience.methods.task import Method, Task
from consilience.site import Site
from consilience.site.folder import SiteFolder
from consilience.site.policy import Policy
from consilience.site.policy.rounds import GuardedSite, RoundsOf
from consilience.site.policy.rounds.replay import MakeDialogue
from consilience.site.rounds import WHOLE, Part, begin_run, recorded_in, released_for, resumed_run
from consilience.site.used_rows import UsedRows
from consilience.studies.local import checked_rows, question_of, wanted_of


def guarded_at_site(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    method: Method,
    task: Task,
    *,
    part: Part = WHOLE,
    other_people: str = "",
) -> GuardedSite:
    """Begin a run over a table of a site, or go on with it; return the site, which answers through its guard.

    The rows are compared with those of all earlier releases and runs of the site. What was asked over them before, in
    any study, and fits to them that were released count in the leverage. The question for the site's own fit is
    answered by the fit that was released for the study.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    method : Method
        The method of the run. If it asks for totals only, the site checks each question by replay.
    task : Task
        The study's, with the public start of the run if it has one.
    part : Part
        The question of a run that comes in parts; by default a whole run begins.
    other_people : str
        Why the rows are those of other people than in earlier releases, where the rows cannot be compared; recorded.

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    RefusedError
        If the rows differ from those of an earlier release or run by a few; the refusal is recorded in the ledger.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import FederatedEM
    >>> from consilience.datasets.hospitals import STUDY, hospitals
    >>> from consilience.messages import Summarise, decode, encode
    >>> from consilience.studies import task_of
    >>> folder = SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), tempfile.mkdtemp())
    >>> study = Study.from_text(STUDY)
    >>> site = guarded_at_site(folder, study, hospitals()["ash"], FederatedEM(totals_only=True), task_of(study))
    >>> decode(site.reply(encode(Summarise(d=4, q=1)))).weight, [entry.kind for entry in folder.entries]
    (900.0, ['init', 'run', 'answer'])
    """
    rows, policy = checked_rows(study, table), Policy.from_text(folder.policy).stricter(study.minimum)
    used = UsedRows.of(table, wanted_of(study).read, folder.secret)
    before = resumed_run(folder, part.run, used) if part.run else None
    if before is None:
        named = {"method": repr(method), "run": part.run, "table": part.table}
        named = {name: text for name, text in named.items() if text}
        before = begin_run(folder, study.identity, used, policy.site.min_rows, named, other_people=other_people)
    if before.refusals >= policy.rounds.max_refusals:
        raise RefusedError("too many questions over these rows were refused: nothing is answered over them any more")
    rules = RoundsOf(
        policy, study, question_of(study), replayed(method, task), released_for(folder, study.identity, used)
    )
    site = Site(folder.name, rows, key=folder.secret)
    site = site.by_client() if method.by_client else site
    return GuardedSite(site, rules, before, recorded_in(folder, study.identity, used, part))


def replayed(method: Method, task: Task) -> MakeDialogue | None:
    """Return what begins the dialogue of a method that asks for totals only; None for others, which have no replay."""
    return (lambda: method.dialogue(task)) if getattr(method, "totals_only", False) else None

"""A site's part of a study with noise and one file: its steps on its own rows, each charged before its noise is drawn.

Nothing is drawn before a person has approved what it costs. What was drawn is kept: the same rows and study are never
charged twice, and are released with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import bytes_hash, content_hash
from consilience.files.noisy_file import NoisyFile
from consilience.kit import ledger
from consilience.kit.folder import SiteFolder
from consilience.kit.mapping import TableMapping, mapped_by
from consilience.kit.policy.policy import Policy
from consilience.kit.release import FitReport, check_not_withdrawn, keep_again_as, keep_noisy_fit
from consilience.kit.row_tags import RowTags, row_tags
from consilience.kit.site_fit import NO_KEY, FitAtSite, check_one_file, terms_of, wanted_of
from consilience.kit.site_rounds import PrivateSite, RunPart, last_reason, open_private
from consilience.kit.spending import NOISE, cost_line, fraction_text
from consilience.kit.study import Study
from consilience.kit.study_model import method_of, task_of
from consilience.kit.study_terms import say_formula
from consilience.messages import NoisySteps, decode, encode
from consilience.methods import PrivateScoring
from consilience.model import Mixture
from consilience.numerics.budget import Budget
from consilience.site import respond


@dataclass(frozen=True, eq=False)
class NoisyDraft:
    """Steps with noise that are prepared: nothing is charged or drawn yet.

    Parameters
    ----------
    said : tuple of str
        What the people at the site are told before they approve.
    fit : callable
        Charges, draws and keeps the sums.
    is_new : bool
        Whether anything will be charged; otherwise these rows were summed for the study before.
    """

    said: tuple[str, ...]
    fit: Callable[[], FitAtSite]
    is_new: bool = True


def draft_steps(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    start: Mixture,
    *,
    source: Path | None = None,
    approved_by: str = "",
    mapping: TableMapping | None = None,
) -> NoisyDraft:
    """Prepare the one file of a site with noise. Nothing is refused for a value of a row.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
    start : Mixture
        The public start that the study names.
    source : Path, optional
        File of the table, for the ledger.
    approved_by : str
        Who approves the charges, for the ledger.
    mapping : TableMapping, optional
        Through which the table was read; recorded.

    Raises
    ------
    InvalidInputError
        If the table lacks a column, or the start does not fit the study.
    RefusedError
        If the policy does not allow it, if it would spend more than is left, or if other rows were summed before.
    """
    policy = Policy.from_text(folder.policy)
    check_one_file(study, policy)
    check_not_withdrawn(folder, study.identity)
    if policy.stricter(study.minimum).release.require_signatures and folder.public_key is None:
        raise RefusedError(NO_KEY)
    tags = row_tags(table, [column.name for column in wanted_of(study).read], folder.secret)
    if (before := _kept(folder, study)) is not None:
        if before.details["tags"] != tags.hash:
            raise RefusedError(
                f"other rows were summed for this study before (entry {before.number} of the ledger), and its budget "
                "is spent on them: use the table as it was"
            )
        said = f"These rows were summed for this study before (entry {before.number}): nothing is charged."
        return NoisyDraft((said,), lambda: FitAtSite(keep_again_as(folder, before), before.number), is_new=False)
    method = method_of(study)
    if not isinstance(method, PrivateScoring):
        raise InvalidInputError("the study is not one file with noise")
    question = encode(method.steps_question(task_of(study, start=start)))
    run = content_hash({"study": study.identity, "exchange": "file"})
    part = RunPart(run, 1, bytes_hash(question), "" if source is None else str(source.resolve()), approved_by)
    site = open_private(folder, study, table, part)
    told = (*mapped_by(mapping)[1:], *site.told, cost_line(folder, policy.privacy, method.budget.whole))
    return NoisyDraft(told, partial(_draw, site, question, method.budget, tags, mapping))


def _kept(folder: SiteFolder, study: Study) -> ledger.Entry | None:
    """Return the last entry of noisy sums for a study."""
    found = [
        entry
        for entry in folder.entries
        if entry.kind == "fit" and (entry.details.get("study"), entry.details.get("way")) == (study.identity, NOISE)
    ]
    return found[-1] if found else None


def _draw(site: PrivateSite, question: bytes, budget: Budget, tags: RowTags, mapping: TableMapping | None) -> FitAtSite:
    """Charge and draw the sums, and keep them in the folder of the site."""
    rho, unit = budget.whole, budget.unit
    folder, study = site.folder, site.study
    steps = decode(respond(question, site.site))
    if not isinstance(steps, NoisySteps) or study.privacy is None:
        raise RefusedError(
            f"the steps have no end here, and nothing leaves; what was charged is spent: {last_reason(site.site)}. "
            "Tell the coordinator: a study with another start has a budget of its own"
        )
    policy, privacy = Policy.from_text(folder.policy), study.privacy
    stated = {"epsilon": privacy.epsilon, "delta": privacy.delta, "unit": unit, "rho": fraction_text(rho)}
    evidence = {"policy": policy.identity, "profile": policy.profile_text}
    file = NoisyFile(study.identity, folder.name, terms_of(study), steps, stated, evidence)
    report = FitReport(study.name, file, (), notes=(*say_formula(study), *site.told), mapped=mapped_by(mapping))
    return FitAtSite(keep_noisy_fit(folder, report, tags))

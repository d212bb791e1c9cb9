"""What a site answers in a live run without a person at each question: a file of the site, which people have signed.

A mandate names one study and one coordinator, the kinds of questions, how many rounds, how much of the budget, and
until when. Rounds and budget are counted in the ledger, over all runs of the study: neither a restart nor a new run
begins anew. Outside of its mandate a site asks its people.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.documents import Finite
from consilience.files.json_text import content_hash, replace_file
from consilience.kit.approvals import approve, approved_in, check_approved, own_account
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import QuestionLetter, RunFile
from consilience.kit.policy.policy import Policy
from consilience.kit.roster import HASH, KEY_BYTES, decode_key
from consilience.kit.spending import charges_in
from consilience.kit.study import Study
from consilience.kit.study_model import method_of, task_of
from consilience.kit.toml_file import TomlFile, write_toml
from consilience.messages.questions import Several
from consilience.messages.table import decode_question
from consilience.numerics.budget import epsilon_of

FILE = "mandate.toml"
MOST_ROUNDS = 100
"""Rounds that a draft allows for a method that ends when it has arrived."""
PEOPLE = "ask the people of this site, who can sign another mandate"
Mode = Literal["ask", "mandate", "hold"]
COMMENTS = {
    "format": (
        "What this site answers in a live run of one study without a person at each question.\n"
        "It counts once people have signed it: consilience site mandate NAME --sign. Each change needs that again."
    ),
    "study": "Hash of the study.",
    "coordinator": "Public key of the coordinator, as you were told it on another way than the run.",
    "mode": (
        '"ask": a person approves each question. "mandate": questions within these limits are answered at once.\n'
        '"hold": they are answered after hold_minutes, unless the site is paused.'
    ),
    "hold_minutes": "Minutes in which people can stop an answer.",
    "questions": "Kinds of questions that are answered.",
    "rounds": "Largest number of questions that are answered, over all runs of the study.",
    "epsilon": "Largest epsilon that is spent on the study, over all its runs; 0 where no noise is drawn.",
    "until": "Last day on which questions are answered, in UTC.",
}


class Mandate(TomlFile):
    """What a site answers in a live run without a person at each question."""

    called = "mandate"
    kind = "consilience-mandate"
    format: Literal["consilience-mandate"]
    version: Literal[1]
    study: Annotated[str, Field(pattern=HASH.pattern)]
    coordinator: Annotated[str, Field(max_length=200)]
    mode: Mode
    hold_minutes: Annotated[int, Field(ge=0, le=10**5)]
    questions: Annotated[list[Annotated[str, Field(max_length=50)]], Field(max_length=50)]
    rounds: Annotated[int, Field(ge=1, le=10**5)]
    epsilon: Annotated[Finite, Field(ge=0)]
    until: Annotated[str, Field(pattern=r"\d{4}-\d{2}-\d{2}")]

    @model_validator(mode="after")
    def _valid(self) -> Self:
        """Check that the key and the day are what they should be."""
        try:
            decode_key(self.coordinator, KEY_BYTES)
        except InvalidInputError as error:
            raise ValueError(f"coordinator: {error}") from error
        date.fromisoformat(self.until)
        return self

    @property
    def identity(self) -> str:
        """Hash of all that the mandate says, ``sha256:...``; comments and order do not count."""
        return content_hash(self.model_dump())

    def to_text(self) -> str:
        """Return the mandate as TOML text, with a comment in plain words for each entry."""
        return write_toml(self.model_dump(), COMMENTS) + "\n"


# ---------------------------------------------------------------- what people do


def draft_mandate(study: Study, coordinator: str, *, mode: Mode = "ask", days: int = 90) -> Mandate:
    """Return a mandate that covers one run of a study: the kinds of questions of its method, their number, its budget.

    Parameters
    ----------
    study : Study
    coordinator : str
        Public key of the coordinator.
    mode : {"ask", "mandate", "hold"}
    days : int
        Days from now until the mandate ends.
    """
    method = method_of(study)
    kinds = method.question_kinds(task_of(study))
    budget = method.budget
    spent = 0.0 if budget is None else epsilon_of(budget.whole, study.privacy.delta if study.privacy else 1e-6)
    tables = {
        "format": Mandate.kind, "version": 1, "study": study.identity, "coordinator": coordinator, "mode": mode,
        "hold_minutes": 60, "questions": sorted({each.question.__name__ for each in kinds}),
        "rounds": MOST_ROUNDS if budget is None else budget.parts,
        "epsilon": ceil(1000 * spent) / 1000,
        "until": f"{datetime.now(UTC).date() + timedelta(days=days)}",
    }  # fmt: skip
    return Mandate.from_tables(tables)


def keep_draft(folder: SiteFolder, mandate: Mandate) -> Path:
    """Write a mandate into the folder of a site, and record who drafted it; it does not count before it is signed."""
    path = folder.path / FILE
    replace_file(path, mandate.to_text().encode())
    folder.record("draft", {"mandate": mandate.identity, "account": own_account()})
    return path


def sign_mandate(folder: SiteFolder, mandate: Mandate, signed_by: str) -> int:
    """Record that people sign a mandate, and return how many more must, by the policy of the site."""
    return _approve(folder, {"mandate": mandate.identity}, signed_by)


def approve_question(folder: SiteFolder, question: str, approved_by: str) -> int:
    """Record that people approve the answer to a question, by its hash; return how many more must."""
    return _approve(folder, {"question": question}, approved_by)


def _drafted_by(folder: SiteFolder) -> str | None:
    """Return the account that drafted the last mandate; None if the ledger does not say."""
    drafts = [each for each in folder.entries if each.kind == "draft" and "mandate" in each.details]
    return str(drafts[-1].details["account"]) if drafts else None


def _approve(folder: SiteFolder, subject: dict[str, str], approved_by: str) -> int:
    """Record an approval by the policy: whoever drafted the mandate may not give it, if the policy names approvers."""
    rules = Policy.from_text(folder.policy).approval
    if rules.apply:
        return approve(folder, rules, subject, _drafted_by(folder), approved_by)
    details = {**subject, "approved_by": approved_by[:200], "account": own_account()}
    folder.record("approval", details)
    return 0


# ---------------------------------------------------------------- what the daemon checks


def check_mandate(folder: SiteFolder, mandate: Mandate, study: Study, run: RunFile, letter: QuestionLetter) -> None:
    """Raise an error if a question that was not answered before is outside of the mandate of a site.

    Raises
    ------
    RefusedError
        With the limit that it passes.
    """
    if not approved_in(folder.entries, {"mandate": mandate.identity}):
        raise RefusedError("nobody has signed the mandate as it is now: run 'consilience site mandate NAME --sign'")
    check_approved(folder, Policy.from_text(folder.policy).approval, {"mandate": mandate.identity})
    if run.study != mandate.study:
        raise RefusedError(f"the mandate is for study {mandate.study}, and the run of {run.study}: {PEOPLE}")
    if run.signer != mandate.coordinator:
        raise RefusedError(f"the mandate is for another coordinator than {run.signer or 'nobody'}: {PEOPLE}")
    if datetime.now(UTC).date() > date.fromisoformat(mandate.until):
        raise RefusedError(f"the mandate ended on {mandate.until}: {PEOPLE}")
    if other := sorted(kinds_in(decode_question(letter.question)) - set(mandate.questions)):
        raise RefusedError(f"the mandate does not list {', '.join(other)} among its questions: {PEOPLE}")
    if answered_in(folder, mandate.study) >= mandate.rounds:
        raise RefusedError(f"the {mandate.rounds} rounds of the mandate are spent: {PEOPLE}")
    _check_epsilon(folder, mandate, study)


def _check_epsilon(folder: SiteFolder, mandate: Mandate, study: Study) -> None:
    """Raise an error if one more part of a study's budget passes that of the mandate; without noise none does."""
    budget = method_of(study).budget
    if budget is None or study.privacy is None:
        return
    mine = [each.rho for each in charges_in(folder) if each.entry.details.get("study") == mandate.study]
    if epsilon_of(sum(mine, Fraction(0)) + budget.rho, study.privacy.delta) > mandate.epsilon:
        raise RefusedError(
            f"one more answer would spend more than epsilon {mandate.epsilon:g} of the mandate: {PEOPLE}"
        )


def answered_in(folder: SiteFolder, study: str) -> int:
    """Return how many questions of a study a site has answered or refused, over all runs."""
    found = {
        (each.details.get("run"), each.details.get("number"))
        for each in folder.entries
        if each.kind in ("answer", "refusal") and each.details.get("study") == study and "run" in each.details
    }
    return len(found)


def kinds_in(question: object) -> set[str]:
    """Return the names of the kinds of a question, and of those within it."""
    if isinstance(question, Several):
        return {kind for each in question.questions for kind in kinds_in(each)}
    return {type(question).__name__}

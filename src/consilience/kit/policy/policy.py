"""The policy file of a site: limits that what leaves the site must keep, in TOML that a data manager reads.

The site owns it. A study may ask for stricter limits, never for looser ones. Limits on counts, dominance and degrees of
freedom stop the known ways to read rows from one file of summaries. They are no guarantee of privacy: they bound what
single numbers rest on, not what a recipient with other knowledge can infer. Answers with noise have a guarantee, whose
budget the policy limits; answers under a contract have neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.documents import Finite, Part
from consilience.files.json_text import content_hash
from consilience.kit.roster import KEY_BYTES, decode_key
from consilience.kit.study import MOST_EXPERTS, Minimum, Trust
from consilience.kit.toml_file import TomlFile, write_toml

Profile = Literal["hospital", "research", "open"]
Question = Literal[
    "Summarise", "FitSite", "Expect", "LogLikelihood", "ScoreSums", "Sample", "ProposeStart", "SquaredResponses",
    "Pairs", "Clients", "Anchors", "Sizes", "LocalSteps", "CriticSums", "Identify", "ScoreProducts",
]  # fmt: skip
Count = Annotated[int, Field(ge=1, le=10**9)]


class SiteLimits(Part):
    """Limits on all rows together and on the levels of categories."""

    min_rows: Count
    rows_per_level: Count
    rows_per_pair: Count
    rows_per_parameter: Annotated[Finite, Field(ge=0, le=10**6)]
    max_experts: Annotated[int, Field(ge=1, le=MOST_EXPERTS)]


class ExpertLimits(Part):
    """Limits on the rows behind each expert, and on the few rows that may dominate a sum."""

    rows_per_expert: Count
    effective_rows: Count
    dominance_rows: Annotated[int, Field(ge=1, le=100)]
    dominance_percent: Annotated[Finite, Field(gt=0, le=100)]
    missing_information_percent: Annotated[Finite, Field(gt=0, le=100)]
    residual_degrees: Annotated[int, Field(ge=-(10**6), le=10**6)]


class CovariateLimits(Part):
    """Limits on the rows behind each class of the summary of the covariates."""

    rows_per_class: Count


class People(Part):
    """What tells people apart, at this site."""

    column: Annotated[str, Field(max_length=200)]


class CorrectionRules(Part):
    """Whose word the site takes that a file which it released is gone."""

    coordinator: Annotated[str, Field(max_length=200)]

    @model_validator(mode="after")
    def _valid(self) -> Self:
        """Check that the key is one."""
        if self.coordinator:
            try:
                decode_key(self.coordinator, KEY_BYTES)
            except InvalidInputError as error:
                raise ValueError(f"corrections.coordinator: {error}") from error
        return self


class ReleaseRules(Part):
    """How a file may leave the site."""

    allow_no_input: bool
    require_signatures: bool


class ApprovalRules(Part):
    """Who approves what leaves, and how many of them must."""

    approvers: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]
    approvals: Annotated[int, Field(ge=1, le=10)]

    @model_validator(mode="after")
    def _enough(self) -> Self:
        """Check that as many accounts are listed as must approve."""
        if self.approvers and self.approvals > len(set(self.approvers)):
            raise ValueError("approval.approvals: there are fewer approvers than must approve")
        return self

    @property
    def apply(self) -> bool:
        """Whether the site asks for more than the word of whoever runs the command."""
        return bool(self.approvers) or self.approvals > 1


class PrivacyRules(Part):
    """Which ways to answer the site allows, and what it spends on answers with noise."""

    allow: list[Trust]
    max_epsilon: Annotated[Finite, Field(gt=0)]
    max_epsilon_ever: Annotated[Finite, Field(gt=0)]
    max_delta: Annotated[Finite, Field(gt=0, lt=0.5)]


class ContractRules(Part):
    """What a site answers to a coordinator under contract."""

    questions: list[Question]
    max_operations: Annotated[Finite, Field(gt=0, le=1e18)]
    max_memory: Annotated[int, Field(ge=1, le=10**6)]


class RunRules(Part):
    """Whose questions the site answers in a run by files."""

    signed_by: Annotated[str, Field(max_length=200)]
    allow_unsigned: bool

    @model_validator(mode="after")
    def _valid(self) -> Self:
        """Check that the key is one."""
        if self.signed_by:
            try:
                decode_key(self.signed_by, KEY_BYTES)
            except InvalidInputError as error:
                raise ValueError(f"runs.signed_by: {error}") from error
        return self


class FormerRules(Part):
    """Rules for rounds of earlier versions: read, so that a policy keeps its identity, and not applied any more."""

    questions: list[Question] = Field(default=["Summarise", "FitSite", "Expect", "LogLikelihood"])
    max_leverage: Annotated[Finite, Field(gt=0, le=1)] = 0.5
    count_information: bool = True
    rows_per_column: Annotated[Finite, Field(ge=0, le=10**6)] = 10.0
    replay_check: bool = True
    max_refusals: Annotated[int, Field(ge=1, le=10**6)] = 3
    max_operations: Annotated[Finite, Field(gt=0, le=1e18)] = 1e13
    max_memory: Annotated[int, Field(ge=1, le=10**6)] = 1000


_CONTRACT = {"questions": list(get_args(Question)), "max_operations": 1e13, "max_memory": 1000}
_SIGNED = {"signed_by": "", "allow_unsigned": False}
FORMER: Mapping[str, FormerRules] = MappingProxyType(
    {
        "hospital": FormerRules(),
        "research": FormerRules(count_information=False, max_refusals=10),
        "open": FormerRules(
            questions=list(get_args(Question)), max_leverage=1.0, count_information=False, rows_per_column=0.0,
            replay_check=False, max_refusals=10**6, max_operations=1e18, max_memory=10**6,
        ),
    }
)  # fmt: skip
"""What the rules for rounds were in each profile."""
COUNTED_IF_CHANGED = tuple(name for name in FormerRules.model_fields if name not in ("questions", "max_leverage"))
"""Former rules that count in the identity of a policy where they differ from those of its profile."""
PROFILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "hospital": {
            "site": {
                "min_rows": 50, "rows_per_level": 10, "rows_per_pair": 5, "rows_per_parameter": 10.0, "max_experts": 10,
            },
            "experts": {
                "rows_per_expert": 20, "effective_rows": 20, "dominance_rows": 2, "dominance_percent": 75.0,
                "missing_information_percent": 50.0,
                "residual_degrees": 10,
            },
            "covariates": {"rows_per_class": 20},
            "release": {"allow_no_input": False, "require_signatures": False},
            "privacy": {
                "allow": ["noise", "limits"], "max_epsilon": 3.0, "max_epsilon_ever": 8.0, "max_delta": 1e-6,
            },
            "contract": _CONTRACT,
            "runs": _SIGNED,
        },
        "research": {
            "site": {
                "min_rows": 20, "rows_per_level": 5, "rows_per_pair": 3, "rows_per_parameter": 3.0, "max_experts": 20,
            },
            "experts": {
                "rows_per_expert": 10, "effective_rows": 10, "dominance_rows": 2, "dominance_percent": 90.0,
                "missing_information_percent": 75.0,
                "residual_degrees": 5,
            },
            "covariates": {"rows_per_class": 10},
            "release": {"allow_no_input": True, "require_signatures": False},
            "privacy": {
                "allow": ["noise", "limits"], "max_epsilon": 8.0, "max_epsilon_ever": 16.0, "max_delta": 1e-6,
            },
            "contract": _CONTRACT,
            "runs": _SIGNED,
        },
        "open": {
            "site": {
                "min_rows": 1, "rows_per_level": 1, "rows_per_pair": 1, "rows_per_parameter": 0.0, "max_experts": 20,
            },
            "experts": {
                "rows_per_expert": 1, "effective_rows": 1, "dominance_rows": 1, "dominance_percent": 100.0,
                "missing_information_percent": 100.0,
                "residual_degrees": -(10**6),
            },
            "covariates": {"rows_per_class": 1},
            "release": {"allow_no_input": True, "require_signatures": False},
            "privacy": {
                "allow": list(get_args(Trust)), "max_epsilon": 100.0, "max_epsilon_ever": 1000.0, "max_delta": 1e-3,
            },
            "contract": {**_CONTRACT, "max_operations": 1e18, "max_memory": 10**6},
            "runs": {**_SIGNED, "allow_unsigned": True},
        },
    }
)  # fmt: skip
"""Limits of each profile: "hospital" is the default, "research" has those of common output checks, "open" none."""

LOWER_IS_STRICTER = (
    "max_experts", "dominance_percent", "missing_information_percent", "allow_no_input", "max_operations",
    "max_memory", "allow_unsigned", "max_epsilon", "max_epsilon_ever", "max_delta",
)  # fmt: skip
"""Limits that are stricter when lower; the others are stricter when higher."""

COMMENTS = {
    "format": (
        "The policy of this site: what a file must keep before it may leave. The site owns this file.\n"
        "A study may ask for stricter limits, never for looser ones.\n"
        "These limits are no guarantee of privacy: they refuse what is known to give rows away."
    ),
    "profile": 'Where limits that are not stated here come from: "hospital" (strict), "research", "open" (for tests).',
    "site": "Limits on the table as a whole.",
    "min_rows": "Nothing leaves if fewer rows than this are used.",
    "rows_per_level": "A level of a category, such as a ward, must have no row or at least this many.",
    "rows_per_pair": "Two levels together, such as a ward and a sex, must have no row or at least this many.",
    "rows_per_parameter": "Rows for each number that is estimated: too few rows per number give rows back.",
    "max_experts": "Largest number of experts (groups of rows with a regression of their own).",
    "experts": "Limits on each expert.",
    "rows_per_expert": "Rows that an expert stands for; a row may count for several experts in parts.",
    "effective_rows": "The same, counted so that a few rows with large parts do not count as many.",
    "dominance_rows": "No sum may rest on few rows: the largest contributions, this many of them, ...",
    "dominance_percent": "... together make up at most this percentage of the sum.",
    "missing_information_percent": (
        "The same limit for rows that lie between two experts: standard errors depend on them, and would show them.\n"
        "If it fails, one number is stated in place of each such matrix."
    ),
    "residual_degrees": "Rows of an expert beyond the number of its coefficients.",
    "covariates": "Limits on the summary of the covariates, which describes them by a few classes of rows.",
    "rows_per_class": "Rows that a class of the summary stands for.",
    "people": (
        "Releases are compared with each other, so that no difference of them shows a few people. Rows are people\n"
        "unless a column tells them apart, such as a patient number. It is read here and never leaves."
    ),
    "column": "Name of that column; empty if there is none.",
    "corrections": (
        "A few corrected rows can be released if the coordinator states, in a signed notice, that the earlier file\n"
        "was destroyed and not combined. Nobody can check that: if it was kept, the difference is these rows."
    ),
    "coordinator": "Public key of the coordinator whose word is taken, ed25519:...; empty: nothing is replaced.",
    "approval": (
        "Who approves what leaves, by accounts of the operating system. If accounts are listed, or more than one must\n"
        "approve, whoever fitted, or named the table of a run, cannot approve. The ledger says who did what."
    ),
    "approvers": "Accounts that may approve; empty: any account that can use this folder.",
    "approvals": "How many of them must approve before anything leaves.",
    "release": "How a file may leave.",
    "allow_no_input": "Whether a program may release a file without the question to a person (--no-input).",
    "require_signatures": "Whether files must be signed.",
    "privacy": "Whom this site trusts with what it sends, and its budget for answers with noise.",
    "allow": (
        'Ways in which this site answers. "noise": nobody has to be trusted, and the budget below is kept.\n'
        '"limits": one file within the limits above, which are no guarantee. "coordinator": exact sums in rounds,\n'
        "from which the coordinator could compute rows: add it only under a contract that forbids this."
    ),
    "max_epsilon": "Largest epsilon of one run of a study with noise: the smaller, the more noise.",
    "max_epsilon_ever": (
        "Largest epsilon of all answers with noise together, of all studies over any table of this folder.\n"
        "'consilience site budget' shows what is spent. A larger number here cannot be taken back."
    ),
    "max_delta": "Largest delta of a study with noise; below one in the number of people.",
    "runs": "Runs by files: whose questions are answered.",
    "signed_by": (
        "Public key of the coordinator, ed25519:..., as you were told it on another way than the folder of the run;\n"
        "empty: of any coordinator who signs, and people compare the key that they are shown."
    ),
    "allow_unsigned": "Whether a run that nobody signed is answered: whoever can write into its folder can then ask.",
    "contract": 'For studies with trust = "coordinator".',
    "questions": "Questions that this site answers then.",
    "max_operations": "Largest number of multiplications for one question.",
    "max_memory": "Largest memory for one question, in megabytes.",
}
"""What each entry means, in plain words."""


class Policy(TomlFile):
    """Limits that what leaves a site must keep. They are no guarantee of privacy."""

    called = "policy"
    kind = "consilience-policy"
    format: Literal["consilience-policy"]
    version: Literal[1]
    profile: Profile
    site: SiteLimits
    experts: ExpertLimits
    covariates: CovariateLimits
    people: People = People(column="")
    corrections: CorrectionRules = CorrectionRules(coordinator="")
    approval: ApprovalRules = ApprovalRules(approvers=[], approvals=1)
    release: ReleaseRules
    privacy: PrivacyRules
    contract: ContractRules
    runs: RunRules
    rounds: FormerRules | None = None

    @classmethod
    def of_profile(cls, profile: str = "hospital") -> Policy:
        """Return the policy of a profile, unchanged."""
        return cls.from_tables({"format": cls.kind, "version": cls.newest, "profile": profile})

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Self:
        """Return the policy of parsed TOML; limits that it does not state are those of its profile."""
        profile = tables.get("profile", "hospital")
        if not isinstance(profile, str) or profile not in PROFILES:
            raise InvalidInputError(f"the policy has profile {profile!r}: expected one of {', '.join(PROFILES)}")
        filled = {**tables, "profile": profile}
        for name, limits in PROFILES[profile].items():
            stated = tables.get(name, {})
            filled[name] = {**limits, **stated} if isinstance(stated, Mapping) else stated
        if isinstance(tables.get("rounds"), Mapping):
            filled["rounds"] = {**FORMER[profile].model_dump(), **tables["rounds"]}
        return super().from_tables(filled)

    def to_text(self) -> str:
        """Return the policy as TOML text, with a comment in plain words for each entry."""
        return write_toml(self.model_dump(exclude_none=True), COMMENTS) + "\n"

    @property
    def identity(self) -> str:
        """Hash of all that the policy says, ``sha256:...``; comments and order do not count.

        Limits that were added later count where they differ from the profile's, and rules for rounds that are not
        applied any more count as they did: older files keep their identity.
        """
        said, profile, former = self.model_dump(), PROFILES[self.profile], FORMER[self.profile]
        if not self.people.column:
            del said["people"]
        if not self.corrections.coordinator:
            del said["corrections"]
        if not self.approval.apply:
            del said["approval"]
        for name in ("privacy", "contract", "runs"):
            if said[name] == profile[name]:
                del said[name]
        rounds, usual = (self.rounds or former).model_dump(), former.model_dump()
        said["rounds"] = {
            name: value for name, value in rounds.items() if name not in COUNTED_IF_CHANGED or value != usual[name]
        }
        return content_hash(said)

    @property
    def limits(self) -> dict[str, float]:
        """All limits that are numbers or yes/no, by name."""
        tables = [part for part in self.model_dump(exclude={"rounds"}).values() if isinstance(part, dict)]
        return {key: float(value) for part in tables for key, value in part.items() if isinstance(value, int | float)}

    def keeps(self, other: Policy) -> bool:
        """Whether every limit is at least as strict as that of another policy."""
        mine, theirs = self.limits, other.limits
        fewer = set(self.contract.questions) <= set(other.contract.questions)
        return (
            fewer
            and self.corrections.coordinator in ("", other.corrections.coordinator)
            and other.runs.signed_by in ("", self.runs.signed_by)
            and set(self.privacy.allow) <= set(other.privacy.allow)
            and all(mine[key] <= theirs[key] if key in LOWER_IS_STRICTER else mine[key] >= theirs[key] for key in mine)
        )

    def check_way(self, way: Trust) -> None:
        """Raise an error if the site does not answer in this way."""
        if way in self.privacy.allow:
            return
        allowed = ", ".join(f'"{each}"' for each in self.privacy.allow) or "none"
        contract = ": exact sums, from which the coordinator could compute rows" if way == "coordinator" else ""
        raise RefusedError(
            f'the study needs trust = "{way}"{contract}. The policy of this site allows {allowed}. Ask the '
            f'coordinator for another study, or let who may decide this for the site add "{way}" to allow in '
            "[privacy] of policy.toml"
        )

    @property
    def profile_text(self) -> str:
        """Name of the profile; it says so if a limit is looser than the profile's."""
        return self.profile if self.keeps(Policy.of_profile(self.profile)) else f"{self.profile}, loosened"

    def stricter(self, minimum: Minimum) -> Policy:
        """Return the policy tightened by what a study asks at the least; no limit becomes looser.

        ``rows_per_expert`` of the study bounds both the rows and the effective rows of an expert.
        """
        asked: dict[str, dict[str, int]] = {
            "site": {"min_rows": minimum.rows, "rows_per_level": minimum.rows_per_level},
            "experts": {"rows_per_expert": minimum.rows_per_expert, "effective_rows": minimum.rows_per_expert},
            "release": {"require_signatures": minimum.require_signatures},
        }
        tables = self.model_dump()
        for name, limits in asked.items():
            tables[name] |= {key: max(tables[name][key], value) for key, value in limits.items()}
        return Policy.model_validate(tables)

"""The policy file of a site: limits that what leaves the site must keep, in TOML that a data manager reads.

The site owns it. A study may ask for stricter limits, never for looser ones. Limits on counts, dominance and degrees of
freedom stop the known ways to read rows from one file of summaries. They are no guarantee of privacy: they bound what
single numbers rest on, not what a recipient with other knowledge can infer, and nothing is added as noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field

from consilience.errors import InvalidInputError
from consilience.files.documents import Finite, Part
from consilience.files.json_text import content_hash
from consilience.kit.study import MOST_EXPERTS, Minimum
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


class ReleaseRules(Part):
    """How a file may leave the site."""

    allow_no_input: bool
    require_signatures: bool


class RoundRules(Part):
    """What may be asked in rounds; the one file does not use it."""

    questions: list[Question]
    max_leverage: Annotated[Finite, Field(gt=0, le=1)]
    count_information: bool
    rows_per_column: Annotated[Finite, Field(ge=0, le=10**6)]
    replay_check: bool
    max_refusals: Annotated[int, Field(ge=1, le=10**6)]
    max_operations: Annotated[Finite, Field(gt=0, le=1e18)]
    max_memory: Annotated[int, Field(ge=1, le=10**6)]


_ROUNDS = {
    "questions": ["Summarise", "FitSite", "Expect", "LogLikelihood"], "max_leverage": 0.5, "count_information": True,
    "rows_per_column": 10.0, "replay_check": True, "max_refusals": 3, "max_operations": 1e13, "max_memory": 1000,
}  # fmt: skip
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
            "rounds": _ROUNDS,
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
            "rounds": {**_ROUNDS, "count_information": False, "max_refusals": 10},
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
            "rounds": {
                **_ROUNDS, "questions": list(get_args(Question)), "max_leverage": 1.0, "count_information": False,
                "rows_per_column": 0.0, "replay_check": False, "max_refusals": 10**6, "max_operations": 1e18,
                "max_memory": 10**6,
            },
        },
    }
)  # fmt: skip
"""Limits of each profile: "hospital" is the default, "research" has those of common output checks, "open" none."""

LOWER_IS_STRICTER = (
    "max_experts", "dominance_percent", "missing_information_percent", "max_leverage", "allow_no_input",
    "max_refusals", "max_operations", "max_memory",
)  # fmt: skip
"""Limits that are stricter when lower; the others are stricter when higher."""

ADDED_LATER = (
    "count_information", "rows_per_column", "replay_check", "max_refusals", "max_operations", "max_memory"
)  # fmt: skip
"""Limits on rounds that the first policies of this version did not have."""

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
    "release": "How a file may leave.",
    "allow_no_input": "Whether a program may release a file without the question to a person (--no-input).",
    "require_signatures": "Whether files must be signed.",
    "rounds": "For studies with several rounds of questions; a study with one file does not use it.",
    "questions": "Questions that this site answers.",
    "max_leverage": "Largest influence of a row on all answers so far, between 0 and 1.",
    "count_information": (
        "Whether rows between two experts, on which standard errors depend, count in this influence. If not, only\n"
        "their dominance is limited, as in a file: use it with coordinators that follow the study."
    ),
    "rows_per_column": "Rows for each column, where sums of fourth powers are asked; squared for pairs of rows.",
    "replay_check": (
        "Whether this site computes itself what the study asks next, and answers nothing else; for methods that need\n"
        "sums over sites only."
    ),
    "max_refusals": "Questions that may be refused, in all runs together; then nothing is answered any more.",
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
    release: ReleaseRules
    rounds: RoundRules

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
        return super().from_tables(filled)

    def to_text(self) -> str:
        """Return the policy as TOML text, with a comment in plain words for each entry."""
        return write_toml(self.model_dump(), COMMENTS) + "\n"

    @property
    def identity(self) -> str:
        """Hash of all that the policy says, ``sha256:...``; comments and order do not count.

        Limits that were added later count where they differ from the profile's: older files keep their identity.
        """
        said, profile = self.model_dump(), PROFILES[self.profile]["rounds"]
        if not self.people.column:
            del said["people"]
        said["rounds"] = {
            name: value for name, value in said["rounds"].items() if name not in ADDED_LATER or value != profile[name]
        }
        return content_hash(said)

    @property
    def limits(self) -> dict[str, float]:
        """All limits that are numbers or yes/no, by name."""
        tables = [part for part in self.model_dump().values() if isinstance(part, dict)]
        return {key: float(value) for part in tables for key, value in part.items() if isinstance(value, int | float)}

    def keeps(self, other: Policy) -> bool:
        """Whether every limit is at least as strict as that of another policy."""
        mine, theirs = self.limits, other.limits
        return set(self.rounds.questions) <= set(other.rounds.questions) and all(
            mine[key] <= theirs[key] if key in LOWER_IS_STRICTER else mine[key] >= theirs[key] for key in mine
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

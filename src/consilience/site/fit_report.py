"""What a site keeps of a fit until it is released: the file that would leave, and what stays: counts and remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf, isfinite
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.json_text import parsed, written
from consilience.files.site_file import SiteFile
from consilience.site.policy import Check, MembershipTest

FORMAT = "consilience fit report"
VERSION = 1


@dataclass(frozen=True, eq=False)
class FitReport:
    """A fit that waits at the site for its release. It has counts, and never leaves.

    Parameters
    ----------
    study_name : str
    file : SiteFile
        What would leave, without an envelope.
    checks : tuple of Check
        Every rule of the policy, with what was found.
    steps : tuple of str
        What was changed in the fit so that it keeps the policy.
    notes : tuple of str
        What the people at the site stated.
    leverage : float
        Largest leverage of a row in the regression of an expert, between 0 and 1.
    membership : MembershipTest, optional
        Result of the attack on half of the rows; None if these were too few for a fit.

    Examples
    --------
    >>> from consilience.messages.questions import LocalFit
    >>> from consilience.model.summary import ColumnSummary
    >>> nothing = LocalFit(ColumnSummary.unit(1, 1), None, None)
    >>> file = SiteFile("sha256:" + 64 * "0", "north", ("(intercept)", "age"), nothing)
    >>> report = FitReport("stay", file, (Check.at_least("site", "min_rows", "site", 50, 61),))
    >>> FitReport.from_text(report.to_text()).checks == report.checks
    True
    """

    study_name: str
    file: SiteFile
    checks: tuple[Check, ...]
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    leverage: float = 0.0
    membership: MembershipTest | None = None

    def to_text(self) -> str:
        """Return the report as JSON text."""
        return written(
            {
                "format": FORMAT,
                "version": VERSION,
                "study_name": self.study_name,
                "file": self.file.to_text(),
                "checks": [_check_document(check) for check in self.checks],
                "steps": list(self.steps),
                "notes": list(self.notes),
                "leverage": self.leverage,
                "membership": None if self.membership is None else asdict(self.membership),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> FitReport:
        """Read a report from JSON text."""
        found = parsed(text, "a fit report")
        if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
            raise InvalidInputError("the stored fit was written by another version of the library: fit again")
        try:
            return cls(
                str(found["study_name"]),
                SiteFile.from_text(found["file"]),
                tuple(_check_of(each) for each in found["checks"]),
                tuple(found["steps"]),
                tuple(found["notes"]),
                float(found["leverage"]),
                None if found["membership"] is None else _part(MembershipTest, found["membership"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError("the stored fit is damaged: fit again") from error


def _check_document(check: Check) -> dict[str, Any]:
    """Return a check as a JSON object; null stands for an infinite number, such as the fewest rows of no level."""
    return {**asdict(check), "observed": check.observed if isfinite(check.observed) else None}


def _check_of(document: Mapping[str, Any]) -> Check:
    observed = document["observed"]
    found: Check = _part(Check, {**document, "observed": inf if observed is None else observed})
    return found


def _part(kind: type[Any], stated: Mapping[str, Any]) -> Any:
    """Return a value from its fields; unknown ones are an error."""
    return kind(**{field.name: stated[field.name] for field in fields(kind)})

"""A refusal at a site: its rule and reason stay there, one code leaves."""

from __future__ import annotations

from consilience.errors import RefusedError


class RefusedQuestionError(RefusedError):
    """Raised if a question breaks a rule of the site. The rule and the reason never leave the site.

    Parameters
    ----------
    rule : str
        Name of the rule, as in the policy.
    reason : str
        What was found, and what to do, for the people at the site.

    Examples
    --------
    >>> RefusedQuestionError("min_rows", "there are too few rows").rule
    'min_rows'
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason

"""Who may approve what leaves a site, and how many of them must: accounts of the operating system, by the policy.

An account is what the operating system says of the process, not what a person types. Whoever administers the machine
can become any account, and whoever may write to the folder can write the policy and the ledger: the rule keeps honest
people apart, and the ledger says who did what.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from consilience.errors import RefusedError
from consilience.kit import ledger
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import ApprovalRules


def own_account() -> str:
    """Return the account under which this process runs, by the operating system and not by the environment.

    Examples
    --------
    >>> bool(own_account())
    True
    """
    if sys.platform == "win32":
        return os.getlogin()
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def approved_in(entries: Iterable[ledger.Entry], subject: Mapping[str, Any]) -> list[str]:
    """Return the accounts that have approved a subject, in order and each once."""
    found = (each.details for each in entries if each.kind == "approval")
    mine = (each for each in found if all(each.get(name) == value for name, value in subject.items()))
    return list(dict.fromkeys(str(each["account"]) for each in mine))


def refused_approver(rules: ApprovalRules, account: str, prepared_by: str | None, approved: Iterable[str]) -> str:
    """Return why an account may not approve, with what to do; empty if it may.

    Parameters
    ----------
    rules : ApprovalRules
    account : str
    prepared_by : str or None
        Account that fitted, or that named the table; None if it is not known.
    approved : iterable of str
        Accounts that have approved before.
    """
    who = f"one of {', '.join(rules.approvers)}" if rules.approvers else "another account"
    if rules.approvers and account not in rules.approvers:
        return f"the policy lets {', '.join(rules.approvers)} approve, and this account is {account}: ask one of them"
    if prepared_by is None:
        return "the ledger does not say which account prepared this: let it be prepared again, with this version"
    if account == prepared_by:
        return f"{account} prepared this, and whoever did so may not approve it: ask {who}"
    if account in approved:
        return f"{account} has approved this already, and {rules.approvals} accounts must: ask {who}"
    return ""


def approve(
    folder: SiteFolder, rules: ApprovalRules, subject: Mapping[str, Any], prepared_by: str | None, approved_by: str
) -> int:
    """Record that this account approves a subject, and return how many approvals are still missing.

    Parameters
    ----------
    folder : SiteFolder
    rules : ApprovalRules
    subject : mapping
        What is approved, as details of the entry.
    prepared_by : str or None
        As in :func:`refused_approver`.
    approved_by : str
        How the person is called, for the ledger.

    Raises
    ------
    RefusedError
        If this account may not approve it.
    """
    entries, account = folder.entries, own_account()
    approved = counted_in(entries, rules, subject)
    if reason := refused_approver(rules, account, prepared_by, approved):
        raise RefusedError(reason)
    details = {**subject, "approved_by": approved_by[:200], "account": account}
    folder.record("approval", details, head=ledger.head_of(entries))
    return max(rules.approvals - len(approved) - 1, 0)


def check_approved(folder: SiteFolder, rules: ApprovalRules, subject: Mapping[str, Any]) -> list[str]:
    """Return the accounts that have approved a subject; raise an error if the policy asks for more of them."""
    approved = counted_in(folder.entries, rules, subject)
    if rules.apply and len(approved) < rules.approvals:
        raise RefusedError(
            f"the policy asks for {rules.approvals} approvals by {' or '.join(rules.approvers) or 'other accounts'}, "
            f"and there are {len(approved)}: ask them to look at it and to approve it"
        )
    return approved if rules.apply else []


def counted_in(entries: Iterable[ledger.Entry], rules: ApprovalRules, subject: Mapping[str, Any]) -> list[str]:
    """Return the accounts that have approved a subject, and whose approval counts under the policy as it is now."""
    return [each for each in approved_in(entries, subject) if not rules.approvers or each in rules.approvers]

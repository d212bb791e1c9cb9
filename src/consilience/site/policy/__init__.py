"""A site's policy for the one file that leaves it: limits, rules, the verdict, and fits that keep them."""

from consilience.site.policy.check import Check
from consilience.site.policy.leverage import regression_leverage
from consilience.site.policy.policy import PROFILES, Policy
from consilience.site.policy.refit import Release, releasable, table_refusal
from consilience.site.policy.release import Verdict, checked, evidence
from consilience.site.policy.self_test import MembershipTest, self_test

__all__ = [
    "PROFILES",
    "Check",
    "MembershipTest",
    "Policy",
    "Release",
    "Verdict",
    "checked",
    "evidence",
    "regression_leverage",
    "releasable",
    "self_test",
    "table_refusal",
]

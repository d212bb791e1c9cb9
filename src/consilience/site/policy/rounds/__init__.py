"""A site's policy for rounds: what may be asked, and what a row may contribute to all answers together."""

from consilience.site.policy.rounds.asked import Asked
from consilience.site.policy.rounds.guard import Outcome, RoundsOf, guarded
from consilience.site.policy.rounds.guarded_site import GuardedSite
from consilience.site.policy.rounds.leverage import Span, extended, largest_leverage
from consilience.site.policy.rounds.refusal import RefusedQuestionError
from consilience.site.policy.rounds.weightings import Weighting, weightings_of

__all__ = [
    "Asked",
    "GuardedSite",
    "Outcome",
    "RefusedQuestionError",
    "RoundsOf",
    "Span",
    "Weighting",
    "extended",
    "guarded",
    "largest_leverage",
    "weightings_of",
]

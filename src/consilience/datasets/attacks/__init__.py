"""Sites that lie, for drills: what they send in place of their honest answers.

An attack maps what a site would claim about its experts (:class:`Claim`) to what it does claim. :class:`Drill` is an
engine some of whose sites attack::

    Federation(sites, engine=Drill({"north": sign_flip, "south": Collusion(3.0)}))

so that you can see what a method, or a study of yours, makes of them. The lies are told in the sites' own fits and in
the sums of every round, for Gaussian experts.
"""

from consilience.datasets.attacks.drill import Attacked, Drill
from consilience.datasets.attacks.lies import (
    Attack,
    Blown,
    Claim,
    Collusion,
    MoreRows,
    Replay,
    fewer_experts,
    label_flip,
    not_a_number,
    sign_flip,
)

__all__ = [
    "Attack",
    "Attacked",
    "Blown",
    "Claim",
    "Collusion",
    "Drill",
    "MoreRows",
    "Replay",
    "fewer_experts",
    "label_flip",
    "not_a_number",
    "sign_flip",
]

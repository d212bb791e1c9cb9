"""Sites that lie, for drills: what they send in place of their honest answers.

An attack is a function from what a site would say of its experts (:class:`Told`) to what it does say. :class:`Drill` is
an engine some of whose sites attack::

    Federation(sites, engine=Drill({"north": sign_flip, "south": Collusion(3.0)}))

so that you can see what a method, or a study of yours, makes of them. The lies are told in the sites' own fits and in
the sums of every round, for Gaussian experts.
"""

from consilience.datasets.attacks.drill import Attacked, Drill
from consilience.datasets.attacks.lies import (
    Attack,
    Blown,
    Collusion,
    MoreRows,
    Replay,
    Told,
    fewer_experts,
    label_flip,
    not_a_number,
    sign_flip,
)

__all__ = [
    "Attack",
    "Attacked",
    "Blown",
    "Collusion",
    "Drill",
    "MoreRows",
    "Replay",
    "Told",
    "fewer_experts",
    "label_flip",
    "not_a_number",
    "sign_flip",
]

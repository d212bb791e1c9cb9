"""Simulated attacks by sites, to test the robustness of methods.

An attack maps a site's honest estimate of its experts (:class:`Claim`) to the one it sends. :class:`Drill` is an engine
with attacking sites::

    Federation(sites, engine=Drill({"north": sign_flip, "south": Collusion(3.0)}))

The attacks apply to the sites' own fits and to the sums of every round, for Gaussian experts.
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

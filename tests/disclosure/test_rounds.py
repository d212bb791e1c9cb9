"""Attacks by questions in rounds: each is refused under the policy, and recovers rows with its rules switched off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import round_attacks as attacks
from consilience.files.study import Study
from consilience.messages.questions import ScoreSums
from consilience.model import Rows
from consilience.site import Site
from consilience.site.policy import Policy
from policy_cases import policy_with
from round_attacks import Refused, free_ask, guarded_ask, hospital

OPEN = Policy.of_profile("open")
NO_L: dict[str, Any] = {"max_leverage": 1.0, "effective_rows": 1, "max_operations": 1e18, "max_memory": 10**6}


def few_rows() -> Site:
    rng = np.random.default_rng(3)
    return Site("north", Rows(rng.normal(size=(20, 20)), rng.normal(size=(20, 1)) + 3))


def clusters() -> Site:
    return Site("north", Rows(np.empty((60, 0)), np.random.default_rng(0).normal(size=(60, 3))))


ON_WEIGHTS: list[tuple[str, Callable[..., float], Callable[[], Site], str, float]] = [
    ("A2 histogram", attacks.histogram, hospital, "effective_rows", 1e-5),
    ("A3 thin experts", attacks.thin_experts, hospital, "effective_rows", 1e-9),
    ("A4 moved past one row", attacks.moved_past_one_row, hospital, "max_leverage", 1e-9),
    ("A5 Poisson weights", attacks.exponential, attacks.counts, "effective_rows", 1e-9),
    ("A6 class boundary", attacks.class_boundary, attacks.classes, "max_leverage", 1e-9),
    ("batch", attacks.in_one_batch, hospital, "effective_rows", 1e-6),
    ("four sets", attacks.four_sets, partial(hospital, 2000), "effective_rows", 1e-9),
    ("four thin sets", attacks.four_thin_sets, partial(hospital, 2000), "max_leverage", 1e-9),
    ("A7 likelihoods", attacks.likelihoods, hospital, "max_leverage", 1e-6),
    ("A7 likelihoods, hidden", partial(attacks.likelihoods, far=8), hospital, "max_leverage", 1e-2),
]


@pytest.mark.parametrize(
    ("attack", "site", "rule", "accuracy"), [e[1:] for e in ON_WEIGHTS], ids=[e[0] for e in ON_WEIGHTS]
)
def test_weights_that_single_out_rows_are_refused(attack: Any, site: Any, rule: str, accuracy: float) -> None:
    where = site()
    ask, guard = guarded_ask(where, Policy.of_profile())
    with pytest.raises(Refused, match=rule):
        attack(ask, where)
    assert guard.asked.ended
    ask, _ = guarded_ask(where, policy_with(**NO_L))
    assert attack(ask, where) < accuracy


OVER_LARGE_SETS = [e for e in ON_WEIGHTS if e[0] not in ("A2 histogram", "A3 thin experts", "A5 Poisson weights")]


@pytest.mark.parametrize(("attack", "site"), [e[1:3] for e in OVER_LARGE_SETS], ids=[e[0] for e in OVER_LARGE_SETS])
def test_leverage_alone_stops_differences_of_large_sets(attack: Any, site: Any) -> None:
    where = site()
    ask, _ = guarded_ask(where, policy_with(effective_rows=1))
    with pytest.raises(Refused, match="max_leverage"):
        attack(ask, where)


OTHERS: list[tuple[str, Callable[..., float], Callable[[], Site], float]] = [
    ("A9 as many experts as rows", attacks.as_many_experts_as_rows, clusters, 1e-6),
    ("A10 clients of one row", attacks.clients_of_one, partial(hospital, groups=np.arange(1000)), 1e-9),
    ("A10 anchors", attacks.anchors, partial(hospital, groups=np.arange(1000) // 2), 1e-4),
    ("A11 local steps", attacks.local_steps, partial(hospital, groups=np.arange(1000)), 1e-4),
    ("A11 critic", attacks.critic, hospital, 1e-3),
    ("A15 sums of scores", partial(attacks.histogram, question=ScoreSums), hospital, 1e-4),
    ("A16 pairs", attacks.pairs, few_rows, 1e-4),
]


@pytest.mark.parametrize(("attack", "site", "accuracy"), [e[1:] for e in OTHERS], ids=[e[0] for e in OTHERS])
def test_questions_that_are_not_listed_are_refused(attack: Any, site: Any, accuracy: float) -> None:
    where = site()
    ask, _ = guarded_ask(where, policy_with(min_rows=1))
    with pytest.raises(Refused, match="questions"):
        attack(ask, where)
    assert attack(free_ask(where), where) < accuracy

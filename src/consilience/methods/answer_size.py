"""Size of the answers of a round of exact EM, and a warning where it is not sensible any more."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.errors import InvalidInputError, LargeMessagesWarning, warn
from consilience.fit.problem import Problem
from consilience.model.families.requirement import Requirement
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture, layout_of, score_layout

LARGE = 16e6
"""Bytes of an answer from which on :func:`warn_if_large` warns: minutes per round over a line of 1 Mbit/s."""
GRADIENT_EM = Requirement("GradientEM", one_response=True)
"""Models that the method with short messages fits."""


def bytes_of_answer(mixture: Mixture, climbs: int) -> int:
    """Return the bytes of a site's answer in the largest round of federated EM.

    It has ``K p (p + 1) / 2`` sums for the experts and as many as its curvature has entries for the gate, for each of
    the climbs; in the last rounds, of the best climb alone, also the missing information if it is computed.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> bytes_of_answer(soft(10, n_experts=4, n_features=20, random_state=0).truth, climbs=1)
    111616
    """
    layout = layout_of(mixture)
    informed = layout.size(information=is_informable(mixture))
    return 8 * max(climbs * layout.size(information=False), informed)


def warn_if_large(problems: Sequence[Problem], climbs: int) -> None:
    """Warn if a site's answer in a round is large; name what a method with short messages sends instead."""
    largest = max(problems, key=lambda problem: bytes_of_answer(problem.blank, climbs))
    size, mixture = bytes_of_answer(largest.blank, climbs), largest.blank
    if size < LARGE:
        return
    warn(
        f"each site's answer has {size / 1e6:.0f} MB in a round ({climbs} climb(s), {mixture.K} experts, "
        f"{mixture.design.p} coefficients): {_instead(largest, climbs)}",
        LargeMessagesWarning,
    )


def _instead(problem: Problem, climbs: int) -> str:
    """Return the ways to shorter answers."""
    mixture, specification = problem.blank, problem.specification
    ways = [f"n_climbs=1 takes {bytes_of_answer(mixture, 1) / 1e6:.0f} MB"] if climbs > 1 else []
    try:
        GRADIENT_EM.check(specification.family, specification.gate, mixture.experts.q)
    except InvalidInputError:
        return "; ".join([*ways, "fewer covariates or experts take less"])
    short = 8 * score_layout(mixture).size(information=False)
    return "; ".join([*ways, f"GradientEM takes {short / 1e6:.2g} MB in each of more rounds, without standard errors"])

"""Honest answers are never refused, however badly the columns are scaled: 20 designs, some 1,000 answers."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from consilience.engines import InProcess
from consilience.errors import ConsilienceError, RoundStoppedError
from consilience.methods import FederatedEM, OneShot, Task
from consilience.model import Rows
from consilience.runs import run
from consilience.site import Site
from simulated import Simulated, simulated

SCALES = [(0.0, 1e-9), (0.0, 1e9), (1e6, 1.0), (-1e4, 1e-2), (1e9, 1e2)]
ENDS = (SCALES[0], SCALES[-1])
"""Scales that every change tries with each kind; fits that take many iterations meet the others in the long lane."""
KINDS = [
    {"family": "gaussian", "gate": "softmax"},
    {"family": "gaussian", "gate": "constant", "weights": True},
    {"family": "student", "gate": "constant"},
    {"family": "gamma", "gate": "softmax"},
]


def badly_scaled(case: Simulated, shift: float, scale: float) -> Rows:
    """The covariates on scales of their own; real responses too."""
    X = shift + scale * case.X * [1.0, 1e-3]
    real = case.specification.family in ("gaussian", "student")
    Y = scale * (case.rows.Y + 1e3) if real else case.rows.Y
    return replace(case.rows, X=X, Y=Y)


CASES = [
    pytest.param(kind, *scale, marks=() if kind["family"] == "gaussian" or scale in ENDS else pytest.mark.long)
    for scale in SCALES
    for kind in KINDS
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shift", "scale"), CASES, ids=lambda each: f"{each['family']}-{each['gate']}" if each in KINDS else None
)
def test_honest_answers_are_accepted(kind: dict[str, object], shift: float, scale: float) -> None:
    case = simulated(n=600, **kind)  # type: ignore[arg-type]
    rows = badly_scaled(case, shift, scale)
    sites = [Site(f"site {m}", rows.take(np.arange(600)[m::4])) for m in range(4)]
    task = Task([case.specification], 2, 1, n_init=2, max_iter=15)
    looked_at = 0
    for method in (FederatedEM(n_climbs=2), OneShot(refine=2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                record = run(method.dialogue(task), InProcess().over(sites)).record
            except RoundStoppedError:
                raise
            except ConsilienceError:  # a fit that is not possible is said; no answer was refused
                continue
        looked_at += sum(len(each.exchanges) for each in record.rounds)
        assert all(exchange.outcome == "answered" for each in record.rounds for exchange in each.exchanges)
    assert looked_at > 20

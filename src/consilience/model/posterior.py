"""The E-step on one block: posterior probabilities of labels, for rows or for groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.model.families.base import Experts
from consilience.model.gates import Gate
from consilience.model.rows import Block
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """Responsibilities of a block of n rows with m labels: ``m = n``, or the number of groups."""

    at: Any  # the experts' Evaluated
    gate_panel: Array  # (p, m)   what the gate reads
    pi: Array  # (K, m) or (K, 1)
    tau: Array  # (K, m)          P(label = k | data)
    log_density: Array  # (m,)    log p(y | x) of each label's data
    mass: Array | float  # (m,)   weight of each label
    row_tau: Array  # (K, n)      responsibility of each row times its case weight


def posterior(gate: Gate, experts: Experts, block: Block, given: Array | None = None) -> Posterior:
    """Compute responsibilities ``τ_k ∝ π_k Π_{i in label} f_k(y_i | x_i)^{w_i}``, or use those ``given (K, m)``."""
    with np.errstate(over="ignore"):  # a response too far from every expert has density 0, log density -inf
        at = experts.evaluate(block)
    if block.groups is not None:
        return _group_posterior(gate, at, block, given)
    log_pi, pi = gate.evaluate(block.gate_panel, block.kernel)
    log_density, tau = block.kernel.log_sum_exp(log_pi + at.log_density)
    if given is not None:
        tau = given
    mass = 1.0 if block.weight is None else block.weight
    row_tau = tau if block.weight is None else tau * block.weight
    return Posterior(at, block.gate_panel, pi, tau, log_density, mass, row_tau)


def _group_posterior(gate: Gate, at: Any, block: Block, given: Array | None) -> Posterior:
    groups = block.groups
    assert groups is not None  # noqa: S101 - for the type checker: the caller has looked
    log_pi, pi = gate.evaluate(groups.panel, block.kernel)
    rows = at.log_density if block.weight is None else at.log_density * block.weight
    log_density, tau = block.kernel.log_sum_exp(log_pi + np.add.reduceat(rows, groups.starts, axis=1))
    if given is not None:
        tau = given
    row_tau = np.repeat(tau, groups.sizes, axis=1)
    if block.weight is not None:
        row_tau *= block.weight
    return Posterior(at, groups.panel, pi, tau, log_density * groups.present, groups.present, row_tau)

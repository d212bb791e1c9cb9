"""Apply an attack to a site's answer: its own fit, or the sums of a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.datasets.attacks.lies import Attack, Claim, Replay
from consilience.fit.climb import Expect
from consilience.messages.questions import LocalFit
from consilience.model.families.least_squares import LeastSquares
from consilience.model.families.requirement import gaussian
from consilience.model.mixture import Mixture
from consilience.model.moments import Moments
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, pack, unpack


def attacked(attack: Attack, question: Any, answer: Any) -> Any:
    """Apply an attack to an answer about experts; return other answers unchanged."""
    match answer, attack:
        case Statistics(), Replay():
            return attack.instead_of(answer)
        case _, Replay():
            return answer
        case Statistics(), _ if isinstance(question, Expect):
            return _attacked_statistics(attack, question.mixture, answer)
        case LocalFit(), _ if answer.model is not None:
            return _attacked_fit(attack, answer)
        case _:
            return answer


def _attacked_statistics(attack: Callable[[Claim], Claim], mixture: Mixture, statistics: Statistics) -> Statistics:
    """Return statistics whose M-step at ``mixture`` gives the attacked estimate."""
    experts = gaussian(mixture.experts)
    honest = experts.solution(statistics.experts)
    claim = attack(Claim(honest.n, honest.S, honest.B, honest.scatter))
    lied = LeastSquares(claim.n, claim.S, claim.B, claim.scatter)
    times = _times(claim, honest.n)
    gate = Moments(*(times * part for part in (statistics.gate.plain, statistics.gate.first, statistics.gate.second)))
    if not mixture.gate.reads_covariates:
        gate = replace(gate, plain=claim.n * float(statistics.gate.plain.sum() / honest.n.sum()))
    return Statistics(
        gate,
        lied.moments(experts.B),
        times * statistics.log_likelihood,
        times * statistics.absolute,
        times * statistics.weight,
        None if statistics.information is None else times * statistics.information,
    )


def _times(claim: Claim, n: Array) -> float:
    """Return the claimed multiple of the number of rows; 1 if experts were left out."""
    return float(claim.n.sum() / n.sum()) if len(claim.n) == len(n) else 1.0


def _attacked_fit(attack: Callable[[Claim], Claim], fit: LocalFit) -> LocalFit:
    """Apply an attack to a site's fit: its labels, moments and coefficients."""
    model = fit.model
    assert model is not None  # asked before  # noqa: S101
    experts = gaussian(model.mixture.experts)
    claim = attack(
        Claim(
            model.label_counts,
            unpack(model.second),
            experts.B,
            model.label_counts[:, None, None] * experts.matrices,
            model.precision,
        )
    )
    times = _times(claim, model.label_counts)
    gate = model.mixture.gate
    gate = gate if gate.reads_covariates else gate.with_shares(claim.n / claim.n.sum())
    covariances = claim.scatter / np.maximum(claim.n, 1e-300)[:, None, None]
    told = replace(experts.permuted(np.arange(len(claim.n))), B=claim.B)
    lied = told.with_shape_values(covariances.reshape(len(claim.n), -1))
    summary = fit.summary
    return replace(
        fit,
        summary=replace(
            summary,
            weight=times * summary.weight,
            x_products=times * summary.x_products,
            y_products=times * summary.y_products,
        ),
        model=replace(
            model,
            mixture=replace(model.mixture, gate=gate, experts=lied),
            weight=times * model.weight,
            label_counts=claim.n,
            mass=claim.n * float(model.mass.sum() / model.label_counts.sum()),
            second=pack(claim.S),
            log_likelihood=times * model.log_likelihood,
            precision=times * claim.precision,
        ),
    )

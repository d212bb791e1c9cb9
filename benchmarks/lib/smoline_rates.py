"""The rate of EM near the maximum: what the missing information predicts, and what EM does.

Once for symmetric mixtures of two linear experts, once for the library's own mixture of two experts on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from scipy.linalg import eigh

from benchmarks.lib.rate import em_rate
from benchmarks.lib.smoline import D, Instance, em, instance
from benchmarks.lib.study import Record
from consilience.fit import Specification, fit_mixture
from consilience.fit.parameters import jacobian, parameters
from consilience.model import Design, GaussianExperts, Mixture, Penalty, Rows, SoftmaxGate, expect
from consilience.model.information import complete_information, move_parameters


def rates(key: str) -> Record:
    """``rates/β/w/seed``: predicted and observed rates of the symmetric mixture and of the library's."""
    of_beta, of_w, seed = key.split("/")[1:]
    data = instance(int(seed), (float(of_beta), float(of_w)))
    return {"symmetric": symmetric_rates(data), "of two experts": library_rates(data)}


def as_mixture(beta: np.ndarray, w: np.ndarray) -> Mixture:
    return Mixture(
        Design.raw(D, intercept=False),
        SoftmaxGate(np.array([w[:, 0], -w[:, 0]]) / 2),
        GaussianExperts(np.array([beta.T, -beta.T]), np.ones((2, 1, 1))),
    )


def symmetric_rates(data: Instance) -> Record:
    """The symmetric mixture is one of two experts with θ = T (w, β) and variances 1: its information is Tᵀ J T."""
    iterates = ((np.vstack([w, beta])[:, 0], (beta, w)) for beta, w, _ in em(data, newton_steps=1))
    last, (beta, w) = last_steps(iterates)
    mixture, top = as_mixture(beta, w), np.vstack([w, beta])[:, 0]
    statistics = expect(mixture, Rows(data.X, data.y[:, None]), information=True)
    one, none = np.eye(D), np.zeros((D, D))
    T = np.block([[one, none], [none, one], [none, -one], [np.zeros((2, 2 * D))]])
    complete, observed = (T.T @ J @ T for J in (complete_information(mixture, statistics), statistics.information))

    def step(delta: np.ndarray) -> np.ndarray:
        w, beta = np.split(top + delta, 2)
        beta, w, _ = next(islice(em(replace(data, start=(beta[:, None], w[:, None])), newton_steps=1), 1, None))
        return np.vstack([w, beta])[:, 0] - top

    predicted = float(eigh(complete - observed, complete, eigvals_only=True)[-1])
    return {"predicted": predicted, "last steps": last, "magnified": magnified(step, len(top))}


def library_rates(data: Instance) -> Record:
    """Two experts with coefficients and variances of their own, as the library fits them."""
    rows, specification = Rows(data.X, data.y[:, None]), Specification(K=2, intercept=False)
    fit = fit_mixture(rows, specification, rng=np.random.default_rng(0), start=as_mixture(*data.start))
    last, top = last_steps(
        em_steps(as_mixture(*data.start).in_coordinates(fit.ascent.mixture.design), rows, fit.penalty)
    )
    read, at_top = jacobian(top, np.arange(2)), parameters(top).flat()

    def step(delta: np.ndarray) -> np.ndarray:
        at = move_parameters(top, delta)
        change = parameters(at.maximise(expect(at, rows), fit.penalty)).flat() - at_top
        return np.linalg.lstsq(read, change, rcond=None)[0]

    predicted = em_rate(top, expect(top, rows, information=True), fit.penalty).rate
    return {"predicted": predicted, "last steps": last, "magnified": magnified(step, top.parameter_count)}


def em_steps(mixture: Mixture, rows: Rows, penalty: Penalty) -> Iterator[tuple[np.ndarray, Mixture]]:
    while True:
        yield parameters(mixture).flat(), mixture
        mixture = mixture.maximise(expect(mixture, rows), penalty)


def last_steps(iterates: Iterator[tuple[np.ndarray, Any]]) -> tuple[float, Any]:
    """The factor by which steps shrink while they are 1e-9 to 1e-11 long, and where they end."""
    lengths: list[float] = []
    steps = pairwise(iterates)
    while not lengths or lengths[-1] > 1e-11:
        (before, _), (after, end) = next(steps)
        lengths.append(float(np.linalg.norm(after - before)))
    first, last = int(np.argmax(np.array(lengths) < 1e-9)), len(lengths) - 1
    return (lengths[last] / lengths[first]) ** (1 / (last - first)), end


def magnified(step: Callable[[np.ndarray], np.ndarray], size: int, h: float = 1e-4) -> float:
    """The factor by which EM shrinks a distance from the maximum that is made ``h`` again after each of 200 steps."""
    v, factor = np.random.default_rng(0).normal(size=size), 0.0
    for _ in range(200):
        v = step(h * v / np.linalg.norm(v)) / h
        factor = float(np.linalg.norm(v))
    return factor

"""Private scoring by masked sums: the error of one noise for all sites, and what happens if a site is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from consilience import Federation, InProcess, MixtureOfExpertsRegressor
from consilience.engines.inprocess import InProcessSites
from consilience.errors import InvalidInputError, RoundStoppedError, SetAsideWarning
from consilience.messages import MaskedSums
from consilience.methods import PrivateScoring
from consilience.methods.private_sums import SPARE, affordable, opened
from consilience.model import Mixture, mixture_of_experts
from consilience.numerics.budget import rho_of
from consilience.runs import Reply
from consilience.site import Site

N = 4000
ESTIMATOR = MixtureOfExpertsRegressor(2, random_state=0)


def truth() -> Mixture:
    B = np.array([[-1.5, 0.8], [1.5, -0.2]])
    return mixture_of_experts(np.array([[0.1, 0.5], [-0.1, -0.5]]), B, 0.4)


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, truth().sample(X, rng)[0][:, 0]


@cache
def start() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, random_state=0).fit(*drawn(500, 1))


def data(M: int = 8) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    X, y = drawn(N, 2)
    return {f"site {i}": (X[i::M], y[i::M]) for i in range(M)}


def method(**how: object) -> PrivateScoring:
    return PrivateScoring(3, covariates=drawn(1500, 3)[0], sums="masked", **how)  # type: ignore[arg-type]


class Losing(InProcess):
    """An engine in this process that loses the answers of a site from a round on."""

    def __init__(self, lost: dict[str, int]) -> None:
        super().__init__()
        self.lost, self.rounds = lost, list[tuple[str, ...]]()

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> InProcessSites:
        engine, inside = self, super().over(sites, in_memory=in_memory)
        ask = inside.ask

        def losing(number: int, question: bytes, sites: Sequence[str], **how: Any) -> Iterator[list[Reply]]:
            engine.rounds.append(tuple(sites))
            for replies in ask(number, question, sites, **how):
                yield [each for each in replies if number < engine.lost.get(each.sites[0], 10**9)]

        inside.ask = losing  # type: ignore[method-assign]
        return inside


def test_masked_sums_have_the_noise_of_one_site():
    each = Federation(data(20)).fit(ESTIMATOR, PrivateScoring(3, covariates=drawn(1500, 3)[0]), start=start())
    found = Federation(data(20)).fit(ESTIMATOR, method(), start=start())
    assert found.settled
    assert found.privacy.sums == "masked"
    assert found.privacy.rho == rho_of(3, 1e-6) == each.privacy.rho
    assert "masked sums" in str(found.privacy)
    assert {round_.question for round_ in found.record.rounds} <= {"Masked", "Several"}
    noise, of_each = (
        np.mean((each.fit.forecast.standard_errors / each.fit.forecast.pooled) ** 2) - 1 for each in (found, each)
    )
    assert noise < 0.5 * of_each  # what is left is mostly the price of clipping
    gap = (
        found.model.inference_.estimates.flat()
        - Federation(data()).fit(ESTIMATOR, start=start()).model.inference_.estimates.flat()
    )
    assert np.sqrt(np.mean((gap / found.model.inference_.standard_errors().flat()) ** 2)) < 2


def test_a_site_that_is_lost_is_out_and_the_others_are_asked_again_and_charged():
    engine, names = Losing({"site 3": 2}), tuple(data())
    with pytest.warns(SetAsideWarning, match="site 3"):
        found = Federation(data(), engine=engine).fit(ESTIMATOR, method(), start=start(), on_drop="continue")
    assert engine.rounds[1] == names
    assert all(asked == tuple(site for site in names if site != "site 3") for asked in engine.rounds[2:])
    assert found.settled
    rhos = found.privacy.rhos
    assert len(rhos) == len(engine.rounds) == len(found.fit.surprises) + 1  # the second was charged, and not opened
    assert found.privacy.rho == rho_of(3, 1e-6)
    assert abs(found.fit.ascent.statistics.weight - N * 7 / 8) < 150
    with pytest.raises(RoundStoppedError, match="site 3"):
        Federation(data(), engine=Losing({"site 3": 2})).fit(ESTIMATOR, method(), start=start())


def test_a_run_that_loses_a_site_in_each_round_ends_when_the_budget_does():
    engine = Losing({f"site {i}": i + 1 for i in range(8)})
    with pytest.raises(InvalidInputError, match="too many sites were lost"):
        Federation(data(), engine=engine).fit(ESTIMATOR, method(rounds=2), start=start(), on_drop="continue")


def test_the_plan_has_a_spare_round():
    budget = method().budget
    assert budget.parts == 8 + SPARE
    assert budget.whole == rho_of(3, 1e-6)
    assert affordable([(0.0, 1), (0.0, 2), (0.0, 3), (0.0, 2)], 7) == [(0.0, 1), (0.0, 2), (0.0, 3), (0.0, 1)]
    assert affordable([(0.0, 3), (0.0, 2)], 2) == [(0.0, 2)]
    assert affordable([(0.0, 3)], 0) == []
    assert sum(method().budget[0] * share for _, share in method().plan) == rho_of(3, 1e-6)
    assert isinstance(method().budget[0], Fraction)


def test_masks_that_do_not_cancel_are_noticed():
    rng = np.random.default_rng(4)
    parts = [MaskedSums(tuple(rng.integers(-(2**63), 2**63, size=40).tolist()), 1.0, 1) for _ in range(3)]
    with pytest.raises(InvalidInputError, match="do not cancel"):
        opened(parts)
    with pytest.raises(ValueError, match="grid"):
        opened([MaskedSums((1,), 1.0, 1), MaskedSums((1,), 2.0, 1)])


def test_what_masks_do_not_serve_is_refused_by_a_sentence():
    for how, said in (({"sums": "sealed"}, "sums"), ({"sums": "masked", "colluding": -1}, "colluding")):
        with pytest.raises(InvalidInputError, match=said):
            PrivateScoring(3, covariates=np.zeros((2, 1)), **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="two sites"):
        Federation(data(1)).fit(ESTIMATOR, method(), start=start())

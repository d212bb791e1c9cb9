"""Small sites that answer in one call: the sum is that of their answers, and who must answer alone does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience import ClusteredClients, FederatedEM
from consilience.datasets import clients, soft
from consilience.engines import InProcess
from consilience.engines import inprocess as neighbours
from consilience.engines.inprocess import neighbourhoods, respond_together
from consilience.errors import RoundStoppedError
from consilience.fit import Expect, Specification
from consilience.messages import Each, Summarise, Total, decode
from consilience.messages.dialogue import Dialogue
from consilience.messages.questions import Sample
from consilience.methods import Task
from consilience.model import Groups, Rows, expect
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.runs import Limits, Run, run
from consilience.site import Site, answer

N = 12


def small(count: int, n: int = N) -> list[Site]:
    data = soft(count * n, n_experts=2, n_features=2, random_state=0)
    return [Site(f"{m:04d}", Rows(data.X[m * n :][:n], data.y[m * n :][:n, None])) for m in range(count)]


def rounds(times: int = 1):
    for _ in range(times):
        total = yield Total(Summarise(d=2, q=1))
    return total


def numbers_of(done: Run) -> list[int]:
    """How many sites each exchange has."""
    return [len(exchange.sites) for each in done.record.rounds for exchange in each.exchanges]


def test_up_to_a_hundred_sites_answer_alone() -> None:
    assert numbers_of(run(rounds(), InProcess().over(small(100)))) == [1] * 100


def test_more_sites_answer_in_few_calls_and_their_sum_is_the_same() -> None:
    sites = small(1100)
    done = run(rounds(), InProcess(threads=1).over(sites))
    assert numbers_of(done) == [512, 512, 76]
    rows = np.concatenate([site.data.Y for site in sites])
    np.testing.assert_allclose(done.value.y_mean, rows.mean(axis=0), rtol=1e-12)
    assert done.value.weight == 1100 * N
    assert len(done.record.sites) == 1100


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    values = [run(rounds(), InProcess(threads=threads).over(small(700))).value for threads in (1, 2, 5)]
    assert len({each.y_mean.tobytes() for each in values}) == 1


def test_each_is_asked_for_its_own_answer_where_it_is_wanted() -> None:
    def dialogue():
        return (yield Each(Summarise(d=2, q=1)))

    assert len(run(dialogue(), InProcess().over(small(150))).value) == 150


@pytest.mark.parametrize("kind", ["plain", "weighted", "grouped"])
def test_the_statistics_are_those_of_all_rows(kind: str) -> None:
    mixture, rng = soft(10, n_experts=2, n_features=2, random_state=0).truth, np.random.default_rng(0)
    parts = [site.data for site in small(40)]
    if kind == "weighted":
        parts = [replace(rows, weight=rng.uniform(0.5, 2, rows.n)) for rows in parts]
    if kind == "grouped":
        parts = [replace(rows, groups=Groups.of(rng.integers(0, 3, rows.n))) for rows in parts]
    message = respond_together(Expect(mixture), [Site(str(m), rows) for m, rows in enumerate(parts)])
    assert message is not None
    found, each = decode(message), [expect(mixture, rows) for rows in parts]
    np.testing.assert_allclose(found.log_likelihood, sum(one.log_likelihood for one in each), rtol=1e-12)
    np.testing.assert_allclose(found.experts.second, sum(one.experts.second for one in each), rtol=1e-10)
    np.testing.assert_allclose(found.gate.plain, sum(one.gate.plain for one in each), rtol=1e-10, atol=1e-9)


def test_large_sites_and_those_with_other_columns_answer_alone() -> None:
    sites = small(300)
    sites[5] = small(1, n=neighbours.SMALL + 1)[0]
    assert neighbourhoods([replace(site, name=str(m)) for m, site in enumerate(sites)]) == []
    sites = small(1200)
    sites[600] = replace(sites[600], data=replace(sites[600].data, weight=np.ones(N)))
    assert neighbourhoods(sites) == [(0, 512), (1024, 1200)]
    assert neighbourhoods(small(300, n=neighbours.SMALL + 1)) == []


def test_a_site_that_fails_is_named_and_the_others_answer() -> None:
    sites = small(200)
    sites[7] = replace(sites[7], data=Rows(np.full((N, 2), np.nan), np.ones((N, 1))))
    with pytest.raises(RoundStoppedError) as stopped:
        run(rounds(), InProcess().over(sites))
    assert stopped.value.sites == ("0007",)
    done = run(rounds(2), InProcess().over(sites), on_drop="continue")
    assert done.value.weight == 199 * N
    assert list(done.record.dropped) == ["0007"]


def test_a_site_with_the_rows_of_another_is_found() -> None:
    sites = small(1200)
    sites[700] = replace(sites[700], data=sites[3].data)
    assert neighbourhoods(sites) == [(1024, 1200)]
    with pytest.raises(RoundStoppedError, match=r"0700: .*0003"):
        run(rounds(), InProcess().over(sites))


def test_limits_are_checked_before_answers_are_added_on_the_way() -> None:
    sites = small(200)
    sites[9] = small(1, n=2 * N)[0]
    sites = [replace(site, name=f"{m:04d}") for m, site in enumerate(sites)]
    with pytest.raises(RoundStoppedError) as stopped:
        run(rounds(), InProcess().over(sites), limits=Limits(max_rows=1.5 * N))
    assert stopped.value.sites == ("0009",)


@pytest.mark.slow
def test_fits_are_those_of_sites_that_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted() -> float:
        task = Task([Specification(K=2)], 2, 1, start=soft(10, n_experts=2, n_features=2, random_state=0).truth, seed=0)
        (fit,) = run(FederatedEM().dialogue(task), InProcess().over(small(150))).value
        return fit.log_likelihood

    together = fitted()
    monkeypatch.setattr(neighbours, "MANY", 1000)
    assert together == pytest.approx(fitted(), rel=1e-10)


@pytest.mark.slow
def test_clients_that_are_sites_answer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = clients([10] * 150, n_features=5, random_state=0)
    parts = [np.flatnonzero(fleet.groups == m) for m in range(150)]
    rows = [Rows(fleet.X[at], fleet.y[at, None], groups=Groups.of(fleet.groups[at])) for at in parts]

    def fitted() -> Run:
        task = Task([Specification(K=3, gate="constant", intercept=False)], 5, 1, seed=0)
        sites = [Site(f"{m:03d}", each) for m, each in enumerate(rows)]
        return run(ClusteredClients().dialogue(task), InProcess().over(sites))

    together = fitted()
    assert max(numbers_of(together)) > 1
    monkeypatch.setattr(neighbours, "MANY", 1000)
    alone = fitted()
    assert max(numbers_of(alone)) == 1
    assert together.value[0].log_likelihood == pytest.approx(alone.value[0].log_likelihood, rel=1e-10)


def test_samples_are_those_that_each_site_draws() -> None:
    data = soft(1200, n_experts=2, n_features=2, random_state=0)
    parts = np.array_split(np.arange(1200), 200)
    sites = [Site(str(m), Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]
    question = Sample(Expect(data.truth), 0.5, seed=3)
    assert neighbourhoods(sites)
    assert respond_together(question, sites[:128]) is None

    def total(engine: InProcess) -> float:
        def dialogue() -> Dialogue[Statistics]:
            return (yield Total(question))

        return run(dialogue(), engine.over(sites)).value.log_likelihood

    alone = sum(answer(question, site).log_likelihood for site in sites)
    assert total(InProcess(2)) == pytest.approx(alone, rel=1e-12)


def test_sites_that_cannot_be_joined_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(_: object) -> Rows:
        raise MemoryError("too many rows")

    monkeypatch.setattr(neighbours, "join_chunks", joined)
    sites = [Site(str(m), Rows(np.full((2, 1), m), np.full((2, 1), m))) for m in range(150)]

    def dialogue() -> Dialogue[ColumnSummary]:
        return (yield Total(Summarise(d=1, q=1)))

    assert run(dialogue(), InProcess(2).over(sites)).value.weight == 300.0

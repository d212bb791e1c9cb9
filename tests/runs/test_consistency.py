"""Data that change are noticed by name: in a run, on a resume, on a replay; and data that are there twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from answering import Calls, small_sites, summaries
from consilience import (
    ClusteredClients,
    FederatedEM,
    Federation,
    GradientEM,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
)
from consilience.engines import InProcess
from consilience.errors import InvalidInputError, JournalError, RoundStoppedError
from consilience.fit import Expect, Specification
from consilience.messages import Each, Summarise, Total, decode, encode
from consilience.methods import Task
from consilience.model import Rows
from consilience.runs import Journal, Reply, run
from consilience.site import Site, respond
from simulated import simulated

SITES = ("a", "b", "c", "d")


def write(folder: Path, shift: float = 0.0, rows: int = 200, names: Sequence[str] = SITES) -> None:
    """Sites as files; with ``shift``, all responses of site c are other ones."""
    for i, name in enumerate(names):
        rng = np.random.default_rng([7, i])
        n = rows if name == "c" else 200
        x, low = rng.normal(size=(2, 200)), rng.random(200) < 0.5
        y = np.where(low, 1 + x[0], -1 - 2 * x[1]) + 0.3 * rng.normal(size=200) + shift * (name == "c")
        parquet.write_table(pa.table({"x1": x[0, :n], "x2": x[1, :n], "y": y[:n]}), folder / f"{name}.parquet")


class Meddling(InProcess):
    """An engine in front of which something happens at the start of a round."""

    def __init__(self, at: int, what: Any) -> None:
        self.at, self.what = at, what

    def over(self, sites: Any, *, in_memory: bool = False) -> Meddling:
        self.engine = InProcess().over(sites)
        self.sites = self.engine.sites
        return self

    def ask(self, number: int, *args: Any, **options: Any) -> Iterator[list[Reply]]:
        if number == self.at:
            self.what()
        yield from self.engine.ask(number, *args, **options)


def fit(folder: Path, engine: Any = None, journal: Path | None = None, **options: Any) -> Any:
    federation = Federation.from_parquet(f"{folder}/*.parquet", target="y", engine=engine)
    return federation.fit(MixtureOfRegressions(2, random_state=0), journal=journal, **options)


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 3, 5])
@pytest.mark.parametrize("change", [{"shift": 1.0}, {"shift": 1e-9}, {"rows": 199}], ids=["shift", "hair", "fewer"])
def test_a_file_that_changes_between_rounds_is_named(tmp_path: Path, at: int, change: dict[str, Any]) -> None:
    write(tmp_path)
    with pytest.raises(RoundStoppedError, match=f"round {at} stopped: c.parquet: the data have changed") as stopped:
        fit(tmp_path, Meddling(at, lambda: write(tmp_path, **change)))
    assert stopped.value.sites == ("c.parquet",)


@pytest.mark.slow
def test_a_site_whose_data_changed_is_left_out_if_runs_continue(tmp_path: Path) -> None:
    write(tmp_path)
    engine = Meddling(4, lambda: write(tmp_path, shift=1.0))
    with pytest.warns(UserWarning, match="c"):
        result = fit(tmp_path, engine, on_drop="continue")
    assert result.record.dropped.keys() == {"c.parquet"}


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_data_that_change_before_a_resume_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    journal = tmp_path / "run.journal"
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, Meddling(5, interrupt), journal)
    write(tmp_path, shift=1.0)
    with pytest.raises(JournalError, match=r"c\.parquet: the data have changed"):
        fit(tmp_path, None, journal)
    write(tmp_path)  # the same rows again: the same file is not asked for
    assert fit(tmp_path, None, journal).model.converged_


@pytest.mark.slow
def test_data_that_change_after_the_end_are_named_on_a_replay(tmp_path: Path) -> None:
    write(tmp_path)
    journal = tmp_path / "run.journal"
    first = fit(tmp_path, None, journal).model
    np.testing.assert_array_equal(fit(tmp_path, None, journal).model.mixture_.experts.B, first.mixture_.experts.B)
    write(tmp_path, rows=150)
    with pytest.raises(JournalError, match=r"c\.parquet: the data have changed"):
        fit(tmp_path, None, journal)


@pytest.mark.slow
def test_a_finished_journal_is_replayed_though_sites_are_gone(tmp_path: Path) -> None:
    write(tmp_path)
    journal = tmp_path / "run.journal"
    first = fit(tmp_path, None, journal).model
    federation = Federation.from_parquet(f"{tmp_path}/*.parquet", target="y")
    for name in SITES:
        (tmp_path / f"{name}.parquet").unlink()
    again = federation.fit(MixtureOfRegressions(2, random_state=0), journal=journal).model
    np.testing.assert_array_equal(again.mixture_.experts.B, first.mixture_.experts.B)


def test_of_a_sum_it_is_said_that_one_of_its_sites_changed(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    run(summaries(1), InProcess().over(small_sites()), journal=Journal(path))
    other = [Site(site.name, Rows(site.data.X, site.data.Y + (site.name == "east"))) for site in small_sites()]
    with pytest.raises(JournalError, match=r"one of .*east.*: the data have changed"):
        run(summaries(1), InProcess().over(other), journal=Journal(path))


# ---------------------------------------------------------------------- the same data twice


def test_one_file_under_two_names_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "a.parquet").rename(tmp_path / "e.parquet")
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "e.parquet").read_bytes())
    with pytest.raises(RoundStoppedError, match=r"e\.parquet: the site has the same rows as another site: copy"):
        fit(tmp_path)


def test_copies_are_refused_in_the_order_of_the_sites() -> None:
    rows = simulated(n=60).rows
    sites = [Site(name, rows.take(np.random.default_rng(i).permutation(60))) for i, name in enumerate("dcba")]
    for threads in (1, 4):
        done = run(asked(), InProcess(threads).over(sites), on_drop="continue")
        assert list(done.value) == ["d"]
        assert done.record.dropped.keys() == {"c", "b", "a"}


def asked() -> Any:
    return (yield Each(Summarise(2, 1)))


def test_few_rows_may_be_the_same_by_chance() -> None:
    rows = Rows(np.zeros((5, 2)), np.zeros((5, 1)))
    assert len(run(asked(), InProcess().over([Site("a", rows), Site("b", rows)])).value) == 2


# ---------------------------------------------------------------------- answers that contradict each other


def test_an_answer_from_other_data_contradicts_the_first(calls: Calls) -> None:
    case = simulated(n=120, gate="constant")
    sites = [Site(name, case.rows.take(np.arange(i, 120, 3))) for i, name in enumerate("abc")]
    other = Site("b", Rows(sites[1].data.X, sites[1].data.Y + 0.01))

    def lying(question: Any, site: Site) -> bytes:
        return encode(decode(respond(question, other)), site.fingerprint)

    calls.misbehave("b", lying, time=1)

    def talk() -> Any:
        yield Total(Summarise(2, 1))
        return (yield Total(Expect(case.truth)))

    with pytest.raises(RoundStoppedError, match=r"b: the answer contradicts an earlier answer .* the response"):
        run(talk(), InProcess().over(sites))


# ---------------------------------------------------------------------- runs that do not end


def endless() -> Any:
    while True:
        yield Total(Summarise(2, 1))


def test_a_run_that_does_not_end_is_stopped() -> None:
    with pytest.raises(RoundStoppedError, match="stopped after 12 rounds"):
        run(endless(), InProcess().over(small_sites()), most_rounds=12)


def test_a_weight_that_drifts_is_a_named_failure(calls: Calls) -> None:
    def drifting(question: Any, site: Site) -> bytes:
        honest = decode(respond(question, site))
        return encode(replace(honest, weight=honest.weight - 1e-3), site.fingerprint)

    calls.misbehave("south", drifting, time=2)
    with pytest.raises(RoundStoppedError, match=r"round 3 stopped: south: .* contradicts .* number of rows"):
        run(endless(), InProcess().over(small_sites()), most_rounds=12)


@pytest.mark.parametrize("method", [FederatedEM(), OneShot(), SharedCentre(), GradientEM()])
def test_methods_that_need_all_sites_in_every_round_refuse_to_skip(method: Any) -> None:
    data = {name: (np.zeros((9, 1)), np.zeros(9)) for name in SITES}
    with pytest.raises(InvalidInputError, match=r"on_drop='skip': .* needs the same sites in all rounds"):
        Federation(data).fit(MixtureOfRegressions(2), method=method, on_drop="skip")


@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=3), SharedCentre(), GradientEM(), ClusteredClients()])
def test_every_method_has_a_budget_of_rounds(method: Any) -> None:
    assert 100 < method.most_rounds(Task([Specification(K=2)], 1, 1, max_iter=5)) < 1000

"""What every engine must do: the bits of the reference, failures as values, no site harmed by another.

An engine of the library joins by a line in ``ENGINES``; any other is tested by its name, as in
``pytest tests/contracts --engine mypackage.module:EngineClass``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience.data import Columns
from consilience.engines import DaskCluster, Engine, InProcess
from consilience.errors import AwaitedError, InvalidInputError, RoundStoppedError
from consilience.fit import Expect, Specification
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import answer_name, question_name, write_whole
from consilience.kit.mailbox import Mailbox, begin_folder
from consilience.messages import (
    Clients,
    Each,
    FailureCode,
    LogLikelihood,
    Pairs,
    PerSite,
    Sample,
    ScoreProducts,
    ScoreSums,
    Several,
    Summarise,
    Total,
    decode,
    encode,
)
from consilience.messages.dialogue import Dialogue
from consilience.methods import ClusteredClients, OneShot, Task
from consilience.model import Mixture, Rows, layout_of
from consilience.runs import EngineOverSites, run
from consilience.site import Site, respond
from dask_work import len_of_both
from families import SIZED
from pairwise import every_pair
from sharded import totals, write_rows, write_sites
from simulated import FAMILIES, simulated

Over = Callable[[list[Site], bool], EngineOverSites]


@contextmanager
def using(engine: Engine) -> Iterator[tuple[Engine, Over]]:
    """Open an engine over sites, as often as wanted; close all at the end."""
    with ExitStack() as stack:
        stack.callback(engine.close)
        yield engine, lambda sites, in_memory: stack.enter_context(closing(engine.over(sites, in_memory=in_memory)))


@contextmanager
def dask() -> Iterator[tuple[Engine, Over]]:
    pytest.importorskip("distributed")
    with using(DaskCluster(n_workers=2)) as found:
        yield found


@contextmanager
def mailbox() -> Iterator[tuple[None, Over]]:
    with tempfile.TemporaryDirectory() as place:
        carriers: list[Carrier] = []

        def over(sites: list[Site], in_memory: bool) -> EngineOverSites:
            kept = [replace(site, keep=in_memory) for site in sites]
            carriers.append(Carrier(Path(place) / str(len(carriers)), kept))
            return carriers[-1]

        yield None, over
        for carrier in carriers:
            carrier.close()


class Carrier:
    """Runs by files: each has a folder of its own, in which every site answers in a thread."""

    def __init__(self, place: Path, sites: list[Site]) -> None:
        self._place, self._sites, self._runs = place, {site.name: site for site in sites}, 0
        self._threads = ThreadPoolExecutor(len(sites))

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites, in the order of summation."""
        return tuple(self._sites)

    def ask(self, number: int, question: bytes, sites: Any, *, total: bool, timeout: float | None) -> Iterator[Any]:
        """Write a question, let the sites answer, and read the answers; the first of a run begins a new folder."""
        if number == 1:
            self._runs += 1
            folder, own = self._place / f"mail-{self._runs}", self._place / f"own-{self._runs}"
            run = begin_folder(folder, own, RunFile("sha256:" + 64 * "0", self.sites, {}, ""))
            self._box = Mailbox(folder, own, run, patience=0)
        with suppress(AwaitedError):
            list(self._box.ask(number, question, sites, total=total, timeout=None))
        wait([self._threads.submit(self._answer, self._box, number, name) for name in sites], timeout)
        yield from self._box.ask(number, question, sites, total=total, timeout=0)

    def _answer(self, box: Mailbox, number: int, name: str) -> None:
        paths = (box.folder / question_name(number, each) for each in ("", name))
        letter = QuestionLetter.from_text(next(path for path in paths if path.exists()).read_text())
        reply = respond(letter.question, self._sites[name])
        found = AnswerLetter(box.run.identity, box.run.study, number, name, letter.hash, reply)
        write_whole(box.folder / answer_name(number, name), found.to_text())

    def close(self) -> None:
        """End the threads of the sites."""
        self._threads.shutdown(wait=False, cancel_futures=True)


ENGINES = {"inprocess": lambda: using(InProcess(threads=2)), "dask": dask, "mailbox": mailbox}


BOTH = {"in_memory": [False, True]}
FACTORS: dict[str, dict[str, list[Any]]] = {
    "test_bits_are_those_of_the_reference": {"number": [1, 2, 5, 16, 40], **BOTH},
    "test_own_questions_have_the_bits_of_asking_one_by_one": {"number": [1, 5, 16], **BOTH},
    "test_every_model_has_the_bits_of_the_reference": {
        "family": list(FAMILIES), "gate": ["softmax", "constant"], "group_size": [1, 4], **BOTH,
    },
}  # fmt: skip
"""What a test depends on beside the engine, if not only on rows that are streamed or kept.

Of 40 sites more than two are neighbours in a block.
"""


def in_every_change(factors: dict[str, list[Any]], cases: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Choose the cases that every change runs; the long lane runs the others."""
    names = factors["chosen"]
    if "family" in factors:  # each on one of the engines, in turn
        turn = {family: names[i % len(names)] for i, family in enumerate(factors["family"])}
        return [case for case in cases if case[0] == turn[case[1]]]
    if "number" in factors:
        return every_pair(cases)
    return [case for case in cases if case != ("mailbox", True)]  # letters do not know what a site keeps


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chosen" not in metafunc.fixturenames:
        return
    named = metafunc.config.getoption("--engine", default=None)
    names = [named] if named else [name for name in ENGINES if name != "mailbox" or "over" in metafunc.fixturenames]
    other = BOTH if "in_memory" in metafunc.fixturenames else {}
    factors = {"chosen": names, **FACTORS.get(metafunc.function.__name__, other)}
    cases = list(product(*factors.values()))
    cases = every_pair(cases) if "family" in factors else cases
    kept = in_every_change(factors, cases)
    marked = [pytest.param(*case, marks=() if case in kept else pytest.mark.long) for case in cases]
    words = {False: "streamed", True: "in memory"}
    ids = lambda level: words[level] if isinstance(level, bool) else None  # noqa: E731
    metafunc.parametrize(tuple(factors), marked, indirect=["chosen"], ids=ids)


@contextmanager
def open_engine(name: str) -> Iterator[tuple[Engine | None, Over]]:
    """An engine, by its name here or by that of its class, and a function from sites to the engine over them."""
    module, _, kind = name.partition(":")
    with using(getattr(import_module(module), kind)()) if kind else ENGINES[module]() as found:
        yield found


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[str], tuple[Engine | None, Over]]]:
    """Engines by name, each opened once, when the first test needs it."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(open_engine(name)))


@pytest.fixture
def chosen(
    request: pytest.FixtureRequest, opened: Callable[[str], tuple[Engine | None, Over]]
) -> tuple[Engine | None, Over]:
    return opened(request.param)


@pytest.fixture
def over(chosen: tuple[Engine | None, Over]) -> Over:
    return chosen[1]


@pytest.fixture
def engine(chosen: tuple[Engine, Over]) -> Engine:
    return chosen[0]


def reference(sites: list[Site], in_memory: bool) -> EngineOverSites:
    return InProcess(threads=1).over([replace(site, keep=in_memory) for site in sites])


def all_kinds(mixture: Mixture, some: tuple[str, ...]) -> Dialogue[list[Any]]:
    """Every kind of request, with the bits of what came back."""
    d, q = mixture.design.d, 1
    everything = Several((Summarise(d, q), LogLikelihood(mixture), Expect(mixture)))
    answers = [
        (yield Total(Expect(mixture))),
        (yield Total(Expect(mixture, information=True))),
        (yield Total(Summarise(d, q))),
        (yield Total(everything)),
        *([(yield Total(Expect(mixture), some))] if some else []),
        *(yield Each(everything)).items(),
        *(yield Each(Expect(mixture), some)).items(),
    ]
    return [(a[0], encode(a[1])) if isinstance(a, tuple) else encode(a) for a in answers]


@pytest.mark.slow
def test_bits_are_those_of_the_reference(over: Over, tmp_path: Path, number: int, in_memory: bool) -> None:
    sites, mixture = write_sites(tmp_path, number, 3_000)
    some = tuple(site.name for site in sites[1::3])
    got = run(all_kinds(mixture, some), over(sites, in_memory))
    expected = run(all_kinds(mixture, some), reference(sites, in_memory))
    assert got.value == expected.value
    assert got.record.sites == expected.record.sites


def own_questions(mixture: Mixture, sites: list[Site]) -> dict[str, Expect]:
    """For each site the statistics at a mixture of its own, some with the information and so of another size."""
    shift, none = np.ones(mixture.experts.B.size), np.zeros(mixture.K)
    experts = [mixture.experts.moved(0.1 * i * shift, none) for i in range(len(sites))]
    mixtures = [replace(mixture, experts=each) for each in experts]
    return {site.name: Expect(mixtures[i], information=i % 3 == 2) for i, site in enumerate(sites)}


def own(questions: dict[str, Expect]) -> Dialogue[dict[str, bytes]]:
    """The answers of sites to questions of their own, as bytes."""
    return {site: encode(answer) for site, answer in (yield PerSite(questions)).items()}


def answered(question: Expect, site: Site) -> bytes:
    """The answer of a site, encoded without its fingerprint."""
    return encode(decode(respond(question, site)))


@pytest.mark.slow
def test_own_questions_have_the_bits_of_asking_one_by_one(
    over: Over, tmp_path: Path, number: int, in_memory: bool
) -> None:
    sites, mixture = write_sites(tmp_path, number, 3_000)
    engine, questions = over(sites, in_memory), own_questions(mixture, sites)
    alone = {site.name: answered(questions[site.name], site.loaded() if in_memory else site) for site in sites}
    for chosen in (sites, sites[::-1], sites[1::3] or sites, sites[-1:]):  # whole blocks and parts of them
        asked = {site.name: questions[site.name] for site in chosen}
        got = run(own(asked), engine)
        expected = {name: answer for name, answer in alone.items() if name in asked}
        assert list(got.value.items()) == list(expected.items())
        sent = {exchange.sites[0]: exchange.bytes_sent for r in got.record.rounds for exchange in r.exchanges}
        assert sent == {name: len(encode(questions[name])) for name in expected}


def test_a_site_that_fails_at_its_own_question_is_named_and_the_others_go_on(over: Over, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 16, 3_000)
    questions = own_questions(mixture, sites)
    Path(sites[3].data.uri).unlink()
    with pytest.raises(RoundStoppedError, match="site-03: the data were not found"):
        run(own(questions), over(sites, False))
    got = run(own(questions), over(sites, False), on_drop="continue")
    assert got.value == {site.name: answered(questions[site.name], site) for i, site in enumerate(sites) if i != 3}
    assert got.record.dropped.keys() == {"site-03"}


@pytest.mark.slow
def test_every_model_has_the_bits_of_the_reference(
    over: Over, tmp_path: Path, family: str, gate: str, group_size: int, in_memory: bool
) -> None:
    exposure = family in SIZED
    data = simulated(family, gate=gate, n=800, group_size=group_size, weights=True, exposure=exposure)
    sites = write_rows(tmp_path, data, 17)
    some = tuple(site.name for site in sites[1::3])
    got = run(all_kinds(data.truth, some), over(sites, in_memory))
    assert got.value == run(all_kinds(data.truth, some), reference(sites, in_memory)).value
    pooled = run(totals(data.truth, 1), InProcess().over([Site("all", data.rows)])).value
    total, whole = decode(got.value[0]), decode(pooled[0])  # what was written is what was meant
    np.testing.assert_allclose(total.experts.first, whole.experts.first, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total.log_likelihood, whole.log_likelihood, rtol=1e-9)


@pytest.mark.slow
def test_a_one_shot_study_has_the_bits_of_the_reference(over: Over, tmp_path: Path, in_memory: bool) -> None:
    sites, truth = write_sites(tmp_path, 5, 3_000)
    sites[2] = replace(sites[2], data=replace(sites[2].data, columns=Columns(("x0", "x1", "x2"), ("x1",))))  # foreign

    def study() -> Dialogue[Any]:
        return OneShot(refine=1).dialogue(Task([Specification(K=3)], 3, 1, start=truth, seed=0))

    (got,), (expected,) = (run(study(), e).value for e in (over(sites, in_memory), reference(sites, in_memory)))
    assert encode(LogLikelihood(got.mixture)) == encode(LogLikelihood(expected.mixture))
    assert encode(got.ascent.statistics) == encode(expected.ascent.statistics)
    assert got.combination.set_aside == expected.combination.set_aside
    assert got.members == expected.members == tuple(site.name for i, site in enumerate(sites) if i != 2)


def about_clients(mixture: Mixture) -> Dialogue[list[bytes]]:
    """Every question that is about clients or about a share of them, as bytes."""
    design, theta = mixture.design, np.ones(mixture.design.p)
    basis = np.eye(design.p)[:, :2]
    answers = [
        (yield Total(ScoreSums(mixture))),
        (yield Total(ScoreProducts(mixture, layout_of(mixture).zeros(information=False).experts.second))),
        (yield Total(Sample(Expect(mixture, information=True), 0.5, seed=3))),
        (yield Total(Several((Pairs(design, theta), Pairs(design, theta, basis), ScoreSums(mixture))))),
        *(yield Each(Clients(design, theta, basis))).values(),
        *(yield Each(Several((Clients(design, theta), Summarise(design.d, 1))))).values(),
    ]
    return [encode(answer) for answer in answers]


@pytest.mark.slow
def test_clients_have_the_bits_of_the_reference(over: Over, tmp_path: Path, in_memory: bool) -> None:
    data = simulated("gaussian", gate="constant", n=800, group_size=4, weights=True)
    sites = write_rows(tmp_path, data, 17)
    got = run(about_clients(data.truth), over(sites, in_memory)).value
    assert got == run(about_clients(data.truth), reference(sites, in_memory)).value

    def study() -> Dialogue[Any]:
        specification = Specification(K=data.truth.K, gate="constant")
        return ClusteredClients(participation=0.7).dialogue(Task([specification], data.truth.design.d, 1, max_iter=5))

    (fit,), (expected,) = (run(study(), e).value for e in (over(sites, in_memory), reference(sites, in_memory)))
    assert encode(LogLikelihood(fit.mixture)) == encode(LogLikelihood(expected.mixture))
    assert encode(fit.ascent.statistics) == encode(expected.ascent.statistics)


def test_sites_keep_their_order(over: Over, tmp_path: Path) -> None:
    sites, _ = write_sites(tmp_path, 5, 100)
    assert over(sites[::-1], False).sites == tuple(site.name for site in sites[::-1])


def test_digests_are_of_each_sites_own_answer(over: Over, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 16, 1_000)

    def digests(engine: EngineOverSites) -> dict[str, bytes]:
        question = encode(Expect(mixture))
        batches = engine.ask(1, question, engine.sites, total=True, timeout=None)
        return {s: d for replies in batches for r in replies for s, d in zip(r.sites, r.digests, strict=True)}

    assert digests(over(sites, False)) == digests(reference(sites, False))


@pytest.mark.slow
def test_sites_that_cannot_be_read_are_named_and_the_others_go_on(over: Over, tmp_path: Path, in_memory: bool) -> None:
    sites, mixture = write_sites(tmp_path, 16, 3_000)
    Path(sites[3].data.uri).unlink()
    Path(sites[9].data.uri).write_bytes(b"PAR1 not a Parquet file PAR1")
    got = run(totals(mixture), over(sites, in_memory), on_drop="continue")
    expected = run(totals(mixture), reference(sites, in_memory), on_drop="continue")
    assert got.value == expected.value
    assert got.record.dropped.keys() == {"site-03", "site-09"}
    assert str(FailureCode.DATA_NOT_FOUND) in got.record.dropped["site-03"]
    assert str(FailureCode.DATA_UNREADABLE) in got.record.dropped["site-09"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_site_whose_numbers_overflow_is_blamed_and_no_other(over: Over, tmp_path: Path, in_memory: bool) -> None:
    sites, mixture = write_sites(tmp_path, 32, 3_000)
    path = sites[13].data.uri
    table = parquet.read_table(path)
    parquet.write_table(table.set_column(table.schema.get_field_index("y"), "y", pa.array([1e200] * len(table))), path)
    got = run(totals(mixture), over(sites, in_memory), on_drop="continue")
    expected = run(totals(mixture), reference(sites, in_memory), on_drop="continue")
    assert got.record.dropped == {"site-13": str(FailureCode.NOT_FINITE)}
    assert got.value == expected.value
    Path(path).unlink()
    without = run(totals(mixture), reference(sites, in_memory), on_drop="continue")
    assert got.value == without.value


def test_a_failure_stops_a_run_that_says_so(over: Over, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 2, 100)
    Path(sites[1].data.uri).unlink()
    with pytest.raises(RoundStoppedError, match="site-01: the data were not found") as stopped:
        run(totals(mixture), over(sites, False))
    assert stopped.value.sites == ("site-01",)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe in place of a file is what hangs here")
def test_a_site_that_hangs_is_left_out_and_no_other(over: Over, tmp_path: Path, in_memory: bool) -> None:
    sites, mixture = write_sites(tmp_path, 16, 3_000)
    engine = over(sites, in_memory)
    pipe = Path(sites[4].data.uri)
    pipe.unlink()
    expected = run(totals(mixture, 3), reference(sites, in_memory), on_drop="continue")
    os.mkfifo(pipe)
    try:
        began = time.monotonic()
        got = run(totals(mixture, 3), engine, deadline=8.0, on_drop="continue")
        took = time.monotonic() - began
    finally:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # whoever waits for a writer goes on
    assert got.record.dropped == {"site-04": str(FailureCode.NO_ANSWER)}
    assert got.value == expected.value
    assert took < 16


# ---------------------------------------------------------------------- arrays in memory


VIEWS = {
    "every third row": lambda a: a[::3],
    "from the end": lambda a: a[::-1],
    "every second column": lambda a: np.repeat(a, 2, axis=1)[:, ::2] if a.ndim == 2 else np.repeat(a, 2)[::2],
    "features first": np.asfortranarray,
    "a transpose": lambda a: np.ascontiguousarray(a.T).T[::2],
}


def viewed(rows: Rows, view: Callable[[np.ndarray], np.ndarray]) -> Rows:
    return Rows(view(rows.X), view(rows.Y), view(rows.weight))


@pytest.mark.parametrize("view", VIEWS)
def test_views_have_the_bits_of_the_reference(over: Over, view: str) -> None:
    data = simulated("gaussian", gate="softmax", n=900, weights=True)
    parts = {name: data.rows.take(np.arange(i, 900, 3)) for i, name in enumerate("abc")}
    sites = [Site(name, viewed(rows, VIEWS[view])) for name, rows in parts.items()]
    engine = None
    with suppress(InvalidInputError):  # rows that would be lost with a worker are refused
        engine = over(sites, False)
    if engine is not None:
        got = run(all_kinds(data.truth, ("a", "c")), engine)
        assert got.value == run(all_kinds(data.truth, ("a", "c")), reference(sites, False)).value


def test_views_that_were_written_to_files_have_the_bits_of_the_reference(over: Over, tmp_path: Path) -> None:
    data = simulated("gaussian", gate="softmax", n=900, weights=True)
    sites = write_rows(tmp_path, replace(data, rows=viewed(data.rows, VIEWS["every third row"])), 3)
    got = run(all_kinds(data.truth, ()), over(sites, False))
    assert got.value == run(all_kinds(data.truth, ()), reference(sites, False)).value


# ---------------------------------------------------------------------- work on items, and the end


def test_each_yields_what_comes_of_every_item(engine: Engine) -> None:
    assert isinstance(engine, Engine)
    items = [b"x" * i for i in range(7)]
    assert dict(engine.each(len_of_both, items, b"abc")) == {i: i + 3 for i in range(7)}
    assert list(engine.each(len_of_both, [], b"abc")) == []


def test_what_was_closed_leaves_the_engine_open(engine: Engine, tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 2, 100)
    for in_memory in (True, False):
        with closing(engine.over(sites, in_memory=in_memory)) as one, closing(engine.over(sites)) as other:
            first = run(totals(mixture, 1), one).value
            one.close()
            assert run(totals(mixture, 1), other).value == first
    assert dict(engine.each(len_of_both, [b"x"], b"abc")) == {0: 4}

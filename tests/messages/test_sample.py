"""Answers of a random share of the labels: whole groups, other ones at every site, and right on average."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.engines import InProcess
from consilience.errors import MessageError
from consilience.fit import Expect
from consilience.messages import Failure, FailureCode, Several, Summarise, Total, decode, encode
from consilience.messages.questions import Sample, ScoreSums
from consilience.messages.table import receive
from consilience.model import Groups, Rows, expect
from consilience.model.expectation import score_sums
from consilience.model.rows import sample_labels
from consilience.model.statistics import Statistics
from consilience.runs import run
from consilience.site import Site, answer, respond
from strategies import SUM_TOLERANCE, Shape, contributions, label_count, shapes, take_labels

POWERS = 2 ** np.arange(10)


def powers(**options: object) -> tuple[object, Rows]:
    """A mixture, and ten groups of 1, 2, 4, … 512 rows: the number of rows tells which groups they are of."""
    mixture, rows = Shape(n=int(POWERS.sum()), gate="constant", **options).problem()
    return mixture, replace(rows, groups=Groups.of(np.repeat(np.arange(10), POWERS)))


def bits(number: float) -> int:
    return round(number).bit_count()


# ---------------------------------------------------------------------- who is drawn


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.01, 1.0))
def test_groups_are_drawn_whole(seed: int, share: float) -> None:
    _, rows = powers()
    some = sample_labels(rows, share, np.random.default_rng(seed))
    sizes = np.diff(some.groups.bounds)
    assert set(sizes) <= set(POWERS)
    assert len(set(sizes)) == len(sizes)
    inside = np.isin(rows.groups.codes, np.log2(sizes).astype(int))
    np.testing.assert_array_equal(some.X, rows.X[inside])
    np.testing.assert_array_equal(some.Y, rows.Y[inside])


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.01, 1.0))
def test_rows_are_drawn_with_all_that_belongs_to_them(seed: int, share: float) -> None:
    n = 50
    X = np.arange(n, dtype=float)[:, None]
    some = sample_labels(Rows(X, 2 * X, 3 * X[:, 0], 4 * X[:, 0]), share, np.random.default_rng(seed))
    for part, times in ((some.Y[:, 0], 2), (some.weight, 3), (some.exposure, 4)):
        np.testing.assert_array_equal(part, times * some.X[:, 0])
    assert np.all(np.diff(some.X[:, 0]) > 0)


@pytest.mark.parametrize("grouped", [False, True])
def test_each_label_is_drawn_with_the_share_as_its_probability(grouped: bool) -> None:
    rows = Rows(np.arange(20.0)[:, None], np.zeros((20, 1)), groups=Groups.of(np.arange(20)) if grouped else None)
    seen, times = np.zeros(20), 2000
    for seed in range(times):
        seen[sample_labels(rows, 0.3, np.random.default_rng(seed)).X[:, 0].astype(int)] += 1
    noise = np.sqrt(0.3 * 0.7 / times)
    assert np.all(np.abs(seen / times - 0.3) < 4.5 * noise)


def test_a_whole_share_is_all_rows() -> None:
    for grouped in (False, True):
        _, rows = Shape(n=30, labels="group" if grouped else "row").problem()
        np.testing.assert_array_equal(sample_labels(rows, 1.0, np.random.default_rng(0)).X, rows.X)


# ---------------------------------------------------------------------- sums are scaled


@given(shape=shapes(), factor=st.floats(0.01, 100))
def test_scaled_statistics_are_those_of_so_much_more_data(shape: Shape, factor: float) -> None:
    mixture, rows = shape.problem()
    for information in (False, True):
        once = expect(mixture, rows, information=information)
        np.testing.assert_array_equal(once.scaled(factor).to_array(), factor * once.to_array())
        np.testing.assert_array_equal((once + once).to_array(), once.scaled(2.0).to_array())
        np.testing.assert_array_equal(once.scaled(1.0).to_array(), once.to_array())


@given(shape=shapes(), seed=st.integers(0, 2**40))
def test_a_whole_share_is_the_whole_answer(shape: Shape, seed: int) -> None:
    mixture, rows = shape.problem()
    site = Site("here", rows)
    for question in (Expect(mixture), Expect(mixture, information=True), ScoreSums(mixture)):
        sampled = answer(Sample(question, 1.0, seed), site)
        np.testing.assert_array_equal(sampled.to_array(), answer(question, site).to_array())


@given(shape=shapes(max_n=8, labels="group"), share=st.floats(0.05, 0.95), seed=st.integers(0, 2**40))
def test_the_answer_is_that_of_some_labels_over_the_share(shape: Shape, share: float, seed: int) -> None:
    """Which labels they were is told by a pass whose label weights are powers of two."""
    mixture, rows = shape.problem()
    rows = replace(rows, weight=None)
    G = label_count(rows)
    codes = np.arange(rows.n) if rows.groups is None else rows.groups.codes
    # the same site name and seed draw the same labels, whatever the values
    marked = replace(rows, X=np.empty((rows.n, 0)), Y=(2.0**codes)[:, None])
    one, _ = Shape(K=1, d=0, gate="constant").problem()
    zero = replace(one, experts=replace(one.experts, B=np.zeros((1, 1, 1))))
    sizes = np.bincount(codes, minlength=G)
    said = answer(Sample(Expect(zero), share, seed), Site("here", marked))
    total = round(said.experts.first[0, 0] * share)  # Σ_g size_g 2^g over those drawn
    weight = round(said.weight * share)
    found = answer(Sample(Expect(mixture), share, seed), Site("here", rows))
    chosen = [
        keep
        for keep in (np.array([bool(number >> g & 1) for g in range(G)]) for number in range(2**G))
        if keep.sum() == weight and int((sizes * 2 ** np.arange(G))[keep].sum()) == total
    ]
    expected = [expect(mixture, take_labels(rows, keep)).scaled(1 / share).to_array() for keep in chosen]
    scale = contributions(mixture, rows)[: len(found.to_array())] / share
    assert any(np.all(np.abs(found.to_array() - each) <= SUM_TOLERANCE * scale) for each in expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "gate", "labels"), [("gaussian-full", "softmax", "row"), ("poisson", "constant", "group")]
)
def test_the_answer_is_right_on_average(family: str, gate: str, labels: str) -> None:
    mixture, rows = Shape(family=family, gate=gate, labels=labels, n=40).problem()
    site, times = Site("here", rows), 200
    for question in (Expect(mixture, information=labels == "row"), ScoreSums(mixture)):
        draws = np.array([answer(Sample(question, 0.4, seed), site).to_array() for seed in range(times)])
        noise = draws.std(axis=0, ddof=1) / np.sqrt(times)
        whole = answer(question, site).to_array()
        assert np.all(np.abs(draws.mean(axis=0) - whole) <= 4.5 * noise + 1e-9 * (1 + np.abs(whole)))


def test_a_draw_of_nobody_is_a_sum_of_nothing() -> None:
    for labels in ("row", "group"):
        mixture, rows = Shape(n=5, labels=labels).problem()
        for question in (Expect(mixture, information=True), ScoreSums(mixture)):
            said = receive(respond(encode(Sample(question, 1e-9, 0)), Site("here", rows)), Sample(question, 1e-9, 0))
            assert isinstance(said, Statistics)
            np.testing.assert_array_equal(said.to_array(), 0.0)


# ---------------------------------------------------------------------- sites, seeds, pieces


def test_sites_draw_for_themselves_and_anew_for_every_seed() -> None:
    mixture, rows = powers()
    said = {
        (name, seed): answer(Sample(Expect(mixture), 0.5, seed), Site(name, rows)).experts.plain[:2].sum() * 0.5
        for name in ("east", "north", "south", "west")
        for seed in range(4)
    }
    assert len({round(rows) for rows in said.values()}) > 12  # each tells which groups were drawn
    again = answer(Sample(Expect(mixture), 0.5, 2), Site("north", rows)).experts.plain[:2].sum() * 0.5
    assert again == said["north", 2]


def test_labels_and_rows_of_a_draw_are_those_of_whole_groups() -> None:
    mixture, rows = powers()
    for seed in range(20):
        said = answer(Sample(Expect(mixture), 0.5, seed), Site("here", rows))
        assert said.weight * 0.5 == pytest.approx(bits(said.experts.plain[:2].sum() * 0.5))


@dataclass(frozen=True, eq=False)
class Pieces(Site):
    """A site whose rows come in pieces, as from a file."""

    pieces: tuple[Rows, ...] = field(default=())

    def chunks(self) -> Iterator[Rows]:
        yield from self.pieces


def test_draws_go_on_from_piece_to_piece() -> None:
    mixture, rows = powers()
    thrice, seeds = Pieces("here", rows, pieces=(rows, rows, rows)), range(30)
    first = [answer(Sample(Expect(mixture), 0.5, seed), Site("here", rows)).to_array() for seed in seeds]
    all_three = [answer(Sample(Expect(mixture), 0.5, seed), thrice).to_array() for seed in seeds]
    same = [np.allclose(three, 3 * one) for one, three in zip(first, all_three, strict=True)]
    assert not any(same)  # else each piece would have been asked for the same places
    mean = np.mean(all_three, axis=0)[2]
    assert mean == pytest.approx(30.0, abs=4.5 * np.sqrt(30 * 0.5 * 0.5 / 30) / 0.5)


def test_sums_over_sites_have_other_clients_in_every_round() -> None:
    mixture, rows = powers()

    def rounds():
        said = []
        for seed in range(6):
            statistics = yield Total(Sample(Expect(mixture), 0.5, seed))
            said.append(statistics.weight)
        return said

    done = run(rounds(), InProcess().over([Site(name, rows) for name in ("east", "west")]))
    assert len(set(done.value)) > 1
    assert all(weight % 2 == 0 and 0 <= weight <= 40 for weight in done.value)
    assert done.record.rounds[0].question == "Sample"
    assert done.record.rounds[0].discloses.startswith("for a random sample of 50 % of the rows or clients: sums over")


# ---------------------------------------------------------------------- what can be asked


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0 + 1e-9, np.nan, np.inf])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    mixture, rows = Shape().problem()
    with pytest.raises(MessageError, match="share of a sample must be above 0 and at most 1"):
        decode(encode(Sample(ScoreSums(mixture), share, 0)))
    assert decode(respond(encode(Sample(ScoreSums(mixture), share, 0)), Site("here", rows))) == Failure(
        FailureCode.UNREADABLE_QUESTION, 1
    )


def test_only_sums_over_labels_can_be_sampled() -> None:
    for question in (Summarise(2, 1), Several((Summarise(2, 1),)), Sample(ScoreSums(Shape().problem()[0]), 0.5, 0)):
        with pytest.raises(MessageError, match="cannot be sent"):
            encode(Sample(question, 0.5, 0))  # type: ignore[arg-type]


def test_an_answer_to_another_question_is_a_failure() -> None:
    mixture, rows = Shape().problem()
    whole, short = expect(mixture, rows), score_sums(mixture, rows)
    for question, fits, other in ((Expect(mixture), whole, short), (ScoreSums(mixture), short, whole)):
        assert isinstance(receive(encode(fits), Sample(question, 0.5, 0)), Statistics)
        assert receive(encode(other), Sample(question, 0.5, 0)) == Failure(FailureCode.WRONG_SHAPE)


def test_samples_of_several_mixtures_go_in_one_message() -> None:
    mixture, rows = Shape().problem()
    other, _ = Shape(seed=1).problem()
    question = Several((Sample(Expect(mixture), 0.5, 3), Sample(Expect(other), 0.5, 3)))
    said = receive(respond(encode(question), Site("here", rows)), question)
    for part, item in zip(question.questions, said.items, strict=True):
        np.testing.assert_array_equal(item.to_array(), answer(part, Site("here", rows)).to_array())

"""Sites whose labels belong to clients: who the clients are, and what a site says about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience import ClusteredClients, FederatedEM, Federation, MixtureOfRegressions
from consilience.data import Columns, Shard
from consilience.errors import InvalidInputError
from consilience.fit import Expect
from consilience.messages import Failure, FailureCode, Several, Summarise, Total, decode, encode
from consilience.messages.dialogue import Dialogue
from consilience.messages.questions import Clients, Pairs, Question, ScoreSums
from consilience.messages.table import row_of
from consilience.methods import Method, Task
from consilience.model import Design, Groups, Rows, expect
from consilience.model.clients import client_moments, pair_sums
from consilience.model.expectation import score_sums
from consilience.site import Site, answer, respond
from strategies import Shape

DESIGN, THETA, BASIS = Design.raw(2), np.array([0.5, -1.0, 2.0]), np.array([[1.0, 0.0], [0.5, 1.0], [0.0, -1.0]])


def problem(n: int = 30, labels: str = "group") -> tuple[Any, Rows]:
    return Shape(gate="constant", labels=labels, n=n).problem()


@dataclass(frozen=True, eq=False)
class Pieces(Site):
    """A site whose rows come in pieces, as from a file."""

    pieces: tuple[Rows, ...] = field(default=())

    def chunks(self) -> Iterator[Rows]:
        yield from self.pieces


def in_pieces(rows: Rows) -> Pieces:
    """The same rows in three pieces, whole groups in each."""
    G = len(rows.groups.bounds) - 1
    third = np.minimum(rows.groups.codes * 3 // G, 2)
    return Pieces("here", rows, pieces=tuple(rows.take(np.flatnonzero(third == i)) for i in range(3)))


# ---------------------------------------------------------------------- who the clients are


def test_groups_are_clients_and_a_site_without_groups_is_one() -> None:
    _, grouped = problem()
    site = Site("north", grouped)
    assert site.by_client().data is grouped
    single = Site("north", replace(grouped, groups=None)).by_client()
    np.testing.assert_array_equal(single.data.groups.bounds, [0, 30])
    np.testing.assert_array_equal(single.data.X, grouped.X)
    assert single.name == "north"
    assert single.by_client().data is single.data


def test_a_site_without_rows_has_no_clients() -> None:
    site = Site("none", Rows(np.empty((0, 2)), np.empty((0, 1)))).by_client()
    assert answer(Clients(DESIGN, THETA), site).G == 0
    assert answer(Expect(problem()[0]), site).weight == 0
    np.testing.assert_array_equal(answer(Pairs(DESIGN, THETA), site).product, 0.0)


def test_traces_stay_where_they_were() -> None:
    site = Site("north", Rows(np.zeros((2, 1)), np.zeros((2, 1))))
    site.keep_trace(ValueError("something"))
    assert list(site.by_client().traces) == list(site.traces)


def test_a_file_needs_a_column_of_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 0.0, 2.0], "g": [4, 4, 7]}), path)
    named = Site("a", Shard(str(path), Columns(("x",), ("y",), groups="g")))
    assert named.by_client() is named
    moments = answer(Clients(Design.raw(1), np.zeros(2)), named.by_client())
    np.testing.assert_array_equal(moments.n, [2.0, 1.0])
    bare = Site("a", Shard(str(path), Columns(("x",), ("y",))))
    with pytest.raises(InvalidInputError, match="one label per client: pass the column"):
        bare.by_client()


class Counting(Method):
    """A method that returns the number of labels it was told of."""

    def __init__(self, by_client: bool | None) -> None:
        if by_client is not None:
            self.by_client = by_client

    def dialogue(self, task: Task) -> Dialogue[Any]:
        mixture, _ = Shape(K=1, d=task.d, q=task.q, gate="constant").problem()
        statistics = yield Total(Expect(mixture))
        raise InvalidInputError(f"{statistics.weight:g} labels")


@pytest.mark.parametrize(("by_client", "labels"), [(None, 12), (False, 12), (True, 2)])
def test_a_method_says_whether_its_labels_are_those_of_clients(by_client: bool | None, labels: int) -> None:
    rng = np.random.default_rng(0)
    sites = {name: (rng.normal(size=(6, 2)), rng.normal(size=6)) for name in ("a", "b")}
    with pytest.raises(InvalidInputError, match=f"^{labels} labels"):
        Federation(sites).fit(MixtureOfRegressions(1, random_state=0), method=Counting(by_client))


def test_the_methods_of_the_library_say_it() -> None:
    assert ClusteredClients.by_client
    assert not getattr(FederatedEM, "by_client", False)


# ---------------------------------------------------------------------- what a site says


def test_answers_about_clients_are_those_of_its_rows() -> None:
    _, rows = problem()
    site = Site("here", rows)
    moments = answer(Clients(DESIGN, THETA, BASIS), site)
    for name, part in vars(client_moments(rows, DESIGN, THETA, BASIS)).items():
        np.testing.assert_array_equal(getattr(moments, name), part)
    for basis in (None, BASIS):
        found, expected = answer(Pairs(DESIGN, THETA, basis), site), pair_sums(rows, DESIGN, THETA, basis)
        np.testing.assert_array_equal(found.product, expected.product)
        assert found.pairs == expected.pairs


def test_pieces_are_added_and_clients_listed_in_their_order() -> None:
    mixture, rows = problem(60)
    whole, parts = Site("here", rows), in_pieces(rows)
    one, two = (answer(Clients(DESIGN, THETA, BASIS), site) for site in (whole, parts))
    for name, part in vars(one).items():
        np.testing.assert_allclose(getattr(two, name), part, rtol=1e-12, atol=1e-12)
    one, two = (answer(Pairs(DESIGN, THETA), site) for site in (whole, parts))
    np.testing.assert_allclose(two.product, one.product, rtol=1e-10, atol=1e-10)
    assert one.pairs == two.pairs
    one, two = (answer(ScoreSums(mixture), site) for site in (whole, parts))
    np.testing.assert_allclose(two.to_array(), one.to_array(), rtol=1e-10, atol=1e-10)


def test_several_questions_have_the_answers_of_each() -> None:
    mixture, rows = problem()
    questions = (Summarise(2, 1), Expect(mixture), ScoreSums(mixture), Pairs(DESIGN, THETA), Clients(DESIGN, THETA))
    for site in (Site("here", rows), in_pieces(rows)):
        items = answer(Several(questions), site).items
        for question, item in zip(questions, items, strict=True):
            assert encode(item) == encode(answer(question, site))


QUESTIONS: list[Question] = [
    Pairs(DESIGN, THETA),
    Clients(DESIGN, THETA, BASIS),
    ScoreSums(Shape(gate="constant").problem()[0]),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
@pytest.mark.parametrize(("d", "q"), [(1, 1), (3, 1), (2, 2)])
def test_rows_with_other_columns_are_named(question: Question, d: int, q: int) -> None:
    site = Site("here", Rows(np.zeros((4, d)), np.zeros((4, q))))
    assert decode(respond(encode(question), site)) == Failure(FailureCode.OTHER_COLUMNS, 1)


def test_every_sum_over_rows_has_a_line_of_its_own() -> None:
    mixture, rows = problem()
    for question in (*QUESTIONS, Expect(mixture), Summarise(2, 1)):
        row = row_of(question)
        row.reads(question, rows)
        assert encode(row.contribution(question, rows)) == encode(answer(question, Site("here", rows)))
    score, _ = row_of(ScoreSums(mixture)).contribution(ScoreSums(mixture), rows), expect(mixture, rows)
    np.testing.assert_array_equal(score.to_array(), score_sums(mixture, rows).to_array())


def test_no_answer_about_clients_with_several_rows_holds_a_single_value() -> None:
    mixture, rows = problem(60, labels="row")
    rows = replace(rows, groups=Groups.of(np.arange(60) // 5))
    values = [np.float64(value).tobytes() for value in np.concatenate([rows.X.ravel(), rows.Y.ravel()])]
    for question in (Pairs(DESIGN, THETA), Clients(DESIGN, THETA), Clients(DESIGN, THETA, BASIS), ScoreSums(mixture)):
        message = respond(encode(question), Site("here", rows))
        assert not [value for value in values if value in message]

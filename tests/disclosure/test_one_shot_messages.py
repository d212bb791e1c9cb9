"""What a one-shot study sends: no value of a site's data, not even nearly, and far less than the data."""

from __future__ import annotations

import numpy as np
import pytest

from combining import parted, soft_sites, soft_truth
from consilience.engines import InProcess, inprocess
from consilience.fit import Specification
from consilience.messages import FitSite, encode
from consilience.messages.codec import Message
from consilience.methods import OneShot, Task
from consilience.model import Mixture, Rows
from consilience.runs import run
from consilience.site import Site, respond
from simulated import FAMILIES, simulated


@pytest.fixture
def messages(few_points: None, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that leaves a site."""
    sent: list[bytes] = []

    def recorded(question: bytes, site: Site) -> bytes:
        sent.append(respond(question, site))
        return sent[-1]

    monkeypatch.setattr(inprocess, "respond", recorded)
    return sent


def is_told(values: np.ndarray, message: bytes) -> bool:
    """Whether a value is in a message, bit by bit or up to rounding."""
    cells = [np.float64(value).tobytes() for value in values.ravel()]
    body = np.unique(Message.from_bytes(message).body)
    place = np.searchsorted(body, values.ravel())
    near = np.minimum(
        np.abs(body[np.maximum(place - 1, 0)] - values.ravel()),
        np.abs(body[np.minimum(place, len(body) - 1)] - values.ravel()),
    )
    return any(cell in message for cell in cells) or bool(np.any(near <= 1e-10 * np.abs(values.ravel())))


def study(parts: dict[str, Rows], specification: Specification, start: Mixture, refine: int) -> None:
    d, q = start.design.d, next(iter(parts.values())).Y.shape[1]
    dialogue = OneShot(refine=refine).dialogue(Task([specification], d, q, start=start, seed=0))
    run(dialogue, InProcess().over([Site(name, rows) for name, rows in parts.items()]))


LONG = {("student", "constant"), ("negative_binomial", "softmax")}
CASES = [
    pytest.param(family, gate, marks=pytest.mark.long if (family, gate) in LONG else ())
    for family in FAMILIES
    for gate in ("softmax", "constant")
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate"), CASES)
def test_no_message_of_a_study_has_a_value_of_the_data(family: str, gate: str, messages: list[bytes]) -> None:
    case = simulated(family, gate=gate, n=600, seed=1)
    study(parted(case.rows, 2), case.specification, case.truth, refine=2)
    assert len(messages) >= 4
    values = [case.X] if family != "gaussian" else [case.X, case.rows.Y]  # a count or a class is any small number
    for message in messages:
        assert not any(is_told(part, message) for part in values)


def test_no_message_of_unequal_sites_has_a_value_of_the_data(messages: list[bytes]) -> None:
    parts = soft_sites(3, 400, apart=2.0)
    parts["site 01"] = parts["site 01"].take(np.arange(60))
    study(parts, Specification(K=3), soft_truth(), refine=2)
    for rows in parts.values():
        assert not any(is_told(part, message) for part in (rows.X, rows.Y) for message in messages)


def test_what_is_looked_for_would_be_found() -> None:
    rows = simulated(n=30).rows
    message = Message(0, (), np.array([1.0, rows.X[4, 1] * (1 + 1e-12)])).to_bytes()
    assert is_told(rows.X, message)
    assert not is_told(rows.Y, message)


@pytest.mark.parametrize(("d", "n"), [(2, 300), (20, 3_000)])
def test_the_answer_is_far_smaller_than_the_data(d: int, n: int) -> None:
    (rows,) = soft_sites(1, n, d=d).values()
    question = FitSite(Specification(K=3), (3,), seed=0, start=soft_truth(d=d))
    answer = respond(encode(question), Site("here", rows))
    assert len(answer) < (rows.X.nbytes + rows.Y.nbytes) / 3


def test_the_answer_does_not_grow_with_the_rows() -> None:
    question = FitSite(Specification(K=3), (3,), seed=0, start=soft_truth())
    sizes = {len(respond(encode(question), Site("here", *soft_sites(1, n).values()))) for n in (300, 1_000, 5_000)}
    assert len(sizes) == 1


def test_codes_and_flags_are_told_as_a_list_of_their_values_and_shares(messages: list[bytes]) -> None:
    """The values of a column with few are public knowledge; measurements beside them are not told."""
    rng = np.random.default_rng(0)
    case = simulated(n=800, seed=1)
    X = np.column_stack([case.X[:, 0], rng.integers(0, 3, 800)])
    rows = Rows(X, case.truth.sample(X, rng)[0])
    study(parted(rows, 2), case.specification, case.truth, refine=1)
    for message in messages:
        assert not is_told(X[:, 0], message)
        assert not is_told(rows.Y, message)

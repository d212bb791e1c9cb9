"""Messages: every value of the table survives the trip bit by bit; nothing else is read, however it was made."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from consilience.aggregate.combine.site_model import CovariateSummary, SiteModel, covariate_summary
from consilience.errors import InvalidInputError, MessageError
from consilience.fit import Expect, Specification
from consilience.fit.climb import StopReason
from consilience.messages import (
    Answers,
    Failure,
    FailureCode,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    ProposeStart,
    Several,
    StartCandidates,
    Summarise,
    decode,
    encode,
)
from consilience.messages import table as table_module
from consilience.messages.codec import FORMAT, HEADER, MARK, Message, Number, Struct
from consilience.messages.questions import (
    Bundle,
    Clients,
    CountTails,
    Identify,
    Masked,
    MaskedSums,
    NoisySteps,
    NoisySums,
    Pairs,
    PrivateLikelihoods,
    PrivateScores,
    PrivateSquares,
    PrivateSteps,
    Sample,
    ScoreProducts,
    ScoreSums,
    TotalWeight,
)
from consilience.messages.table import MOST_SITES, Row, kinds, receive, register, table
from consilience.model import ConstantGate, GaussianExperts, Mixture, Rows, expect
from consilience.model.clients import ClientMoments, client_moments, pair_sums
from consilience.model.design import Design
from consilience.model.expectation import score_products, score_sums
from consilience.model.families.covariance import STRUCTURES
from consilience.model.statistics import Additive
from consilience.model.summary import ColumnSummary, column_summary
from consilience.model.tails import count_tails
from consilience.numerics.arrays import Array, pack, unpack
from consilience.published.client_steps import (
    Anchors,
    AnchorSteps,
    ClusterSums,
    LocalSteps,
    Sizes,
    anchor_steps,
    client_sizes,
    local_steps,
)
from consilience.published.critic import CriticSums, minimax_sums
from consilience.published.spectral import SquaredResponses, squared_moments
from consilience.site import Site, respond
from families import GAUSSIAN
from simulated import simulated
from strategies import FAMILIES, GATES, Shape, shapes

KINDS, TABLE = kinds(), table()
TYPES = [record.type for record in KINDS.values()]
RANDOM_SPECIFICATION = Specification(K=3, family="poisson", gate="constant", structure="tied", intercept=False)


def specification_of(shape: Shape) -> Specification:
    family, _, structure = shape.family.partition("-")
    return Specification(
        K=shape.K,
        family=family,
        gate=shape.gate,
        structure=structure or "full",
        n_classes=shape.C,
        intercept=shape.intercept,
    )


def matrices(rng: np.random.Generator, K: int, size: int) -> Array:
    """Positive definite matrices, packed."""
    A = rng.normal(size=(K, size, size))
    return pack(A @ A.transpose(0, 2, 1) + np.eye(size))


def site_model(mixture: Mixture, rows: Rows, *, informed: bool = True, described: bool = True) -> SiteModel:
    """A model with moments of the right shapes; that they are of some fit does not matter to who carries them."""
    rng = np.random.default_rng(rows.n)
    K, p = mixture.K, mixture.design.p
    f = len(mixture.experts.free_coefficients()) // K
    shares, weight = rng.dirichlet(np.ones(K)), column_summary(rows).weight
    second, precision = np.empty((0, 0)), matrices(rng, K, f)
    if isinstance(mixture.experts, GaussianExperts):  # half of what known labels would say
        second = matrices(rng, K, p)
        pairs = zip(mixture.experts.matrices, unpack(second), strict=True)
        precision = pack(0.5 * np.array([np.kron(np.linalg.inv(S), A) for S, A in pairs]))
    return SiteModel(
        mixture.raw(),
        weight,
        weight * shares,
        weight * shares,
        second,
        -1.5 * rows.n,
        precision if informed else np.empty((0, 0)),
        covariate_summary(rows.X, np.ones(rows.n), rng) if described and rows.X.shape[1] else None,
        0.75,
    )


def regressions(shape: Shape) -> tuple[Mixture, Rows]:
    """A problem of the same size with one response, constant shares and one variance, on rows with groups."""
    return shape.but(family="gaussian-tied", gate="constant", labels="group", q=1).problem()


def squared(p: int) -> PrivateSquares:
    """A question about squared residuals of one expert."""
    experts = GaussianExperts(np.zeros((1, 1, p)), np.ones((1, 1, 1)))
    one = Mixture(Design.raw(p - 1), ConstantGate(np.ones(1)), experts)
    return PrivateSquares(one, np.eye(p * (p + 1) // 2), clip=1.5, place=0)


COMPARISON = NoisySums((5, -5, 2**40), clip=2.5, variance=3)
"""An answer to a question about the likelihoods of two mixtures."""


def of_squares(mixture: Mixture) -> NoisySums:
    """An answer to it."""
    p = mixture.design.p
    return NoisySums((*range(p * (p + 1) // 2), 2**40), clip=1.5, variance=3)


def about_clients(shape: Shape) -> tuple[list[object], list[object]]:
    """Questions on mixtures of regressions and on clients, and their answers."""
    mixture, rows = regressions(shape)
    design, p = mixture.design, mixture.design.p
    rng = np.random.default_rng(shape.seed)
    theta, basis, critics = rng.normal(size=p), rng.normal(size=(p, min(p, 2))), rng.normal(size=(2, shape.K, p))
    P = mixture.parameter_count
    single, step = replace(rows, groups=None), (theta[None], basis[None])
    questions = [
        ScoreSums(mixture),
        Pairs(design, theta),
        Clients(design, theta, basis),
        Sample(Expect(mixture), share=0.25, seed=2**40),
        SquaredResponses(design),
        CriticSums(mixture, *critics),
        Sizes(),
        Anchors(design, (0,), *step),
        LocalSteps(mixture, steps=3, rate=0.1),
        ScoreProducts(mixture, expect(mixture, rows).experts.second),
        scored := PrivateScores(mixture, rng.normal(size=(mixture.parameter_count,) * 2), clip=2.5, place=7),
        Masked(scored, ("north", "ost", "sør")),
        PrivateSteps(mixture, np.repeat(single.X, 2, axis=0)),
        squared(mixture.design.p),
        PrivateLikelihoods((mixture, mixture), clip=2.5, place=8),
        CountTails(mixture),
    ]
    answers = [
        pair_sums(rows, design, theta),
        client_moments(rows, design, theta, basis),
        squared_moments(design, rows),
        minimax_sums(mixture, *critics, single),
        client_sizes(rows),
        anchor_steps([rows], (0,), design, *step),
        local_steps(mixture, rows, steps=3, rate=0.1),
        score_products(mixture, rows, expect(mixture, rows).experts.second),
        NoisySums((*range(3 - 2**61, 3 - 2**61 + mixture.parameter_count), 2**60 + 1), clip=2.5, variance=2**61),
        MaskedSums((*range(2**63 - mixture.parameter_count, 2**63), -(2**63)), clip=2.5, variance=2**61),
        NoisySteps((mixture,), np.zeros(1), (2,), (NoisySums((5,) * P + (3,), clip=float(np.sqrt(P)), variance=7),)),
        count_tails(mixture, single),
    ]
    return questions, answers


def values(shape: Shape) -> list[object]:
    """A value of every kind."""
    mixture, rows = shape.problem()
    summary = column_summary(rows)
    fit_site = FitSite(RANDOM_SPECIFICATION, (1, 2), seed=2**40, n_init=2, tol=1e-7, max_iter=30, start=mixture)
    model = site_model(mixture, rows) if summary.weight > 0 else None  # without weight there is no fit
    local_fit = LocalFit(summary, model, StopReason.MAX_ITER)
    questions = (
        Summarise(shape.d, shape.q),
        Expect(mixture, information=True),
        LogLikelihood(mixture),
        ProposeStart(RANDOM_SPECIFICATION, summary, seed=2**40, n_init=3),
    )
    answers = (summary, expect(mixture, rows, information=True), Likelihood(-3.5, 2.0), StartCandidates((mixture,)))
    of_clients, said = about_clients(shape)
    return [
        *questions,
        Several((*questions, fit_site, *(part for part in of_clients if not isinstance(part, Anchors | LocalSteps)))),
        *answers,
        Answers((*answers, local_fit, *(part for part in said if not isinstance(part, AnchorSteps | ClusterSums)))),
        Failure(FailureCode.OUT_OF_RANGE, 5),
        fit_site,
        local_fit,
        Identify(),
        TotalWeight(summary.weight),
        Bundle((0, 1, 5, 10**6), questions),
        *sorted((*of_clients, *said), key=lambda value: TYPES.index(type(value))),
    ]


@pytest.mark.slow
@given(shapes())
def test_every_kind_of_message_survives_the_trip(shape: Shape) -> None:
    sent = values(shape)
    assert sorted(type(value).__name__ for value in sent) == sorted(kind.__name__ for kind in TYPES)
    for value in sent:
        data = encode(value)
        assert encode(decode(data)) == data
        assert type(decode(data)) is type(value)


@given(shapes())
def test_statistics_keep_their_bits(shape: Shape) -> None:
    mixture, rows = shape.problem()
    for information in (False, True):
        statistics = expect(mixture, rows, information=information)
        np.testing.assert_array_equal(decode(encode(statistics)).to_array(), statistics.to_array())


def test_a_mixture_keeps_its_bits_and_its_answers_are_the_same() -> None:
    mixture, rows = Shape(K=3, q=2, n=40).problem()
    again = decode(encode(LogLikelihood(mixture))).mixture
    np.testing.assert_array_equal(again.log_density(rows), mixture.log_density(rows))


def assert_same_arrays(a: object, b: object) -> None:
    """The same numbers bit by bit, however deep they stand."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same_arrays(one, other)
    elif is_dataclass(a):
        for field in fields(a):
            assert_same_arrays(getattr(a, field.name), getattr(b, field.name))
    else:
        assert a == b


@given(shapes(max_n=30, weights=None), st.booleans(), st.booleans(), st.sampled_from([None, *StopReason]))
def test_a_local_fit_keeps_its_bits_with_and_without_its_parts(
    shape: Shape, informed: bool, described: bool, stop: StopReason | None
) -> None:
    mixture, rows = shape.problem()
    assume(column_summary(rows).weight > 0)
    model = site_model(mixture, rows, informed=informed, described=described)
    for sent in (LocalFit(column_summary(rows), model, stop), LocalFit(column_summary(rows), None, stop)):
        assert_same_arrays(decode(encode(sent)), sent)
    if rows.n > 1:  # a summary of one row has no spread to compare a model with
        question = FitSite(specification_of(shape), (shape.K, 9), seed=0)
        answer = receive(encode(LocalFit(column_summary(rows), model, stop)), question)
        compared = shape.d > 0 and (shape.gate == "softmax" or not shape.family.startswith("gaussian"))
        as_asked = compared == (model.covariates is not None)
        assert type(answer) is LocalFit if as_asked else answer == Failure(FailureCode.WRONG_SHAPE)


@given(shapes(), st.booleans(), st.booleans(), st.booleans())
def test_the_question_for_a_fit_keeps_its_bits_with_and_without_its_parts(
    shape: Shape, started: bool, sized: bool, describe: bool
) -> None:
    start, columns = shape.problem()[0] if started else None, (shape.d, shape.q) if sized else None
    sent = FitSite(specification_of(shape), (3, 1, 2), 7, 9, 1e-5, 11, start, columns, describe)
    assert_same_arrays(decode(encode(sent)), sent)


def test_a_description_keeps_the_values_of_its_columns_with_few() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=80), rng.integers(0, 3, 80), np.full(80, 7.0), rng.random(80) < 0.2])
    mixture, _ = Shape(d=4).problem()
    rows = Rows(X, rng.normal(size=(80, 1)))
    sent = LocalFit(column_summary(rows), site_model(mixture, rows), StopReason.CONVERGED_NEWTON)
    again = decode(encode(sent))
    assert_same_arrays(again, sent)
    assert [levels.tolist() for levels in again.model.covariates.levels] == [[], [0.0, 1.0, 2.0], [7.0], [0.0, 1.0]]


@pytest.mark.parametrize("value", ["text", 3, None, object(), {"a": 1}, np.zeros(3), lambda: 0])
def test_what_is_not_in_the_table_cannot_be_sent(value: object) -> None:
    with pytest.raises(MessageError, match="not in the table"):
        encode(value)


def test_an_unknown_part_of_a_bundle_cannot_be_sent() -> None:
    with pytest.raises(MessageError, match="cannot be sent"):
        encode(Several(("text",)))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- a question for each of some sites


@given(st.lists(shapes(), max_size=3), st.integers(0, 3), st.integers(1, 5))
def test_a_bundle_keeps_the_bits_of_its_questions(drawn: list[Shape], first: int, step: int) -> None:
    questions = tuple(Expect(shape.problem()[0], information=i % 2 == 1) for i, shape in enumerate(drawn))
    sent = Bundle(tuple(range(first, first + step * len(drawn), step)), questions)
    again = decode(encode(sent))
    assert_same_arrays(again, sent)
    assert [encode(question) for question in again.questions] == [encode(question) for question in questions]


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(0, 4))
def test_a_bundle_is_read_only_with_one_question_for_each_place_in_order(places: list[int], number: int) -> None:
    data = encode(Bundle(tuple(places), (Summarise(1, 1),) * number))
    if len(places) == number and places == sorted(set(places)):
        assert decode(data).places == tuple(places)
    else:
        with pytest.raises(MessageError, match="a bundle must have one place for each question"):
            decode(data)


BUNDLE = TYPES.index(Bundle)
STRANGE_BUNDLES = {
    "a place that is negative": (1, -1, 1, 0, 1, 1),
    "a place beyond the last": (1, MOST_SITES + 1, 1, 0, 1, 1),
    "more places than sites": (MOST_SITES + 1, 0, 1, 0, 1, 1),
    "more questions than sites": (1, 0, MOST_SITES + 1, 0, 1, 1),
    "places that are not there": (MOST_SITES, 0, 1, 0, 1, 1),
    "questions that are not there": (1, 0, MOST_SITES, 0, 1, 1),
    "a question of an unknown kind": (1, 0, 1, 4, 1, 1),
    "something left over": (1, 0, 1, 0, 1, 1, 7),
    "nothing": (),
}


def test_the_head_of_a_bundle_is_places_then_questions() -> None:
    assert KINDS[BUNDLE].type is Bundle
    assert Message.from_bytes(encode(Bundle((3,), (Summarise(2, 1),)))).head.tolist() == [1, 3, 1, 0, 2, 1]


@pytest.mark.parametrize("head", STRANGE_BUNDLES.values(), ids=STRANGE_BUNDLES)
def test_bundles_that_no_one_sent_are_refused(head: tuple[int, ...]) -> None:
    with pytest.raises(MessageError, match="message"):
        decode(Message(BUNDLE, head, np.empty(0)).to_bytes())


@pytest.mark.parametrize("part", [Bundle((), ()), Several((Several(()),)), Likelihood(0.0, 1.0), "text"], ids=repr)
def test_what_is_no_question_of_a_site_cannot_be_sent_in_a_bundle(part: object) -> None:
    with pytest.raises(MessageError, match="cannot be sent"):
        encode(Bundle((0,), (part,)))  # type: ignore[arg-type]


def test_a_bundle_is_for_engines() -> None:
    bundle = Bundle((0,), (Summarise(2, 1),))
    _, rows = Shape().problem()
    said = decode(respond(encode(bundle), Site("here", rows)))
    assert said == Failure(FailureCode.NO_ANSWER_TO_KIND, 1)
    assert receive(encode(bundle), Summarise(2, 1)) == Failure(FailureCode.WRONG_SHAPE)
    with pytest.raises(MessageError, match="Bundle cannot be sent"):
        encode(Several((bundle,)))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- bytes from elsewhere


@given(st.binary(max_size=200))
def test_noise_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data)


@given(st.integers(0, len(KINDS) + 3), st.lists(st.integers(-3, 2**62), max_size=12), st.integers(0, 30))
def test_made_up_numbers_are_a_message_or_refused_by_name(kind: int, head: list[int], floats: int) -> None:
    data = Message(kind, tuple(head), np.ones(floats)).to_bytes()
    with contextlib.suppress(MessageError):
        decode(data)


@given(shapes(), st.data())
def test_damaged_messages_are_a_message_or_refused_by_name(shape: Shape, data: st.DataObject) -> None:
    sent = bytearray(encode(data.draw(st.sampled_from(values(shape)))))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MessageError):
        decode(bytes(sent))


@given(shapes(), st.integers(1, 50))
def test_a_message_cut_short_or_lengthened_is_refused(shape: Shape, cut: int) -> None:
    data = encode(LogLikelihood(shape.problem()[0]))
    for other in (data[:-cut], data + b"\0" * cut):
        with pytest.raises(MessageError):
            decode(other)


def test_a_huge_length_is_refused_before_anything_is_allocated() -> None:
    for heads, floats in ((2**32 - 1, 0), (0, 2**61), (1, 2**60)):
        with pytest.raises(MessageError, match="its header states"):
            decode(HEADER.pack(MARK, FORMAT, 0, heads, floats, 0) + b"\0" * 64)


def test_a_huge_shape_is_refused_before_anything_is_allocated() -> None:
    kind = next(i for i, record in KINDS.items() if record.type.__name__ == "ColumnSummary")
    with pytest.raises(MessageError, match="ends early"):
        decode(Message(kind, (2**31 - 1, 1, 1, 2**30, 2**30), np.ones(3)).to_bytes())


def test_a_message_larger_than_the_cap_is_refused() -> None:
    data = encode(Likelihood(0.0, 1.0))
    with pytest.raises(MessageError, match="at most"):
        Message.from_bytes(data, most=len(data) - 1)


def test_an_axis_of_length_zero_does_not_hide_the_others() -> None:
    kind = next(i for i, record in KINDS.items() if record.type.__name__ == "StartCandidates")
    head = (1, 1, 1, 1, 0, 1, 0, 0, 0, 2**31 - 1, 2**31 - 1, 3, 0, 1, 1, 0)
    data = Message(kind, head, np.zeros(2)).to_bytes()
    with pytest.raises(MessageError):
        decode(data)
    assert receive(data, values(Shape())[3]) == Failure(FailureCode.UNREADABLE_ANSWER)


@pytest.mark.parametrize(
    "size", [{"K": 10**6}, {"n_classes": 10**9}, {"K": 1000, "n_classes": 10**4, "family": "categorical"}]
)
def test_a_fit_that_would_exhaust_a_site_is_not_read(size: dict[str, int | str]) -> None:
    summary = ColumnSummary(1.0, np.zeros(1000), np.eye(1000), np.zeros(1), np.eye(1))
    with pytest.raises(MessageError):
        decode(encode(ProposeStart(Specification(**{"K": 2, **size}), summary, seed=0, n_init=1)))


def test_a_summary_whose_parts_do_not_fit_is_refused() -> None:
    summary = ColumnSummary(1.0, np.zeros(2), np.eye(2), np.zeros(3), np.eye(2))
    with pytest.raises(MessageError, match="parts of a summary have inconsistent shapes"):
        decode(encode(ProposeStart(Specification(K=2), summary, seed=0, n_init=1)))
    assert receive(encode(summary), Summarise(2, 2)) == Failure(FailureCode.WRONG_SHAPE)


def test_a_mixture_that_is_not_finite_is_refused_before_it_is_asked_about() -> None:
    mixture, _ = Shape().problem()
    experts = mixture.experts.moved(np.full(6, np.nan), np.zeros(2))
    with pytest.raises(MessageError, match="not finite"):
        decode(encode(LogLikelihood(replace(mixture, experts=experts))))


def test_the_numbers_of_a_summary_are_sent_in_one_order() -> None:
    """Who writes and who reads may be of two versions: another order needs another number of the format."""
    summary = ColumnSummary(1.0, np.array([2.0, 3.0]), np.diag([4.0, 5.0]), np.array([6.0]), np.array([[7.0]]))
    message = Message.from_bytes(encode(summary))
    assert message.head.tolist() == [2, 2, 1, 1, 1]
    assert message.body.tolist() == [1.0, 2.0, 3.0, 4.0, 0.0, 5.0, 6.0, 7.0]


def structs_in(codec: object) -> list[Struct]:
    """The codecs of all records in a codec, itself included."""
    parts = codec.fields.values() if isinstance(codec, Struct) else getattr(codec, "records", ())
    inner = [getattr(codec, "field", None), *parts]
    own = [codec] if isinstance(codec, Struct) else []
    return own + [each for part in inner if part is not None for each in structs_in(part)]


def test_fields_are_sent_in_the_order_in_which_they_are_declared() -> None:
    """Another order in a table alone is a mistake that one version of the library does not notice."""
    structs = {id(each): each for kind in kinds().values() for each in structs_in(kind)}.values()
    assert {"Design", "Statistics", "ColumnSummary", "SiteModel"} <= {each.type.__name__ for each in structs}
    declared = {each.type.__name__: [f.name for f in fields(each.type) if f.name in each.fields] for each in structs}
    assert {each.type.__name__: list(each.fields) for each in structs} == declared


@pytest.mark.parametrize(("part", "bad"), [("centre", np.nan), ("centre", -np.inf), ("scale", np.inf)])
def test_a_mixture_whose_design_is_not_finite_is_refused(part: str, bad: float) -> None:
    mixture, _ = Shape().problem()
    design = replace(mixture.design, **{part: np.array([1.0, bad])})
    with pytest.raises(MessageError, match=r"parts of a design have .* values that are not finite"):
        decode(encode(LogLikelihood(replace(mixture, design=design))))


def test_parts_of_a_mixture_that_do_not_fit_are_refused() -> None:
    mixture, _ = Shape(K=3).problem()
    other, _ = Shape(K=2).problem()
    with pytest.raises(MessageError, match="parts of a mixture have inconsistent shapes"):
        decode(encode(LogLikelihood(replace(mixture, gate=other.gate))))


def local_fit(shape: Shape) -> LocalFit:
    mixture, rows = shape.problem()
    return LocalFit(column_summary(rows), site_model(mixture, rows), StopReason.CONVERGED_NEWTON)


FOUR = CovariateSummary(
    np.full(4, 0.25),
    np.arange(8.0).reshape(4, 2),
    np.tile([1.0, 0.2, 2.0], (4, 1)),
    (np.empty(0), np.empty(0)),
    (np.empty((4, 0)), np.empty((4, 0))),
)


def with_covariates(**changes: object) -> LocalFit:
    return with_model(covariates=replace(FOUR, **changes))


def with_model(**changes: object) -> LocalFit:
    fit = local_fit(Shape(n=60))
    return replace(fit, model=replace(fit.model, **changes))


STRANGE_MODELS = {
    "labels of other experts": {"label_counts": np.ones(3)},
    "mass of other experts": {"mass": np.ones(1)},
    "second moments of other covariates": {"second": np.ones((2, 10))},
    "no second moments": {"second": np.empty((0, 0))},
    "precision of other coefficients": {"precision": np.ones((2, 5))},
    "precision of one expert": {"precision": np.ones((1, 6))},
    "no weight": {"weight": 0.0},
    "a negative weight": {"weight": -3.0},
    "negative labels": {"label_counts": np.array([61.0, -1.0])},
    "negative mass": {"mass": np.array([61.0, -1.0])},
    "no exposure": {"exposure": 0.0},
}


@pytest.mark.parametrize("changes", STRANGE_MODELS.values(), ids=STRANGE_MODELS)
def test_moments_that_are_not_of_the_mixture_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(MessageError, match="parts of a site's model have inconsistent shapes"):
        decode(encode(with_model(**changes)))
    question = FitSite(specification_of(Shape()), (2,), seed=0)
    assert receive(encode(with_model(**changes)), question) == Failure(FailureCode.UNREADABLE_ANSWER)


def test_moments_of_gaussian_experts_are_refused_for_others() -> None:
    fit = local_fit(Shape(family="poisson", n=60))
    with pytest.raises(MessageError, match="inconsistent shapes"):
        decode(encode(replace(fit, model=replace(fit.model, second=np.ones((2, 6))))))


def test_a_description_of_other_covariates_is_refused() -> None:
    other = local_fit(Shape(n=60, d=3)).model.covariates
    with pytest.raises(MessageError, match="parts of a site's model have inconsistent shapes"):
        decode(encode(with_model(covariates=other)))


FEW, MANY = np.array([0.0, 1.0]), np.empty(0)
STRANGE_DESCRIPTIONS = {
    "weights of other classes": {"weights": np.ones(3) / 3},
    "no class": {"weights": np.empty(0), "means": np.empty((0, 2)), "covariances": np.empty((0, 3))},
    "negative weights": {"weights": np.array([1.2, -0.2, 0.0, 0.0])},
    "no weight": {"weights": np.zeros(4)},
    "means of other columns": {"means": np.zeros((4, 3))},
    "covariances of other columns": {"covariances": np.ones((4, 6))},
    "a column without shares": {"shares": (np.empty((4, 0)),)},
    "more columns than means": {"levels": (MANY, MANY, MANY), "shares": (np.empty((4, 0)),) * 3},
    "values without a share": {"levels": (MANY, FEW), "means": np.zeros((4, 1)), "covariances": np.ones((4, 1))},
    "shares that are none": {
        "levels": (MANY, FEW),
        "means": np.zeros((4, 1)),
        "covariances": np.ones((4, 1)),
        "shares": (np.empty((4, 0)), np.tile([1.0, 0.0], (4, 1))),
    },
}


@pytest.mark.parametrize("changes", STRANGE_DESCRIPTIONS.values(), ids=STRANGE_DESCRIPTIONS)
def test_a_description_that_no_point_can_be_drawn_from_is_refused(changes: dict[str, object]) -> None:
    assert type(decode(encode(with_covariates()))) is LocalFit
    with pytest.raises(MessageError, match="summary of covariates has inconsistent shapes"):
        decode(encode(with_covariates(**changes)))


SPOILING = {
    "a class without weight": lambda s: {"weights": np.append(0.0, s.weights[1:])},
    "a negative variance": lambda s: {"covariances": -s.covariances},
    "shares of a column that has many values": lambda s: {"shares": (np.ones((7, 3)), np.ones((7, 3)))},
    "values that are not in order": lambda s: {
        "levels": (MANY, FEW[::-1]),
        "means": s.means[:, :1],
        "covariances": s.covariances[:, :1],
        "shares": (np.empty((4, 0)), np.full((4, 2), 0.5)),
    },
}


@pytest.mark.parametrize("spoil", SPOILING.values(), ids=SPOILING)
def test_a_description_that_would_spoil_the_gates_of_others_is_refused(
    spoil: Callable[[CovariateSummary], dict[str, object]],
) -> None:
    changes = spoil(FOUR)
    with pytest.raises(MessageError, match="summary of covariates"):
        decode(encode(with_covariates(**changes)))


def test_a_variance_that_is_none_is_refused() -> None:
    mixture, _ = Shape().problem()
    with pytest.raises(MessageError):
        decode(
            encode(LogLikelihood(replace(mixture, experts=replace(mixture.experts, covariance=-np.ones((2, 1, 1))))))
        )


# ---------------------------------------------------------------------- how sure a site may be


def most_information(model: SiteModel) -> Array:
    """``Σ_k⁻¹ ⊗ S_k`` of each expert: what its rows would say if their labels were known."""
    pairs = zip(model.mixture.experts.matrices, unpack(model.second), strict=True)
    return np.array([np.kron(np.linalg.inv(S), A) for S, A in pairs])


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_border_takes_what_sites_are_sure_of_and_no_more(structure: str, q: int, gate: str) -> None:
    for options in ({}, {"group_size": 3}, {"weights": True}, {"intercept": False}):
        case = simulated(gate=gate, n=150, q=q, structure=structure, seed=1, **options)
        for K in (1, 2):  # one expert is as sure as known labels make it
            question = FitSite(case.specification.with_order(K), (K,), seed=0, start=case.truth, n_init=1)
            fit = receive(respond(encode(question), Site("here", case.rows)), question)
            assert type(fit) is LocalFit
            assert len(fit.model.precision) == K
            surer = replace(fit, model=replace(fit.model, precision=pack(1.01 * most_information(fit.model))))
            assert receive(encode(surer), question) == Failure(FailureCode.UNREADABLE_ANSWER)


@pytest.mark.slow
@pytest.mark.parametrize("max_iter", [1, 2, 3])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_fit_that_was_cut_short_is_not_too_sure(structure: str, max_iter: int) -> None:
    case = simulated(n=150, q=2, structure=structure, seed=1)
    question = FitSite(case.specification, (2,), seed=0, n_init=1, max_iter=max_iter)
    assert type(receive(respond(encode(question), Site("here", case.rows)), question)) is LocalFit


@pytest.mark.parametrize("family", GAUSSIAN)
@pytest.mark.parametrize("q", [1, 2])
def test_one_coefficient_too_sure_is_refused_by_name(family: str, q: int) -> None:
    fit = local_fit(Shape(family=family, q=q, n=60))
    most = most_information(fit.model)
    assert type(decode(encode(replace(fit, model=replace(fit.model, precision=pack(most)))))) is LocalFit
    K, f, _ = most.shape
    for k in range(K):
        for a in range(f):
            precision = 0.5 * most
            precision[k, a, a] = 1.01 * most[k, a, a]
            with pytest.raises(MessageError, match="higher precision of its coefficients than its rows allow"):
                decode(encode(replace(fit, model=replace(fit.model, precision=pack(precision)))))


# ---------------------------------------------------------------------- answers as the coordinator receives them


STRANGERS = {
    "another order": (Shape(K=3), {}),
    "another family": (Shape(family="poisson"), {}),
    "another gate": (Shape(gate="constant"), {}),
    "another covariance": (Shape(family="gaussian-tied", q=2), {"q": 2}),
    "no intercept": (Shape(intercept=False), {}),
}


@pytest.mark.parametrize(("shape", "asked"), STRANGERS.values(), ids=STRANGERS)
def test_a_local_fit_of_another_kind_than_asked_is_a_failure(shape: Shape, asked: dict[str, int]) -> None:
    question = FitSite(specification_of(Shape(**asked)), (2, 4), seed=0)
    shape = shape.but(n=60)
    assert type(receive(encode(local_fit(Shape(n=60, **asked))), question)) is LocalFit
    assert receive(encode(local_fit(shape)), question) == Failure(FailureCode.WRONG_SHAPE)


def test_a_local_fit_with_a_summary_of_other_columns_is_a_failure() -> None:
    question = FitSite(specification_of(Shape()), (2,), seed=0)
    fit = local_fit(Shape(n=60))
    other = replace(fit, summary=local_fit(Shape(n=60, d=3)).summary)
    ragged = replace(fit, summary=replace(fit.summary, x_products=np.eye(5)))
    for answer in (other, ragged, replace(ragged, model=None)):
        assert receive(encode(answer), question) == Failure(FailureCode.WRONG_SHAPE)
    for columns in ((3, 1), (2, 2)):
        assert receive(encode(fit), replace(question, columns=columns)) == Failure(FailureCode.WRONG_SHAPE)
        silent = replace(fit, model=None)
        assert receive(encode(silent), replace(question, columns=columns)) == Failure(FailureCode.WRONG_SHAPE)
    assert type(receive(encode(fit), replace(question, columns=(2, 1)))) is LocalFit


def test_where_gates_are_compared_a_model_without_covariates_is_a_failure() -> None:
    question = FitSite(specification_of(Shape()), (2,), seed=0)
    assert receive(encode(with_model(covariates=None)), question) == Failure(FailureCode.WRONG_SHAPE)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
def test_a_description_is_there_if_it_was_asked_for_and_is_needed(family: str, gate: str) -> None:
    mixture, rows = Shape(family=family, gate=gate, n=60).problem()
    needed = gate == "softmax" or not family.startswith("gaussian")
    for describe in (True, False):
        question = FitSite(specification_of(Shape(family=family, gate=gate)), (2,), seed=0, describe=describe)
        for described in (True, False):
            fit = LocalFit(column_summary(rows), site_model(mixture, rows, described=described), None)
            answer = receive(encode(fit), question)
            as_asked = described == (describe and needed)
            assert type(answer) is LocalFit if as_asked else answer == Failure(FailureCode.WRONG_SHAPE)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_local_fit_that_is_not_finite_is_a_failure(bad: float) -> None:
    question = FitSite(specification_of(Shape()), (2,), seed=0)
    fit = local_fit(Shape(n=60))
    second = fit.model.second.copy()
    second[1, 2] = bad
    for answer in (
        with_model(log_likelihood=bad),
        with_model(second=second),
        with_covariates(weights=np.append(bad, FOUR.weights[1:])),
        replace(fit, summary=replace(fit.summary, weight=bad)),
    ):
        assert receive(encode(answer), question) == Failure(FailureCode.NOT_FINITE)


def test_another_format_is_told_apart_from_noise() -> None:
    old = bytearray(encode(Likelihood(0.0, 1.0)))
    struct.pack_into("<H", old, 4, 0)
    question = LogLikelihood(Shape().problem()[0])
    assert receive(bytes(old), question) == Failure(FailureCode.OTHER_FORMAT)
    assert receive(b"\0" * 50, question) == Failure(FailureCode.UNREADABLE_ANSWER)


@given(shapes(), shapes())
def test_an_answer_of_another_shape_is_a_failure(shape: Shape, other: Shape) -> None:
    mixture, rows = shape.problem()
    stranger, strange_rows = other.problem()
    question = Expect(mixture)
    mine, theirs = expect(mixture, rows), expect(stranger, strange_rows)
    same = [a.shape for a in (mine.gate.plain, mine.gate.first, mine.gate.second)] == [
        a.shape for a in (theirs.gate.plain, theirs.gate.first, theirs.gate.second)
    ] and [a.shape for a in (mine.experts.plain, mine.experts.first, mine.experts.second)] == [
        a.shape for a in (theirs.experts.plain, theirs.experts.first, theirs.experts.second)
    ]
    assert (receive(encode(theirs), question) == Failure(FailureCode.WRONG_SHAPE)) is not same
    assert receive(encode(expect(mixture, rows, information=True)), question) == Failure(FailureCode.WRONG_SHAPE)


def test_an_answer_of_another_kind_is_a_failure() -> None:
    mixture, rows = Shape().problem()
    questions = values(Shape())[:5]
    answers = {0: column_summary(rows), 2: Likelihood(0.0, 1.0), 3: StartCandidates(())}  # each fits one question only
    for asked, question in enumerate(questions):
        for fits, answer in answers.items():
            outcome = receive(encode(answer), question)
            assert type(outcome) is type(answer) if asked == fits else outcome == Failure(FailureCode.WRONG_SHAPE)
    assert receive(encode(Answers(())), questions[4]) == Failure(FailureCode.WRONG_SHAPE)
    assert receive(encode(StartCandidates((mixture,))), questions[3]) == Failure(FailureCode.WRONG_SHAPE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_a_failure(bad: float) -> None:
    question = LogLikelihood(Shape().problem()[0])
    assert receive(encode(Likelihood(bad, 1.0)), question) == Failure(FailureCode.NOT_FINITE)


@pytest.mark.parametrize("seed", range(6))
def test_honest_sites_with_nearly_collinear_covariates_are_heard(seed: int) -> None:
    x, e, y = np.random.default_rng(seed).normal(size=(3, 300))
    rows = Rows(np.column_stack([x, x + 1e-5 * e]), (x + y)[:, None])
    question = FitSite(Specification(K=1), (1,), seed=0)
    assert type(receive(respond(encode(question), Site("here", rows)), question)) is LocalFit


# ---------------------------------------------------------------------- questions about clients


@pytest.mark.slow
@given(shapes(weights=None))
def test_answers_about_clients_keep_their_bits_and_fit_their_questions(shape: Shape) -> None:
    questions, answers = about_clients(shape)
    mixture, rows = regressions(shape)
    answers = [
        score_sums(mixture, rows),
        *answers[:2],
        expect(mixture, rows),
        *answers[2:-1],
        of_squares(mixture),
        COMPARISON,
        answers[-1],
    ]
    for question, answer in zip(questions, answers, strict=True):
        assert_same_arrays(decode(encode(question)), question)
        assert_same_arrays(receive(encode(answer), question), answer)
    for question in questions:
        for answer in (Likelihood(-1.0, 1.0), column_summary(rows)):
            assert receive(encode(answer), question) == Failure(FailureCode.WRONG_SHAPE)


def test_answers_about_clients_of_another_shape_are_failures() -> None:
    questions, _ = about_clients(Shape(n=40))
    for other in (Shape(n=40, d=3), Shape(n=40, d=1)):
        _, answers = about_clients(other)
        mixture, rows = regressions(other)
        strange = [score_sums(mixture, rows), answers[0], None, expect(mixture, rows), *answers[2:4], None, None]
        for question, answer in zip(
            questions, [*strange, *answers[6:-1], of_squares(mixture), None, None], strict=True
        ):
            if answer is not None:  # of clients in two directions, sizes, steps and mixtures the shape is the same
                assert receive(encode(answer), question) == Failure(FailureCode.WRONG_SHAPE)
    mixture, rows = regressions(Shape(n=40))
    design, theta = mixture.design, np.zeros(3)
    for f in (1, 3):
        answer = client_moments(rows, design, theta, np.ones((3, f)))
        assert receive(encode(answer), Clients(design, theta, np.ones((3, 2)))) == Failure(FailureCode.WRONG_SHAPE)
        fits = f == 3
        assert isinstance(receive(encode(answer), Clients(design, theta)), ClientMoments) is fits
        answer = pair_sums(rows, design, theta, np.ones((3, f)))
        assert receive(encode(answer), Pairs(design, theta, np.ones((3, 2)))) == Failure(FailureCode.WRONG_SHAPE)
    assert receive(encode(expect(mixture, rows)), ScoreSums(mixture)) == Failure(FailureCode.WRONG_SHAPE)
    assert receive(encode(score_sums(mixture, rows)), Expect(mixture)) == Failure(FailureCode.WRONG_SHAPE)


DESIGN = Design.raw(2)
STRANGE_DIRECTIONS = {
    "coefficients of other columns": ((DESIGN, np.zeros(2)), "do not have the shapes of the design"),
    "a basis of other columns": ((DESIGN, np.zeros(3), np.ones((2, 2))), "do not have the shapes of the design"),
    "a basis of nothing": ((DESIGN, np.zeros(3), np.empty((3, 0))), "do not have the shapes of the design"),
    "coefficients that are not finite": ((DESIGN, np.array([0.0, np.nan, 1.0])), "not finite"),
    "coefficients that overflow": ((DESIGN, np.array([0.0, 1e200, 1.0])), "not finite"),
    "a basis that is not finite": ((DESIGN, np.zeros(3), np.full((3, 1), np.inf)), "not finite"),
    "a centre of other columns": ((Design(np.zeros(3), np.ones(2), True), np.zeros(4)), "parts of a design"),
    "a scale that is none": ((Design(np.zeros(2), np.zeros(2), True), np.zeros(3)), "parts of a design"),
    "a centre that is not finite": ((Design(np.array([0.0, np.nan]), np.ones(2), True), np.zeros(3)), "of a design"),
}


@pytest.mark.parametrize("kind", [Pairs, Clients])
@pytest.mark.parametrize(("parts", "said"), STRANGE_DIRECTIONS.values(), ids=STRANGE_DIRECTIONS)
def test_directions_that_are_not_those_of_the_design_are_refused(
    kind: type[Pairs | Clients], parts: tuple[object, ...], said: str
) -> None:
    with pytest.raises(MessageError, match=said):
        decode(encode(kind(*parts)))  # type: ignore[arg-type]


STRANGE_CLIENTS = {
    "rows of other clients": {"n": np.ones(3)},
    "squares of other clients": {"c": np.ones(1)},
    "matrices of other clients": {"S": np.ones((3, 3))},
    "matrices of other directions": {"S": np.ones((2, 6))},
    "a negative number of rows": {"n": np.array([4.0, -1.0])},
    "negative squares": {"c": np.array([-1e-3, 1.0])},
}


@pytest.mark.parametrize("changes", STRANGE_CLIENTS.values(), ids=STRANGE_CLIENTS)
def test_moments_of_clients_that_do_not_fit_together_are_refused(changes: dict[str, Array]) -> None:
    honest = ClientMoments(np.full(2, 4.0), np.ones((2, 3)), np.ones((2, 2)), np.ones(2))
    question = Clients(DESIGN, np.zeros(3), np.ones((3, 2)))
    assert isinstance(receive(encode(honest), question), ClientMoments)
    with pytest.raises(MessageError, match="moments of clients have inconsistent shapes or negative counts"):
        decode(encode(replace(honest, **changes)))
    assert receive(encode(replace(honest, **changes)), question) == Failure(FailureCode.UNREADABLE_ANSWER)


@pytest.mark.parametrize("name", ["n", "S", "b", "c"])
def test_moments_of_clients_that_would_overflow_are_refused(name: str) -> None:
    honest = ClientMoments(np.full(2, 4.0), np.ones((2, 3)), np.ones((2, 2)), np.ones(2))
    with pytest.raises(MessageError, match="moments of clients are not finite"):
        decode(encode(replace(honest, **{name: 1e120 * getattr(honest, name)})))


# ---------------------------------------------------------------------- what answers disclose

SAYS = {
    Summarise: "means and covariances of 2 covariates",
    Expect: "sums over rows, weighted by responsibilities",
    ScoreSums: "squared residuals and residuals times x for",
    ScoreProducts: "the products of the scores of",
    CountTails: "classes of how far out their response is",
    Sample: "for a random sample of 25 % of the rows or clients: sums over rows",
    LogLikelihood: "log-likelihood of one mixture",
    ProposeStart: "at most 3 mixtures of 3 experts fitted to at most 3,000 rows",
    FitSite: "fitted to all rows of the site",
    Several: "; ",
    Pairs: "the sum over clients and pairs of a client's rows of products of residual times x",
    Clients: "for each client, its number of rows",
    SquaredResponses: "the sum over rows of y² xxᵀ",
    CriticSums: "the value of a critic and its gradients",
    Sizes: "the number of rows of each client",
    Anchors: "for each of 1 clients, 2 numbers",
    LocalSteps: "sums over its clients of the changes of their coefficients",
    Identify: "the total weight",
    PrivateScores: "with the noise of the site's budget",
    PrivateLikelihoods: "how well 2 mixtures fit the rows compared with each other",
    PrivateSquares: "6 sums of clipped squared residuals times products of covariates",
    Masked: "as a sum over 3 sites that is opened only if all answer",
    PrivateSteps: "at mixtures that follow from these sums",
}


def test_every_question_has_a_kind_an_answer_and_a_sentence() -> None:
    assert {*TABLE, Several} == set(SAYS)
    given = {row.answer.type for row in TABLE.values()}
    assert set(TABLE) | given | {Answers, Bundle, Failure, Several} == set(TYPES)


NUMBERS = [
    "Failure",
    "Several",
    "Answers",
    "Bundle",
    "Summarise",
    "Expect",
    "LogLikelihood",
    "ProposeStart",
    "FitSite",
    "ScoreSums",
    "Sample",
    "Pairs",
    "Clients",
    "SquaredResponses",
    "CriticSums",
    "Sizes",
    "Anchors",
    "LocalSteps",
    "Identify",
    "ColumnSummary",
    "Statistics",
    "Likelihood",
    "StartCandidates",
    "LocalFit",
    "PairSums",
    "ClientMoments",
    "SquaredMoments",
    "MinimaxSums",
    "ClientSizes",
    "AnchorSteps",
    "ClusterSums",
    "TotalWeight",
    "ScoreProducts",
    "Meat",
    "PrivateScores",
    "NoisySums",
    "Masked",
    "MaskedSums",
    "PrivateSquares",
    "PrivateSteps",
    "NoisySteps",
    "PrivateLikelihoods",
    "CountTails",
    "TailCounts",
]


def test_messages_keep_their_numbers() -> None:
    assert {kind: record.type.__name__ for kind, record in KINDS.items()} == dict(enumerate(NUMBERS))


@pytest.mark.parametrize("name", NUMBERS[4:19])
def test_a_question_within_a_message_is_numbered_from_the_first(name: str) -> None:
    value = next(value for value in values(Shape(d=2)) if type(value).__name__ == name)
    message = Message.from_bytes(encode(Several((value,))))
    assert message.head[:2].tolist() == [1, NUMBERS[4:].index(name)]


@dataclass(frozen=True)
class CountRows:
    disclosed = "the number of rows"


@dataclass(frozen=True)
class Count(Additive):
    n: float


COUNT = Row(
    kinds=(1_000, 1_001),
    question=Struct(CountRows, {}),
    answer=Struct(Count, {"n": Number()}),
    contribution=lambda _, rows: Count(float(rows.n)),
)


@pytest.fixture
def own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ROW_OF", "_RECORDS", "_KIND_OF"):
        monkeypatch.setattr(table_module, name, dict(getattr(table_module, name)))


@pytest.mark.usefixtures("own_table")
def test_a_registered_question_is_asked_alone_and_with_others() -> None:
    with pytest.raises(MessageError, match="CountRows is not in the table"):
        encode(CountRows())
    register(COUNT)
    register(COUNT)  # twice is once
    site = Site("north", Rows(np.zeros((3, 1)), np.zeros((3, 1))))
    assert decode(respond(encode(CountRows()), site)) == Count(3.0)
    both = decode(respond(encode(Several((CountRows(), Identify()))), site))
    assert both.items == (Count(3.0), TotalWeight(3.0))
    assert receive(encode(Count(3.0)), CountRows()) == Count(3.0)


@pytest.mark.usefixtures("own_table")
@pytest.mark.parametrize("kinds", [(4, 1_001), (1_000, 20), (1_000, 1_000)])
def test_a_number_stands_for_one_record(kinds: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError, match="choose another number, from 1000 to 65535"):
        register(replace(COUNT, kinds=kinds))


def test_bytes_of_a_question_that_is_not_registered_are_refused() -> None:
    data = Message(1_000, (), np.empty(0)).to_bytes()
    with pytest.raises(MessageError, match="message of kind 1000, which is not in the table"):
        decode(data)
    site = Site("north", Rows(np.zeros((3, 1)), np.zeros((3, 1))))
    assert decode(respond(data, site)).code is FailureCode.UNREADABLE_QUESTION


NEW_PROCESS = """
import sys
from consilience.messages import Identify, encode
from consilience.messages.table import decode
encode(Identify())
assert not any(name.startswith("consilience.published") for name in sys.modules)
print(type(decode(bytes.fromhex(sys.argv[1]))).__name__)
"""


@pytest.mark.slow
def test_a_process_that_knows_only_the_entry_point_reads_a_published_question() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEW_PROCESS, encode(SquaredResponses(DESIGN)).hex()],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "SquaredResponses"


def test_only_sums_over_rows_may_be_added_over_sites() -> None:
    assert {kind for kind, row in TABLE.items() if not row.adds} == {
        ProposeStart,
        FitSite,
        Clients,
        Sizes,
        Anchors,
        Masked,
        PrivateSteps,
    }


def test_the_sentence_of_a_question_says_what_leaves() -> None:
    questions = {type(value): value for value in values(Shape(d=2)) if type(value) in SAYS}
    for kind, said in SAYS.items():
        assert said in questions[kind].disclosed
    whole = Clients(DESIGN, np.zeros(3))
    assert "second moments of 3 covariates with each other and with residuals" in whole.disclosed
    assert "second moments of 2 combinations of covariates" in replace(whole, basis=np.ones((3, 2))).disclosed
    pairs = Pairs(DESIGN, np.zeros(3), np.ones((3, 2)))
    assert pairs.disclosed.endswith("times a basis of 2 directions")
    assert Several((whole, pairs, pairs)).disclosed == f"{whole.disclosed}; 2 times {pairs.disclosed}"
    mixture, _ = regressions(Shape())
    assert Expect(mixture, information=True).disclosed == f"{Expect(mixture).disclosed}, and the observed information"


def test_a_mixture_whose_gate_reads_other_columns_is_sent_whole() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(50, 3)), rng.normal(size=(50, 1)))
    specification = Specification(K=2, expert_columns=(0, 2), gate_columns=(1,))
    mixture = specification.blank(column_summary(rows))
    sent = decode(encode(Expect(mixture))).mixture
    assert (sent.design.columns, sent.gate_design.columns) == ((0, 2), (1,))
    np.testing.assert_array_equal(sent.gate_weights(rows.X), mixture.gate_weights(rows.X))
    question = ProposeStart(specification, column_summary(rows), seed=0, n_init=2)
    assert decode(encode(question)).specification == specification


@pytest.mark.parametrize(
    "spoilt",
    [
        {"columns": (2, 0)},
        {"columns": (0, 7)},
        {"others": np.zeros((1, 2))},
        {"others": np.full((1, 3), np.nan)},
        {"columns": None},
        {"others": None},
    ],
)
def test_a_design_whose_columns_do_not_fit_is_refused(spoilt) -> None:
    design = Design(np.zeros(2), np.ones(2), columns=(0, 2), others=np.zeros((1, 3)))
    assert decode(encode(SquaredResponses(design))).design.columns == (0, 2)
    with pytest.raises(MessageError):
        decode(encode(SquaredResponses(replace(design, **spoilt))))


@pytest.mark.parametrize("columns", [(1, 0), (0, 9)])
def test_a_specification_whose_columns_do_not_exist_is_refused(columns) -> None:
    rows = Rows(np.random.default_rng(0).normal(size=(9, 2)), np.ones((9, 1)))
    question = ProposeStart(Specification(K=2, gate_columns=columns), column_summary(rows), seed=0, n_init=2)
    with pytest.raises(MessageError, match="columns"):
        decode(encode(question))

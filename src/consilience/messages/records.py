"""Codecs of the parts of questions and answers, and the rows of the library's own questions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from consilience.aggregate import CovariateSummary, SiteModel
from consilience.errors import InvalidInputError, MessageError
from consilience.fit import Expect, Specification, StopReason
from consilience.fit.criteria import label_count, log_likelihood
from consilience.fit.starts import CONTENDERS
from consilience.messages import checks, codec, questions
from consilience.messages.codec import Choice, Flag, Floats, Maybe, Number, OneOf, Struct, Symmetric, Tuple, Whole
from consilience.messages.table import Row, answers, register, row_of
from consilience.model import FAMILIES, GATES, ColumnSummary, Design, Experts, Gate, Mixture, Statistics, received
from consilience.model.clients import ClientMoments, PairSums, client_moments, pair_sums
from consilience.model.expectation import Meat, expect, score_products, score_sums
from consilience.model.families.covariance import STRUCTURES
from consilience.model.families.registry import OWN, family_of
from consilience.model.mixture import layout_of, score_layout
from consilience.model.statistics import Moments
from consilience.model.summary import column_summary
from consilience.model.tails import EDGES, TailCounts, count_tails
from consilience.numerics.arrays import triangle_size

MOST_EXPERTS = 200
MOST_CLASSES = 10_000
MOST_COLUMNS = 100_000
MOST_PARTS = 1_000
MOST_STARTS = 10**4
MOST_ITERATIONS = 10**6
MOST_PLACES = 10**4
MOST_MASKED = 10_000
"""Largest number of sites of a masked sum."""
LONGEST_NAME = 1_000
MOST_SUM = 2**62
"""Largest integer of a noisy sum; contributions of rows are at most 2^21 each."""
OTHER = 255
"""Code of a family that a package registers, whose name follows."""
SEED = Whole(0, 2**62)
VECTOR, MATRIX, CUBE, NUMBER, FLAG = Floats((1,)), Floats((2,)), Floats((3,)), Number(), Flag()


@cache
def of_fields(kind: type[Experts] | type[Gate]) -> Struct:
    """Return the codec of a gate or a family, from its ``message_fields``."""
    return Struct(kind, {name: _field(form) for name, form in kind.message_fields.items()})


def _field(form: tuple[int, ...] | tuple[str, ...]) -> Floats | Choice:
    axes = tuple(each for each in form if isinstance(each, int))
    return Floats(axes) if axes else Choice(tuple(each for each in form if isinstance(each, str)))


class FamilyName:
    """Codec of the name of a family: its code among those of the library, or ``OTHER`` and the letters of its name.

    A family that a package registers is so the same one on both sides, whatever else is registered there.
    """

    codes = tuple(family.family for family in OWN)
    letters = Tuple(Whole(1, 127), 100)

    def write(self, value: str, to: codec.Writer) -> None:
        """Append the code, or ``OTHER`` and the letters, to the head."""
        to.head.append(self.codes.index(value) if value in self.codes else OTHER)
        if value not in self.codes:
            self.letters.write(value.encode(), to)

    def read(self, source: codec.Reader) -> str:
        """Read a name; raise an error if the family is not known on this side."""
        code = source.whole(0, OTHER)
        if code < len(self.codes):
            return self.codes[code]
        if code != OTHER:
            raise MessageError(f"message has a family with code {code}; this version of the library has none")
        name = bytes(self.letters.read(source)).decode()
        try:
            return family_of(name).family
        except InvalidInputError as error:
            raise MessageError(str(error)) from error


class SiteName:
    """Codec of the name of a site, as its bytes in UTF-8."""

    letters = Tuple(Whole(0, 255), LONGEST_NAME)

    def write(self, value: str, to: codec.Writer) -> None:
        """Append the bytes to the head."""
        self.letters.write(value.encode(), to)

    def read(self, source: codec.Reader) -> str:
        """Read a name."""
        try:
            return bytes(self.letters.read(source)).decode()
        except UnicodeDecodeError as error:
            raise MessageError("the name of a site is not text in UTF-8") from error


class ExpertsOfFamily:
    """Codec of experts: the name of their family, then its fields."""

    def write(self, value: Experts, to: codec.Writer) -> None:
        """Write the name and the fields."""
        if FAMILIES.get(value.family) is not type(value):
            raise MessageError(f"{type(value).__name__} cannot be sent: expected one of {', '.join(FAMILIES)}")
        FAMILY.write(value.family, to)
        of_fields(type(value)).write(value, to)

    def read(self, source: codec.Reader) -> Any:
        """Read a name, then the fields of that family."""
        return of_fields(FAMILIES[FAMILY.read(source)]).read(source)


FAMILY = FamilyName()
COLUMNS = Tuple(Whole(0, MOST_COLUMNS), MOST_COLUMNS)
DESIGN = Struct(
    Design,
    {
        "centre": VECTOR,
        "scale": VECTOR,
        "intercept": FLAG,
        "columns": Maybe(COLUMNS),
        "others": Maybe(MATRIX),
    },
    received.check_design,
)
GATE = OneOf(*(of_fields(gate) for gate in GATES.values()))
EXPERTS = ExpertsOfFamily()
MIXTURE = Struct(
    Mixture, {"design": DESIGN, "gate": GATE, "experts": EXPERTS, "gate_design": Maybe(DESIGN)}, received.check_mixture
)
SUMMARY = Struct(
    ColumnSummary,
    {"weight": NUMBER, "x_mean": VECTOR, "x_products": Symmetric(), "y_mean": VECTOR, "y_products": MATRIX},
    checks.check_summary,
)
MOMENTS = Struct(Moments, {"plain": VECTOR, "first": MATRIX, "second": MATRIX})
STATISTICS = Struct(
    Statistics,
    {
        "gate": MOMENTS,
        "experts": MOMENTS,
        "log_likelihood": NUMBER,
        "absolute": NUMBER,
        "weight": NUMBER,
        "information": Maybe(Symmetric()),
    },
)
SPECIFICATION = Struct(
    Specification,
    {
        "K": Whole(1, MOST_EXPERTS),
        "family": FAMILY,
        "gate": Choice(tuple(GATES)),
        "structure": Choice(STRUCTURES),
        "n_classes": Whole(1, MOST_CLASSES),
        "intercept": FLAG,
        "gate_ridge": NUMBER,
        "expert_ridge": Maybe(NUMBER),
        "reg_covar": NUMBER,
        "shape_ratio": NUMBER,
        "degrees_of_freedom": Maybe(NUMBER),
        "expert_columns": Maybe(COLUMNS),
        "gate_columns": Maybe(COLUMNS),
    },  # not `shared`, which the coordinator applies to sums
    checks.check_specification,
)
COVARIATES = Struct(
    CovariateSummary,
    {
        "weights": VECTOR,
        "means": MATRIX,
        "covariances": MATRIX,
        "levels": Tuple(VECTOR, MOST_COLUMNS),
        "shares": Tuple(MATRIX, MOST_COLUMNS),
    },
    checks.check_covariates,
)
SITE_MODEL = Struct(
    SiteModel,
    {
        "mixture": MIXTURE,
        "weight": NUMBER,
        "label_counts": VECTOR,
        "mass": VECTOR,
        "second": MATRIX,
        "log_likelihood": NUMBER,
        "precision": MATRIX,
        "covariates": Maybe(COVARIATES),
        "exposure": NUMBER,
    },
    checks.check_site_model,
)

# ---------------------------------------------------------------- rows of the table

PRIVATE_SQUARES = Struct(
    questions.PrivateSquares,
    {"mixture": MIXTURE, "factor": MATRIX, "clip": NUMBER, "place": Whole(0, MOST_PLACES)},
    checks.check_private_squares,
)
PRIVATE_LIKELIHOODS = Struct(
    questions.PrivateLikelihoods,
    {"mixtures": Tuple(MIXTURE, questions.MOST_COMPARED), "clip": NUMBER, "place": Whole(0, MOST_PLACES)},
    checks.check_private_likelihoods,
)
PRIVATE_SCORES = Struct(
    questions.PrivateScores,
    {"mixture": MIXTURE, "factor": MATRIX, "clip": NUMBER, "place": Whole(0, MOST_PLACES)},
    checks.check_private_scores,
)
PRIVATE_SUMS = OneOf(PRIVATE_SCORES, PRIVATE_SQUARES, PRIVATE_LIKELIHOODS)
EXPECT = Struct(Expect, {"mixture": MIXTURE, "information": FLAG})
SCORE_SUMS = Struct(questions.ScoreSums, {"mixture": MIXTURE})
SUMS = OneOf(EXPECT, SCORE_SUMS)
NOISY_SUMS = Struct(
    questions.NoisySums,
    {"values": Tuple(Whole(-MOST_SUM, MOST_SUM), MOST_COLUMNS), "clip": NUMBER, "variance": Whole(1, MOST_SUM)},
)
DIRECTIONS: dict[str, codec.Field] = {"design": DESIGN, "theta": VECTOR, "basis": Maybe(MATRIX)}

ROWS: tuple[Row, ...] = (
    Row(
        kinds=(4, 19),
        question=Struct(questions.Summarise, {"d": Whole(0, MOST_COLUMNS), "q": Whole(1, MOST_COLUMNS)}),
        answer=SUMMARY,
        reads=checks.reads_columns,
        contribution=lambda _, rows: column_summary(rows),
        fits=lambda asked, given: checks.summary_fits(given, asked.d, asked.q),
        largest=lambda asked: checks.HEADS + asked.d + triangle_size(asked.d) + asked.q * (asked.q + 1),
        impossible=checks.in_summary,
        products=lambda _, given: received.products_of_summary(given),
    ),
    Row(
        kinds=(5, 20),
        question=EXPECT,
        answer=STATISTICS,
        reads=checks.reads_mixture,
        contribution=lambda asked, rows: expect(asked.mixture, rows, information=asked.information),
        fits=lambda asked, given: checks.has_layout(given, layout_of(asked.mixture), asked.information),
        largest=lambda asked: checks.HEADS + layout_of(asked.mixture).size(information=asked.information),
        impossible=checks.in_statistics,
        products=lambda asked, given: received.products_of_statistics(asked.mixture, given),
    ),
    Row(
        kinds=(6, 21),
        question=Struct(questions.LogLikelihood, {"mixture": MIXTURE}),
        answer=Struct(questions.Likelihood, {"log_likelihood": NUMBER, "weight": NUMBER}),
        reads=checks.reads_mixture,
        contribution=lambda asked, rows: questions.Likelihood(log_likelihood(asked.mixture, rows), label_count(rows)),
        largest=lambda _: checks.HEADS,
        impossible=checks.in_likelihood,
        products=lambda _, given: received.CrossProducts.counted(labels=given.weight),
    ),
    Row(
        kinds=(7, 22),
        question=Struct(
            questions.ProposeStart,
            {"specification": SPECIFICATION, "summary": SUMMARY, "seed": SEED, "n_init": Whole(1, MOST_STARTS)},
            checks.check_local_fit,
        ),
        answer=Struct(questions.StartCandidates, {"mixtures": Tuple(MIXTURE, CONTENDERS)}),
        adds=False,
        largest=checks.numbers_of_candidates,
        fits=checks.are_start_candidates,
    ),
    Row(
        kinds=(8, 23),
        question=Struct(
            questions.FitSite,
            {
                "specification": SPECIFICATION,
                "orders": Tuple(Whole(1, MOST_EXPERTS), MOST_PARTS),
                "seed": SEED,
                "n_init": Whole(1, MOST_STARTS),
                "tol": NUMBER,
                "max_iter": Whole(1, MOST_ITERATIONS),
                "start": Maybe(MIXTURE),
                "columns": Maybe(Tuple(Whole(0, MOST_COLUMNS), 2)),
                "describe": FLAG,
            },
            checks.check_fit_site,
        ),
        answer=Struct(
            questions.LocalFit,
            {"summary": SUMMARY, "model": Maybe(SITE_MODEL), "stop": Maybe(Choice(tuple(StopReason)))},
            checks.check_fit,
        ),
        adds=False,
        fits=checks.is_fit_of,
        largest=checks.numbers_of_fit,
        impossible=lambda asked, given: checks.in_summary(asked, given.summary),
        products=checks.products_of_fit,
    ),
    Row(
        kinds=(9, 20),
        question=SCORE_SUMS,
        answer=STATISTICS,
        reads=checks.reads_mixture,
        contribution=lambda asked, rows: score_sums(asked.mixture, rows),
        fits=lambda asked, given: checks.has_layout(given, score_layout(asked.mixture), False),
        largest=lambda asked: checks.HEADS + score_layout(asked.mixture).size(information=False),
        impossible=checks.in_statistics,
        products=lambda asked, given: received.CrossProducts.counted(
            float(given.experts.plain[: asked.mixture.K].sum()), given.weight
        ),
    ),
    Row(
        kinds=(32, 33),
        question=Struct(questions.ScoreProducts, {"mixture": MIXTURE, "second": MATRIX}, checks.check_score_products),
        answer=Struct(Meat, {"products": Symmetric(), "weight": NUMBER, "clusters": NUMBER}),
        reads=checks.reads_mixture,
        contribution=lambda asked, rows: score_products(asked.mixture, rows, asked.second),
        fits=lambda asked, given: given.products.shape == (asked.mixture.parameter_count,) * 2,
        largest=lambda asked: checks.HEADS + triangle_size(asked.mixture.parameter_count),
        impossible=checks.in_meat,
        products=lambda _, given: received.CrossProducts.counted(labels=given.weight),
    ),
    Row(
        kinds=(42, 43),
        question=Struct(questions.CountTails, {"mixture": MIXTURE}, checks.check_ordered),
        answer=Struct(TailCounts, {"counts": VECTOR}),
        reads=checks.reads_ungrouped,
        contribution=lambda asked, rows: count_tails(asked.mixture, rows),
        fits=lambda _, given: given.counts.shape == (len(EDGES) + 1,),
        largest=lambda _: checks.HEADS + len(EDGES) + 1,
        impossible=checks.in_tails,
        products=lambda _, given: received.CrossProducts.counted(given.rows),
    ),
    Row(
        kinds=(34, 35),
        question=PRIVATE_SCORES,
        answer=NOISY_SUMS,
        reads=checks.reads_scored,
        fits=checks.are_noisy_sums,
        largest=lambda asked: checks.HEADS + asked.size + 1,
    ),
    Row(
        kinds=(38, 35),
        question=PRIVATE_SQUARES,
        answer=NOISY_SUMS,
        reads=checks.reads_single_rows,
        fits=checks.are_noisy_sums,
        largest=lambda asked: checks.HEADS + asked.size + 1,
    ),
    Row(
        kinds=(41, 35),
        question=PRIVATE_LIKELIHOODS,
        answer=NOISY_SUMS,
        reads=checks.reads_single_rows,
        fits=checks.are_noisy_sums,
        largest=lambda asked: checks.HEADS + asked.size + 1,
    ),
    Row(
        kinds=(36, 37),
        question=Struct(
            questions.Masked,
            {
                "question": PRIVATE_SUMS,
                "sites": Tuple(SiteName(), MOST_MASKED),
            },
            checks.check_masked,
        ),
        answer=Struct(
            questions.MaskedSums,
            {
                "values": Tuple(Whole(-(2**63), 2**63 - 1), MOST_COLUMNS),
                "clip": NUMBER,
                "variance": Whole(1, MOST_SUM),
            },
        ),
        adds=False,
        fits=checks.are_masked_sums,
        largest=lambda asked: checks.HEADS + asked.question.size + 1,
    ),
    Row(
        kinds=(39, 40),
        question=Struct(questions.PrivateSteps, {"start": MIXTURE, "covariates": MATRIX}, checks.check_private_steps),
        answer=Struct(
            questions.NoisySteps,
            {
                "mixtures": Tuple(MIXTURE, checks.MOST_STEPS),
                "dampings": VECTOR,
                "shares": Tuple(Whole(1, MOST_PLACES), checks.MOST_STEPS),
                "sums": Tuple(NOISY_SUMS, checks.MOST_STEPS),
            },
        ),
        adds=False,
        reads=checks.reads_single_rows,
        fits=checks.are_noisy_steps,
        largest=checks.numbers_of_steps,
    ),
    Row(
        kinds=(10, 20),
        question=Struct(questions.Sample, {"question": SUMS, "share": NUMBER, "seed": SEED}, checks.check_sample),
        answer=STATISTICS,
        fits=lambda asked, given: answers(asked.question, given),
        largest=lambda asked: row_of(asked.question).largest(asked.question),
        impossible=checks.in_statistics,
    ),
    Row(
        kinds=(11, 24),
        question=Struct(questions.Pairs, DIRECTIONS, checks.check_directions),
        answer=Struct(PairSums, {"product": MATRIX, "pairs": NUMBER}),
        reads=checks.reads_design,
        contribution=lambda asked, rows: pair_sums(rows, asked.design, asked.theta, asked.basis),
        fits=lambda asked, given: given.product.shape == (asked.design.p, checks.direction_count(asked)),
        largest=lambda asked: checks.HEADS + asked.design.p * checks.direction_count(asked),
        impossible=checks.in_pairs,
    ),
    Row(
        kinds=(12, 25),
        question=Struct(questions.Clients, DIRECTIONS, checks.check_directions),
        answer=Struct(ClientMoments, {"n": VECTOR, "S": MATRIX, "b": MATRIX, "c": VECTOR}, checks.check_clients),
        adds=False,
        reads=checks.reads_design,
        contribution=lambda asked, rows: client_moments(rows, asked.design, asked.theta, asked.basis),
        fits=lambda asked, given: given.f == checks.direction_count(asked),
        impossible=checks.in_clients,
        products=lambda _, given: received.CrossProducts.counted(float(given.n.sum()), float(np.sum(given.n > 0))),
    ),
    Row(
        kinds=(18, 31),
        question=Struct(questions.Identify, {}),
        answer=Struct(questions.TotalWeight, {"weight": NUMBER}),
        contribution=lambda _, rows: questions.TotalWeight(float(rows.n if rows.weight is None else rows.weight.sum())),
        largest=lambda _: checks.HEADS,
        impossible=lambda _, given: checks.weight_problem(given.weight),
        products=lambda _, given: received.CrossProducts.counted(given.weight),
    ),
)
"""Rows of the questions of recommended methods, local fits and checks."""
register(*ROWS)

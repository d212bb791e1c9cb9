"""What each part of an answer means, in words: for the people of a site who approve answers in rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from consilience.messages import (
    Answers,
    Likelihood,
    LocalFit,
    MaskedSums,
    NoisySteps,
    NoisySums,
    StartCandidates,
)
from consilience.messages.table import table
from consilience.model import ColumnSummary, Statistics
from consilience.model.clients import ClientMoments, PairSums
from consilience.model.expectation import Meat
from consilience.model.tails import TailCounts

KINDS = {
    "Summarise": "means and covariances of all rows",
    "FitSite": "the site's own model",
    "ProposeStart": "models of a sample of the rows",
    "LogLikelihood": "how well a model fits the rows",
    "Expect": "sums at a common model",
    "ScoreSums": "sums at a common model, fewer of them",
    "ScoreProducts": "products of sums at a common model",
    "CountTails": "how far out responses are under a model",
    "Sample": "sums at a common model, over a random part of the clients",
    "Pairs": "sums over pairs of rows of a client",
    "Clients": "moments of each client",
    "PrivateScores": "sums of scores with noise",
    "PrivateSquares": "sums of squares with noise",
    "PrivateLikelihoods": "comparison of models with noise",
    "Masked": "sums with noise and masks",
    "PrivateSteps": "sums of scores with noise, for all steps",
}
"""What each kind of question asks for, in a few words."""

_SUMMARY = {
    "weight": "the number of rows",
    "x_mean": "the mean of each covariate",
    "x_products": "variances and covariances of the covariates, times the number of rows; for categories counts of "
    "levels and of pairs of levels",
    "y_mean": "the mean of the response",
    "y_products": "the variance of the response, times the number of rows",
}
_MODEL = {
    "mixture": "the fitted model: gate, and coefficients and variance of each expert",
    "weight": "the number of rows of the fit",
    "label_counts": "expected number of rows of each expert by the gate",
    "mass": "number of rows of each expert",
    "second": "sums of products of covariates among the rows of each expert; for categories counts",
    "log_likelihood": "how well the model fits the rows, one number",
    "precision": "how precisely each coefficient is known (inverse of a covariance matrix)",
    "covariates": "a summary of the covariates by a few classes of rows",
    "exposure": "the mean exposure of the rows",
}
_SUMS = {
    "values": "whole numbers: the sums and a multiple of the number of rows, all with noise",
    "clip": "the bound on what one row adds, which follows from the question",
    "variance": "the variance of the noise, which follows from the budget",
}
ANSWER_FIELDS: Mapping[type, Mapping[str, str]] = {
    ColumnSummary: _SUMMARY,
    LocalFit: {
        **{f"summary.{name}": said for name, said in _SUMMARY.items()},
        **{f"model.{name}": said for name, said in _MODEL.items()},
        "stop": "why the fit ended, such as converged",
    },
    StartCandidates: {"mixtures": "at most three models, fitted to at most 3,000 rows of the site"},
    Likelihood: {"log_likelihood": "how well the model fits the rows, one number", "weight": "the number of rows"},
    Statistics: {
        "gate.plain": "for each expert, the sum over rows of the probability that a row is of it",
        "gate.first": "sums of covariates, weighted by the difference of these probabilities from the gate's",
        "gate.second": "sums of products of covariates, weighted by how undecided the gate is",
        "experts.plain": "for each expert, sums of the probabilities, and of what its family needs, such as squared "
        "residuals, weighted by them",
        "experts.first": "for each expert, sums of residuals times covariates, weighted in the same way",
        "experts.second": "for each expert, sums of products of covariates, weighted in the same way",
        "log_likelihood": "how well the model fits the rows, one number",
        "absolute": "the same without signs, for the precision of the arithmetic",
        "weight": "the number of rows, or of clients",
        "information": "how precisely each parameter is known (a matrix of sums over rows)",
    },
    Meat: {
        "products": "sums over rows of products of scores",
        "weight": "the number of rows",
        "clusters": "the number of rows, or of clients",
    },
    TailCounts: {"counts": "the number of rows in each class of how far out their response is under the model"},
    PairSums: {
        "product": "the sum over pairs of rows of a client of products of residuals times covariates",
        "pairs": "the number of pairs",
    },
    ClientMoments: {
        "n": "the number of rows of each client",
        "S": "for each client, sums of products of covariates, or of their combinations",
        "b": "for each client, sums of residuals times covariates, or times their combinations",
        "c": "for each client, the sum of squared residuals",
    },
    NoisySums: _SUMS,
    MaskedSums: {**_SUMS, "values": "whole numbers that look random alone; with those of all sites they give the sums"},
    NoisySteps: {
        "mixtures": "the models at which sums were asked, which follow from the start and from the sums before",
        "dampings": "how far each step goes, which follows from the study",
        "shares": "parts of the budget of each step",
        "sums": "whole numbers: the sums of each step and a multiple of the number of rows, all with noise",
    },
}
"""What each part of an answer means, by the kind of the answer and the name of the part."""
WITHOUT = {"ScoreSums": ("gate.second", "experts.second", "information")}
"""Parts that answers to a kind of question do not have."""


def fields_of_kind(question: type[Any]) -> Mapping[str, str]:
    """Return the parts that an answer to a kind of question may have, with what they mean."""
    said = ANSWER_FIELDS[table()[question].answer.type]
    return {name: each for name, each in said.items() if name not in WITHOUT.get(question.__name__, ())}


def fields_of_answer(answer: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Yield place, name, meaning and value of each part of an answer; a part without a meaning is an error.

    The place is that of one of several answers in a message, such as ``"2. "``; empty for a single one.
    """
    items = answer.items if isinstance(answer, Answers) else (answer,)
    for i, each in enumerate(items, start=1):
        said = ANSWER_FIELDS[type(each)]
        for name, value in _parts("", each, said):
            yield f"{i}. " if len(items) > 1 else "", name, said[name], value


def _parts(prefix: str, value: Any, said: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for each in fields(value):
        name, part = f"{prefix}{each.name}", getattr(value, each.name)
        if part is None or np.size(part) == 0:
            continue
        if name not in said and is_dataclass(part):
            yield from _parts(f"{name}.", part, said)
        else:
            yield name, part

"""Messages between a coordinator and sites: questions, answers, failures and their encoding."""

import consilience.messages.records  # noqa: F401 - adds the questions of the library to the table
from consilience.messages.dialogue import Dialogue, Each, PerSite, Request, Total, together
from consilience.messages.failures import Failure, FailureCode, SiteError
from consilience.messages.questions import (
    Answers,
    Clients,
    FitSite,
    Identify,
    Likelihood,
    LocalFit,
    LogLikelihood,
    Pairs,
    ProposeStart,
    Question,
    Sample,
    ScoreProducts,
    ScoreSums,
    Several,
    StartCandidates,
    Summarise,
    question_for,
)
from consilience.messages.table import Row, decode, encode, register

__all__ = [
    "Answers",
    "Clients",
    "Dialogue",
    "Each",
    "Failure",
    "FailureCode",
    "FitSite",
    "Identify",
    "Likelihood",
    "LocalFit",
    "LogLikelihood",
    "Pairs",
    "PerSite",
    "ProposeStart",
    "Question",
    "Request",
    "Row",
    "Sample",
    "ScoreProducts",
    "ScoreSums",
    "Several",
    "SiteError",
    "StartCandidates",
    "Summarise",
    "Total",
    "decode",
    "encode",
    "question_for",
    "register",
    "together",
]

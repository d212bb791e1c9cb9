"""Messages between a coordinator and sites: questions, answers, failures and their encoding."""

from consilience.messages.anchor_questions import Anchors, LocalSteps, Sizes
from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.dialogue import Dialogue, Each, PerSite, Request, Total, together
from consilience.messages.failures import Failure, FailureCode, SiteError
from consilience.messages.questions import (
    Answer,
    Answers,
    CriticSums,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    ProposeStart,
    Question,
    Sample,
    ScoreSums,
    Several,
    SquaredResponses,
    StartCandidates,
    Summarise,
    question_for,
)
from consilience.messages.table import decode, encode

__all__ = [
    "Anchors",
    "Answer",
    "Answers",
    "Clients",
    "CriticSums",
    "Dialogue",
    "Each",
    "Failure",
    "FailureCode",
    "FitSite",
    "Likelihood",
    "LocalFit",
    "LocalSteps",
    "LogLikelihood",
    "Pairs",
    "PerSite",
    "ProposeStart",
    "Question",
    "Request",
    "Sample",
    "ScoreSums",
    "Several",
    "SiteError",
    "Sizes",
    "SquaredResponses",
    "StartCandidates",
    "Summarise",
    "Total",
    "decode",
    "encode",
    "question_for",
    "together",
]

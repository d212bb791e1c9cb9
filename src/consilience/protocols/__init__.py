"""Federated methods as dialogues: questions, answers, and what drives them."""

from consilience.protocols.dialogue import Each, Total, together
from consilience.protocols.engine import Engine, Reply
from consilience.protocols.failures import Failure, SiteError, Trouble
from consilience.protocols.federated_em import FederatedEM
from consilience.protocols.journal import Journal
from consilience.protocols.one_shot import CombinedFit, OneShot
from consilience.protocols.questions import (
    Answers,
    Candidates,
    FitLocally,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    Several,
    Summarise,
    disclosure,
)
from consilience.protocols.record import Exchange, Record, Round
from consilience.protocols.run import Run, run
from consilience.protocols.table import decode, encode

__all__ = [
    "Answers",
    "Candidates",
    "CombinedFit",
    "Each",
    "Engine",
    "Exchange",
    "Failure",
    "FederatedEM",
    "FitLocally",
    "FitSite",
    "Journal",
    "Likelihood",
    "LocalFit",
    "LogLikelihood",
    "OneShot",
    "Record",
    "Reply",
    "Round",
    "Run",
    "Several",
    "SiteError",
    "Summarise",
    "Total",
    "Trouble",
    "decode",
    "disclosure",
    "encode",
    "run",
    "together",
]

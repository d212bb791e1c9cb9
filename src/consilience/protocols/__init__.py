"""Federated methods as dialogues: questions, answers, and what drives them."""

from consilience.protocols.dialogue import Each, Own, Total, together
from consilience.protocols.engine import Engine, Reply
from consilience.protocols.failures import Failure, SiteError, Trouble
from consilience.protocols.federated_em import FederatedEM
from consilience.protocols.fedgrem import FedGrEM
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
from consilience.protocols.shared_centre import SharedCentre
from consilience.protocols.shared_fit import SharedFit, SiteShare
from consilience.protocols.table import decode, encode

__all__ = [
    "Answers",
    "Candidates",
    "CombinedFit",
    "Each",
    "Engine",
    "Exchange",
    "Failure",
    "FedGrEM",
    "FederatedEM",
    "FitLocally",
    "FitSite",
    "Journal",
    "Likelihood",
    "LocalFit",
    "LogLikelihood",
    "OneShot",
    "Own",
    "Record",
    "Reply",
    "Round",
    "Run",
    "Several",
    "SharedCentre",
    "SharedFit",
    "SiteError",
    "SiteShare",
    "Summarise",
    "Total",
    "Trouble",
    "decode",
    "disclosure",
    "encode",
    "run",
    "together",
]

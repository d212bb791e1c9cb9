"""Federated methods as dialogues: questions, answers, and what drives them."""

from consilience.protocols.anchor_questions import Anchors, LocalSteps, Sizes
from consilience.protocols.client_questions import Clients, Pairs
from consilience.protocols.clustered import ClusteredClients, ClusteredFit
from consilience.protocols.dialogue import Each, Own, Total, together
from consilience.protocols.engine import Engine, Reply
from consilience.protocols.failures import Failure, SiteError, Trouble
from consilience.protocols.federated_em import FederatedEM
from consilience.protocols.fedgrem import FedGrEM
from consilience.protocols.gradient_em import GradientEM
from consilience.protocols.journal import Journal
from consilience.protocols.minimax import MinimaxRegression
from consilience.protocols.moment_descent import DescentFit, FedMomentDescent
from consilience.protocols.one_shot import CombinedFit, OneShot
from consilience.protocols.questions import (
    Answers,
    Candidates,
    Compare,
    FitLocally,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    Sample,
    Score,
    Several,
    SquaredResponses,
    Summarise,
    disclosure,
)
from consilience.protocols.record import Exchange, Record, Round
from consilience.protocols.run import Run, run
from consilience.protocols.shared_centre import SharedCentre
from consilience.protocols.shared_fit import SharedFit, SiteShare
from consilience.protocols.table import decode, encode

__all__ = [
    "Anchors",
    "Answers",
    "Candidates",
    "Clients",
    "ClusteredClients",
    "ClusteredFit",
    "CombinedFit",
    "Compare",
    "DescentFit",
    "Each",
    "Engine",
    "Exchange",
    "Failure",
    "FedGrEM",
    "FedMomentDescent",
    "FederatedEM",
    "FitLocally",
    "FitSite",
    "GradientEM",
    "Journal",
    "Likelihood",
    "LocalFit",
    "LocalSteps",
    "LogLikelihood",
    "MinimaxRegression",
    "OneShot",
    "Own",
    "Pairs",
    "Record",
    "Reply",
    "Round",
    "Run",
    "Sample",
    "Score",
    "Several",
    "SharedCentre",
    "SharedFit",
    "SiteError",
    "SiteShare",
    "Sizes",
    "SquaredResponses",
    "Summarise",
    "Total",
    "Trouble",
    "decode",
    "disclosure",
    "encode",
    "run",
    "together",
]

"""Federated methods: dialogues that receive answers, without access to data or engines."""

from consilience.methods.clustered import ClusteredClients, ClusteredFit
from consilience.methods.federated_em import FederatedEM, ask_total
from consilience.methods.lasso import Lasso, LassoFit, LassoStep
from consilience.methods.one_shot import CombinedFit, OneShot
from consilience.methods.own_gates import EqualGates, OwnGatesFit
from consilience.methods.per_site import SharedCentre, SharedFit, SiteShare
from consilience.methods.per_site.local_fits import LocalFits, local_fits
from consilience.methods.private_scoring import Privacy, PrivateFit, PrivateScoring
from consilience.methods.task import Method, QuestionKind, Task

__all__ = [
    "ClusteredClients",
    "ClusteredFit",
    "CombinedFit",
    "EqualGates",
    "FederatedEM",
    "Lasso",
    "LassoFit",
    "LassoStep",
    "LocalFits",
    "Method",
    "OneShot",
    "OwnGatesFit",
    "Privacy",
    "PrivateFit",
    "PrivateScoring",
    "QuestionKind",
    "SharedCentre",
    "SharedFit",
    "SiteShare",
    "Task",
    "ask_total",
    "local_fits",
]

"""Methods of the literature, with their mathematics and their questions, for comparison with the recommended ones."""

from consilience.published.client_steps import Anchors, LocalSteps, Sizes
from consilience.published.critic import CriticSums
from consilience.published.fedgrem import FedGrEM
from consilience.published.gradient_em import GradientEM
from consilience.published.minimax import MinimaxRegression
from consilience.published.moment_descent import DescentFit, FedMomentDescent
from consilience.published.spectral import SquaredResponses

__all__ = [
    "Anchors",
    "CriticSums",
    "DescentFit",
    "FedGrEM",
    "FedMomentDescent",
    "GradientEM",
    "LocalSteps",
    "MinimaxRegression",
    "Sizes",
    "SquaredResponses",
]

"""Fits over many sites: the data, the engine, the result and its record."""

from consilience.federation.federated_fit import FederatedFit, FederatedOrders
from consilience.federation.federation import Federation
from consilience.federation.scores import Scores

__all__ = ["FederatedFit", "FederatedOrders", "Federation", "Scores"]

"""A fit over many sites: the data, the engine that reaches them, the result and its record."""

from consilience.federation.federation import FederatedFit, FederatedOrders, Federation

__all__ = ["FederatedFit", "FederatedOrders", "Federation"]

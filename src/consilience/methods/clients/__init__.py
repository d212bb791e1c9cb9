"""Methods for clustered clients: the latent label belongs to a client."""

from consilience.methods.clients.clustered import ClusteredClients, ClusteredFit
from consilience.methods.clients.moment_descent import DescentFit, FedMomentDescent

__all__ = ["ClusteredClients", "ClusteredFit", "DescentFit", "FedMomentDescent"]

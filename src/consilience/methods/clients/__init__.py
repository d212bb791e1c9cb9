"""Methods for clustered clients: the latent label belongs to a client."""

from consilience.methods.clients.clustered import ClusteredClients, ClusteredFit

__all__ = ["ClusteredClients", "ClusteredFit"]

"""Simulated mixtures with known truth."""

from consilience.datasets.generators import Simulation, paper, soft
from consilience.datasets.simulated_clients import ClientSimulation, clients

__all__ = [
    "ClientSimulation",
    "Simulation",
    "clients",
    "paper",
    "soft",
]

"""Simulated mixtures with known truth."""

from consilience.datasets.generators import ClientSimulation, Simulation, clients, paper, soft

__all__ = ["ClientSimulation", "Simulation", "clients", "paper", "soft"]

"""Run a dialogue over an engine: rounds, the record of exchanged messages, and the journal to resume a run."""

from consilience.runs.consistency import Limits
from consilience.runs.engine import EngineOverSites, Reply, digest
from consilience.runs.journal import Journal
from consilience.runs.record import Exchange, Record, Round
from consilience.runs.run import Run, RunOptions, run

__all__ = [
    "EngineOverSites",
    "Exchange",
    "Journal",
    "Limits",
    "Record",
    "Reply",
    "Round",
    "Run",
    "RunOptions",
    "digest",
    "run",
]

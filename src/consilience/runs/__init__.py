"""Run a dialogue over an engine: rounds, the record of exchanged messages, and the journal to resume a run."""

from consilience.runs.consistency import Limits
from consilience.runs.engine import Engine, Reply
from consilience.runs.journal import Journal
from consilience.runs.record import Exchange, Record, Round
from consilience.runs.run import Run, run

__all__ = ["Engine", "Exchange", "Journal", "Limits", "Record", "Reply", "Round", "Run", "run"]

"""Running a dialogue over an engine: rounds, the record of what was sent, and the journal that resumes a run."""

from consilience.runs.engine import Engine, Reply
from consilience.runs.journal import Journal
from consilience.runs.record import Exchange, Record, Round
from consilience.runs.run import Run, run

__all__ = ["Engine", "Exchange", "Journal", "Record", "Reply", "Round", "Run", "run"]

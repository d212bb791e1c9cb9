"""Rows of tables and files: columns by role, shards, stores, tables, and files of predictions."""

from consilience.data.file_columns import Columns
from consilience.data.shards import Shard

__all__ = ["Columns", "Shard"]

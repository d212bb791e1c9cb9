"""A site: its data, and the function that answers questions about them."""

from consilience.site.answer import answer, respond
from consilience.site.columns import Columns
from consilience.site.shards import Shard
from consilience.site.site import Site

__all__ = ["Columns", "Shard", "Site", "answer", "respond"]

"""A site: its rows, and the function that answers questions about them."""

from consilience.site.answer import answer, respond
from consilience.site.site import Site

__all__ = ["Site", "answer", "respond"]

"""Kernels of a pass: weighted first and second moments of a block of rows.

A compiled implementation of :func:`first_moments` and :func:`second_moments` on a :class:`Workspace` can replace the
numpy kernel.
"""

from consilience.model.kernels.panels import Workspace, block_rows, first_moments, second_moments

__all__ = ["Workspace", "block_rows", "first_moments", "second_moments"]

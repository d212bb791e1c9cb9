"""The inner loop of a pass: weighted first and second moments of a block of rows.

This package is the seam for a compiled pass: whatever implements :func:`first_moments` and
:func:`second_moments` on a :class:`Workspace` can take the place of the numpy kernel.
"""

from consilience.model.kernels.panels import Workspace, block_rows, first_moments, second_moments

__all__ = ["Workspace", "block_rows", "first_moments", "second_moments"]

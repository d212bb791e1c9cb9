"""Kernels of a pass: design panels, softmax and weighted moments of a block of rows, in numpy or compiled by numba."""

from consilience.model.kernels.panels import (
    NUMPY,
    Kernel,
    Products,
    Workspace,
    block_rows,
    first_moments,
    kernel_for,
    second_moments,
)

__all__ = ["NUMPY", "Kernel", "Products", "Workspace", "block_rows", "first_moments", "kernel_for", "second_moments"]

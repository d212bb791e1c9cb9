"""Kernels of a pass: design panels, softmax and weighted moments of a block of rows, in numpy or compiled by numba."""

from consilience.model.kernels.choice import NUMPY, Kernel, kernel_for
from consilience.model.kernels.panels import Products, Workspace, block_rows, first_moments, second_moments

__all__ = ["NUMPY", "Kernel", "Products", "Workspace", "block_rows", "first_moments", "kernel_for", "second_moments"]

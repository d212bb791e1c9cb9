"""Families of experts: one module per distribution of the response."""

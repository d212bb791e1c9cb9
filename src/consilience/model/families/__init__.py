"""Families of experts: one file per distribution of the response."""

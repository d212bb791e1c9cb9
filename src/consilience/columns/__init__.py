"""Columns of a table as values: names, kinds and levels, and their coding as covariates."""

from consilience.columns.dictionary import Column, Dictionary, Level

__all__ = ["Column", "Dictionary", "Level"]

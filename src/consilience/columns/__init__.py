"""Columns of a table as values: names, kinds, levels and rules, and their coding as covariates."""

from consilience.columns.dictionary import Column, Dictionary, Level, Rule

__all__ = ["Column", "Dictionary", "Level", "Rule"]

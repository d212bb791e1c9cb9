"""Robust centres of many sites: alignment, medians, shrinkage."""

"""Combine the models of many sites into one mixture: transport cost, reduction, gates, and diagnostics per site."""

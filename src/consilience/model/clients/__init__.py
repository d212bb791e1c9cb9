"""Rows grouped by client: moments, pairs of rows and local steps of each client."""

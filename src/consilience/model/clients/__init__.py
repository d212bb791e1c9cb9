"""Rows grouped by client: moments, pairs and local steps of each client."""

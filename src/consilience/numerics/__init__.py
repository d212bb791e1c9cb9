"""Stable linear algebra, softmax, clustering and root finding: no statistics, no data structures."""

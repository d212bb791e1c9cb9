"""Numerical routines: linear algebra, softmax, clustering, root finding; no statistics, no data structures."""

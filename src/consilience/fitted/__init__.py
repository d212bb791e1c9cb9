"""Fitted models seen from outside: their protocol, the table of their parameters, and what is said of them."""

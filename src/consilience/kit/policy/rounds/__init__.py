"""Rules for questions in rounds: what was asked before, leverage of rows, and the guard that applies them."""

"""Studies of fits with differential privacy."""

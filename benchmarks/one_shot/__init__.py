"""Studies of one exchange of site models."""

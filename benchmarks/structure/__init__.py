"""Studies of the source tree itself."""

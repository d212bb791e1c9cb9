"""Studies of time and memory."""

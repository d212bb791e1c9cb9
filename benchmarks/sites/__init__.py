"""Studies of sites that differ, and of sites that lie."""

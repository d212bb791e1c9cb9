"""Studies of clients that fall into clusters."""

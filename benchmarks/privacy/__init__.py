"""Studies of the fit itself: EM, Newton steps, starts, intervals."""

"""A site's policy for rounds: what may be asked, and what a row may contribute to all answers together."""

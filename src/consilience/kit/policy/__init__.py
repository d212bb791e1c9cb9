"""The policy of a site: limits, the rules of the one file that leaves it, and fits that keep them."""

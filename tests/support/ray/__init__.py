"""Real Ray clusters of a test's own, and drivers that run on them."""

"""Real Hydra, in an environment of its own."""

"""The launch script and the Hydra configuration."""

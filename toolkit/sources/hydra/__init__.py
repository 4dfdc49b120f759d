"""Hydra's grammar, composition and overrides, without Hydra."""

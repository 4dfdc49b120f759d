"""Attention backends of the rollout and of the trainer."""

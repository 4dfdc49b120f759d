"""Reads source text without running it."""

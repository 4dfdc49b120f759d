"""Logs for tests: built from parts, behind prefixes, and in the shapes that people paste."""

"""Logs for tests: built from parts, behind prefixes, and in forms that people paste."""

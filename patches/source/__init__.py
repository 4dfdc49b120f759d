"""Fixes of Python sources, placed by syntax tree and marked."""

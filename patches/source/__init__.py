"""Fixes of Python sources. Each finds its place in the syntax tree, and marks what it writes."""

"""Parses and analyses source files without running them."""

"""Fixes that change installed packages or their caches."""

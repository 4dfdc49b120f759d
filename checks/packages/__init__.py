"""Installed packages against their requirements, wheels and records."""

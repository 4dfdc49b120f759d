"""Shared test support: machines, environments, servers, and processes."""

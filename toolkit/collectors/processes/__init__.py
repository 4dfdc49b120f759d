"""Processes and raylets on this machine."""

"""Compiled packages: what their libraries need, export and lack."""

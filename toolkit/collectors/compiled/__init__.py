"""Compiled packages: the libraries and symbols they need, export and lack."""

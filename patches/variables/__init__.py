"""Fixes that set variables for the next job."""

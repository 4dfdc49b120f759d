"""Repairs: makes plans from findings, applies one fix at a time, and judges again.

Also the files of `fix --output-env`.
"""

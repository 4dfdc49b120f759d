"""Repairs: plans from findings, applies one fix at a time, judges again; and the files of `fix --output-env`."""

"""Repairing: plan from findings, apply one fix at a time, judge again; and the files of `fix --output-env`."""

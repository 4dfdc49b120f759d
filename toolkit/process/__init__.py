"""The doctor's own process: groups, signals, locks, garbage collection."""

"""The doctor's own process and its children: process groups, signals, locks, garbage collection."""

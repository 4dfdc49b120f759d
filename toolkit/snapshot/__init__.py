"""Snapshot files: the facts of one moment, nodes folded, patches included."""

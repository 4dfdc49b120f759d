"""Patches of a source tree: found by their markers, carried as data, applied to another tree."""

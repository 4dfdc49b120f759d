"""Patches of a source tree: found by their markers, stored as data, applied to another tree."""

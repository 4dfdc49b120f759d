"""The fixes, one per file, grouped by what they change.

A module whose name begins with `_` is shared by the fixes in its folder.
"""

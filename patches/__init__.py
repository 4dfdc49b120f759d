"""The fixes, by what they change, one per file. A module whose name begins with `_` serves the fixes in its folder."""

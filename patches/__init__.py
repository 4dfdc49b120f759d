"""The fixes, by what they change: one file a fix. A module that begins with `_` serves the fixes beside it."""

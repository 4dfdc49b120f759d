"""The rules, by subject, one per file. A module whose name begins with `_` serves the rules in its folder."""

"""The rules, by subject: one file a rule. A module that begins with `_` serves the rules beside it."""

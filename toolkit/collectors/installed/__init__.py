"""The target's interpreter, packages and source trees; listings and results that are remembered."""

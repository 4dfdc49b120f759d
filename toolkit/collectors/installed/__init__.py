"""The target's interpreter, packages and source trees; listings and cached results."""

"""Python sources: parsing, resolving names, following functions, editing."""

"""Shell scripts: parsing, expanding, following."""

"""Data files: presence, format, columns, rows."""

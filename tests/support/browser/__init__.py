"""A real browser for the HTML report."""

"""Reading text without running it."""

"""`undo`: list changes and revert them."""

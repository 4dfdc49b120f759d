"""`undo`: list changes and take them back."""

"""`demo`: check, fix and undo on a miniature environment."""

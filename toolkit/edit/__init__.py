"""Edits launch files line by line, with proof that nothing else changed."""

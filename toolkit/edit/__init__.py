"""Edits launch files line by line, and proves that nothing else changed."""

"""Scripts for the target's interpreter. They import nothing of ours and are handed over as text."""

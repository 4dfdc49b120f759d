"""`snapshot`: save all facts of a working cluster in one file."""

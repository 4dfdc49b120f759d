"""`snapshot`: keep all facts of a cluster that works in one file."""

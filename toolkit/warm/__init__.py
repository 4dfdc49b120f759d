"""Reading files into the page cache: which, in which order, and proof that they are there."""

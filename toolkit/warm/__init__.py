"""Read files into the page cache: which files, in which order, and verification that they are cached."""

"""`sites`: a cluster's own paths, read and written."""

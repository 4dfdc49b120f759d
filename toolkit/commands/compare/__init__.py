"""`compare`: show what differs between two clusters. The comparison itself is `toolkit/comparison`."""

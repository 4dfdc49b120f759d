"""What differs between the nodes of a cluster."""

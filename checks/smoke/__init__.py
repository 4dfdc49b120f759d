"""What the rungs of `smoke` found."""

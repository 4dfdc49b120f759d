"""What rules of several subjects share."""

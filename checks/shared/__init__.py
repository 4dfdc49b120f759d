"""Code shared by rules of several subjects."""

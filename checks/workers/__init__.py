"""verl's worker groups in a running Ray."""

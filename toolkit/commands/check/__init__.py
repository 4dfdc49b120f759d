"""`check`: judge this environment, or facts from elsewhere."""

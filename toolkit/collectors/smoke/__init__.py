"""The results of a smoke test, as a fact."""

"""One module a rung, each with a `climb(stage)` function."""

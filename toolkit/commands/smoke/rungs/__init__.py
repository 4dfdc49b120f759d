"""One module per rung, each with a `climb(stage)` function."""

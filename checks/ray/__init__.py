"""The Ray cluster that the job would join or start."""

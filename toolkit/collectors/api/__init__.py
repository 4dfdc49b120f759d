"""What one source tree uses of another, on which path of a job, and whether it is there."""

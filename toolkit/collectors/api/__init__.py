"""One source tree's uses of another, the job paths that reach them, and whether each name exists."""

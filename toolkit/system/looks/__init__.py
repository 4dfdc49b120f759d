"""What this process accesses in the file system, and whether all of it is unchanged later."""

"""`guard`: stop a job whose environment differs from the agreed one. Starts without loading any rule."""

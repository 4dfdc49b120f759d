"""`guard`: stop a job that would not find what was agreed. It starts without loading any rule."""

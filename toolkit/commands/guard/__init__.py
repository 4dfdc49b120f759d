"""`guard`: stop a job whose environment is not as agreed. Starts without loading any rule."""

"""The uses that one source tree makes of another, the job paths that reach them, and whether each name exists."""

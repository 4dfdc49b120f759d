"""What verl's own code makes of the job before it needs a GPU, built in a child of the target's interpreter."""

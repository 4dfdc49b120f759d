"""What verl's own code builds of a job before it needs a GPU, run in a child of the target's interpreter."""

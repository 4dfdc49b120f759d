"""The parts of a job that verl's own code builds before it needs a GPU, run in a child of the target's interpreter."""
